"""Where groups are: commits, resets and named snapshots of committed offsets.

A commit of a member is fenced: SQL checks its generation and ownership and stores the offsets in
one transaction, so that nothing of an older generation is ever applied. A reset drops what is
leased, and tells live members by a new generation. Event loop only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from app.broker.context import Context
from app.broker.groups.consumption import Consumptions
from app.broker.groups.groups import Groups
from app.broker.members.members import Members
from app.broker.ports import Group, Topic
from app.broker.read.start_offsets import first_use_ms
from app.broker.results import Committed, QueuePosition
from app.broker.topic_lookup import check_current, check_here, check_queue, find_topic
from app.domain.consumers import rebalancing
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.consumers.member_shares import subscribers
from app.domain.consumers.membership import Membership, QueueName
from app.domain.errors import (
    BroadcastGroup,
    GroupNotFound,
    SnapshotNotFound,
    StateConflict,
    SubscriptionNotFound,
    TopicNotFound,
)
from app.domain.names import check_group, check_name, did_you_mean, suggest_similar
from app.domain.positions import CommittedOffset, OffsetSnapshot, QueueOffset
from app.domain.settings import GroupMode

ResetTarget = Literal["earliest", "latest", "timestamp", "offset", "shift"]

_BROADCAST_HINT: Final = (
    "pull from the queues that the heartbeat of a member lists, and keep the offsets in the client"
)


class Committer(NamedTuple):
    """The member that commits, and the generation that it has put into effect."""

    client_id: str
    generation: int


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


def refuse_broadcast(group: Group) -> None:
    """Raise `BroadcastGroup` when clients of the group keep their offsets themselves."""
    if group.mode is GroupMode.BROADCAST:
        raise BroadcastGroup(
            f"group {group.name!r} is in broadcast mode: every member reads every message, and the "
            "server keeps no progress for it",
            hint=_BROADCAST_HINT,
        )


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a client that reads by offset asks for."""

    group: Group
    topic: Topic
    rows: Sequence[QueuePosition]
    offsets: Sequence[CommittedOffset]
    committer: Committer | None
    is_reset: bool

    def fence(self, membership: Membership) -> None:
        """Raise when the client may not."""
        names = [QueueName(self.topic.name, queue_id) for queue_id, _ in self.rows]
        if self.committer is not None:
            rebalancing.check_owner(membership, *self.committer, names)
        elif not self.is_reset:
            rebalancing.check_unowned(membership, names)


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
        self.find_group(group)
        find_topic(self._metadata, topic)
        return self._groups.offsets.committed(group, topic)

    async def all_committed(self, group: str) -> list[CommittedOffset]:
        """The group's committed offsets in all topics that exist, by topic and queue."""
        self.find_group(group)
        known = self._metadata.snapshot.topics
        return [
            CommittedOffset(group, topic, queue_id, QueueOffset(offset), known[topic].generation)
            for topic in self._offset_cache.topics(group)
            if topic in known
            for queue_id, offset in sorted(self._offset_cache.committed_here(group, topic).items())
        ]

    # --- commit

    async def commit(
        self,
        group: str,
        topic: str,
        rows: Sequence[QueuePosition],
        *,
        committer: Committer | None = None,
        force: bool = False,
        take_over: bool = False,
    ) -> Committed:
        """What is committed in the topic then, and what the commit has ended."""
        self._check_open()
        effects = await self._commit(
            group, topic, rows, committer=committer, force=force, take_over=take_over
        )
        return Committed(self._groups.offsets.committed(group, topic), effects)

    async def take_over(self, group: str, topic: str, *, is_dry_run: bool = False) -> Committed:
        """The group reads the topic by offset from now on, as by a forced commit of no queue; what
        that has ended. Makes no group."""
        self._check_open()
        view = find_topic(self._metadata, topic)
        settings = self._metadata.snapshot.groups.get(group)
        if settings is None:
            return Committed([], ())
        refuse_broadcast(settings)
        if is_dry_run:
            would = await self._consumptions.preview_assigning(group, topic, force=True)
            return Committed([], would)

        async def check() -> None:
            check_current(self._metadata, view, settings)

        async with self._consumptions.assigning(
            group, (topic,), force=True, check=check
        ) as effects:
            return Committed([], effects)

    async def _commit(
        self,
        group: str,
        topic: str,
        rows: Sequence[QueuePosition],
        *,
        committer: Committer | None,
        force: bool,
        take_over: bool,
    ) -> Sequence[ConsumptionEffect]:
        """Commit forward; with `force` it is a reset, whoever consumes.

        A commit makes the group read the topic by offset; when it leases it, only `take_over` does,
        and what it has ended is returned. Raises `ConsumptionConflict` without it,
        `StaleGeneration` or `QueueNotOwned` when the committer may not, and the latter without a
        committer for queues that a member owns.
        """
        view = find_topic(self._metadata, topic)
        for queue_id, _ in rows:
            check_here(view, queue_id)
        self._groups.offsets.check_commit(view, rows)
        if committer is not None and group not in self._metadata.snapshot.groups:
            self._groups.check_may_make(group)
            rebalancing.check_owner(Membership(group), *committer, ())
        settings = await self._groups.find_or_create_group(group)
        refuse_broadcast(settings)
        offsets = [
            CommittedOffset(
                group,
                topic,
                queue_id,
                QueueOffset(offset),
                view.generation,
                settings.generation,
            )
            for queue_id, offset in rows
        ]
        with self._groups.offsets.room(settings, (view,)):  # until the offsets are there
            if force and not take_over:
                await self._set(settings, offsets)
                return ()
            commit = _Commit(settings, view, rows, offsets, committer, is_reset=force)
            return await self._commit_as_reader(commit, take_over=take_over)

    async def _commit_as_reader(
        self, commit: _Commit, *, take_over: bool
    ) -> Sequence[ConsumptionEffect]:
        group = commit.group.name

        def is_fenced() -> bool:
            return commit.committer is not None or self._members.has_members(group)

        async def check() -> None:
            if is_fenced():
                commit.fence(await self._metadata.members.read(group))
            check_current(self._metadata, commit.topic, commit.group)

        async with self._consumptions.assigning(
            group, (commit.topic.name,), force=take_over, check=check
        ) as effects:
            if commit.is_reset:
                await self._set(commit.group, commit.offsets)
                return effects
            if is_fenced():
                await self._commit_under(group, commit.offsets, commit.fence)
            await self._groups.offsets.until_deleted(group, commit.topic.name)
            written = self._groups.commit(commit.group, commit.topic, commit.rows)
            self._consumptions.depend_on(group, commit.topic.name, written)
        await written.wait()
        return effects

    async def preview_commit(
        self,
        group: str,
        topic: str,
        rows: Sequence[QueuePosition],
        *,
        committer: Committer | None = None,
        force: bool = False,
        take_over: bool = False,
    ) -> Committed:
        """What would be committed in the topic after a commit, and what it would end. Raises as
        `commit`; makes no group and changes nothing."""
        view = find_topic(self._metadata, topic)
        for queue_id, _ in rows:
            check_here(view, queue_id)
        self._groups.offsets.check_commit(view, rows)
        settings = self._metadata.snapshot.groups.get(group)
        if settings is None:
            self._groups.check_may_make(group)
        else:
            refuse_broadcast(settings)
        effects: Sequence[ConsumptionEffect] = ()
        if take_over or not force:
            effects = await self._consumptions.preview_assigning(group, topic, force=take_over)
        if committer is not None or self._members.has_members(group):
            names = [QueueName(topic, queue_id) for queue_id, _ in rows]
            membership = await self._metadata.members.read(group)
            if committer is not None:
                rebalancing.check_owner(membership, *committer, names)
            elif not force:
                rebalancing.check_unowned(membership, names)
        offsets = self._offset_cache.committed_here(group, topic)
        for queue_id, offset in rows:
            offsets[queue_id] = (
                offset
                if force
                else self._groups.offsets.committed_after(group, topic, queue_id, offset)
            )
        after = [QueuePosition(queue_id, offset) for queue_id, offset in sorted(offsets.items())]
        return Committed(after, effects)

    async def _commit_under(
        self,
        group: str,
        offsets: Sequence[CommittedOffset],
        check: Callable[[Membership], None],
    ) -> None:
        def step(membership: Membership) -> Membership:
            check(membership)
            return membership

        await self._offset_cache.commit(
            offsets,
            lambda rows: self._metadata.members.change(group, step, offsets_after=rows),
        )

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
        settings = self.find_group(group)
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
        return ResetResult(changes, (await self._set(group, offsets)).generation, missing)

    async def _set(self, group: Group, offsets: Sequence[CommittedOffset]) -> Membership:
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
        present = self.find_group(group)
        view = self._metadata.snapshot.topics.get(topic)

        def check() -> None:
            """What has these names by now may be a successor."""
            if view is not None:
                check_current(self._metadata, view, present)
            elif topic in self._metadata.snapshot.topics:
                raise _deleted(topic)
            elif self.find_group(group).generation != present.generation:
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
        refuse_broadcast(self.find_group(group))
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
        self.find_group(group)
        return await self._metadata.offset_snapshots.load(group)

    async def snapshot(self, group: str, name: str) -> OffsetSnapshot:
        """One of them, or `SnapshotNotFound`."""
        for snapshot in await self.snapshots(group):
            if snapshot.name == name:
                return snapshot
        raise _no_snapshot(group, name)

    async def restore(self, group: str, name: str, *, is_dry_run: bool) -> ResetResult:
        """Go back, or forward, to a snapshot. What is readable no more is clamped and said."""
        settings = self.find_group(group)
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

    def find_group(self, name: str) -> Group:
        """The group, or `GroupNotFound`."""
        groups = self._metadata.snapshot.groups
        group = groups.get(name)
        if group is not None:
            return group
        check_group(name)
        error = GroupNotFound(
            f"consumer group {name!r} does not exist", hint="a group is made by its first use"
        )
        raise suggest_similar(error, "group", name, groups, did_you_mean)


def _no_snapshot(group: str, name: str) -> SnapshotNotFound:
    return SnapshotNotFound(
        f"group {group!r} has no snapshot {name!r}", hint=f"see GET /v1/groups/{group}/snapshots"
    )


def _deleted(topic: str) -> TopicNotFound:
    return TopicNotFound(
        f"topic {topic!r} was deleted while the request was under way",
        hint="if it was made again since, ask again",
    )
