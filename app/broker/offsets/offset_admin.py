"""Committed offsets as operators see and change them: resets, deletion and named snapshots.

A reset drops what is leased, and tells live members by a new generation. What clients commit is in
`offset_commits`. Event loop only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.broker.context import Context
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_lookup import find_group, refuse_broadcast
from app.broker.groups.groups import Groups
from app.broker.members.members import Members
from app.broker.ports import Group, Topic
from app.broker.read.start_offsets import first_use_ms
from app.broker.results import QueuePosition
from app.broker.topic_lookup import check_current, check_queue, find_topic
from app.domain.consumers import rebalancing
from app.domain.consumers.member_shares import subscribers
from app.domain.consumers.membership import Membership, QueueName
from app.domain.errors import (
    GroupNotFound,
    SnapshotNotFound,
    StateConflict,
    SubscriptionNotFound,
    TopicNotFound,
)
from app.domain.names import check_name
from app.domain.positions import CommittedOffset, OffsetSnapshot, QueueOffset

ResetTarget = Literal["earliest", "latest", "timestamp", "offset", "shift"]


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """Where to. `value` is the time, the offset, or how far to shift."""

    to: ResetTarget
    value: int = 0
    queues: frozenset[int] | None = None
    """None: all of them."""
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One row of the table before and after. `before` is None where nothing was committed."""

    topic: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int
    is_clamped: bool
    """What was asked for lies outside of what is readable; `after` is the nearest that does not."""
    topic_generation: int


@dataclass(frozen=True, slots=True)
class ResetResult:
    """What was done, or would be."""

    changes: Sequence[OffsetChange]
    generation: int
    """Of the members, afterwards."""
    missing_topics: Sequence[str] = ()
    """Of a snapshot: topics, or queues of them, that are there no more."""


