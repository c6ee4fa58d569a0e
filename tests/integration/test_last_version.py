"""A store and a database that the last version wrote are opened and keep all that they held; also
after a kill -9 right behind that.

Controls: `test_the_bytes_are_those_of_the_last_version` looks at what the node that stands for the
last version has written, and that today's node writes otherwise.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import sqlalchemy

from app.cluster import migrate
from app.store import paths
from tests.support.metadata.databases import Databases, SqliteDatabases, sync_engine
from tests.support.nodes.node import RunningNode, start_node
from tests.support.nodes.waiting import wait_until
from tests.support.stores.last_version import QUEUE_FIELDS, REVISION, age_database

LAST: Final = "tests.support.stores.last_version"
TIMEOUT: Final = 60
ORDERS: Final = [f"order {number}" for number in range(6)]
WORK: Final = [f"work {number}" for number in range(8)]
GROUPS: Final[dict[str, dict[str, object]]] = {
    "acks": {"max_attempts": 2, "invisible": "5m"},
    "retries": {"max_attempts": 2, "retry_policy": {"customized": ["4s"]}, "invisible": "5m"},
    "letters": {"max_attempts": 1, "invisible": "5m"},
}
KEY: Final = {"Idempotency-Key": "key"}
JSON = dict[str, Any]


@dataclass
class Client:
    """A node over HTTP, and what it promised in its earlier life."""

    http: httpx.Client
    kept: dict[str, JSON] = field(default_factory=dict)

    def call(self, method: str, path: str, body: object = None) -> JSON:
        answer = self.http.request(method, f"/v1/{path}", json=body)
        assert answer.is_success, (method, path, answer.text)
        document: JSON = answer.json() if answer.content else {}
        return document

    def send(
        self, topic: str, text: str, headers: Mapping[str, str] | None = None, status: int = 201
    ) -> JSON:
        answer = self.http.post(f"/v1/topics/{topic}/messages", content=text, headers=headers)
        assert answer.status_code == status, answer.text
        document: JSON = answer.json()
        return document

    def texts(self, topic: str) -> list[str]:
        page = self.call("GET", f"topics/{topic}/queues/0/messages?offset=0&max_messages=100")
        return [message["text"] for message in page["messages"]]

    def receive(self, group: str, count: int) -> list[JSON]:
        """So many messages of the topic of work."""
        found: list[JSON] = []

        def has_all() -> bool:
            wish = {"max_messages": 32, "wait": 1}
            path = f"topics/tasks/groups/{group}/messages:receive"
            found.extend(self.call("POST", path, wish)["messages"])
            return len(found) >= count

        wait_until(has_all)
        assert len(found) == count
        return found

    def settle(self, group: str, action: str, messages: Sequence[JSON]) -> None:
        handles = [each["receipt_handle"] for each in messages]
        path = f"topics/tasks/groups/{group}/messages:{action}"
        self.call("POST", path, {"receipt_handles": handles})

    def letters(self) -> list[str]:
        found = self.call("GET", "groups/letters/dlq/messages")["messages"]
        return sorted(letter["text"] for letter in found)

    def committed(self) -> int:
        (row,) = self.call("GET", "groups/acks/offsets/orders")["offsets"]
        offset: int = row["offset"]
        return offset

    def commit(self, offset: int) -> None:
        rows = {"offsets": [{"queue_id": 0, "offset": offset}]}
        self.call("PUT", "groups/acks/offsets/orders", rows)


def sequence(seq: int) -> dict[str, str]:
    return {
        "MQ-Producer-Id": "job:0",
        "MQ-Producer-Epoch": "1",
        "MQ-Producer-Seq": str(seq),
    }


@contextmanager
def living(
    directory: Path, url: str, *, module: str = "app.cli", ends: str = "kill"
) -> Iterator[Client]:
    """A node's life, which ends with a kill -9 or a stop in order."""
    node: RunningNode = start_node(
        directory, module=module, environment={"CURLEW_DATABASE_URL": url}
    )
    try:
        with httpx.Client(base_url=node.url, timeout=TIMEOUT, verify=False) as http:
            yield Client(http)
        if ends == "stop":
            assert node.stop() == 0
    finally:
        node.kill()
        assert node.process.stdout is not None
        node.process.stdout.close()


