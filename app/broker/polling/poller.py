"""Polls: a member's heartbeat, rebalance notice, fetch, commits and hand-backs in one request.

In this order, so that nothing is lost between two steps: retries are settled, messages handed back,
offsets committed; then the member stays, which may let queues go; then messages are read from the
queues that are its own by then, and retries are leased. What it was given of a queue that was taken
away meanwhile is not in the answer. A poll that waits is parked once, for arrivals in all its
queues, for retries and for changes of the group.

No position is kept from one poll to the next: positions come with the request, and with them the
order in which the queues have their turns. Kept, for each group, is what a member last said of
itself, so that the next that says the same is not checked again. Event loop only.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from app.broker.consume.news import CLOSED
from app.broker.consume.receiver import Receiver
from app.broker.consume.settler import Settler
from app.broker.context import Context
from app.broker.failures.failed_deliveries import FailedDeliveries
from app.broker.filters.filters import Filter, parse_filter
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_filters import ALL, GroupFilters
from app.broker.groups.groups import Groups
from app.broker.journal.cold_reads import ColdReads
from app.broker.members.members import Members
from app.broker.polling.hand_backs import HandBacks
from app.broker.polling.poll_commits import PollCommits
from app.broker.polling.poll_intervals import PollIntervals
from app.broker.polling.poll_values import PollRequest, PollResult, QueuePart, Share, Taken
from app.broker.polling.queue_rounds import NO_PERMISSION, NOT_READ, Round, Source, turned
from app.broker.polling.retry_settles import RetrySettles
from app.broker.polling.shares import Shares
from app.broker.ports import Group
from app.broker.read.long_polls import Bell, LongPolls, Watch
from app.broker.read.puller import check_wait
from app.broker.results import Delivery, ReceiveRequest, SettleResult
from app.domain.consumers.membership import Profile, QueueName, TopicSubscription
from app.domain.errors import InvalidRequest, TooManyRequests
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.names import retry_topic
from app.domain.settings import GroupMode

POLL_AGAIN_MS: Final = 1_000
"""What is advised to who does not wait and was given nothing."""


class Poller:
    """Answers polls. One per broker."""

    def __init__(
        self,
        context: Context,
        long_polls: LongPolls,
        groups: Groups,
        members: Members,
        consumptions: Consumptions,
        filters: GroupFilters,
        receiver: Receiver,
        settler: Settler,
        failed_deliveries: FailedDeliveries,
    ) -> None:
        self.shares = Shares(context, groups, members, consumptions, filters)
        self.intervals = PollIntervals(context, members)
        hand_backs = HandBacks(context, groups, failed_deliveries)
        self._commits = PollCommits(context, groups, members, hand_backs)
        self._settles = RetrySettles(settler)
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self._readers = context.readers
        self._check_open = context.gate.check
        self._long_polls = long_polls
        self._filters = filters
        self._groups = groups
        self._members = members
        self._receiver = receiver
        self._agreed: dict[str, tuple[Profile, Profile]] = {}
        """Group → what a member last said of itself, and the same with the group's filters."""

    async def poll(
        self,
        group: str,
        client_id: str,
        request: PollRequest,
        *,
        gone: Callable[[], bool],
        watch: Watch | None = None,
    ) -> PollResult:
        """Answer one poll. `gone` says whether the client has left; `watch` ends a wait then.

        An entry that cannot be done is in `refused`, or in `settled`, with its error, and the rest
        is done. What is settled, handed back and committed is so whatever is raised. Raises
        `StaleGeneration` when the client is no member any more and must join again,
        and what a heartbeat raises.
        """
        self._check_open()
        self.check(request)
        with self.intervals.polling(group, client_id, request.max_interval_ms):
            taken = await self.take(group, client_id, request)
            found = await self.look(group, client_id, request, gone=gone, watch=watch)
        settled, committed, refused = taken
        return replace(found, settled=settled, committed=committed, refused=refused)

    def forget(self, group: str) -> None:
        """It was deleted."""
        self._agreed.pop(group, None)
        self.shares.forget(group)

    async def take(self, group: str, client_id: str, request: PollRequest) -> Taken:
        """Settle, hand back and commit what the poll says, and nothing else. Raises
        `MetadataUnavailable` before anything is done, where another node may have given a queue of
        it away."""
        if not request.joins and not self._commits.are_owned(group, client_id, request):
            await self._members.catch_up(group)  # another node may have given it the queue
        settled: list[SettleResult] = []
        if request.settles is not None:
            settled = await self._settles.settle(group, request.settles)
        committed, refused = await self._commits.take(group, client_id, request)
        return Taken(settled, committed, refused)

    async def look(
        self,
        group: str,
        client_id: str,
        request: PollRequest,
        *,
        gone: Callable[[], bool],
        watch: Watch | None = None,
    ) -> PollResult:
        """Stay a member, and read. Raises as `poll`."""
        request = self._with_filters(group, request)
        share = await self.shares.of(group, client_id, request, is_first=True)
        poll = _Poll(group, client_id, request, share)
        try:
            await self._fill(poll, gone, watch)
        except BaseException:
            self._receiver.give_back(poll.retries)
            raise
        if gone():
            self._pass_on(poll)
        for part in poll.parts:
            if part.status == NOT_READ:  # the member has it since the last look, or its filter went
                part.min_offset, part.max_offset = self._store.bounds(*part.queue)
        return PollResult(
            poll.share,
            turned(poll.parts),
            poll.retries,
            poll_again_ms=poll.again_ms(),
            is_paused=poll.is_paused,
            state=poll.state(),
            has_found=poll.has_found or bool(poll.retries),
        )

    async def news(
        self,
        group: str,
        client_id: str,
        request: PollRequest,
        known: str,
        wait_s: float,
        *,
        gone: Callable[[], bool],
        watch: Watch | None = None,
    ) -> str:
        """The state of the group and of the member's queues here, as soon as it is another one than
        `known`; or `CLOSED`. It is `known` when time is up, or the other node asks no more. Nothing
        is read. Raises as `look`."""
        request = self._with_filters(group, request)
        deadline = asyncio.get_running_loop().time() + wait_s
        is_waiting = True
        while True:
            share = await self.shares.of(group, client_id, request, is_first=False)
            poll = _Poll(group, client_id, request, share)
            self._see(poll)
            for part in poll.parts:
                part.min_offset, part.max_offset = self._store.bounds(*part.queue)
            if self._long_polls.closed:
                return CLOSED
            if poll.state() != known or not is_waiting:
                return poll.state()
            is_waiting = await self._park(poll, deadline, watch) and not gone()

    def _with_filters(self, name: str, request: PollRequest) -> PollRequest:
        """With the group's filters where the member names none. A group that does not exist yet
        has none."""
        group, profile = self._metadata.snapshot.groups.get(name), request.profile
        said, agreed = self._agreed.get(name, (None, profile))
        is_same = said == profile and agreed.principal == profile.principal
        if is_same and group is not None and self._filters.is_used(name, agreed):
            return replace(request, profile=agreed)  # checking it would find the same
        if group is None:
            named = [TopicSubscription(topic, each or ALL) for topic, each in profile.subscriptions]
            agreed = dataclasses.replace(profile, subscriptions=tuple(named))
        else:
            agreed = self._filters.check_profile(
                group, profile, replaces=request.replace_subscription
            )
            self._agreed[name] = profile, agreed
        is_same = agreed is profile or agreed == profile
        return request if is_same else replace(request, profile=agreed)

    def _pass_on(self, poll: "_Poll") -> None:
        """Nobody is there to read the answer: others may have the retries."""
        retries, poll.retries = poll.retries, []
        self._receiver.give_back(retries)
        for topic in poll.request.profile.topics:
            subscription = self._groups.find(poll.group, topic)
            if subscription is not None:
                subscription.line.wake_one()

    def check(self, request: PollRequest) -> None:
        """Raise when it can never succeed, before anything is done."""
        limits = self._limits
        check_wait(request.wait_s, limits)
        if request.max_messages < 0 or request.max_bytes < 1:  # 0: it is only told of its queues
            raise InvalidRequest("max_messages and max_bytes are at least 1")
        for subscription in request.profile.subscriptions:
            parse_filter(subscription.filter)

    async def _fill(self, poll: "_Poll", gone: Callable[[], bool], watch: Watch | None) -> None:
        """Read until there is something to answer, or the time is up."""
        request = poll.request
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_s
        known = poll.known_assignment()
        is_waiting = request.wait_s > 0 and known == poll.share.assignment.assignment_id
        began = self._filters.expressions(poll.group, request.profile.topics)
        while self._holds(poll, began):
            await self._look(poll)
            if not self._holds(poll, began):  # replaced while the disk was waited for
                poll.forget_read()
                break
            if poll.has_found or self._long_polls.closed:
                break
            if not is_waiting:
                break
            if not self._has_news(poll):
                is_waiting = await self._park(poll, deadline, watch)
                if gone():
                    return
            else:
                is_waiting = loop.time() < deadline
                await asyncio.sleep(0)
            await self._stay(poll)
            is_waiting &= poll.share.assignment.assignment_id == known
        if self._has_changed(poll):
            await self._stay(poll)

    def _holds(self, poll: "_Poll", began: Sequence[str | None]) -> bool:
        """Whether the group still reads with the filters of the poll."""
        group, profile = self._metadata.snapshot.groups.get(poll.group), poll.request.profile
        if self._filters.is_used(poll.group, profile):  # with no others can it have begun
            return True
        if group is not None and not self._filters.agrees(group, profile):
            return False
        return self._filters.holds(poll.group, profile.topics, began)

    async def _stay(self, poll: "_Poll") -> None:
        """See what is the member's by now; what is not is left out of the answer."""
        share = await self.shares.of(poll.group, poll.client_id, poll.request, is_first=False)
        poll.follow(share)

    def _has_changed(self, poll: "_Poll") -> bool:
        membership = self._members.last(poll.group)
        return membership is None or membership.changed != poll.seen_changed

    # --- reading

    async def _look(self, poll: "_Poll") -> None:
        """Take what is there now."""
        self._see(poll)
        settings = self._metadata.snapshot.groups.get(poll.group)
        if settings is None or settings.paused:
            for part in poll.parts:
                part.min_offset, part.max_offset = self._store.bounds(*part.queue)
            return
        disk = ColdReads(self._readers)
        request = poll.request
        one = Round(self._store, self._limits, disk, request.max_messages, request.max_bytes)
        if settings.mode is not GroupMode.BROADCAST:
            await self._take_retries(poll, settings, one)
        await one.read(self._sources(poll, settings))
        poll.is_spent = one.is_spent
        poll.has_found = one.has_found or any(part.is_error or part.reads for part in poll.parts)

    def _see(self, poll: "_Poll") -> None:
        """Note how the group is before its queues are read."""
        membership = self._members.last(poll.group)
        poll.seen_changed = -1 if membership is None else membership.changed
        poll.seen_retries = self._retry_ends(poll)
        settings = self._metadata.snapshot.groups.get(poll.group)
        poll.is_paused = settings is not None and settings.paused

    def _sources(self, poll: "_Poll", group: Group) -> list[Source]:
        topics = self._metadata.snapshot.topics
        filters: dict[str, Filter | None] = {}
        for topic, expression in poll.request.profile.subscriptions:
            view = topics.get(topic)
            if view is not None and view.is_readable:
                filters[topic] = parse_filter(expression)
        has_span = group.max_span is not None and group.mode is not GroupMode.BROADCAST
        name, find = group.name, self._groups.consumer_journal.find
        sources: list[Source] = []
        for part in poll.parts:
            topic, queue_id = part.queue
            if topic not in filters:
                part.status = NO_PERMISSION
                part.min_offset, part.max_offset = self._store.bounds(topic, queue_id)
                continue
            state = find((name, topic, queue_id))
            is_done = None
            if state is not None and not state.progress.is_even:
                is_done = state.progress.is_acked
            end = self._span_end(group, part.queue) if has_span else None
            sources.append(Source(part, filters[topic], end, is_done))
        return sources

    def _span_end(self, group: Group, queue: QueueName) -> int:
        """Nothing from here on is given: the group's `max_span`."""
        topic, queue_id = queue
        committed = self._groups.offset_cache.committed(group.name, topic).get(queue_id, 0)
        # What is past its retention is nobody's to commit.
        return max(committed, self._store.bounds(topic, queue_id).min_offset) + (
            group.max_span or 0
        )

    async def _take_retries(self, poll: "_Poll", group: Group, one: Round) -> None:
        """Lease what the group has handed back: a quarter of the answer at most."""
        for topic, (high, _) in zip(poll.request.profile.topics, poll.seen_retries, strict=True):
            if not high or one.is_full:
                continue
            subscription = self._groups.find(group.name, topic)
            view = self._metadata.snapshot.topics.get(topic)
            if view is None or not view.is_readable:
                continue
            if subscription is None:
                key = (group.name, topic, RETRY_QUEUE_ID)
                state = self._groups.consumer_journal.find(key)
                if state is not None and state.progress.committed >= high:
                    continue
                subscription = await self._groups.subscribe(group, view)
            count, size = one.quarter
            request = ReceiveRequest(
                count, size, client_id=poll.client_id, principal=poll.request.principal
            )
            try:
                taken, size = await self._receiver.receive_retries(subscription, group, request)
            except TooManyRequests:  # its principal holds as much as it may
                return
            poll.retries += taken
            one.took(len(taken), size)

    # --- waiting

    def _retry_ends(self, poll: "_Poll") -> list[tuple[int, int]]:
        """Of each topic: where the retries end, and how many came back to their place."""
        found: list[tuple[int, int]] = []
        for topic in poll.request.profile.topics:
            high = self._store.bounds(retry_topic(poll.group, topic), 0).max_offset
            subscription = self._groups.find(poll.group, topic) if high else None
            returned = 0 if subscription is None else subscription.retry.leases.returned_count
            found.append((high, returned))
        return found

    def _has_news(self, poll: "_Poll") -> bool:
        """Whether something has come since the last look, which may have taken several turns."""
        if poll.is_spent or self._has_changed(poll) or poll.seen_retries != self._retry_ends(poll):
            return True
        bounds = self._store.bounds
        return not poll.is_paused and any(
            bounds(*part.queue).max_offset != part.max_offset for part in poll.parts
        )

    async def _park(self, poll: "_Poll", deadline: float, watch: Watch | None) -> bool:
        """Wait for anything, in the turn in which nothing was found; the member's lease is renewed
        meanwhile. False when the time is up."""
        loop = asyncio.get_running_loop()
        left_s = deadline - loop.time()
        if left_s <= 0:
            return False
        group, topics = poll.group, poll.request.profile.topics
        keys: list[tuple[str, int]] = [part.queue for part in poll.parts]
        keys += [(retry_topic(group, topic), 0) for topic in topics]
        found = [self._groups.find(group, topic) for topic in topics]
        lines = [each.line for each in found if each is not None]
        bells: list[Bell] = [*lines, self._members.notifier.bell(group)]
        slice_s = min(left_s, self._members.renew_s)
        is_rung = await self._long_polls.wait_for_any(keys, bells, slice_s, watch)
        return is_rung or loop.time() < deadline


