"""Taking messages of a subscription for one receive: which queue, which messages, leases, handles.

Fair over queues, the one with the retries included: each take begins one queue further. In a queue,
messages that came back go first, in offset order, then new ones. A filter leaves out new messages
for the whole group: what does not match counts as done, as in RocketMQ, where a group has one
subscription. Retries and what came back are delivered whatever the filter says by then, also as in
RocketMQ; in a group in order, what is handed out or parked keeps its place in line.

Nothing is leased twice: between looking at a queue and granting there is no await, but for a cold
read, during which the queue is marked and others pass it by. Event loop only.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from app.broker.context import Context
from app.broker.filters.filters import Filter
from app.broker.groups.groups import Groups
from app.broker.journal.cold_reads import ColdReads
from app.broker.leasing.holders import Holder
from app.broker.leasing.leases import Lease
from app.broker.leasing.ordering import KeyOrder, Turn
from app.broker.leasing.receipt_cache import ReceiptCache
from app.broker.leasing.subscriptions import Held, LeasedQueue, Subscription
from app.broker.read.filter_scan import first_records, read_matching
from app.broker.results import Delivery
from app.broker.retries_and_dead_letters import ORIGIN_PLACE, as_original
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import TraceKind
from app.domain.clock import Clock
from app.domain.errors import ShardUnavailable
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.limits import MIB
from app.domain.message import PROPERTY_SHARDING_KEY, StoredMessage
from app.store import ColdRead, ReadResult
from app.store.formats.record.record import reconsume_times, stored_properties

ORDERED_LOOK_MESSAGES: Final = 64
ORDERED_LOOK_BYTES: Final = MIB
"""What a group in order looks at to find messages whose turn it is."""

ORDERED_KNOWN_MESSAGES: Final = 512
"""Messages of before a restart that one look of a filter in a group in order goes through: some may
be handed out still, and stand in line."""

LOOKS_PER_TURN: Final = 4
"""Looks of a filter before others get their turn of the event loop."""


class Fetch:
    """One look at a subscription: what may still be taken, and what was."""

    __slots__ = (
        "attempts_max",
        "bytes_left",
        "client_id",
        "deliveries",
        "disk",
        "expires_ms",
        "expires_s",
        "holder",
        "holds",
        "leased",
        "looks_left",
        "messages_left",
        "scans_left",
        "span",
        "subscription",
        "until_ms",
        "wanted",
    )

    def __init__(
        self,
        subscription: Subscription,
        wanted: Filter | None,
        disk: ColdReads,
        attempts_max: int,
        client_id: str | None = None,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        self.holds = holds
        """Whether `wanted` is the group's filter still."""
        self.subscription = subscription
        self.wanted = wanted
        self.disk = disk
        self.attempts_max = attempts_max
        self.client_id = client_id
        self.holder: Holder | None = None
        self.messages_left = 0
        self.bytes_left = 0
        self.scans_left = 0
        self.span: int | None = None
        """Messages of a queue from the committed offset on that may be out."""
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
    def has_spent_budget(self) -> bool:
        """Looked through enough for one turn of the event loop without finding a match."""
        return self.scans_left <= 0 or self.looks_left <= 0


