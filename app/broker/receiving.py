"""Receiving: lease messages to a consumer of a group, wait for some when there are none.

Fair over queues: each receive begins one queue further. In a queue, messages that came back (an
expired lease, a nack) go first, in offset order, then new ones. A filter leaves out new messages
for the whole group: what does not match counts as done, as in RocketMQ, where a group has one
subscription. A message that comes back is delivered again whatever the filter says by then, also as
in RocketMQ (its retry topics are not filtered).

Nothing is leased twice: between looking at a queue and granting there is no await, but for a cold
read, during which the queue is marked and others pass it by. Event loop only.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from app.broker.config import BrokerConfig
from app.broker.filtered_reading import first_records, read_matching
from app.broker.filters import Filter, parse_filter
from app.broker.groups import Groups
from app.broker.leases import Lease
from app.broker.offset_book import OffsetBook
from app.broker.ports import Group, Store
from app.broker.progress_journal import ProgressJournal
from app.broker.pulling import check_wait
from app.broker.reading import DiskAccess
from app.broker.results import Delivery, ReceiveRequest, ReceiveResult
from app.broker.subscriptions import (
    Held,
    LeasedQueue,
    LeaseIds,
    Replay,
    Subscription,
    live_leases,
)
from app.broker.waiters import Waiters
from app.domain.clock import Clock
from app.domain.errors import CurlewError, DiskFull, IllegalInvisibleTime, InvalidRequest
from app.domain.limits import Limits
from app.domain.receipt import ReceiptSigner
from app.store import ColdRead, ReadResult

_LOOKS_PER_TURN: Final = 4
"""Looks of a filter before others get their turn of the event loop."""


class _Take:
    """One look at a subscription: what may still be taken, and what was."""

    __slots__ = (
        "attempts_max",
        "bytes_left",
        "deliveries",
        "disk",
        "expires_ms",
        "expires_s",
        "leased",
        "looks_left",
        "messages_left",
        "scans_left",
        "subscription",
        "until_ms",
        "wanted",
    )

    def __init__(
        self,
        subscription: Subscription,
        wanted: Filter | None,
        disk: DiskAccess,
        attempts_max: int,
    ) -> None:
        self.subscription = subscription
        self.wanted = wanted
        self.disk = disk
        self.attempts_max = attempts_max
        self.messages_left = 0
        self.bytes_left = 0
        self.scans_left = 0
        self.looks_left = 0
        self.expires_s = 0.0
        self.expires_ms = 0
        self.until_ms = 0
        self.deliveries: list[Delivery] = []
        self.leased: list[Held] = []

    def hold_for(self, invisible_ms: int, clock: Clock) -> None:
        """Leases granted from here on end `invisible_ms` after now."""
        self.expires_s = clock.monotonic_s() + invisible_ms / 1000
        self.expires_ms = int(self.expires_s * 1000)
        self.until_ms = clock.now_ms() + invisible_ms

    @property
    def is_full(self) -> bool:
        return self.messages_left <= 0 or self.bytes_left <= 0

    @property
    def is_tired(self) -> bool:
        """Looked through enough for one turn of the event loop without finding a match."""
        return self.scans_left <= 0 or self.looks_left <= 0


class Receiver:
    """Answers receives. One per broker."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        limits: Limits,
        config: BrokerConfig,
        *,
        waiters: Waiters,
        readers: Executor,
        signer: ReceiptSigner,
        lease_ids: LeaseIds,
        book: OffsetBook,
        groups: Groups,
        progress: ProgressJournal,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._config = config
        self._waiters = waiters
        self._readers = readers
        self._signer = signer
        self._lease_ids = lease_ids
        self._book = book
        self._groups = groups
        self._progress = progress

    async def receive(
        self,
        subscription: Subscription,
        group: Group,
        request: ReceiveRequest,
        gone: Callable[[], bool],
    ) -> ReceiveResult:
        invisible_ms = self._check_request(request, group)
        wanted = parse_filter(request.filter)
        disk = DiskAccess(self._readers)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_s
        is_waiting = request.wait_s > 0
        turns_left = self._limits.filter_looks_max // _LOOKS_PER_TURN
        while not subscription.is_closed:
            take = _Take(subscription, wanted, disk, group.max_attempts)
            if request.attempt_id is not None and await self._replay(take, request.attempt_id):
                return self._finish(take, None, gone)
            self._set_bounds(take, group, request, invisible_ms)
            await self._collect(take)
            if take.leased:
                await self._write_down(take)
            if take.deliveries or disk.is_used or self._waiters.closed:
                return self._finish(take, request.attempt_id, gone)
            if take.is_tired:
                turns_left -= 1
                may_go_on = turns_left > 0 and take.scans_left > 0
                if (may_go_on or loop.time() < deadline) and not gone():
                    await asyncio.sleep(0)
                    continue
                is_waiting = False
            if not is_waiting:
                return self._finish(take, request.attempt_id, gone)
            is_waiting = await self._waiters.wait_in_line(subscription.line, deadline - loop.time())
            if gone():
                subscription.line.wake_one()
                break
        return ReceiveResult([], 0)

    def _check_request(self, request: ReceiveRequest, group: Group) -> int:
        """Return the invisible time to use."""
        limits = self._limits
        check_wait(request.wait_s, limits)
        if request.max_messages < 1 or request.max_bytes < 1:
            raise InvalidRequest("max_messages and max_bytes are at least 1")
        if request.invisible_ms is None:
            return group.invisible_ms
        check_invisible(request.invisible_ms, limits)
        return request.invisible_ms

    def _set_bounds(
        self, take: _Take, group: Group, request: ReceiveRequest, invisible_ms: int
    ) -> None:
        in_flight = take.subscription.in_flight
        limits = self._limits
        now_s = self._clock.monotonic_s()
        take.subscription.expire(now_s)
        wanted = min(request.max_messages, limits.receive_messages_max)
        if group.max_in_flight - in_flight.count < wanted:
            self._groups.expire_group(group.name, now_s)
            in_flight.has_refused |= group.max_in_flight - in_flight.count < wanted
        take.messages_left = min(wanted, group.max_in_flight - in_flight.count)
        take.bytes_left = min(request.max_bytes, limits.receive_bytes_max)
        take.scans_left = limits.pull_scan_units_max
        take.looks_left = _LOOKS_PER_TURN
        take.hold_for(invisible_ms, self._clock)

    def _finish(
        self, take: _Take, attempt_id: str | None, gone: Callable[[], bool]
    ) -> ReceiveResult:
        """Answer, or give everything back when nobody is there to read the answer."""
        subscription = take.subscription
        backlog = self.backlog(subscription)
        if take.deliveries or take.disk.is_used:
            if gone():
                self.give_back(subscription, take.leased)
                return ReceiveResult([], backlog)
            if backlog:
                subscription.line.wake_one()
        if attempt_id is not None and take.leased:
            now_s = self._clock.monotonic_s()
            window_s = now_s + self._config.replay_window_seconds
            replay = Replay(min(window_s, take.expires_s), take.leased)
            subscription.remember(attempt_id, replay, now_s)
        return ReceiveResult(take.deliveries, backlog)

    async def _write_down(self, take: _Take) -> None:
        """Have the log know of these deliveries before anybody sees them: attempts count for ever.

        When the disk is full they go out all the same; then a crash would forget them.
        """
        subscription = take.subscription
        try:
            await self._progress.hand_out(subscription, take.leased).wait()
        except DiskFull:
            return
        except BaseException:
            self.give_back(subscription, take.leased)
            raise

    def give_back(self, subscription: Subscription, leased: Sequence[Held]) -> None:
        """Return what never reached its consumer; the attempts do not count."""
        returned = [
            (queue, offset, lease_id)
            for queue, offset, lease_id in leased
            if queue.leases.give_back(offset, lease_id)
        ]
        if not returned:
            return
        with contextlib.suppress(CurlewError):
            self._progress.take_back(subscription, returned)
        subscription.line.wake_one()
        self._groups.tell_of_room(subscription.in_flight, subscription.group)

    def backlog(self, subscription: Subscription) -> int:
        """Messages that are ready for the group and that nobody holds."""
        bounds, topic = self._store.bounds, subscription.topic
        count = 0
        for queue in subscription.queues:
            ahead = bounds(topic, queue.queue_id).max_offset - queue.fetch_offset
            count += queue.leases.returned_count + max(0, ahead)
        return count

    # --- taking

    async def _collect(self, take: _Take) -> None:
        """Take from the queues in turn; hop for a cold one only if nothing else is there."""
        subscription = take.subscription
        queues = subscription.queues
        first = subscription.next_queue
        subscription.next_queue = (first + 1) % len(queues)
        cold: LeasedQueue | None = None
        for step in range(len(queues)):
            if take.is_full:
                break
            queue = queues[(first + step) % len(queues)]
            if queue.is_being_read:
                continue
            try:
                self._take_from(take, queue)
            except ColdRead:
                cold = cold or queue
        if cold is not None and not take.deliveries and not take.disk.is_used:
            await self._take_cold(take, cold)

    def _take_from(self, take: _Take, queue: LeasedQueue) -> None:
        topic = take.subscription.topic
        bounds = self._store.bounds(topic, queue.queue_id)
        if bounds.min_offset > queue.progress.committed:
            queue.skip_to(bounds.min_offset)
            self._book.track(queue)
        leases = queue.leases
        while leases.returned_count and not take.is_full:
            run = leases.take_returned_run(take.messages_left)
            try:
                read = self._read_run(take, queue, run, wait_for_disk=False)
            except BaseException:
                leases.put_back(run)
                raise
            self._grant_returned(take, queue, run, read)
        while queue.fetch_offset < bounds.max_offset and not (take.is_full or take.is_tired):
            if queue.fetch_offset < queue.restored_end:
                queue.fetch_offset = queue.progress.next_open(queue.fetch_offset)
            start = queue.fetch_offset
            self._grant_new(take, queue, start, self._read_new(take, queue, start, False))
            if queue.fetch_offset == start:
                break

    async def _take_cold(self, take: _Take, queue: LeasedQueue) -> None:
        """As above, with one read on a reader thread. Nobody else reads the queue meanwhile."""
        leases = queue.leases
        run = leases.take_returned_run(take.messages_left)
        start = queue.fetch_offset
        queue.is_being_read = True
        invisible_ms = round((take.expires_s - self._clock.monotonic_s()) * 1000)
        in_flight, reserved = take.subscription.in_flight, take.messages_left
        in_flight.count += reserved
        try:
            if run:
                read = await take.disk.hop(
                    lambda wait: self._read_run(take, queue, run, wait_for_disk=wait)
                )
            else:
                read = await take.disk.hop(partial(self._read_new, take, queue, start))
        except BaseException:
            leases.put_back(run)
            take.subscription.line.wake_one()
            raise
        finally:
            in_flight.count -= reserved
            if queue.leases is leases:
                queue.is_being_read = False
            self._groups.tell_of_room(in_flight, take.subscription.group)
        if take.subscription.is_closed or queue.leases is not leases:
            return
        take.hold_for(invisible_ms, self._clock)
        if run:
            self._grant_returned(take, queue, run, read)
        else:
            self._grant_new(take, queue, start, read)

    def _read_run(
        self, take: _Take, queue: LeasedQueue, run: range, *, wait_for_disk: bool
    ) -> ReadResult:
        return self._store.read(
            take.subscription.topic,
            queue.queue_id,
            run.start,
            max_messages=len(run),
            max_bytes=max(take.bytes_left, 1),
            end_offset=run.stop,
            wait_for_disk=wait_for_disk,
        )

    def _read_new(
        self, take: _Take, queue: LeasedQueue, start: int, wait_for_disk: bool
    ) -> ReadResult:
        return read_matching(
            self._store,
            take.subscription.topic,
            queue.queue_id,
            start,
            wanted=take.wanted,
            max_messages=take.messages_left,
            max_bytes=take.bytes_left,
            wait_for_disk=wait_for_disk,
        )

    def _grant_returned(
        self, take: _Take, queue: LeasedQueue, run: range, read: ReadResult
    ) -> None:
        """Lease again what could be read of `run`; what is damaged or gone is done."""
        leases = queue.leases
        read = _fitting(take, read)
        leases.put_back(offset for offset in run if offset >= read.next_offset)
        found = set(read.queue_offsets)
        for offset in run:
            if offset not in found and offset < read.next_offset and leases.is_returned(offset):
                leases.forget(offset)
                queue.progress.ack(offset)
                self._book.track(queue)
        if not all(map(leases.is_returned, read.queue_offsets)):
            read = _only(read, leases.is_returned)
        self._deliver(take, queue, read, leases.grant_again)

    def _grant_new(self, take: _Take, queue: LeasedQueue, start: int, read: ReadResult) -> None:
        """Lease what was read from `start` on; what the filter or damage left out is done."""
        read = _fitting(take, read)
        if take.wanted is not None:
            take.scans_left -= read.scanned
            take.looks_left -= 1
        if queue.fetch_offset != start:
            # A client committed ahead during a cold read.
            fetch_offset = queue.fetch_offset
            read = _only(read, lambda offset: offset >= fetch_offset)
        if start < queue.restored_end:
            is_acked = queue.progress.is_acked
            read = _only(read, lambda offset: not is_acked(offset))
        end = read.next_offset
        if end <= queue.fetch_offset:
            return
        offsets = read.queue_offsets
        if len(offsets) != end - queue.fetch_offset:
            skipped_from = queue.fetch_offset
            for offset in (*offsets, end):
                if skipped_from < offset:
                    queue.progress.ack_range(skipped_from, offset)
                skipped_from = offset + 1
            self._book.track(queue)
        queue.fetch_offset = end
        self._deliver(take, queue, read, queue.leases.grant)

    def _deliver(
        self,
        take: _Take,
        queue: LeasedQueue,
        read: ReadResult,
        grant: Callable[[Sequence[int], int, float], Sequence[Lease]],
    ) -> None:
        offsets = read.queue_offsets
        if not offsets:
            return
        decode, issue = self._store.decode, self._signer.issue
        messages = [decode(record) for record in read.records]
        first_lease_id = self._lease_ids.take(len(offsets))
        leases = grant(offsets, first_lease_id, take.expires_s)
        if offsets[0] < queue.restored_end:
            queue.count_earlier(offsets, leases)
        prefix, queue_id = take.subscription.handle_prefix, queue.queue_id
        expires_ms, until_ms, attempts_max = take.expires_ms, take.until_ms, take.attempts_max
        take.deliveries += [
            Delivery(
                message,
                issue(
                    prefix,
                    queue_id,
                    offset,
                    lease.lease_id,
                    lease.attempt,
                    lease.is_first,
                    expires_ms,
                ),
                lease.attempt,
                attempts_max,
                until_ms,
            )
            for message, offset, lease in zip(messages, offsets, leases, strict=True)
        ]
        take.leased += [
            (queue, offset, lease_id) for lease_id, offset in enumerate(offsets, first_lease_id)
        ]
        take.messages_left -= len(offsets)
        take.bytes_left -= sum(map(len, read.records))

    # --- repeated receives

    async def _replay(self, take: _Take, attempt_id: str) -> bool:
        """Deliver again what this attempt got, with the same handles. False: nothing is left."""
        replay = take.subscription.replays.get(attempt_id)
        if replay is None:
            return False
        clock = self._clock
        leases = live_leases(replay, clock.monotonic_s())
        if not leases:
            take.subscription.forget(attempt_id)
            return False

        def read_all(wait_for_disk: bool) -> list[ReadResult]:
            return [
                self._read_run(take, queue, range(offset, offset + 1), wait_for_disk=wait_for_disk)
                for queue, offset, _ in leases
            ]

        try:
            reads = await take.disk.run(read_all)
        except ColdRead:
            return False
        now_s, now_ms = clock.monotonic_s(), clock.now_ms()
        for (queue, offset, lease_id), read in zip(leases, reads, strict=True):
            lease = queue.leases.get(offset, lease_id, now_s)
            if lease is not None and read.records:
                self._deliver_again(take, queue, offset, lease, read, now_s, now_ms)
        return bool(take.deliveries)

    def _deliver_again(
        self,
        take: _Take,
        queue: LeasedQueue,
        offset: int,
        lease: Lease,
        read: ReadResult,
        now_s: float,
        now_ms: int,
    ) -> None:
        handle = self._signer.issue(
            take.subscription.handle_prefix,
            queue.queue_id,
            offset,
            lease.lease_id,
            lease.attempt,
            lease.is_first,
            int(lease.expires_s * 1000),
        )
        until_ms = now_ms + round((lease.expires_s - now_s) * 1000)
        message = self._store.decode(read.records[0])
        take.deliveries.append(
            Delivery(message, handle, lease.attempt, take.attempts_max, until_ms)
        )


