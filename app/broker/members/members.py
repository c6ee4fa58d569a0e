"""Members of groups in pull mode: heartbeats with long poll, liveness.

The rules are the pure functions of `app.domain.consumers.rebalancing`, applied to the rows in SQL;
here is what needs a clock, waiting and memory. A change made on this node is told to its waiting
members at once, one made on another node with the next turn (`BrokerConfig.member_check_seconds`).
While the database is down no member joins, leaves or expires, and each keeps its queues.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from app.broker.context import Context
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_filters import GroupFilters
from app.broker.groups.groups import Groups
from app.broker.members.liveness import Liveness
from app.broker.members.member_checks import assigned_topics, check_client_id, check_profile
from app.broker.members.member_room import MemberRoom
from app.broker.members.member_values import GroupMembers, Heartbeat, MemberShare, QueueCounts
from app.broker.ports import Group, Topic
from app.broker.row_faults import RowFaults
from app.broker.topic_lookup import find_topic
from app.domain.consumers import rebalancing
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.consumers.member_shares import (
    Surroundings,
    assignment_of,
    conflicts_of,
    strategy_of,
    subscribed_topics,
    subscribers,
)
from app.domain.consumers.membership import (
    Membership,
    Profile,
    QueueLock,
    QueueName,
    Rebalance,
)
from app.domain.errors import (
    CurlewError,
    GroupNotFound,
    MemberNotFound,
    MetadataUnavailable,
    ShuttingDown,
    StateConflict,
)
from app.domain.names import check_group
from app.domain.settings import GroupMode

_LOG: Final = logging.getLogger(__name__)

BLIND_SECONDS_MAX: Final = 5.0
"""Turns further apart than this count as time in which nobody could be heard: the database was
away, or this process was stopped."""

RENEWALS_PER_LEASE: Final = 3
"""How often a waiting long poll renews its member's lease."""


