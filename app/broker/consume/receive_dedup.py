"""Repeated receives: the same `attempt_id` gets the same messages while their leases last.

So an answer that was lost on the way loses nothing. Event loop only.
"""

from app.broker.consume.lease_fetcher import shown
from app.broker.context import Context
from app.broker.journal.cold_reads import ColdReads
from app.broker.leasing.leases import Lease
from app.broker.leasing.subscriptions import LeasedQueue, Subscription, live_leases
from app.broker.results import Delivery
from app.domain.handles.receipt import ReceiptSigner
from app.store import ColdRead, ReadResult


class ReceiveDedup:
    """One per broker."""

    def __init__(self, context: Context, signer: ReceiptSigner) -> None:
        self._store = context.store
        self._clock = context.clock
        self._signer = signer

    async def replay(
        self, subscription: Subscription, attempt_id: str, disk: ColdReads, max_attempts: int
    ) -> list[Delivery]:
        """What this attempt got, with the same handles. Empty: nothing of it is left."""
        replay = subscription.replays.get(attempt_id)
        if replay is None:
            return []
        clock = self._clock
        leases = live_leases(replay, clock.monotonic_s())
        if not leases:
            subscription.forget(attempt_id)
            return []

        def read_all(wait_for_disk: bool) -> list[ReadResult]:
            return [self._read(queue, offset, wait_for_disk) for queue, offset, _ in leases]

        try:
            reads = await disk.run(read_all)
        except ColdRead:
            return []
        now_s, now_ms = clock.monotonic_s(), clock.now_ms()
        deliveries: list[Delivery] = []
        for (queue, offset, lease_id), read in zip(leases, reads, strict=True):
            lease = queue.leases.get(offset, lease_id, now_s)
            if lease is None or not read.records:
                continue
            until_ms = now_ms + round((lease.expires_s - now_s) * 1000)
            message = shown(queue, self._store.decode(read.records[0]))
            handle = self._handle(subscription, queue, offset, lease)
            deliveries.append(Delivery(message, handle, lease.attempt, max_attempts, until_ms))
        return deliveries

    def _read(self, queue: LeasedQueue, offset: int, wait_for_disk: bool) -> ReadResult:
        return self._store.read(
            queue.stored_topic,
            queue.stored_queue_id,
            offset,
            max_messages=1,
            max_bytes=1,
            end_offset=offset + 1,
            wait_for_disk=wait_for_disk,
        )

    def _handle(
        self, subscription: Subscription, queue: LeasedQueue, offset: int, lease: Lease
    ) -> str:
        return self._signer.issue(
            subscription.handle_prefix,
            queue.queue_id,
            offset,
            lease.lease_id,
            lease.attempt,
            lease.is_first,
            int(lease.expires_s * 1000),
        )
