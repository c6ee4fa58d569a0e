"""What a shard takes of new messages, in SQL: an operator has one drained before it is taken away.

A change is made under the metadata version's lock and raises it: nodes that run hear of it by their
beat, within a second or two, and aim what is new elsewhere. Where the messages of a topic go is
`app.domain.shards.takes`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.nodes.beats import clock_ms
from app.cluster.metadata.nodes.cluster_events import Event, Kind, note
from app.cluster.metadata.schema.tables import shards, topic_queues
from app.cluster.metadata.tables import versions
from app.domain.errors import DrainRefused, ShardNotFound
from app.domain.shards.takes import Takes

_KINDS: Final[Mapping[Takes, Kind]] = {
    Takes.ALL: "shard_takes_all",
    Takes.KEYED: "shard_drains",
    Takes.NONE: "shard_keys_moved",
}


class DrainChange(NamedTuple):
    """What a shard takes, and took."""

    before: Takes
    after: Takes
    only_here: tuple[str, ...]
    """Topics, by name, none of whose queues is in a shard that takes all: they go on where they
    are."""


async def _check_others(connection: AsyncConnection, shard: str, others: Sequence[str]) -> None:
    """Raise `DrainRefused` unless one of the others, which take all, is led."""
    if not others:
        raise DrainRefused(
            f"no shard but {shard!r} takes new messages",
            hint="add a shard first, or let another take messages again",
            fields={"shard": shard, "reason": "last_shard"},
        )
    is_led = shards.c.name.in_(others), shards.c.lease_until_ms > clock_ms()
    if not await connection.scalar(select(func.count()).select_from(shards).where(*is_led)):
        raise DrainRefused(
            f"nobody leads a shard that would take the messages of {shard!r}: {', '.join(others)}",
            hint="start a node of one of these shards, and ask again when GET /v1/cluster shows "
            "that it leads; nothing was changed",
            fields={"shard": shard, "reason": "others_away"},
        )


class ShardDrains:
    """Every method raises `MetadataUnavailable`; then nothing was changed, or, when the connection
    broke at the commit, it is unknown: all may be repeated. Event loop only."""

    def __init__(self, database: Database, changed: Callable[[], Awaitable[object]]) -> None:
        """`changed` takes over what the database has."""
        self._database = database
        self._changed = changed

    async def change(
        self, shard: str, takes: Takes, by: str = "", *, is_dry_run: bool = False
    ) -> DrainChange:
        """Have a shard take so much of what is new, as the operator `by` has asked; one whose keys
        have moved takes them again with all alone. Raises `ShardNotFound`, and `DrainRefused` where
        it would take less and no other shard takes all, or none that somebody leads."""
        async with self._database.transaction(is_dry_run=is_dry_run) as connection:
            version = await versions.lock(connection)
            row = shards.c
            found = (await connection.execute(select(row.name, row.takes, row.epoch))).all()
            own = next((each for each in found if each.name == shard), None)
            if own is None:
                names = ", ".join(sorted(each.name for each in found)) or "none"
                raise ShardNotFound(f"there is no shard {shard!r}", hint=f"there are: {names}")
            others = [each.name for each in found if each.takes == Takes.ALL and own is not each]
            before = Takes(own.takes)
            if before is Takes.NONE and takes is Takes.KEYED:
                takes = Takes.NONE  # keys that have moved come back with all, and not by the way
            if takes not in (before, Takes.ALL):
                await _check_others(connection, shard, others)
            queue = topic_queues.c
            here = select(queue.topic).where(queue.shard == shard)
            elsewhere = select(queue.topic).where(queue.shard.in_(others))
            query = here.except_(elsewhere).order_by(queue.topic)
            only_here = tuple((await connection.execute(query)).scalars())
            if before is not takes:
                await connection.execute(
                    update(shards).where(row.name == shard).values(takes=takes.value)
                )
                said = f"asked for by {by}" if by else ""
                await note(connection, Event(_KINDS[takes], shard, "", own.epoch, said))
                await versions.raise_to(connection, version + 1)
        if before is not takes and not is_dry_run:
            await self._changed()
        return DrainChange(before, takes, only_here)