class Members:
    """Reachable as `Broker.members`. Event loop only; any call may raise `MetadataUnavailable`."""

    def __init__(
        self, context: Context, groups: Groups, consumptions: Consumptions, filters: GroupFilters
    ) -> None:
        self.notifier = groups.notifier
        self._metadata = context.metadata
        self._clock = context.clock
        self._limits = context.limits
        self._groups = groups
        self._consumptions = consumptions
        self._filters = filters
        self._beats: Liveness[str, int] = Liveness()
        self._locks: Liveness[QueueName, QueueLock] = Liveness()
        self._last: dict[str, Membership] = {}
        """As last seen; may be older than SQL by a turn."""
        self._room = MemberRoom(self._last, context.limits)
        self._looked_s = context.clock.monotonic_s()
        self._has_missed_writes = False
        """A sign of life could not be written: nobody is silent yet."""
        self.faults = RowFaults("members")
        """Groups whose members cannot be watched."""

    # --- the life of a member

    async def heartbeat(
        self, group: str, client_id: str, beat: Heartbeat, gone: Callable[[], bool]
    ) -> MemberShare:
        """Join, or stay; wait for a change of the member's queues if asked to.

        Raises `StaleGeneration` when the client must drop its queues and join again.
        """
        await self._check(group, client_id, beat)
        settings = await self._find_or_create_group(group, client_id, beat)
        beat = self._with_filters(settings, beat)
        with self._groups.offsets.room(
            settings, self._read_by(beat)
        ):  # until it has begun in those
            return await self._stay(settings, client_id, beat, gone)

    async def _check(self, group: str, client_id: str, beat: Heartbeat) -> None:
        if self.notifier.is_closed:
            raise ShuttingDown(
                "the node is shutting down", hint="ask another node", retry_after_s=1
            )
        check_client_id(client_id)
        check_group(group)
        await self._metadata.refresh()
        check_profile(beat.profile, self._limits)

    def _with_filters(self, settings: Group, beat: Heartbeat) -> Heartbeat:
        replaces = beat.replace_subscription
        profile = self._filters.check_profile(settings, beat.profile, replaces=replaces)
        return replace(beat, profile=profile)

    def _read_by(self, beat: Heartbeat) -> list[Topic]:
        present = self._metadata.snapshot.topics
        return [present[name] for name in beat.profile.topics if name in present]

    def _step(
        self, settings: Group, client_id: str, beat: Heartbeat, membership: Membership
    ) -> Membership:
        self._room.check_group(membership, client_id)
        self._check_new_topics(membership, client_id, beat.profile)
        return rebalancing.heartbeat(
            membership, client_id, beat.profile, beat.generation, self._surroundings(settings)
        )

    async def preview_heartbeat(self, group: str, client_id: str, beat: Heartbeat) -> MemberShare:
        """What `heartbeat` would answer at once. Raises as it does; makes no group, changes nothing
        and waits for nothing."""
        await self._check(group, client_id, beat)
        settings = await self._find_or_create_group(group, client_id, beat, is_dry_run=True)
        beat = self._with_filters(settings, beat)
        effects: list[ConsumptionEffect] = []
        with (
            self._groups.offsets.room(settings, self._read_by(beat)),
            self._room.one(group, client_id),
        ):
            for topic in assigned_topics(settings, beat.profile):
                effects += await self._consumptions.preview_assigning(
                    group, topic, force=beat.force
                )
            membership = self._step(
                settings, client_id, beat, await self._metadata.members.read(group)
            )
        share = await self._share(settings, membership, client_id, self._groups.offsets.starts)
        return replace(share, effects=effects)

    async def share(self, group: str, client_id: str, beat: Heartbeat) -> MemberShare:
        """The share of a member that another node keeps alive. Each topic is shared out here as
        well, with the member's filter, and where the group begins in the queues of this shard is
        decided. Raises `ConsumptionConflict` and `SubscriptionConflict` as `heartbeat` does,
        `GroupNotFound` and `MemberNotFound`."""
        settings = self.find_group(group)
        beat = self._with_filters(settings, beat)
        began = self._filters.expressions(group, beat.profile.topics)
        await self.catch_up(group)
        membership = self._last[group]

        async def check() -> None:
            if client_id not in membership.members:
                raise _no_member(group, client_id)

        topics = assigned_topics(settings, beat.profile)
        async with self._consumptions.assigning(
            group, topics, force=beat.force, check=check
        ) as effects:
            await check()
        self._filters.note_profile(settings, beat.profile, client_id, began)
        share = await self._share(settings, membership, client_id, self._groups.offsets.positions)
        return replace(share, effects=effects)

    async def _stay(
        self,
        settings: Group,
        client_id: str,
        beat: Heartbeat,
        gone: Callable[[], bool],
    ) -> MemberShare:
        group = settings.name
        began = self._filters.expressions(group, beat.profile.topics)

        def step(membership: Membership) -> Membership:
            return self._step(settings, client_id, beat, membership)

        async def check() -> None:
            step(await self._metadata.members.read(group))

        topics = assigned_topics(settings, beat.profile)
        with self._room.one(group, client_id):
            async with self._consumptions.assigning(
                group, topics, force=beat.force, check=check
            ) as effects:
                if self._lets_go(group, client_id):
                    await self._groups.offset_cache.write()  # who takes over begins there
                membership = await self._change(group, step)
        self._filters.note_profile(settings, beat.profile, client_id, began)
        assignment = assignment_of(membership, client_id, self._surroundings(settings))
        known = beat.assignment_id
        if known is None and beat.generation == assignment.generation:
            known = assignment.assignment_id
        if beat.wait_s > 0 and known == assignment.assignment_id:
            membership = await self._wait(settings, client_id, beat, known, topics, gone)
        share = await self._share(settings, membership, client_id, self._groups.offsets.positions)
        return replace(share, effects=effects)

    def _lets_go(self, group: str, client_id: str) -> bool:
        """Whether the member has queues that are to go to others."""
        last = self._last.get(group)
        return last is not None and any(
            state.owner == client_id != state.target for state in last.queues.values()
        )

    async def _find_or_create_group(
        self, group: str, client_id: str, beat: Heartbeat, *, is_dry_run: bool = False
    ) -> Group:
        """A group is made by the first heartbeat that a group without members would take."""
        if group not in self._metadata.snapshot.groups:
            self._groups.check_may_make(group)
            self._check_new_topics(Membership(group), client_id, beat.profile)
            rebalancing.check_heartbeat(Membership(group), client_id, beat.generation)
        if is_dry_run:
            return await self._groups.find_or_preview_group(group)
        return await self._groups.find_or_create_group(group)

    async def _wait(
        self,
        group: Group,
        client_id: str,
        beat: Heartbeat,
        known: str,
        topics: Sequence[str],
        gone: Callable[[], bool],
    ) -> Membership:
        """Until the share differs from the known one or the time is up; the lease is renewed
        meanwhile, and counts from the answer. Raises when one of the topics is leased by now."""
        renew_s = self.renew_s
        loop = asyncio.get_running_loop()
        end_s = loop.time() + beat.wait_s
        while True:
            await self.notifier.wait(group.name, min(max(end_s - loop.time(), 0.0), renew_s))
            if gone():
                return Membership(group.name)
            self._consumptions.check_assigned(group.name, topics)
            membership = await self._change(
                group.name, lambda now: rebalancing.renew(now, client_id, self._clock.now_ms())
            )
            assignment = assignment_of(membership, client_id, self._surroundings(group))
            is_over = loop.time() >= end_s or self.notifier.is_closed
            if is_over or assignment.assignment_id != known:
                return membership

    async def leave(self, group: str, client_id: str, *, is_dry_run: bool = False) -> None:
        """Take the member out at once. Raises `MemberNotFound`."""
        settings = self.find_group(group)

        def step(membership: Membership) -> Membership:
            if client_id not in membership.members:
                raise _no_member(group, client_id)
            return rebalancing.leave(membership, client_id, self._surroundings(settings))

        if not is_dry_run:
            await self._groups.offset_cache.write()  # who takes over begins there
        await self.change_or_try(group, step, is_dry_run=is_dry_run)

    async def describe(self, group: str) -> GroupMembers:
        """All members and their shares."""
        settings = self.find_group(group)
        membership = await self._metadata.members.read(group)
        surroundings = self._surroundings(settings)
        return GroupMembers(
            membership,
            settings.mode,
            strategy_of(membership.members),
            [
                (member, assignment_of(membership, client_id, surroundings))
                for client_id, member in sorted(membership.members.items())
            ],
            conflicts_of(membership, surroundings),
        )

    async def history(self, group: str) -> list[Rebalance]:
        """The newest rebalances, newest first."""
        self.find_group(group)
        return await self._metadata.members.history(group)

    # --- for queue locks

    def find_group(self, name: str) -> Group:
        """The group, or `GroupNotFound`."""
        group = self._metadata.snapshot.groups.get(name)
        if group is None:
            check_group(name)
            raise GroupNotFound(
                f"consumer group {name!r} does not exist", hint="a group is made by its first use"
            )
        return group

    async def change_or_try(
        self, group: str, step: Callable[[Membership], Membership], *, is_dry_run: bool
    ) -> None:
        """Take a step in SQL, or only see whether it would be taken. Raises what the step does."""
        if is_dry_run:
            step(await self._metadata.members.read(group))
        else:
            await self._change(group, step)

    def ended_locks(self, group: str) -> set[tuple[QueueName, QueueLock]]:
        """Locks whose holder has not renewed them in time."""
        lock_s, now_s = self._limits.queue_lock_ms / 1_000, self._clock.monotonic_s()
        return set(self._locks.silent(group, lock_s, now_s).items())

    # --- for polls

    @property
    def renew_s(self) -> float:
        """How often a member that waits gives a sign of life in SQL."""
        return self._limits.member_lease_ms / 1_000 / RENEWALS_PER_LEASE

    def last(self, group: str) -> Membership | None:
        """As last seen: all changes of this node, others' since the last turn."""
        return self._last.get(group)

    def filters_of(self, group: str, client_id: str) -> dict[str, str]:
        """Topic → filter of a member, as it was taken; nothing for who is none."""
        last = self._last.get(group)
        member = None if last is None else last.members.get(client_id)
        return {} if member is None else dict(member.profile.subscriptions)

    def is_member(self, group: str, client_id: str) -> bool:
        last = self._last.get(group)
        return last is not None and client_id in last.members

    def is_fresh(self, group: str, client_id: str) -> bool:
        """Whether the member needs no new sign of life yet."""
        return self._beats.age_s(group, client_id, self._clock.monotonic_s()) < self.renew_s

    async def catch_up(self, group: str, changed: int | None = None) -> None:
        """Know of the change of this number, or of the newest. Raises `MetadataUnavailable`."""
        last = self._last.get(group)
        if changed is None or last is None or last.changed < changed:
            self._observe(await self._metadata.members.read(group))

    async def renew(self, group: str, client_id: str) -> None:
        """A sign of life. Raises `StaleGeneration` when it is no member any more."""
        await self._change(
            group, lambda now: rebalancing.renew(now, client_id, self._clock.now_ms())
        )

    async def expel(self, group: str, client_id: str) -> None:
        """Take out a member that is alive and does not do what it promised."""
        settings = self._metadata.snapshot.groups.get(group)
        if settings is None or not self.is_member(group, client_id):
            return
        beat = self._last[group].members[client_id].beat
        surroundings = self._surroundings(settings)
        await self._groups.offset_cache.write()
        await self._change(
            group, lambda now: rebalancing.expire(now, {client_id: beat}, surroundings)
        )

    # --- for commits and resets

    def readers(self, group: str, topic: str) -> list[str]:
        """Client ids of the members that read the topic, sorted, as last seen."""
        last = self._last.get(group)
        return [] if last is None else subscribers(last.members, topic)

    def topics(self, group: str) -> set[str]:
        """Topics that members of the group read, as last seen."""
        last = self._last.get(group)
        return set() if last is None else set(subscribed_topics(last.members))

    def joined_ms(self, group: str, topic: str) -> int:
        """When the first of the readers joined; there is one."""
        members = self._last[group].members
        return min(members[client_id].joined_ms for client_id in self.readers(group, topic))

    async def end_assignments(self, group: str, topic: str) -> list[str]:
        """Take the topic from all members, who find themselves fenced; return who they were."""
        surroundings = self._surroundings(self.find_group(group))
        fenced: list[str] = []

        def step(membership: Membership) -> Membership:
            fenced[:] = subscribers(membership.members, topic)
            return rebalancing.end_assignments(membership, topic, surroundings)

        await self._change(group, step)
        return fenced

    def has_members(self, group: str) -> bool:
        """As far as this node knows; another node's newest is seen with the next turn."""
        last = self._last.get(group)
        return last is not None and bool(last.members)

    async def check_mode(self, group: str, mode: GroupMode) -> None:
        """Raise `StateConflict` when the mode of a group with members would change: in broadcast
        mode they read the same queues, in clustering mode none two."""
        present = self._metadata.snapshot.groups.get(group)
        if present is None or present.mode is mode:
            return
        membership = await self._metadata.members.read(group)
        if membership.members:
            raise StateConflict(
                f"group {group!r} has {len(membership.members)} members; its mode cannot change",
                hint="let them leave first: DELETE /v1/groups/GROUP/members/CLIENT",
                fields={"mode": present.mode.value},
                pointer="/mode",
            )

    def surroundings(self, group: Group) -> Surroundings:
        """What steps on the group need to know."""
        return self._surroundings(group)

    def take_note(self, membership: Membership) -> None:
        """A change was made by somebody else on this node."""
        self._observe(membership)

    # --- the turn

    async def load(self) -> None:
        """See who is a member, before anybody is answered. Raises `MetadataUnavailable`."""
        for pulse in await self._metadata.members.pulses():
            self._observe(await self._metadata.members.read(pulse.group))

    async def turn(self) -> None:
        """Look for changes of other nodes and for silence. A service calls this."""
        try:
            await self._look()
        except CurlewError as error:
            self._has_missed_writes = True
            _LOG.warning("members cannot be watched: %s", error.detail)

    async def _look(self) -> None:
        pulses = await self._metadata.members.pulses()
        now_s = self._clock.monotonic_s()
        if self._has_missed_writes or now_s - self._looked_s > BLIND_SECONDS_MAX:
            self._beats.restart(now_s)
            self._locks.restart(now_s)
            self._has_missed_writes = False
        self._looked_s = now_s
        for pulse in pulses:
            last = self._last.get(pulse.group)
            if last is None or last.counter != pulse.counter:
                with self.faults.guard(pulse.group, passing=CurlewError):
                    self._observe(await self._metadata.members.read(pulse.group))
        for group in {*self._beats.groups, *self._locks.groups}:
            with self.faults.guard(group, passing=CurlewError):
                await self._end_leases(group, now_s)

    async def _end_leases(self, group: str, now_s: float) -> None:
        silent = self._beats.silent(group, self._limits.member_lease_ms / 1_000, now_s)
        ended = self.ended_locks(group)
        await self._step_if_needed(
            group,
            lambda now, around: rebalancing.follow(
                rebalancing.expire(rebalancing.drop_locks(now, ended), silent, around), around
            ),
        )

    async def follow_topics(self) -> None:
        """Topics were made, changed or deleted: allocate anew where that matters, now and not with
        the next turn."""
        try:
            for group in self._beats.groups:
                await self._step_if_needed(group, rebalancing.follow)
        except CurlewError as error:
            _LOG.warning("members are told of changed topics later: %s", error.detail)

    async def _step_if_needed(
        self, group: str, step: Callable[[Membership, Surroundings], Membership]
    ) -> None:
        """Run the step in SQL if it changes what was last seen."""
        settings, last = self._metadata.snapshot.groups.get(group), self._last.get(group)
        if settings is None or last is None:
            self.forget(group)
            return
        surroundings = self._surroundings(settings)
        if step(last, surroundings) is last:
            return
        try:
            await self._change(group, lambda now: step(now, surroundings))
        except GroupNotFound:
            self.forget(group)

    def forget(self, group: str) -> None:
        """The group was deleted, with its members."""
        self._beats.observe(group, {}, 0.0)
        self._locks.observe(group, {}, 0.0)
        self._room.note(self._last.pop(group, None), None)
        self.notifier.ring(group)

    # --- inside

    async def _change(self, group: str, step: Callable[[Membership], Membership]) -> Membership:
        try:
            membership = await self._metadata.members.change(group, step)
        except MetadataUnavailable:
            self._has_missed_writes = True
            raise
        self._observe(membership)
        return membership

    def _observe(self, membership: Membership) -> None:
        group, now_s = membership.group, self._clock.monotonic_s()
        last = self._last.get(group)
        if last is not None and membership.counter < last.counter:
            return  # read before a newer change of this node
        self._room.note(last, membership)
        self._last[group] = replace(membership, new_history=())
        beats = {k: member.beat for k, member in membership.members.items()}
        self._beats.observe(group, beats, now_s)
        locks = {k: queue.lock for k, queue in membership.queues.items() if queue.lock}
        self._locks.observe(group, locks, now_s)
        if last is None or membership.changed != last.changed:
            self.notifier.ring(group)

    async def _share(
        self,
        group: Group,
        membership: Membership,
        client_id: str,
        positions: Callable[[Group, Topic], Awaitable[list[int]]],
    ) -> MemberShare:
        surroundings = self._surroundings(group)
        assignment = assignment_of(membership, client_id, surroundings)
        topics = sorted({queue.topic for queue in assignment.assigned})
        offsets: dict[QueueName, int] = {}
        for name in topics:
            topic = self._metadata.snapshot.topics.get(name)
            if topic is not None:
                starts = await positions(group, topic)
                offsets |= {QueueName(name, queue): start for queue, start in enumerate(starts)}
        return MemberShare(
            assignment,
            offsets,
            group.mode,
            strategy_of(membership.members),
            tuple(sorted(membership.members)),
            conflicts_of(membership, surroundings),
        )

    def _surroundings(self, group: Group) -> Surroundings:
        return Surroundings(
            QueueCounts(self._metadata.snapshot.topics),
            group.mode is GroupMode.BROADCAST,
            self._clock.now_ms(),
        )

    def _check_new_topics(self, membership: Membership, client_id: str, profile: Profile) -> None:
        """A topic that somebody begins to read must exist; one that was deleted is reported."""
        present = membership.members.get(client_id)
        for topic in profile.topics:
            if present is None or topic not in present.profile.topics:
                find_topic(self._metadata, topic)


def _no_member(group: str, client_id: str) -> MemberNotFound:
    return MemberNotFound(
        f"group {group!r} has no member {client_id!r}",
        hint="it may have left, or been silent for too long",
    )