class OffsetAdmin:
    """One per broker. Any call may raise `MetadataUnavailable`."""

    def __init__(
        self, context: Context, groups: Groups, members: Members, consumptions: Consumptions
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._groups = groups
        self._offset_cache = groups.offset_cache
        self._members = members
        self._consumptions = consumptions
        self._check_open = context.gate.check

    # --- read

    async def committed(self, group: str, topic: str) -> list[QueuePosition]:
        """The group's committed offsets in the topic, for the queues that have one."""
        find_group(self._metadata, group)
        find_topic(self._metadata, topic)
        return self._groups.offsets.committed(group, topic)

    async def all_committed(self, group: str) -> list[CommittedOffset]:
        """The group's committed offsets in all topics that exist, by topic and queue."""
        find_group(self._metadata, group)
        known = self._metadata.snapshot.topics
        return [
            CommittedOffset(group, topic, queue_id, QueueOffset(offset), known[topic].generation)
            for topic in self._offset_cache.topics(group)
            if topic in known
            for queue_id, offset in sorted(self._offset_cache.committed_here(group, topic).items())
        ]

    # --- reset

    async def reset(
        self,
        group: str,
        names: Sequence[str] | None,
        request: ResetRequest,
        check: Callable[[Iterable[str]], None] = lambda _topics: None,
    ) -> ResetResult:
        """Set the offsets of these topics, or of all topics of the group, backwards or forwards, in
        the queues of this node's shard.

        `check` is given the names of all, and raises what keeps them as they are.
        """
        settings = find_group(self._metadata, group)
        refuse_broadcast(settings)
        if names is None:
            topics = await self._topics_of(group)
        else:
            topics = [find_topic(self._metadata, name) for name in names]
        check(view.name for view in topics)
        changes: list[OffsetChange] = []
        for view in topics:
            changes += await self._plan(group, view, request)
        return await self._carry_out(settings, changes, is_dry_run=request.is_dry_run)

    async def _topics_of(self, group: str) -> list[Topic]:
        """Topics that the group has committed in, or that a member reads."""
        membership = await self._metadata.members.read(group)
        names = {*self._offset_cache.topics(group), *(name.topic for name in membership.queues)}
        known = self._metadata.snapshot.topics
        topics = [known[name] for name in sorted(names) if name in known]
        if not topics:
            raise SubscriptionNotFound(
                f"group {group!r} has no offsets in any topic",
                hint=f"name the topic: POST /v1/groups/{group}/offsets/TOPIC:reset",
            )
        return topics

    async def _plan(self, group: str, topic: Topic, request: ResetRequest) -> list[OffsetChange]:
        for queue_id in sorted(request.queues or ()):
            check_queue(topic, queue_id)
        bounds = [self._store.bounds(topic.name, queue_id) for queue_id in range(topic.queues)]
        before = self._offset_cache.committed(group, topic.name)
        if request.to == "earliest" or request.to == "latest":
            wanted = await self._groups.offsets.offsets_at(topic.name, bounds, request.to)
        elif request.to == "timestamp":
            wanted = await self._groups.offsets.offsets_at(topic.name, bounds, request.value)
        elif request.to == "offset":
            wanted = [request.value] * topic.queues
        else:
            wanted = [
                before.get(queue_id, low) + request.value
                for queue_id, (low, _) in enumerate(bounds)
            ]
        return [
            self._change(topic, queue_id, before.get(queue_id), offset)
            for queue_id, offset in enumerate(wanted)
            if request.queues is None or queue_id in request.queues
            if topic.shard_of(queue_id) is None
        ]

    def _change(self, topic: Topic, queue_id: int, before: int | None, wanted: int) -> OffsetChange:
        low, high = self._store.bounds(topic.name, queue_id)
        after = max(low, min(wanted, high))
        is_clamped = after != wanted
        return OffsetChange(
            topic.name, queue_id, before, after, low, high, is_clamped, topic.generation
        )

    async def _carry_out(
        self,
        group: Group,
        changes: Sequence[OffsetChange],
        *,
        is_dry_run: bool,
        missing: Sequence[str] = (),
    ) -> ResetResult:
        if is_dry_run or not changes:
            membership = await self._metadata.members.read(group.name)
            return ResetResult(changes, membership.generation, missing)
        offsets = [
            CommittedOffset(
                group.name,
                each.topic,
                each.queue_id,
                QueueOffset(each.after),
                each.topic_generation,
                group.generation,
            )
            for each in changes
        ]
        return ResetResult(changes, (await self.overwrite(group, offsets)).generation, missing)

    async def overwrite(self, group: Group, offsets: Sequence[CommittedOffset]) -> Membership:
        """The members' new generation in SQL, then the offsets: in the log, in memory, in SQL.

        The log is the truth, so a failure leaves neither side ahead for good: without the log's
        consent no offset has changed, and with it SQL follows, at the next start at the latest.
        """
        names = {QueueName(row.topic, row.queue_id) for row in offsets}
        surroundings = self._members.surroundings(group)
        made: list[Membership] = []

        async def fence() -> None:
            made.append(
                await self._metadata.members.change(
                    group.name, lambda now: rebalancing.reset(now, names, surroundings)
                )
            )

        async def log() -> None:
            for topic in {row.topic for row in offsets}:
                await self._groups.offsets.until_deleted(group.name, topic)
            for topic, generation in {(row.topic, row.topic_generation) for row in offsets}:
                view = self._metadata.snapshot.topics.get(topic)
                if view is None or view.generation != generation:
                    raise _deleted(topic)
                check_current(self._metadata, view, group)
                self._groups.offsets.bind(group, view)
            await self._groups.begin_again(group.name, offsets)

        known = self._metadata.snapshot.topics
        topics = sorted({row.topic for row in offsets if row.topic in known})
        with self._groups.offsets.room(group, [known[topic] for topic in topics]):
            await self._offset_cache.force(offsets, fence, log)
        self._members.take_note(made[0])
        return made[0]

    async def first_use_ms(self, group: str, topic: str) -> int | None:
        """As `read.start_offsets.first_use_ms`."""
        return await first_use_ms(self._metadata, group, topic)

    async def delete(
        self, group: str, topic: str, first_use_ms: int | None, *, is_dry_run: bool = False
    ) -> list[QueuePosition]:
        """Forget the group's offsets in the topic, and return them. Its first use is forgotten too
        where that was then, and not when it came since. Refused while a member reads it."""
        present = find_group(self._metadata, group)
        view = self._metadata.snapshot.topics.get(topic)

        def check() -> None:
            """What has these names by now may be a successor."""
            if view is not None:
                check_current(self._metadata, view, present)
            elif topic in self._metadata.snapshot.topics:
                raise _deleted(topic)
            elif find_group(self._metadata, group).generation != present.generation:
                raise GroupNotFound(f"consumer group {group!r} was deleted meanwhile")

        membership = await self._metadata.members.read(group)
        readers = subscribers(membership.members, topic)
        if readers:
            raise StateConflict(
                f"members of group {group!r} read topic {topic!r}: {', '.join(readers[:5])}",
                hint="let them leave or subscribe to other topics first",
            )
        offsets = self._groups.offsets.committed(group, topic)
        if not offsets:
            raise SubscriptionNotFound(f"group {group!r} has no offsets in topic {topic!r}")
        if not is_dry_run:
            await self._offset_cache.delete(group, topic, check, first_use_ms)
            await self._groups.unsubscribe(group, topic, check)
            await self._consumptions.forgotten(group, topic)
        return offsets

    # --- snapshots

    async def take_snapshot(
        self, group: str, name: str, *, is_dry_run: bool = False
    ) -> OffsetSnapshot:
        """Keep all committed offsets of the group under a name that is free; those of queues of
        other shards as SQL has them."""
        check_name("snapshot", name)
        refuse_broadcast(find_group(self._metadata, group))
        rows = [*await self.all_committed(group), *await self._elsewhere(group)]
        rows.sort(key=lambda row: (row.topic, row.queue_id))
        return await self._metadata.offset_snapshots.create(
            group, name, rows, is_dry_run=is_dry_run
        )

    async def write_copy(self) -> None:
        """Bring SQL's copy of what is committed here up to date, for a snapshot that another node
        takes."""
        await self._offset_cache.write()

    async def _elsewhere(self, group: str) -> list[CommittedOffset]:
        """The copy of what other nodes have committed, at most some seconds old."""
        topics = self._metadata.snapshot.topics
        return [
            row
            for row in await self._metadata.load_offsets(group)
            if (topic := topics.get(row.topic)) is not None
            and row.topic_generation in (0, topic.generation)
            and row.queue_id < topic.queues
            and topic.shard_of(row.queue_id) is not None
        ]

    async def snapshots(self, group: str) -> list[OffsetSnapshot]:
        """All of the group, by name."""
        find_group(self._metadata, group)
        return await self._metadata.offset_snapshots.load(group)

    async def snapshot(self, group: str, name: str) -> OffsetSnapshot:
        """One of them, or `SnapshotNotFound`."""
        for snapshot in await self.snapshots(group):
            if snapshot.name == name:
                return snapshot
        raise _no_snapshot(group, name)

    async def restore(self, group: str, name: str, *, is_dry_run: bool) -> ResetResult:
        """Go back, or forward, to a snapshot. What is readable no more is clamped and said."""
        settings = find_group(self._metadata, group)
        refuse_broadcast(settings)
        snapshot = await self.snapshot(group, name)
        changes, missing = [], set()
        for row in snapshot.offsets:
            topic = self._metadata.snapshot.topics.get(row.topic)
            is_other = topic is not None and row.topic_generation not in (0, topic.generation)
            if topic is None or is_other or row.queue_id >= topic.queues:
                missing.add(row.topic)
                continue
            if topic.shard_of(row.queue_id) is not None:
                continue  # whose node does it
            before = self._offset_cache.committed(group, row.topic).get(row.queue_id)
            changes.append(self._change(topic, row.queue_id, before, row.offset))
        return await self._carry_out(
            settings, changes, is_dry_run=is_dry_run, missing=sorted(missing)
        )

    async def delete_snapshot(
        self, group: str, name: str, *, is_dry_run: bool = False
    ) -> OffsetSnapshot:
        """Forget it and return it, or raise `SnapshotNotFound`."""
        snapshot = await self.snapshot(group, name)
        if not is_dry_run and not await self._metadata.offset_snapshots.delete(group, name):
            raise _no_snapshot(group, name)  # another was quicker
        return snapshot


def _no_snapshot(group: str, name: str) -> SnapshotNotFound:
    return SnapshotNotFound(
        f"group {group!r} has no snapshot {name!r}", hint=f"see GET /v1/groups/{group}/snapshots"
    )


def _deleted(topic: str) -> TopicNotFound:
    return TopicNotFound(
        f"topic {topic!r} was deleted while the request was under way",
        hint="if it was made again since, ask again",
    )