def fill(client: Client) -> None:
    """Everything that a store and a database hold."""
    for topic in ("orders", "tasks", "later", "halves", "once"):
        client.call("PUT", f"topics/{topic}", {"queues": 1})
    for group, settings in GROUPS.items():
        client.call("PUT", f"groups/{group}", settings)
    for text in ORDERS:
        client.send("orders", text, {"MQ-Keys": "k"})
    for text in WORK:
        client.send("tasks", text)
    fill_groups(client)
    client.send("later", "soon", {"MQ-Delay": "4s"})
    client.kept["far"] = client.send("later", "far", {"MQ-Delay": "1h"})
    for name in ("committed", "rolled back", "decided before"):
        half = {"MQ-Transaction": "prepare; group=asked; check-after=600s"}
        client.kept[name] = client.send("halves", name, half, 202)
    decide(client, "decided before", "commit")
    client.kept["keyed"] = client.send("once", "keyed", KEY)
    for seq in range(3):
        client.send("once", f"counted {seq}", sequence(seq))
    client.call("PUT", "groups/pulling/members/a", {"subscriptions": [{"topic": "orders"}]})
    schedule = {"cron": "0 3 * * *", "topic": "orders", "message": {"text": "x"}}
    client.call("PUT", "schedules/nightly", schedule)


def fill_groups(client: Client) -> None:
    taken = client.receive("acks", len(WORK))
    client.settle("acks", "ack", [taken[0], taken[2]])  # the others are leased
    taken = client.receive("retries", len(WORK))
    client.settle("retries", "nack", taken[:1])
    client.settle("retries", "ack", taken[1:])
    taken = client.receive("letters", len(WORK))
    client.settle("letters", "nack", taken[:2])
    client.settle("letters", "ack", taken[2:])
    wait_until(lambda: client.letters() == WORK[:2])
    client.commit(2)
    client.call("PUT", "groups/acks/snapshots/before")
    client.commit(4)


def decide(client: Client, name: str, decision: str) -> None:
    client.call("POST", f"transactions/{client.kept[name]['transaction_id']}:{decision}")


def check_what_was_sent(client: Client, counted: int) -> None:
    """Messages, keys, sequences and settings; `counted` messages have a sequence."""
    assert client.texts("orders") == ORDERS
    found = client.call("GET", "topics/orders/messages?key=k")["messages"]
    assert sorted(message["text"] for message in found) == ORDERS
    again = client.send("once", "keyed", KEY, 200)
    assert again["message_id"] == client.kept["keyed"]["message_id"]
    for seq in range(counted):
        client.send("once", f"counted {seq}", sequence(seq), 200)
    client.send("once", "too far", sequence(counted + 1), 409)
    client.send("once", f"counted {counted}", sequence(counted))
    counting = [f"counted {seq}" for seq in range(counted + 1)]
    assert client.texts("once") == ["keyed", *counting]
    (member,) = client.call("GET", "groups/pulling/members")["members"]
    assert member["client_id"] == "a"
    assert client.call("GET", "schedules/nightly")["topic"] == "orders"


def check_the_groups_work(client: Client) -> None:
    leased = client.receive("acks", 6)
    assert [message["text"] for message in leased] == [WORK[1], *WORK[3:]]
    assert {message["delivery_attempt"] for message in leased} == {2}
    client.settle("acks", "ack", leased)
    (again,) = client.receive("retries", 1)
    assert (again["text"], again["delivery_attempt"]) == (WORK[0], 2)
    client.settle("retries", "ack", [again])
    assert client.letters() == WORK[:2]
    client.call("POST", "groups/letters/dlq/messages:redrive", {"all": True})
    redriven = client.receive("letters", 2)
    assert sorted(message["text"] for message in redriven) == WORK[:2]
    client.settle("letters", "ack", redriven)
    assert client.committed() == 4


