"""Settling: ack, nack and extend by receipt handle.

A handle works while its lease lasts and is the message's newest; afterwards it is
`ReceiptHandleExpired`, but for one case: repeating an ack within the time of the lease succeeds.
No await in here, so that a settle is one step. Event loop only.
"""

from collections.abc import Sequence

from app.broker.groups import Groups
from app.broker.offset_book import OffsetBook
from app.broker.receiving import check_invisible
from app.broker.results import Extend, Nack, SettleResult
from app.broker.subscriptions import LeasedQueue, LeaseIds, Subscription
from app.domain.clock import Clock
from app.domain.errors import (
    CurlewError,
    IllegalInvisibleTime,
    InvalidReceiptHandle,
    ReceiptHandleExpired,
)
from app.domain.limits import Limits
from app.domain.receipt import ReceiptHandle, ReceiptSigner


class Settler:
    """Settles handles of one subscription at a time. One per broker."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        *,
        signer: ReceiptSigner,
        lease_ids: LeaseIds,
        book: OffsetBook,
        groups: Groups,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._signer = signer
        self._lease_ids = lease_ids
        self._book = book
        self._groups = groups

    def settle(
        self,
        subscription: Subscription,
        acks: Sequence[str],
        nacks: Sequence[Nack],
        extends: Sequence[Extend],
    ) -> list[SettleResult]:
        """Settle in this order; one bad handle does not affect the others."""
        now_s = self._clock.monotonic_s()
        results = self._ack_all(subscription, acks, now_s) if acks else []
        results += [self._nack(subscription, nack, now_s) for nack in nacks]
        results += [self._extend(subscription, extend, now_s) for extend in extends]
        self._groups.tell_of_room(subscription.in_flight, subscription.group)
        return results

    def _ack_all(
        self, subscription: Subscription, handles: Sequence[str], now_s: float
    ) -> list[SettleResult]:
        results = []
        moved: set[LeasedQueue] = set()
        for text in handles:
            error: CurlewError | None = None
            try:
                queue, handle = self._locate(subscription, text)
                if queue.leases.ack(handle.queue_offset, handle.lease_id, now_s):
                    queue.progress.ack(handle.queue_offset)
                    moved.add(queue)
                elif not _is_repeated_ack(queue, handle, now_s):
                    error = _expired()
            except CurlewError as bad:
                error = bad
            results.append(SettleResult(text, "ack", error, None, None))
        for queue in moved:
            self._book.track(queue)
        return results

    def _nack(self, subscription: Subscription, nack: Nack, now_s: float) -> SettleResult:
        text = nack.receipt_handle
        delay_ms = nack.delay_ms or 0
        try:
            if not 0 <= delay_ms <= self._limits.invisible_ms_max:
                raise _bad_delay(delay_ms, self._limits)
            queue, handle = self._locate(subscription, text)
            if not queue.leases.nack(handle.queue_offset, handle.lease_id, now_s, delay_ms / 1000):
                raise _expired()
        except CurlewError as error:
            return SettleResult(text, "nack", error, None, None)
        if delay_ms == 0:
            subscription.line.wake_one()
        return SettleResult(text, "nack", None, None, None)

    def _extend(self, subscription: Subscription, extend: Extend, now_s: float) -> SettleResult:
        text, invisible_ms = extend
        expires_s = now_s + invisible_ms / 1000
        try:
            check_invisible(invisible_ms, self._limits)
            queue, handle = self._locate(subscription, text)
            offset = handle.queue_offset
            lease = queue.leases.extend(
                offset, handle.lease_id, now_s, expires_s, self._lease_ids.take(1)
            )
            if lease is None:
                raise _expired()
        except CurlewError as error:
            return SettleResult(text, "extend", error, None, None)
        new_handle = self._signer.issue(
            subscription.handle_prefix,
            queue.queue_id,
            offset,
            lease.lease_id,
            lease.attempt,
            lease.is_first,
            int(expires_s * 1000),
        )
        until_ms = self._clock.now_ms() + invisible_ms
        return SettleResult(text, "extend", None, new_handle, until_ms)

    def give_back(self, handles: Sequence[str]) -> None:
        """Return leases whose messages never reached their consumer."""
        for text in handles:
            handle = self._signer.read(text)
            subscription = self._groups.find(handle.group, handle.topic)
            if subscription is None or handle.queue_id >= len(subscription.queues):
                continue
            leases = subscription.queues[handle.queue_id].leases
            if leases.give_back(handle.queue_offset, handle.lease_id):
                subscription.line.wake_one()
                self._groups.tell_of_room(subscription.in_flight, handle.group)

    def _locate(self, subscription: Subscription, text: str) -> tuple[LeasedQueue, ReceiptHandle]:
        handle = self._signer.read(text)
        if handle.topic != subscription.topic or handle.group != subscription.group:
            raise InvalidReceiptHandle(
                "the receipt handle is of another topic or group",
                hint="settle it under the topic and group that it was received from",
            )
        if handle.queue_id >= len(subscription.queues):
            raise _expired()
        return subscription.queues[handle.queue_id], handle


def _is_repeated_ack(queue: LeasedQueue, handle: ReceiptHandle, now_s: float) -> bool:
    """Whether this very handle has acked the message, and its lease would last still."""
    return (
        handle.expires_monotonic_ms > now_s * 1000
        and handle.lease_id >= queue.first_lease_id
        and queue.progress.is_acked(handle.queue_offset)
        and queue.leases.was_acked_by(handle.queue_offset, handle.lease_id, handle.is_first)
    )


def _expired() -> ReceiptHandleExpired:
    return ReceiptHandleExpired(
        "the lease behind this handle has ended or was replaced",
        hint="receive again; extend before the invisible time is over",
    )


def _bad_delay(delay_ms: int, limits: Limits) -> IllegalInvisibleTime:
    return IllegalInvisibleTime(
        f"a delay of {delay_ms} ms is not possible",
        hint=f"from 0 to {limits.invisible_ms_max} ms",
        fields={"max_ms": limits.invisible_ms_max},
    )
