"""Receiving: lease messages to a consumer of a group, wait for some when there are none.

What a receive takes is decided in `lease_fetcher`; here are its bounds, its waiting, and what
happens when its client is gone. One that wants several messages counts until so many are ready and
only then leases; when its wait ends it takes what there is. Event loop only.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from app.broker.consume.lease_fetcher import LOOKS_PER_TURN, Fetch, LeaseFetcher
from app.broker.consume.receive_dedup import ReceiveDedup
from app.broker.consume.releases import Releases
from app.broker.context import Context
from app.broker.filters.filters import parse_filter
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_filters import ALL, GroupFilters
from app.broker.groups.group_lookup import refuse_broadcast
from app.broker.groups.groups import Groups
from app.broker.journal.cold_reads import ColdReads
from app.broker.leasing.holders import HeldByOne, Holder, InFlight, PrincipalLeases
from app.broker.leasing.receipt_cache import ReceiptCache
from app.broker.leasing.subscriptions import Held, Replay, Subscription
from app.broker.ports import Group, Topic
from app.broker.read.long_polls import LongPolls, Watch
from app.broker.read.puller import check_wait
from app.broker.results import Delivery, ReceiveRequest, ReceiveResult, Takes
from app.broker.topic_lookup import readable_topic, unreadable
from app.broker.tracing.message_trace import MessageTrace
from app.domain.consumers.consumption import Consumption, ConsumptionEffect
from app.domain.errors import (
    CurlewError,
    DiskFull,
    IllegalInvisibleTime,
    InvalidRequest,
    TooManyRequests,
)
from app.domain.limits import ATTEMPT_ID_CHARS_MAX, CLIENT_ID_CHARS_MAX, Limits

HOLDERS_MAX: Final = 4_096
"""Clients of a group that are counted before those that hold nothing are dropped."""


class Receiver:
    """Answers receives. One per broker."""

    def __init__(
        self,
        context: Context,
        long_polls: LongPolls,
        groups: Groups,
        consumptions: Consumptions,
        filters: GroupFilters,
        signer: ReceiptCache,
        message_trace: MessageTrace,
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._limits = context.limits
        self._config = context.config
        self._long_polls = long_polls
        self._readers = context.readers
        self._groups = groups
        self._consumptions = consumptions
        self._filters = filters
        self._signer = signer
        self._fetcher = LeaseFetcher(context, signer, groups, message_trace)
        self._receive_dedup = ReceiveDedup(context, signer)
        self._check_open = context.gate.check
        self.releases = Releases(groups, message_trace)
        self._consumer_journal = groups.consumer_journal
        self._of_principals = PrincipalLeases(context.config.leases_per_principal_max)

    async def receive(
        self,
        topic: str,
        group: str,
        request: ReceiveRequest,
        *,
        gone: Callable[[], bool],
        watch: Watch | None = None,
    ) -> ReceiveResult:
        """Lease messages to a consumer. `gone` says whether the client has left; `watch` ends a
        wait when it leaves."""
        self._check_open()
        view = readable_topic(self._metadata, topic)
        self.check(request)
        if request.takes is Takes.EARLIER:
            return await self._earlier(topic, group, request, gone)
        if request.takes is Takes.COUNT:
            return ReceiveResult([], await self._left(view, group, request))
        settings = await self._groups.find_or_create_group(group)
        subscription, effects = await self.begin(settings, view, force=request.force)
        request = self._with_filter(settings, view, request)
        if not self._may_take(subscription, request):
            return ReceiveResult([], self.backlog(subscription), effects=effects)
        result = await self._receive(subscription, settings, request, gone, watch)
        return result._replace(effects=effects) if effects else result

    async def _earlier(
        self, topic: str, group: str, request: ReceiveRequest, gone: Callable[[], bool]
    ) -> ReceiveResult:
        subscription = self._groups.find(group, topic)
        settings = self._metadata.snapshot.groups.get(group)
        if subscription is None or settings is None:
            return ReceiveResult([], 0)
        fetch = Fetch(
            *(subscription, None, ColdReads(self._readers)),
            *(settings.max_attempts, request.client_id),
        )
        await self._replay(fetch, request.attempt_id)
        return self._finish(fetch, None, gone)

    async def _left(self, topic: Topic, name: str, request: ReceiveRequest) -> int:
        """Messages that a receive would find here. With which filter the group reads is noted: one
        that reads with another must not do so here either."""
        group = self._metadata.snapshot.groups.get(name)
        if group is None:
            return 0
        self._with_filter(group, topic, request)
        kind = self._consumer_journal.consumption(name, topic.name)
        is_leasing = kind is not None and kind[0] is Consumption.LEASE
        if is_leasing and self._consumer_journal.is_bound(group, topic):
            subscription, _ = await self.begin(group, topic)
            return self.backlog(subscription)
        starts = await self._groups.offsets.starts(group, topic)
        ends = [self._store.bounds(topic.name, each).max_offset for each in range(topic.queues)]
        return sum(max(0, end - start) for start, end in zip(starts, ends, strict=True))

    def _may_take(self, subscription: Subscription, request: ReceiveRequest) -> bool:
        if request.takes is Takes.ENOUGH:
            return self._has_enough(subscription, request)
        return request.takes is not Takes.NOTHING

    def agree_on_filter(
        self,
        group: Group,
        topic: Topic,
        given: str | None,
        client_id: str | None = None,
        *,
        replaces: bool = False,
    ) -> str:
        """The filter to read with: the group's, which this names when there is none. Raises
        `SubscriptionConflict`."""
        used = self._filters.check(group, topic.name, given, replaces=replaces)
        self._filters.note(group, topic, used, client_id)
        return used

    def _with_filter(self, group: Group, topic: Topic, request: ReceiveRequest) -> ReceiveRequest:
        used = self.agree_on_filter(
            *(group, topic, request.filter, request.client_id),
            replaces=request.replace_subscription,
        )
        if used == ALL or used == request.filter:
            return request
        if request.min_messages > 1:
            raise _no_count_with_filter()
        return replace(request, filter=used)

    async def begin(
        self, group: Group, topic: Topic, *, force: bool = False
    ) -> tuple[Subscription, Sequence[ConsumptionEffect]]:
        """The subscription to lease from, and what `force` has ended for it. Raises
        `BroadcastGroup` or `ConsumptionConflict`."""
        refuse_broadcast(group)
        subscription = self._groups.find(group.name, topic.name)
        if subscription is not None and subscription.is_leasing:
            subscription = await self._groups.subscribe(group, topic)
            if subscription.is_leasing:
                return subscription, ()
        return await self._consumptions.lease(group, topic, force=force)

    async def _receive(
        self,
        subscription: Subscription,
        group: Group,
        request: ReceiveRequest,
        gone: Callable[[], bool],
        watch: Watch | None,
    ) -> ReceiveResult:
        """Answer a request that `check` found good."""
        invisible_ms = request.invisible_ms or group.invisible_ms
        wanted = parse_filter(request.filter)
        disk = ColdReads(self._readers)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_s
        is_waiting = request.wait_s > 0
        turns_left = self._limits.filter_looks_max // LOOKS_PER_TURN
        filtered = group.name, (subscription.topic,)
        began = self._filters.expressions(*filtered)
        holds = partial(self._filters.holds, *filtered, began)
        while not subscription.is_closed and holds():
            fetch = Fetch(subscription, wanted, disk, group.max_attempts, request.client_id, holds)
            if await self._replay(fetch, request.attempt_id):
                return self._finish(fetch, None, gone)
            if is_waiting and not self._has_enough(subscription, request):
                is_waiting = await self._wait(subscription, deadline, watch, _needed(request))
                if gone():
                    break
                continue
            group = self._group_now(subscription, group)
            await self._look(fetch, group, request, invisible_ms, self._fetcher.collect)
            is_over = self._long_polls.closed or (disk.is_used and not is_waiting)
            if fetch.deliveries or is_over:
                return self._finish(fetch, request.attempt_id, gone)
            if fetch.has_spent_budget or disk.is_used:
                disk = ColdReads(self._readers)
                turns_left -= 1
                may_go_on = turns_left > 0 and fetch.scans_left > 0
                if (may_go_on or loop.time() < deadline) and not gone():
                    await asyncio.sleep(0)
                    continue
                is_waiting = False
                subscription.line.ring_count += 1  # who waits elsewhere comes to go on from here
            if not is_waiting:
                result = self._finish(fetch, request.attempt_id, gone)
                return result._replace(is_paused=True) if group.paused else result
            is_waiting = await self._wait(subscription, deadline, watch)
            if gone():
                break
        subscription.line.wake_one()
        return ReceiveResult([], 0)

    def _group_now(self, subscription: Subscription, group: Group) -> Group:
        """The group with its settings of now. Raises `NoPermission` when the topic has ceased to
        give messages since the receive began."""
        snapshot = self._metadata.snapshot
        topic = snapshot.topics.get(subscription.topic)
        if topic is not None and not topic.is_readable:
            raise unreadable(topic)
        return snapshot.groups.get(group.name, group)

    async def receive_retries(
        self, subscription: Subscription, group: Group, request: ReceiveRequest
    ) -> tuple[list[Delivery], int]:
        """Lease what the group has handed back of a topic that members read by offset: the
        deliveries and the bytes of their records. Waits for nothing."""
        disk = ColdReads(self._readers)
        fetch = Fetch(subscription, None, disk, group.max_attempts, request.client_id)
        most = min(request.max_bytes, self._limits.receive_bytes_max)
        await self._look(fetch, group, request, group.invisible_ms, self._fetcher.collect_retries)
        if fetch.deliveries and subscription.retry.leases.returned_count:
            subscription.line.wake_one()
        return fetch.deliveries, most - fetch.bytes_left

    async def _replay(self, fetch: Fetch, attempt_id: str | None) -> bool:
        """Whether this receive was answered before, and its messages are leased still."""
        if attempt_id is None:
            return False
        fetch.deliveries = await self._receive_dedup.replay(
            fetch.subscription, attempt_id, fetch.disk, fetch.attempts_max
        )
        return bool(fetch.deliveries)

    def _has_enough(self, subscription: Subscription, request: ReceiveRequest) -> bool:
        needed = _needed(request)
        if needed == 1:
            return True
        subscription.expire(self._clock.monotonic_s())
        return self.backlog(subscription) >= needed

    async def _wait(
        self, subscription: Subscription, deadline: float, watch: Watch | None, needed: int = 1
    ) -> bool:
        """Park, in the turn in which nothing, or too little, was found. False when time is up or
        the client has left."""
        line = subscription.line
        if needed > 1:
            line.count_ready = partial(self.backlog, subscription)
        left_s = deadline - asyncio.get_running_loop().time()
        return await self._long_polls.wait_in_line(line, left_s, needed, watch)

    async def _look(
        self,
        fetch: Fetch,
        group: Group,
        request: ReceiveRequest,
        invisible_ms: int,
        collect: Callable[[Fetch], Awaitable[None]],
    ) -> None:
        """Take what is there now; nothing when the leases were ended meanwhile."""
        if fetch.subscription.is_closed:
            return
        try:
            self._set_bounds(fetch, group, request, invisible_ms)
        except TooManyRequests:
            fetch.subscription.line.wake_one()  # others may have room
            raise
        if not group.paused:
            try:
                await collect(fetch)
            except BaseException:
                for queue, offset, lease_id in fetch.leased:  # of other queues; nobody got them
                    queue.leases.give_back(offset, lease_id)
                raise
        if fetch.leased:
            await self._write_down(fetch)

    def check(self, request: ReceiveRequest) -> None:
        """Raise when it can never succeed. Before the group is made or subscribed."""
        limits = self._limits
        check_wait(request.wait_s, limits)
        if request.client_id is not None and not 1 <= len(request.client_id) <= CLIENT_ID_CHARS_MAX:
            raise InvalidRequest(f"client_id has 1 to {CLIENT_ID_CHARS_MAX} characters")
        if request.attempt_id is not None and len(request.attempt_id) > ATTEMPT_ID_CHARS_MAX:
            raise InvalidRequest(
                f"attempt_id has {len(request.attempt_id)} characters; at most"
                f" {ATTEMPT_ID_CHARS_MAX} are taken"
            )
        if request.max_messages < 1 or request.max_bytes < 1 or request.min_messages < 1:
            raise InvalidRequest("max_messages, max_bytes and min_messages are at least 1")
        if request.min_messages > 1 and request.filter is not None:
            raise _no_count_with_filter()
        if request.invisible_ms is not None:
            check_invisible(request.invisible_ms, limits)
        parse_filter(request.filter)

    def _set_bounds(
        self, fetch: Fetch, group: Group, request: ReceiveRequest, invisible_ms: int
    ) -> None:
        in_flight = fetch.subscription.in_flight
        limits = self._limits
        now_s = self._clock.monotonic_s()
        fetch.subscription.last_used_s = now_s
        if request.client_id is not None:
            fetch.subscription.note_client(request.client_id)
        fetch.subscription.expire(now_s)
        wanted = min(request.max_messages, limits.receive_messages_max)
        if group.max_in_flight - in_flight.count < wanted:
            self._groups.expire_group(group.name, now_s)
            in_flight.has_refused |= group.max_in_flight - in_flight.count < wanted
        fetch.messages_left = min(wanted, group.max_in_flight - in_flight.count)
        fetch.bytes_left = min(request.max_bytes, limits.receive_bytes_max)
        fetch.span = group.max_span
        owner = self._of_principals.of(request.principal)
        if owner is not None:
            room = self._of_principals.room(owner)
            if room < wanted and owner.reserved:
                owner.short[group.name], in_flight.has_refused_member = in_flight, True
            fetch.messages_left = min(fetch.messages_left, room)
            fetch.holder = _holder_of(in_flight, request.client_id or "", owner)
        if group.max_in_flight_per_member is not None and request.client_id is not None:
            fetch.holder = fetch.holder or _holder_of(in_flight, request.client_id)
            room = group.max_in_flight_per_member - fetch.holder.count
            in_flight.has_refused_member |= room < wanted
            fetch.messages_left = min(fetch.messages_left, room)
        if group.max_in_flight_bytes is not None:
            self._bound_bytes(fetch, group.max_in_flight_bytes, request.client_id)
        fetch.scans_left = limits.pull_scan_units_max
        fetch.looks_left = LOOKS_PER_TURN
        fetch.hold_for(invisible_ms, self._clock)

    def _bound_bytes(self, fetch: Fetch, most: int, client_id: str | None) -> None:
        """While the group holds fewer bytes than it may, it is given more: one message may go over
        the bound, or a large one could never be given."""
        in_flight = fetch.subscription.in_flight
        if fetch.holder is None:
            fetch.holder = _holder_of(in_flight, client_id or "")
        left = most - in_flight.bytes
        in_flight.has_refused |= left < fetch.bytes_left
        fetch.bytes_left = min(fetch.bytes_left, left)

    def _finish(
        self, fetch: Fetch, attempt_id: str | None, gone: Callable[[], bool]
    ) -> ReceiveResult:
        """Answer, or give everything back when nobody is there to read the answer."""
        subscription = fetch.subscription
        backlog = self.backlog(subscription)
        if fetch.deliveries or fetch.disk.is_used:
            if gone():
                self._give_back(subscription, fetch.leased)
                return ReceiveResult([], backlog)
            if backlog:
                subscription.line.wake_one()
        if attempt_id is not None and fetch.leased:
            now_s = self._clock.monotonic_s()
            window_s = now_s + self._config.replay_window_seconds
            replay = Replay(min(window_s, fetch.expires_s), fetch.leased)
            subscription.remember(attempt_id, replay, now_s)
        return ReceiveResult(fetch.deliveries, backlog)

    async def _write_down(self, fetch: Fetch) -> None:
        """Have the log know of these deliveries before anybody sees them: attempts count for ever.

        When the disk of a lone node is full they go out all the same; then a crash would forget
        them. With other replicas a failover would, while the first leases run: it is refused.
        """
        subscription = fetch.subscription
        try:
            written = self._consumer_journal.hand_out(subscription, fetch.leased, fetch.until_ms)
            await written.wait()
        except BaseException as error:
            if isinstance(error, DiskFull) and not self._store.has_gate:
                return
            self._give_back(subscription, fetch.leased)
            raise

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """The client went away before the answer was written: others may have the messages."""
        for delivery in deliveries:
            handle = self._signer.read(delivery.receipt_handle)
            subscription = self._groups.find(handle.group, handle.topic)
            queue = subscription.find(handle.queue_id) if subscription is not None else None
            if subscription is not None and queue is not None:
                self._give_back(subscription, [(queue, handle.queue_offset, handle.lease_id)])

    def _give_back(self, subscription: Subscription, leased: Sequence[Held]) -> None:
        """Return what never reached its consumer; the attempts do not count."""
        returned = [
            (queue, offset, lease_id)
            for queue, offset, lease_id in leased
            if queue.leases.give_back(offset, lease_id)
        ]
        if returned:
            with contextlib.suppress(CurlewError):
                # Not written, the attempts count again after a restart; nothing is lost.
                self.releases.write_down(subscription, returned)

    def backlog(self, subscription: Subscription) -> int:
        """Messages that are ready for the group and that nobody holds."""
        bounds = self._store.bounds
        count = 0
        for queue in subscription.sources:
            end = bounds(queue.stored_topic, queue.stored_queue_id).max_offset
            ahead = end - queue.fetch_offset
            count += queue.leases.returned_count + max(0, ahead)
            if queue.order is not None:
                count += queue.order.waiting_count
        return count


def _no_count_with_filter() -> InvalidRequest:
    return InvalidRequest(
        "min_messages does not go with a filter: how many match is not known beforehand",
        hint="leave out min_messages; a receive is answered with the first that match",
    )


def _needed(request: ReceiveRequest) -> int:
    return min(request.min_messages, request.max_messages)


def _holder_of(in_flight: InFlight, client_id: str, owner: HeldByOne | None = None) -> Holder:
    """The count of one client; those that hold nothing are dropped when they are too many."""
    holder = in_flight.holders.get(client_id)
    if holder is not None and holder.owner is not owner:  # two go by one name
        client_id = f"{client_id}\0{'' if owner is None else owner.name}"
        holder = in_flight.holders.get(client_id)
        holder = holder if holder is not None and holder.owner is owner else None
    if holder is None:
        if len(in_flight.holders) >= HOLDERS_MAX:
            in_flight.holders = {k: v for k, v in in_flight.holders.items() if v.count}
        holder = in_flight.holders[client_id] = Holder(in_flight, owner)
    return holder


def check_invisible(invisible_ms: int, limits: Limits) -> None:
    """Raise `IllegalInvisibleTime` when a lease may not be that long."""
    if not limits.invisible_ms_min <= invisible_ms <= limits.invisible_ms_max:
        raise IllegalInvisibleTime(
            f"an invisible time of {invisible_ms} ms is not possible",
            hint=f"from {limits.invisible_ms_min} to {limits.invisible_ms_max} ms",
            fields={"min_ms": limits.invisible_ms_min, "max_ms": limits.invisible_ms_max},
        )
