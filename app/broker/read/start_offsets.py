"""Where reading begins in each queue of a topic: at the first message, the end, or a time."""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Protocol

from app.broker.context import Context
from app.broker.journal.cold_reads import ColdReads, find_offset_at
from app.broker.ports import FirstUses, Group, Snapshot, Store, Topic
from app.domain.consumers.consumption import SubscriptionPair
from app.domain.settings import StartPosition
from app.store import QueueBounds


async def start_offsets(
    store: Store,
    readers: Executor,
    topic: str,
    bounds: Sequence[QueueBounds],
    start: StartPosition,
) -> list[int]:
    """Per queue: the first offset, the end, or the first stored at or after a time in ms."""
    if start == "earliest":
        return [low for low, _ in bounds]
    if start == "latest":
        return [high for _, high in bounds]
    timestamp_ms = start

    def find_all(wait_for_disk: bool) -> list[int]:
        return [
            find_offset_at(
                store, topic, queue_id, queue_bounds, timestamp_ms, wait_for_disk=wait_for_disk
            )
            for queue_id, queue_bounds in enumerate(bounds)
        ]

    return await ColdReads(readers).run(find_all)


class UsesKept(Protocol):
    """The metadata, as far as it says when groups were first used."""

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def first_uses(self) -> FirstUses: ...


async def first_use_ms(metadata: UsesKept, group: str, topic: str) -> int | None:
    """When the group first used the topic, in epoch milliseconds, as far as it is kept: of groups
    that begin at the end, in topics of several shards. None: it did not, or it is not kept. Raises
    `MetadataUnavailable`."""
    snapshot = metadata.snapshot
    view, present = snapshot.topics.get(topic), snapshot.groups.get(group)
    if view is None or present is None or not view.shards:
        return None
    pair = SubscriptionPair(group, topic, present.generation, view.generation)
    return await metadata.first_uses.find(pair)


class GroupStarts:
    """Where groups begin of which nothing is committed. One per broker."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._readers = context.readers
        self._first_uses = context.metadata.first_uses

    async def at(
        self, topic: str, bounds: Sequence[QueueBounds], start: StartPosition
    ) -> list[int]:
        """As `start_offsets`, in the broker's store."""
        return await start_offsets(self._store, self._readers, topic, bounds, start)

    async def of(
        self, group: Group, topic: Topic, bounds: Sequence[QueueBounds], *, is_kept: bool
    ) -> list[int]:
        """Per queue. A group that begins at the end begins in all shards at the time of its first
        use in any, which the metadata keeps with `is_kept`. Raises `MetadataUnavailable`,
        `GroupNotFound` and `TopicNotFound`; nothing of it where all queues are of one shard."""
        start = group.start
        if start == "latest" and topic.shards:
            pair = SubscriptionPair(group.name, topic.name, group.generation, topic.generation)
            if is_kept:
                first = await self._first_uses.note(pair)
                start = start if first.is_this else first.at_ms
            else:
                found = await self._first_uses.find(pair)
                start = start if found is None else found
        return await self.at(topic.name, bounds, start)