def check_invisible(invisible_ms: int, limits: Limits) -> None:
    """Raise `IllegalInvisibleTime` when a lease may not be that long."""
    if not limits.invisible_ms_min <= invisible_ms <= limits.invisible_ms_max:
        raise IllegalInvisibleTime(
            f"an invisible time of {invisible_ms} ms is not possible",
            hint=f"from {limits.invisible_ms_min} to {limits.invisible_ms_max} ms",
            fields={"min_ms": limits.invisible_ms_min, "max_ms": limits.invisible_ms_max},
        )


def _fitting(take: _Take, read: ReadResult) -> ReadResult:
    """Cut off records that would go over what may be taken; the very first is always kept.

    The limits were known when the read was asked for, so this matters when the store gave one
    record in spite of `max_bytes`, and when others took their share during a cold read.
    """
    size = 0
    for index, record in enumerate(read.records):
        size += len(record)
        if size > take.bytes_left and (index > 0 or take.deliveries):
            take.bytes_left = 0
            return first_records(read, index)
    return read


def _only(read: ReadResult, is_wanted: Callable[[int], bool]) -> ReadResult:
    """Only the records whose offset is wanted."""
    keep = [index for index, offset in enumerate(read.queue_offsets) if is_wanted(offset)]
    return read._replace(
        records=[read.records[index] for index in keep],
        queue_offsets=[read.queue_offsets[index] for index in keep],
        tag_hashes=[read.tag_hashes[index] for index in keep],
    )
