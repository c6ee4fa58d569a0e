"""A node that writes what the last version wrote: tests open its store and database with this one.

The last version (revision 0005 of the metadata) counted the generations of topics and knew them in
SQL and in delayed messages only. So this node leaves out floors, and the generations in
checkpoints, progress, producers' entries, half messages, waiting retries and dead letters;
`age_database` takes back what later revisions brought. `tests/integration/test_last_version.py`
looks at the bytes.

    python -m tests.support.stores.last_version ARGUMENTS OF curlew
"""

import sys
from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import column, select, table, update

from app import cli
from app.broker.dedup import deduplicator as producers
from app.broker.delays import delay_delivery as delays
from app.broker.delays.timer_records import waiting_part
from app.broker.failures import failed_deliveries as retrying
from app.broker.leasing.consumer_journal import ConsumerJournal
from app.broker.leasing.subscriptions import Held, Subscription
from app.broker.lifecycle import lifecycle
from app.broker.progress.progress_entries import HandedOut
from app.broker.retries_and_dead_letters import dead_letter
from app.broker.transactions import transactions
from app.cluster.metadata.schema.migration import downgrade
from app.cluster.metadata.tables import settings_table
from app.domain.message import PROPERTY_GENERATION, Message, StoredMessage
from app.domain.names import RETRY_PREFIX
from app.store import Done, StepPart
from app.store.formats.files import state_file
from app.store.lifecycle import checkpoints
from app.store.topics.floor_journal import FloorJournal
from app.store.topics.topic_floors import TopicState
from tests.support.metadata.databases import sync_engine

REVISION: Final = "0005"
QUEUE_FIELDS: Final = 6
"""Of a queue in a checkpoint: topic, id, bounds, sums and where they begin."""


def age_database(url: str) -> None:
    """Make a database one of the last version. No node may have it open."""
    downgrade(url, REVISION)
    engine = sync_engine(url)
    snapshots = table("offset_snapshots", column("name"), column("offsets"))
    with engine.begin() as database:
        for name, text in database.execute(select(snapshots.c.name, snapshots.c.offsets)).all():
            rows = [row[:3] for row in msgspec.json.decode(text)]
            new = {"offsets": msgspec.json.encode(rows).decode()}
            database.execute(update(snapshots).where(snapshots.c.name == name).values(new))
    engine.dispose()


def _first() -> int:
    return 1


def _no_floors(_journal: FloorJournal, _states: Sequence[TopicState], done: Done) -> None:
    done(None)


def _checkpoint(kind: bytes, document: state_file.Checkpoint) -> bytes:
    fields = msgspec.to_builtins(document)
    fields["queues"] = [queue[:QUEUE_FIELDS] for queue in fields["queues"]]
    old = msgspec.defstruct("OldCheckpoint", list(fields))
    return state_file.encode_document(kind, old(**fields))


def _waiting_part(
    message: Message, topic: str, queue_id: int, due_ms: int, identity: str | None
) -> StepPart:
    identity = None if topic.startswith(RETRY_PREFIX) else identity
    return waiting_part(message, topic, queue_id, due_ms, identity)


def _changed(message: Message, **changes: object) -> Message:
    """`replace` of the transactions."""
    system = changes.get("system")
    if isinstance(system, dict):
        system.pop(PROPERTY_GENERATION, None)
    return msgspec.structs.replace(message, **changes)


def _dead_letter(message: StoredMessage, attempts: int, reason: str, _generation: int) -> Message:
    return dead_letter(message, attempts, reason)


def _name_alone(name: str, _generation: int) -> str:
    return name


_handed_out = ConsumerJournal._handed_out


def _without_leases(
    journal: ConsumerJournal,
    subscription: Subscription,
    leased: Sequence[Held],
    by: int,
    _until_ms: int,
) -> HandedOut:
    return _handed_out(journal, subscription, leased, by, 0)


def write_as_the_last_version() -> None:
    """From now on, in this process."""
    for module, name, old in (
        (lifecycle, "new_generation", _first),
        (settings_table, "new_generation", _first),
        (FloorJournal, "_append", _no_floors),
        (ConsumerJournal, "bind", lambda *_: None),
        (ConsumerJournal, "_handed_out", _without_leases),
        (checkpoints, "encode_state", _checkpoint),
        (delays, "waiting_part", _waiting_part),
        (transactions, "replace", _changed),
        (retrying, "dead_letter", _dead_letter),
        (producers, "topic_key", _name_alone),
    ):
        assert hasattr(module, name), f"{module} has no {name} any more"
        setattr(module, name, old)


if __name__ == "__main__":
    write_as_the_last_version()
    sys.exit(cli.main())