def first_life_of_this_version(client: Client) -> None:
    check_what_was_sent(client, 3)
    check_the_groups_work(client)
    wait_until(lambda: client.texts("later") == ["soon"])
    decide(client, "committed", "commit")
    decide(client, "rolled back", "rollback")
    assert client.texts("halves") == ["decided before", "committed"]


def second_life_of_this_version(client: Client) -> None:
    check_what_was_sent(client, 4)
    for group in GROUPS:
        path = f"topics/tasks/groups/{group}/messages:receive"
        assert client.call("POST", path, {"max_messages": 32, "wait": 0})["messages"] == []
    assert client.letters() == []
    assert client.texts("halves") == ["decided before", "committed"]
    assert client.texts("later") == ["soon"]
    handle = client.kept["far"]["recall_handle"]
    client.call("POST", f"topics/later/scheduled/{handle}:deliver")
    wait_until(lambda: client.texts("later") == ["soon", "far"])
    assert client.committed() == 4
    client.call("POST", "groups/acks/snapshots/before:restore", {})
    assert client.committed() == 2


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_a_store_and_a_database_of_the_last_version_keep_what_they_held(
    tmp_path: Path, databases: Databases, ends: str
) -> None:
    directory, url = tmp_path / "data", databases.migrated()
    with living(directory, url, module=LAST, ends=ends) as client:
        fill(client)
    kept = client.kept
    age_database(url)
    migrate(url)
    for life in (first_life_of_this_version, second_life_of_this_version):
        with living(directory, url) as client:
            client.kept = kept
            life(client)


def log_of(directory: Path) -> bytes:
    files = sorted((directory / "store" / paths.COMMIT_LOG).iterdir())
    return b"".join(file.read_bytes() for file in files)


@pytest.mark.parametrize("module", ["app.cli", LAST])
def test_the_bytes_are_those_of_the_last_version(
    tmp_path: Path, sqlite_databases: SqliteDatabases, module: str
) -> None:
    """The marks of today's entries: floors, bound progress, producers' topics, and generations in
    two delayed messages and today also in three halves, one retry and two dead letters."""
    is_today = module != LAST
    url = sqlite_databases.migrated()
    with living(tmp_path / "data", url, module=module, ends="stop") as client:
        fill(client)
    log = log_of(tmp_path / "data")
    for mark in (b"rmq_sys_floors", b"\x95\x09\xa4acks", b'"once#'):
        assert (mark in log) is is_today, mark
    assert log.count(b"MQ_GENERATION\x01") == (8 if is_today else 2)
    checkpoint = json.loads((tmp_path / "data" / "store" / paths.CHECKPOINT).read_bytes()[16:])
    fields = {len(queue) for queue in checkpoint["queues"]}
    assert fields == {QUEUE_FIELDS + is_today}


def test_the_rows_are_those_of_the_last_version(tmp_path: Path, databases: Databases) -> None:
    url = databases.migrated()
    with living(tmp_path / "data", url, module=LAST, ends="stop") as client:
        fill(client)
    age_database(url)
    engine = sync_engine(url)
    with engine.connect() as database:

        def rows(query: str) -> list[tuple[object, ...]]:
            return [tuple(row) for row in database.execute(sqlalchemy.text(query))]

        assert rows("SELECT version_num FROM alembic_version") == [(REVISION,)]
        assert rows("SELECT DISTINCT generation FROM topics") == [(1,)]
        ((offsets,),) = rows("SELECT offsets FROM offset_snapshots")
    engine.dispose()
    assert {len(row) for row in json.loads(str(offsets))} == {3}