class LeaseFetcher:
    """Takes for receives. One per broker."""

    def __init__(
        self, context: Context, signer: ReceiptCache, groups: Groups, message_trace: MessageTrace
    ) -> None:
        self._store = context.store
        self._readers = context.readers
        self._clock = context.clock
        self._limits = context.limits
        self._signer = signer
        self._lease_ids = groups.lease_ids
        self._offset_cache = groups.offset_cache
        self._groups = groups
        self._message_trace = message_trace

    async def collect(self, fetch: Fetch) -> None:
        """Take from the queues in turn; hop for a cold one only if nothing else is there, and for
        the next one where that cannot be read.

        Raises `ShardUnavailable` where the next message of a queue may be whole at another replica
        alone, and no other queue has any.
        """
        subscription = fetch.subscription
        queues = subscription.sources
        first = subscription.next_queue
        if queues[first].is_retry and not self._has_messages(queues[first]):
            first = 0
        subscription.next_queue = (first + 1) % len(queues)
        cold: list[LeasedQueue] = []
        damaged: ShardUnavailable | None = None
        for step in range(len(queues)):
            if fetch.is_full:
                break
            queue = queues[(first + step) % len(queues)]
            if queue.is_being_read:
                continue
            try:
                self._take_from(fetch, queue)
            except ColdRead:
                cold.append(queue)
            except ShardUnavailable as error:
                damaged = error
        if cold and not fetch.deliveries and not fetch.disk.is_used:
            damaged = await self._take_first_cold(fetch, cold) or damaged
        if damaged is not None and not fetch.deliveries:
            raise damaged

    async def _take_first_cold(
        self, fetch: Fetch, cold: Sequence[LeasedQueue]
    ) -> ShardUnavailable | None:
        """Take from the first of these queues whose next message can be read; why one could not.
        Each that cannot costs a hop of its own."""
        invisible_ms = round((fetch.expires_s - self._clock.monotonic_s()) * 1000)
        damaged: ShardUnavailable | None = None
        for queue in cold:
            if damaged is not None:
                if queue.is_being_read or fetch.subscription.is_closed:
                    continue
                fetch.disk = ColdReads(self._readers)
                fetch.hold_for(invisible_ms, self._clock)
            try:
                await self._take_cold(fetch, queue)
            except ShardUnavailable as error:
                damaged = error
            else:
                break
        return damaged

    async def collect_retries(self, fetch: Fetch) -> None:
        """Take from the group's retries alone, for members that read the topic by offset."""
        retry = fetch.subscription.retry
        if retry.is_being_read:
            return
        try:
            self._take_from(fetch, retry)
        except ColdRead:
            if not fetch.deliveries:
                await self._take_cold(fetch, retry)
        except ShardUnavailable:
            if not fetch.deliveries:
                raise

    def _has_messages(self, queue: LeasedQueue) -> bool:
        end = self._store.bounds(queue.stored_topic, queue.stored_queue_id).max_offset
        return queue.fetch_offset < end or queue.leases.returned_count > 0

    def _take_from(self, fetch: Fetch, queue: LeasedQueue) -> None:
        bounds = self._store.bounds(queue.stored_topic, queue.stored_queue_id)
        if bounds.min_offset > queue.progress.committed:
            queue.skip_to(bounds.min_offset)
            self._offset_cache.track(queue)
        self._take_returned(fetch, queue)
        while self._may_fetch(fetch, queue, bounds.max_offset):
            queue.pass_known()
            start = queue.fetch_offset
            self._grant_new(fetch, queue, start, self._read_new(fetch, queue, start, False))
            if queue.order is not None:
                self._take_returned(fetch, queue)
            if queue.fetch_offset == start:
                break

    def _may_fetch(self, fetch: Fetch, queue: LeasedQueue, end: int) -> bool:
        """Whether to look at new messages; a group in order knows a bounded number of them."""
        if fetch.is_full or fetch.has_spent_budget or queue.fetch_offset >= end:
            return False
        if fetch.span is not None and not self._span_left(fetch.span, queue):
            fetch.subscription.in_flight.has_refused = True
            return False
        return queue.order is None or queue.order.size < self._limits.ordered_lookahead_max

    @staticmethod
    def _span_left(span: int, queue: LeasedQueue) -> int:
        """How many more offsets may be looked at; retries have no span."""
        return span if queue.is_retry else max(queue.committed + span - queue.fetch_offset, 0)

    def _take_returned(self, fetch: Fetch, queue: LeasedQueue) -> None:
        leases = queue.leases
        while leases.returned_count and not fetch.is_full:
            run = leases.take_returned_run(fetch.messages_left)
            if queue.order is not None:
                run = self._leave_exhausted(fetch, queue, run)
                if not run:
                    continue
            try:
                read = self._read_run(fetch, queue, run, wait_for_disk=False)
            except BaseException:
                leases.put_back(run)
                raise
            self._grant_returned(fetch, queue, run, read)

    def _leave_exhausted(self, fetch: Fetch, queue: LeasedQueue, run: range) -> range:
        """In a group in order attempts come back from the log: some may be used up."""
        leases = queue.leases
        for offset in run:
            if leases.is_returned(offset) and leases.attempts_of(offset) >= fetch.attempts_max:
                leases.put_back(range(offset + 1, run.stop))
                leases.fail_returned(offset)
                return range(run.start, offset)
        return run

    async def _take_cold(self, fetch: Fetch, queue: LeasedQueue) -> None:
        """As above, with one read on a reader thread. Nobody else reads the queue meanwhile."""
        leases = queue.leases
        run = leases.take_returned_run(fetch.messages_left)
        if queue.order is not None:
            run = self._leave_exhausted(fetch, queue, run)
        start = queue.fetch_offset
        queue.is_being_read = True
        invisible_ms = round((fetch.expires_s - self._clock.monotonic_s()) * 1000)
        try:
            with self._reserved(fetch):
                if run:
                    read = await fetch.disk.hop(
                        lambda wait: self._read_run(fetch, queue, run, wait_for_disk=wait)
                    )
                else:
                    read = await fetch.disk.hop(partial(self._read_new, fetch, queue, start))
        except BaseException:
            leases.put_back(run)
            fetch.subscription.line.wake_one()
            raise
        finally:
            if queue.leases is leases:
                queue.is_being_read = False
        if fetch.subscription.is_closed or queue.leases is not leases:
            return
        fetch.hold_for(invisible_ms, self._clock)
        if run:
            self._grant_returned(fetch, queue, run, read)
        elif fetch.holds():
            self._grant_new(fetch, queue, start, read)
            if queue.order is not None:
                with contextlib.suppress(ColdRead):
                    self._take_returned(fetch, queue)

    @contextlib.contextmanager
    def _reserved(self, fetch: Fetch) -> Iterator[None]:
        """What may still be taken counts as held by the group: others are given no more than the
        rest meanwhile."""
        in_flight, holder = fetch.subscription.in_flight, fetch.holder
        count, size = fetch.messages_left, fetch.bytes_left
        in_flight.count += count
        if holder is not None:
            holder.reserve(count, size)
        try:
            yield
        finally:
            in_flight.count -= count
            if holder is not None:
                holder.reserve(-count, -size)
            self._groups.tell_of_room(in_flight, fetch.subscription.group)
            if holder is not None and holder.owner is not None:
                short, holder.owner.short = holder.owner.short, {}
                for group, each in short.items():
                    self._groups.tell_of_room(each, group)

    def _read_run(
        self, fetch: Fetch, queue: LeasedQueue, run: range, *, wait_for_disk: bool
    ) -> ReadResult:
        return self._store.read(
            queue.stored_topic,
            queue.stored_queue_id,
            run.start,
            max_messages=len(run),
            max_bytes=max(fetch.bytes_left, 1),
            end_offset=run.stop,
            wait_for_disk=wait_for_disk,
        )

    def _read_new(
        self, fetch: Fetch, queue: LeasedQueue, start: int, wait_for_disk: bool
    ) -> ReadResult:
        wanted = None if queue.is_retry else fetch.wanted
        end = None if fetch.span is None else start + self._span_left(fetch.span, queue)
        if wanted is not None and queue.order is not None and start < queue.restored_end:
            is_known, known_end = queue.alike_from(start, ORDERED_KNOWN_MESSAGES)
            wanted = None if is_known else wanted
            end = known_end if end is None else min(end, known_end)
        return read_matching(
            self._store,
            queue.stored_topic,
            queue.stored_queue_id,
            start,
            wanted=wanted,
            max_messages=fetch.messages_left if queue.order is None else ORDERED_LOOK_MESSAGES,
            max_bytes=fetch.bytes_left if queue.order is None else ORDERED_LOOK_BYTES,
            end_offset=end,
            wait_for_disk=wait_for_disk,
        )

    def _grant_returned(
        self, fetch: Fetch, queue: LeasedQueue, run: range, read: ReadResult
    ) -> None:
        """Lease again what could be read of `run`; what is damaged or gone is done."""
        leases = queue.leases
        read = _fitting(fetch, read)
        leases.put_back(offset for offset in run if offset >= read.next_offset)
        found = set(read.queue_offsets)
        for offset in run:
            if offset not in found and offset < read.next_offset and leases.is_returned(offset):
                leases.forget(offset)
                queue.finish((offset,))
                self._offset_cache.track(queue)
        if not all(map(leases.is_returned, read.queue_offsets)):
            read = _only(read, leases.is_returned)
        self._deliver(fetch, queue, read, leases.grant_again, None)

    def _grant_new(self, fetch: Fetch, queue: LeasedQueue, start: int, read: ReadResult) -> None:
        """Lease what was read from `start` on; what the filter or damage left out is done."""
        if queue.order is None:
            read = _fitting(fetch, read)
        if fetch.wanted is not None:
            fetch.scans_left -= read.scanned
            fetch.looks_left -= 1
        if queue.fetch_offset != start:
            # A client committed ahead during a cold read.
            fetch_offset = queue.fetch_offset
            read = _only(read, lambda offset: offset >= fetch_offset)
        if start < queue.restored_end:
            is_acked = queue.progress.is_acked
            read = _only(read, lambda offset: not is_acked(offset))
        if read.next_offset <= queue.fetch_offset:
            return
        if len(read.queue_offsets) != read.next_offset - queue.fetch_offset:
            self._leave_out(queue, read)
        queue.fetch_offset = read.next_offset
        if queue.order is not None:
            self._enter_order(fetch, queue, queue.order, read)
            return
        if start < queue.restored_end:
            read = _only(read, lambda offset: not queue.is_fetched(offset))
        offsets = read.queue_offsets
        earlier = None
        if offsets and (queue.is_retry or offsets[0] < queue.restored_end):
            read, earlier = self._with_history(fetch, queue, read)
        self._deliver(fetch, queue, read, queue.leases.grant, earlier)

    def _leave_out(self, queue: LeasedQueue, read: ReadResult) -> None:
        """What was looked at and is not in `read` is done, but for what consumers have."""
        skipped_from = queue.fetch_offset
        kept = [*read.queue_offsets]
        if skipped_from < queue.restored_end:
            left_out = set(range(skipped_from, read.next_offset)).difference(kept)
            kept = sorted([*kept, *filter(queue.is_fetched, left_out)])
        for offset in (*kept, read.next_offset):
            if skipped_from < offset:
                queue.state.ack_runs((skipped_from, offset - skipped_from))
            skipped_from = offset + 1
        self._offset_cache.track(queue)

    def _enter_order(
        self, fetch: Fetch, queue: LeasedQueue, order: KeyOrder, read: ReadResult
    ) -> None:
        """Let new messages stand in line behind those of their key; the first ones are ready."""
        fetch.looks_left -= 1
        handed_out = queue.state.deliveries
        for offset, record in zip(read.queue_offsets, read.records, strict=True):
            earlier = handed_out.get(offset, 0)
            if queue.is_retry:
                earlier += reconsume_times(record)
            # The body, which may be packed, is not needed for it.
            key = stored_properties(record).get(PROPERTY_SHARDING_KEY)
            if order.enter(offset, key, earlier):
                queue.give_turn(Turn(offset, earlier))

    def _with_history(
        self, fetch: Fetch, queue: LeasedQueue, read: ReadResult
    ) -> tuple[ReadResult, list[int]]:
        """How often each message was delivered before; leave out those for which that is all."""
        handed_out = queue.state.deliveries
        attempts: dict[int, int] = {}
        for offset, record in zip(read.queue_offsets, read.records, strict=True):
            earlier = reconsume_times(record) if queue.is_retry else 0
            earlier += handed_out.get(offset, 0)
            if earlier < fetch.attempts_max:
                attempts[offset] = earlier
            else:
                queue.leases.fail_unseen(offset, earlier)
        if len(attempts) < len(read.queue_offsets):
            read = _only(read, attempts.__contains__)
        return read, list(attempts.values())

    def _deliver(
        self,
        fetch: Fetch,
        queue: LeasedQueue,
        read: ReadResult,
        grant: Callable[[Sequence[int], int, float], Sequence[Lease]],
        earlier: Sequence[int] | None,
    ) -> None:
        offsets = read.queue_offsets
        if not offsets:
            return
        decode = self._store.decode
        first_lease_id = self._lease_ids.take(len(offsets))
        leases = grant(offsets, first_lease_id, fetch.expires_s)
        if earlier is not None:
            for lease, times in zip(leases, earlier, strict=True):
                lease.attempt += times
        if fetch.holder is not None:
            sizes = [len(record) for record in read.records]
            fetch.holder.take(len(leases), sum(sizes))
            for lease, size in zip(leases, sizes, strict=True):
                lease.holder, lease.size = fetch.holder, size
        if queue.is_retry:
            decode = partial(_original, decode)
            if self._message_trace.is_kept(queue.key[1]):
                self._note_retries(fetch, queue, read, leases)
        elif self._message_trace.is_kept(queue.stored_topic):
            self._note(fetch, queue, offsets, leases)
        held = [
            (queue, offset, lease_id) for lease_id, offset in enumerate(offsets, first_lease_id)
        ]
        handles = self._signer.issue_all(
            fetch.subscription.handle_prefix, held, leases, fetch.expires_ms
        )
        until_ms, attempts_max = fetch.until_ms, fetch.attempts_max
        fetch.deliveries += [
            Delivery(record, handle, lease.attempt, attempts_max, until_ms, decode)
            for record, handle, lease in zip(read.records, handles, leases, strict=True)
        ]
        fetch.leased += held
        fetch.messages_left -= len(offsets)
        fetch.bytes_left -= sum(map(len, read.records))

    def _note(
        self, fetch: Fetch, queue: LeasedQueue, offsets: Sequence[int], leases: Sequence[Lease]
    ) -> None:
        """Note the deliveries, neighbours of one attempt together."""
        group, topic, queue_id = queue.key
        at = 0
        for attempt, run in groupby([lease.attempt for lease in leases]):
            end = at + len(list(run))
            noted, at = offsets[at:end], end
            self._message_trace.note(
                TraceKind.DELIVERED,
                topic,
                (topic, queue_id),
                noted,
                group=group,
                attempt=attempt,
                client_id=fetch.client_id,
            )

    def _note_retries(
        self,
        fetch: Fetch,
        queue: LeasedQueue,
        read: ReadResult,
        leases: Sequence[Lease],
    ) -> None:
        """Note the deliveries under the original messages."""
        group, topic, _ = queue.key
        for offset, record, lease in zip(read.queue_offsets, read.records, leases, strict=True):
            place = stored_properties(record).get(ORIGIN_PLACE, f"{RETRY_QUEUE_ID}:{offset}:0")
            queue_id, queue_offset, _ = map(int, place.split(":"))
            self._message_trace.note(
                TraceKind.DELIVERED,
                topic,
                (topic, queue_id),
                (queue_offset,),
                group=group,
                attempt=lease.attempt,
                client_id=fetch.client_id,
                copy=offset,
            )


def _original(decode: Callable[[memoryview], StoredMessage], record: memoryview) -> StoredMessage:
    """A retry as its consumer sees it; a packed body is unpacked."""
    return as_original(decode(record))


def _fitting(fetch: Fetch, read: ReadResult) -> ReadResult:
    """Cut off records that would go over what may be taken; the very first is always kept.

    The limits were known when the read was asked for, so this matters when the store gave one
    record in spite of `max_bytes`, and when others took their share during a cold read.
    """
    if sum(map(len, read.records)) <= fetch.bytes_left:  # as nearly always
        return read
    size = 0
    for index, record in enumerate(read.records):
        size += len(record)
        if size > fetch.bytes_left and (index > 0 or fetch.deliveries):
            fetch.bytes_left = 0
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


def shown(queue: LeasedQueue, message: StoredMessage) -> StoredMessage:
    """A message as its consumer sees it: a retry in the place and under the id of its original."""
    return as_original(message) if queue.is_retry else message
