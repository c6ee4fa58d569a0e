"""Which kind of consumption each group is of in each topic: leases, or assigned queues.

The first use sets the kind, the other kind is refused until it is given up: when nobody has
consumed for `Limits.member_lease_ms` and nothing is in flight, or by force. The kind is in the log
(`consumer_journal`) and members are in SQL, so a restart finds both. Event loop only.

Where topics have queues in several shards, each shard enters its kind in SQL before it is of that
kind (`entered_consumptions`), so that all are of one.

Changes of one group take turns (`_turn_of`). Invariants: a subscription with `is_leasing` is there
only while the kind is lease, and only such a one is handed to a receive; while members of a topic
join or commit, no subscription of it is leasing. Leasing is looked up without a lock: whoever gives
it up closes the subscription, and nothing is leased from a closed one.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol
from weakref import WeakValueDictionary

from app.broker.context import Context
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.groups.groups import Groups
from app.broker.journal.append_future import AppendFuture
from app.broker.leasing.subscriptions import Subscription
from app.broker.ports import Group, Topic
from app.broker.progress.entered_consumptions import EnteredConsumptions, Names
from app.broker.topic_lookup import check_current, find_topic
from app.domain.access.audit import ACTOR, Forced, Shown
from app.domain.consumers.consumption import (
    Consumption,
    ConsumptionEffect,
    ConsumptionElsewhere,
    ConsumptionState,
    Unsettled,
    assignments_end,
    conflict,
)
from app.domain.errors import ConsumptionConflict, CurlewError, DiskFull
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.names import retry_topic
from app.domain.settings import GroupMode

_LOG: Final = logging.getLogger(__name__)

LOOKS_PER_TURN: Final = 512
"""Kinds that one turn looks at, some milliseconds of the event loop."""


class Assignments(Protocol):
    """What the kinds need of members."""

    def readers(self, group: str, topic: str) -> list[str]:
        """Client ids of the members that read the topic, sorted, as last seen."""
        ...

    def topics(self, group: str) -> set[str]:
        """Topics that members of the group read."""
        ...

    def joined_ms(self, group: str, topic: str) -> int:
        """When the first of these members joined."""
        ...

    async def end_assignments(self, group: str, topic: str) -> list[str]:
        """Take the topic from all members; return who they were."""
        ...


class Consumptions:
    """One per broker."""

    def __init__(
        self,
        context: Context,
        groups: Groups,
        delays: DelayDelivery,
        assignments: Callable[[], Assignments],
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._limits = context.limits
        self._groups = groups
        self._consumer_journal = groups.consumer_journal
        self._delays = delays
        self._assignments = assignments
        self._forced = context.forced
        self._entered = EnteredConsumptions(context, self._kind_in_log, self._is_at_work)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._used_s: dict[Names, float] = {}
        """When a heartbeat or a commit was last taken."""
        self._tentative: dict[Names, int] = {}
        """Commits that the log has not confirmed, where the first of them has set the kind."""
        self._to_look_at: list[Names] = []
        """By the next turns."""
        self._started_s = context.clock.monotonic_s()
        """Nobody could be heard of before."""

    # --- looking

    def state(self, group: str, topic: str) -> ConsumptionState:
        """The kind now."""
        now_s = self._clock.monotonic_s()
        kind, since_ms = self._consumer_journal.consumption(group, topic) or (None, 0)
        if kind is Consumption.LEASE and self._is_leasing(group, topic, now_s):
            return ConsumptionState(topic, kind, since_ms)
        if kind is None and self._has_come_late(group, topic):
            return ConsumptionState(topic, Consumption.LEASE, None)
        if self._assignments().readers(group, topic):
            if kind is not Consumption.ASSIGNED:
                since_ms = self._assignments().joined_ms(group, topic)
            return ConsumptionState(topic, Consumption.ASSIGNED, since_ms)
        used_s = self._used_s.get((group, topic), self._started_s)
        if kind is Consumption.ASSIGNED and now_s - used_s < self._silence_s:
            return ConsumptionState(topic, kind, since_ms)
        return ConsumptionState(topic, None, None)

    def states(self, groups: Collection[str]) -> dict[str, list[ConsumptionState]]:
        """By group, of all topics that it has begun or that its members read, by name. A broadcast
        group has none."""
        snapshot = self._metadata.snapshot
        found: dict[str, list[ConsumptionState]] = {}
        for group, topics in self._consumer_journal.topics_of(groups).items():
            settings = snapshot.groups.get(group)
            is_shared = settings is None or settings.mode is not GroupMode.BROADCAST
            known = topics | self._assignments().topics(group) if is_shared else set()
            names = sorted(known & snapshot.topics.keys())
            found[group] = [self.state(group, topic) for topic in names]
        return found

    @property
    def _silence_s(self) -> float:
        return self._limits.member_lease_ms / 1_000

    def _is_leasing(self, group: str, topic: str, now_s: float) -> bool:
        """Whether somebody has received lately, or has left something undone."""
        subscription = self._groups.find(group, topic)
        used_s = self._started_s
        if subscription is not None:
            used_s = max(used_s, subscription.last_used_s)
            if not subscription.line.is_empty:
                return True
        return now_s - used_s < self._silence_s or any(self._unsettled(group, topic))

    def _has_come_late(self, group: str, topic: str) -> bool:
        """Whether a receive that had begun before the kind was given up has leased after it.
        Retries are leased to members, too."""
        subscription = self._groups.find(group, topic)
        return subscription is not None and any(
            queue.leases.held_count for queue in subscription.queues
        )

    def _unsettled(self, group: str, topic: str) -> Unsettled:
        subscription = self._groups.find(group, topic)
        leased = 0 if subscription is None else subscription.held_count
        view = self._metadata.snapshot.topics.get(topic)
        queues = (*range(0 if view is None else view.queues), RETRY_QUEUE_ID)
        states = [self._consumer_journal.find((group, topic, queue_id)) for queue_id in queues]
        parked = sum([len(state.parked) for state in states if state is not None])
        return Unsettled(leased, self._retrying(group, topic, subscription), parked)

    def _retrying(self, group: str, topic: str, subscription: Subscription | None) -> int:
        """Copies that wait for their time or to be received; those that are leased left out."""
        name = retry_topic(group, topic)
        low, high = self._store.bounds(name, 0)
        state = self._consumer_journal.find((group, topic, RETRY_QUEUE_ID))
        first = low if state is None else min(max(low, state.progress.committed), high)
        count = high - first
        if state is not None:
            count -= state.progress.acked_from(first)
        if subscription is not None:
            count -= subscription.retry.leases.held_count
        return max(count, 0) + self._delays.retry_count(group, topic)

    def _clients(self, group: str, state: ConsumptionState) -> Sequence[str]:
        if state.consumption is Consumption.ASSIGNED:
            return self._assignments().readers(group, state.topic)
        subscription = self._groups.find(group, state.topic)
        return [] if subscription is None else list(reversed(subscription.clients))

    # --- being of a kind

    async def lease(
        self, group: Group, topic: Topic, *, force: bool = False
    ) -> tuple[Subscription, list[ConsumptionEffect]]:
        """The subscription to lease from; the group leases in this topic from now on.

        Raises `ConsumptionConflict`, unless `force` ends what members have, and `TopicNotFound` or
        `GroupNotFound` when one was deleted since it was looked up.
        """
        name = group.name
        async with self._turn_of(name):
            check_current(self._metadata, topic, group)
            topic = find_topic(self._metadata, topic.name)
            await self._check(name, topic.name, Consumption.LEASE, force=force)
            await self._enter(name, topic.name, Consumption.LEASE, force=force)
            effects: list[ConsumptionEffect] = []
            if force and self._assignments().readers(name, topic.name):
                fenced = await self._assignments().end_assignments(name, topic.name)
                effects += [assignments_end(fenced)] if fenced else []
                self._note(name, topic.name, Consumption.LEASE, effects)
            subscription = await self._groups.subscribe(group, topic)
            written = self._set(name, topic.name, Consumption.LEASE)
            subscription.is_leasing = not subscription.is_closed
            subscription.last_used_s = self._clock.monotonic_s()
            await _wait_for(written)
            return subscription, effects

    @asynccontextmanager
    async def assigning(
        self,
        group: str,
        topics: Sequence[str],
        *,
        force: bool,
        check: Callable[[], Awaitable[object]],
    ) -> AsyncIterator[list[ConsumptionEffect]]:
        """The group reads these topics by offset from now on, if the body succeeds.

        `check` raises what the body would refuse: it is asked before anything is changed for it.
        Gives what was ended. Raises `ConsumptionConflict`, unless `force` ends the leases.
        """
        async with self._turn_of(group):
            for topic in topics:
                await self._check(group, topic, Consumption.ASSIGNED, force=force)
            ending = [topic for topic in topics if self._is_assigned(group, topic) is False]
            effects: list[ConsumptionEffect] = []
            kind = Consumption.ASSIGNED
            if ending or force or any(self._is_to_enter(group, each, kind) for each in topics):
                await check()
            for topic in topics:
                await self._enter(group, topic, kind, force=force)
            for topic in ending:
                ended = self._unsettled(group, topic).effects()
                self._groups.end_leases(group, topic)
                self._give_up(group, topic)
                self._note(group, topic, Consumption.ASSIGNED, ended)
                effects += ended
            yield effects
            now_s = self._clock.monotonic_s()
            self._used_s |= {(group, topic): now_s for topic in topics}
            for written in [self._set(group, topic, Consumption.ASSIGNED) for topic in topics]:
                await _wait_for(written)

    def _note(
        self, group: str, topic: str, now: Consumption, effects: Sequence[ConsumptionEffect]
    ) -> None:
        """Tell the audit what was ended by force."""
        if effects:
            was = Consumption.LEASE if now is Consumption.ASSIGNED else Consumption.ASSIGNED
            before: Shown = {"topic": topic, "consumption": was.value}
            said = [{"code": each.code.value, "count": each.count} for each in effects]
            after: Shown = {"topic": topic, "consumption": now.value, "effects": said}
            self._forced(Forced(ACTOR.get(), f"group:{group}", before, after))

    def depend_on(self, group: str, topic: str, written: AppendFuture) -> None:
        """In the body of `assigning`: the group reads the topic so only if the log takes the commit
        that is on its way. When it refuses all that are, the kind is given up again."""
        names = group, topic
        if self._is_assigned(group, topic) and names not in self._tentative:
            return

        def decide() -> None:
            left = self._tentative.pop(names, 0) - 1
            if left < 0 or not written.has_failed:
                return
            if left > 0:
                self._tentative[names] = left
            elif self._is_assigned(group, topic) and not self._assignments().readers(group, topic):
                self._used_s.pop(names, None)
                self._give_up(group, topic)

        self._tentative[names] = self._tentative.get(names, 0) + 1
        written.then(decide)

    async def preview_assigning(
        self, group: str, topic: str, *, force: bool
    ) -> list[ConsumptionEffect]:
        """What `assigning` would end. Raises as it does; changes nothing."""
        await self._check(group, topic, Consumption.ASSIGNED, force=force)
        if not force:
            found = await self._entered.elsewhere(group, topic, Consumption.ASSIGNED)
            self._refuse(group, topic, found)
        if self._is_assigned(group, topic):
            return []
        return self._unsettled(group, topic).effects()

    def check_assigned(self, group: str, topics: Sequence[str]) -> None:
        """Raise `ConsumptionConflict` when one of the topics is leased by now."""
        for topic in topics:
            if self._is_assigned(group, topic):
                continue  # what is of this kind is not leased
            state = self.state(group, topic)
            if state.consumption is Consumption.LEASE:
                raise self._conflict(group, state)

    async def _check(self, group: str, topic: str, wanted: Consumption, *, force: bool) -> None:
        known = self._consumer_journal.consumption(group, topic)
        if known is not None and known[0] is Consumption.LEASE and wanted is not known[0]:
            await self._delays.catch_up()  # retries that are on their way count
        state = self.state(group, topic)
        if state.consumption not in {None, wanted} and not force:
            raise self._conflict(group, state)

    async def _enter(self, group: str, topic: str, kind: Consumption, *, force: bool) -> None:
        """For all shards. Raises `ConsumptionConflict` when one is of the other kind, unless
        `force` ends that."""
        if force or self._is_to_enter(group, topic, kind):
            self._refuse(group, topic, await self._entered.enter(group, topic, kind, force=force))

    def _is_to_enter(self, group: str, topic: str, kind: Consumption) -> bool:
        """What the log has forgotten meanwhile, SQL has as well."""
        if self._entered.has(group, topic, kind):
            is_so = self._kind_in_log(group, topic) is kind
            return not is_so and self._entered.spans(group, topic)
        return True

    def _refuse(self, group: str, topic: str, found: ConsumptionElsewhere | None) -> None:
        if found is not None:
            state = ConsumptionState(topic, found.consumption, found.since_ms)
            clients = self._clients(group, state)
            raise conflict(group, state, clients, self._limits.member_lease_ms, found.shard)

    def _conflict(self, group: str, state: ConsumptionState) -> ConsumptionConflict:
        return conflict(group, state, self._clients(group, state), self._limits.member_lease_ms)

    def _is_assigned(self, group: str, topic: str) -> bool:
        known = self._consumer_journal.consumption(group, topic)
        return known is not None and known[0] is Consumption.ASSIGNED

    def _set(self, group: str, topic: str, kind: Consumption) -> AppendFuture | None:
        """In this turn in memory. None: it is of this kind already, or the log takes nothing."""
        known = self._consumer_journal.consumption(group, topic)
        if known is not None and known[0] is kind:
            return None
        return self._write(group, topic, kind)

    def _give_up(self, group: str, topic: str) -> None:
        """Not waited for: after a crash it is given up again."""
        if self._consumer_journal.consumption(group, topic) is not None:
            self._write(group, topic, None)
            self._entered.doubt(group, topic)

    async def forgotten(self, group: str, topic: str) -> None:
        """The log has forgotten the kind with the offsets: other shards may be of any."""
        await self._entered.leave(group, topic)

    def _write(self, group: str, topic: str, kind: Consumption | None) -> AppendFuture | None:
        """Nothing is known of what was deleted meanwhile, so nothing is written of it."""
        snapshot = self._metadata.snapshot
        group_now, topic_now = snapshot.groups.get(group), snapshot.topics.get(topic)
        if group_now is None or topic_now is None:
            return None
        return self._consumer_journal.set_consumption(
            group_now, topic_now, kind, self._clock.now_ms()
        )

    def _turn_of(self, group: str) -> asyncio.Lock:
        turn = self._turns.get(group)
        if turn is None:
            turn = self._turns[group] = asyncio.Lock()
        return turn

    # --- giving up

    async def turn(self) -> None:
        """Give up kinds that nobody uses any more, so that a restart does not hold to them. A
        service calls this; a few at a time."""
        await self._share()
        if not self._to_look_at:
            self._to_look_at = self._consumer_journal.consumptions()
            self._used_s = {
                names: used_s
                for names, used_s in self._used_s.items()
                if self._consumer_journal.consumption(*names) is not None
            }
        await self._delays.catch_up()
        looked_at, self._to_look_at = (
            self._to_look_at[:LOOKS_PER_TURN],
            self._to_look_at[LOOKS_PER_TURN:],
        )
        snapshot = self._metadata.snapshot
        for group, topic in looked_at:
            kind = self._kind_in_log(group, topic)
            if kind is not None and not self._entered.has(group, topic, kind):
                self._entered.doubt(group, topic)
            is_there = group in snapshot.groups and topic in snapshot.topics
            if is_there and self.state(group, topic).consumption is not None:
                continue
            subscription = self._groups.find(group, topic)
            if subscription is not None:
                subscription.is_leasing = False
            self._give_up(group, topic)

    async def _share(self) -> None:
        """Let other shards know what is given up here, hear what they have ended by force, and
        enter what was used while SQL did not answer."""
        for group, topic in await self._entered.catch_up():
            if self._entered.is_resting:
                return
            try:
                await self._enter_again(group, topic)
            except CurlewError as error:  # deleted just now
                _LOG.debug("how a group consumes is not entered: %s", error.detail)

    async def _enter_again(self, group: str, topic: str) -> None:
        """Or give it up, where another shard is of the other kind by now."""
        async with self._turn_of(group):
            kind = self._kind_in_log(group, topic)
            if kind is None:
                return
            found = await self._entered.enter(group, topic, kind)
            if found is None:
                return
            _LOG.warning(
                "group %r consumes topic %r by %s in shard %r: here it does so no more by %s",
                *(group, topic, found.consumption.value, found.shard, kind.value),
            )
            self._groups.end_leases(group, topic)
            self._used_s.pop((group, topic), None)
            self._give_up(group, topic)

    def _kind_in_log(self, group: str, topic: str) -> Consumption | None:
        known = self._consumer_journal.consumption(group, topic)
        return None if known is None else known[0]

    def _is_at_work(self, group: str) -> bool:
        turn = self._turns.get(group)
        return turn is not None and turn.locked()


async def _wait_for(written: AppendFuture | None) -> None:
    """A full disk stops no consumer, as with deliveries."""
    if written is not None:
        with contextlib.suppress(DiskFull):
            await written.wait()