class _Poll:
    """One poll in progress."""

    __slots__ = (
        "client_id",
        "group",
        "has_found",
        "is_paused",
        "is_spent",
        "parts",
        "request",
        "retries",
        "seen_changed",
        "seen_retries",
        "share",
    )

    def __init__(self, group: str, client_id: str, request: PollRequest, share: Share) -> None:
        self.group = group
        self.client_id = client_id
        self.request = request
        self.share = share
        self.retries: list[Delivery] = []
        self.has_found = self.is_paused = self.is_spent = False
        self.seen_changed = -1
        self.seen_retries: list[tuple[int, int]] = []
        self.parts: list[QueuePart] = self._parts({})

    def known_assignment(self) -> str | None:
        """The assignment that the client has put into effect, as far as it says."""
        request, assignment = self.request, self.share.assignment
        if request.assignment_id is not None:
            return request.assignment_id
        return assignment.assignment_id if request.generation == assignment.generation else None

    def _parts(self, kept: dict[QueueName, QueuePart]) -> list[QueuePart]:
        """One for each queue of the member that it has not paused: in the order of its positions,
        then those without one."""
        paused, offsets = self.request.paused, self.share.offsets
        begins = self._valid_positions()
        if begins.keys() != offsets.keys():
            begins = {name: offset for name, offset in begins.items() if name in offsets}
            begins = {**begins, **offsets, **begins}
        if not (paused or kept):
            return [QueuePart(name, offset) for name, offset in begins.items()]
        return [
            kept.get(name) or QueuePart(name, offset)
            for name, offset in begins.items()
            if name not in paused
        ]

    def _valid_positions(self) -> Mapping[QueueName, int]:
        """Those of queues that have not begun anew since the client was told of them. In a
        broadcast group clients keep their place, also over restarts."""
        generation, positions = self.request.generation, self.request.positions
        if generation is None or self.share.mode is GroupMode.BROADCAST:
            return positions
        if generation >= self.share.assignment.generation:
            return positions  # no queue has begun since
        void = {
            QueueName(topic, queue_id)
            for topic, queue_id, since_generation in self.share.assignment.assigned
            if since_generation > generation
        }
        if not void:
            return positions
        return {name: offset for name, offset in positions.items() if name not in void}

    def forget_read(self) -> None:
        """Give nothing of what was read of the queues; each is read again from where it stood."""
        self.parts = self._parts({})
        self.has_found = False

    def follow(self, share: Share) -> None:
        """What is the member's now. A queue that begins anew begins where the group stands."""
        if share.assignment != self.share.assignment:
            before, now = _since(self.share), _since(share)
            kept = {
                part.queue: part
                for part in self.parts
                if now.get(part.queue) == before.get(part.queue)
            }
        else:
            kept = {part.queue: part for part in self.parts}
        effects = (*self.share.effects, *share.effects)
        self.share = replace(share, effects=effects) if effects else share
        self.parts = self._parts(kept)

    def state(self) -> str:
        """Another text whenever there may be something new since the text before. It is ASCII, and
        begins with when the group changed last."""
        if self.is_spent:  # a filter has not looked at all yet
            return f"{self.seen_changed}.more"
        ends = sum([part.max_offset for part in self.parts])
        retries = sum([high + returned for high, returned in self.seen_retries])
        return f"{self.seen_changed}.{ends}.{retries}.{self.is_paused:d}"

    def again_ms(self) -> int:
        """When the client should poll next."""
        if self.is_paused:
            return POLL_AGAIN_MS
        known = self.known_assignment() == self.share.assignment.assignment_id
        if self.has_found or self.retries or not known or self.request.wait_s > 0:
            return 0
        return 0 if any(part.has_more for part in self.parts) else POLL_AGAIN_MS


def _since(share: Share) -> dict[QueueName, int]:
    return {
        QueueName(queue.topic, queue.queue_id): queue.since_generation
        for queue in share.assignment.assigned
    }
