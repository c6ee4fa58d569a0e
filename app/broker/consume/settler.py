"""Settling: ack, nack, extend, dead-letter and release by receipt handle.

A handle works while its lease lasts and is the message's newest; afterwards it is
`ReceiptHandleExpired`, but for one case: repeating an ack within the time of the lease succeeds.
What is acked is written down (`consumer_journal`) before anybody is told. Between looking at a
handle and changing its lease there is no await. Event loop only.

Acks that are one step with sends go through `ack_and_produce`, by `look_at` and `take`.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from app.broker.consume.receiver import check_invisible
from app.broker.consume.releases import Releases
from app.broker.context import Context
from app.broker.failures.failed_deliveries import FailedDeliveries, FailedDelivery
from app.broker.groups.groups import Groups
from app.broker.hooks.hook_contract import SettledHandle, SettledMessages
from app.broker.hooks.hooks import Hooks
from app.broker.journal.append_future import AppendFuture
from app.broker.leasing.consumer_journal import ConsumerJournal
from app.broker.leasing.epochs import LeaseIds
from app.broker.leasing.leases import Lease
from app.broker.leasing.receipt_cache import ReceiptCache
from app.broker.leasing.retry_policy import NACKED_REASON, REJECTED_REASON, Failure
from app.broker.leasing.subscriptions import Held, Known, LeasedQueue, Subscription
from app.broker.ports import Group
from app.broker.progress.offset_cache import OffsetCache
from app.broker.progress.progress_entries import Settled, offsets_of, runs_of
from app.broker.results import Extend, Nack, SettleAction, SettleResult
from app.broker.topic_lookup import find_topic
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import TraceKind
from app.domain.errors import (
    CurlewError,
    DiskFull,
    GroupNotFound,
    IllegalInvisibleTime,
    InvalidRequest,
    ReceiptHandleExpired,
)
from app.domain.handles.receipt import ReceiptHandle, invalid_handle
from app.domain.limits import REASON_BYTES_MAX, Limits
from app.domain.names import DEFAULT_NAMESPACE, is_in
from app.domain.positions import FlushMode


class Acks(NamedTuple):
    """A look at handles to be acked: what each queue would be told, and one result per handle."""

    acked: dict[LeasedQueue, dict[int, int]]
    """Offset → lease id."""
    results: list[SettleResult]

    def runs(self) -> dict[LeasedQueue, list[int]]:
        """The offsets as `runs_of` has them."""
        return {queue: runs_of(sorted(leases)) for queue, leases in self.acked.items()}


class Settler:
    """Settles handles. One per broker."""

    def __init__(
        self,
        context: Context,
        groups: Groups,
        signer: ReceiptCache,
        failed_deliveries: FailedDeliveries,
        message_trace: MessageTrace,
        releases: Releases,
        note_settled: Callable[[Sequence[SettleResult]], None],
    ) -> None:
        """`note_settled` is called with each answer, for those that count unsettled messages."""
        self._metadata = context.metadata
        self._statistics = context.statistics
        self._hooks = context.hooks
        self._clock = context.clock
        self._limits = context.limits
        self._check_open = context.gate.check
        self._signer = signer
        self._lease_ids = groups.lease_ids
        self._offset_cache = groups.offset_cache
        self._groups = groups
        self._consumer_journal = groups.consumer_journal
        self._failed_deliveries = failed_deliveries
        self._message_trace = message_trace
        self._releases = releases
        self._note_settled = note_settled

    async def settle(
        self,
        topic: str,
        group: str,
        *,
        acks: Sequence[str] = (),
        nacks: Sequence[Nack] = (),
        extends: Sequence[Extend] = (),
        dead_letters: Sequence[Nack] = (),
        releases: Sequence[str] = (),
    ) -> list[SettleResult]:
        """Settle handles: one result each, in the order acks, nacks, extends, dead letters,
        releases.

        One bad handle does not affect the others. Returns when everything is as safe as the topic
        asks. Raises `StoreFailed` or another fault of the store; then nothing was settled, or
        (`outcome` "unknown") it is not known to be safe.
        """
        self._check_open()
        flush = find_topic(self._metadata, topic).flush
        settings = self.find_group(group)
        figures = self._statistics.group(group, topic)
        subscription = self._groups.find_or_stand_in(group, topic)
        now_s = subscription.last_used_s = self._clock.monotonic_s()
        results: list[SettleResult] = []
        written: AppendFuture | None = None
        released: AppendFuture | None = None
        if acks:
            written = self._ack_all(subscription, flush, acks, results, now_s)
        failed: dict[int, FailedDelivery] = {}
        if nacks:
            failed = self._fail_all(subscription, "nack", nacks, results, now_s)
        if extends:
            self._extend_all(subscription, extends, results, now_s)
        if dead_letters:
            failed |= self._fail_all(subscription, "dead_letter", dead_letters, results, now_s)
        if releases:
            with _kept_failing(failed.values()):
                released = self._release_all(subscription, releases, results, now_s)
        if failed:
            ended = await self._failed_deliveries.deal_with(
                subscription, settings, list(failed.values())
            )
            _tell_of_ended(results, failed, ended)
        self._groups.tell_of_room(subscription.in_flight, subscription.group)
        if written is not None:
            await written.wait()
        if released is not None:
            with contextlib.suppress(DiskFull):
                await released.wait()
        if acks and figures is not None:
            refused = [each for each in results[: len(acks)] if each.error is not None]
            figures.settled(len(acks) - len(refused), len(refused))
        self._note_settled(results)
        tell_hooks(self._hooks, topic, group, results)
        return results

    def names_of(self, handle: str) -> tuple[str, str]:
        """The topic and the group of a handle. Raises `InvalidReceiptHandle`."""
        named = self._signer.read(handle)
        return named.topic, named.group

    async def settle_one(
        self,
        handle: str,
        action: SettleAction,
        *,
        delay_ms: int | None = None,
        invisible_ms: int | None = None,
        reason: str | None = None,
        count_attempt: bool = True,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> SettleResult:
        """Settle one handle, whose topic and group it names itself; they have to be in the
        namespace. Raises its error."""
        self._check_open()
        named = self._signer.read(handle)
        if not is_in(namespace, named.topic):
            raise invalid_handle()
        if action == "ack":
            results = await self.settle(named.topic, named.group, acks=(handle,))
        elif action == "nack":
            nack = Nack(handle, delay_ms, reason, count_attempt)
            results = await self.settle(named.topic, named.group, nacks=(nack,))
        elif action == "dead_letter":
            letter = Nack(handle, None, reason)
            results = await self.settle(named.topic, named.group, dead_letters=(letter,))
        elif action == "release":
            results = await self.settle(named.topic, named.group, releases=(handle,))
        elif invisible_ms is None:
            raise IllegalInvisibleTime("extending needs an invisible time")
        else:
            extend = Extend(handle, invisible_ms)
            results = await self.settle(named.topic, named.group, extends=(extend,))
        if results[0].error is not None:
            raise results[0].error
        return results[0]

    def find_group(self, name: str) -> Group:
        """The group, or `GroupNotFound`."""
        settings = self._metadata.snapshot.groups.get(name)
        if settings is None:
            raise GroupNotFound(
                f"consumer group {name!r} does not exist",
                hint="a group is made by its first receive",
            )
        return settings

    def _ack_all(
        self,
        subscription: Subscription,
        flush: FlushMode,
        handles: Sequence[str],
        results: list[SettleResult],
        now_s: float,
    ) -> AppendFuture | None:
        """Ack what the handles hold. A repeated ack is written again: the first may have failed."""
        looked = self.look_at(subscription, handles, now_s)
        results += looked.results
        if not looked.acked:
            return None
        runs = looked.runs()
        taken = Taken(subscription, self._offset_cache, self._consumer_journal, self._lease_ids)
        entry = settled_by(subscription, runs)
        written = self._consumer_journal.append(entry, flush, taken.settled)
        self.take(subscription, looked, runs, now_s, taken)
        return written

    def look_at(
        self,
        subscription: Subscription,
        handles: Sequence[str],
        now_s: float,
        *,
        is_repeatable: bool = True,
    ) -> Acks:
        """Which of the handles could be acked now. Changes nothing.

        Unless `is_repeatable`, a handle that has acked its message before cannot do it again.
        """
        recalled = self._signer.recall_all(handles)
        if acked := _all_held(subscription, recalled, now_s):
            return Acks(acked, [SettleResult(text, "ack", None) for text in handles])
        results: list[SettleResult] = []
        for text, held in zip(handles, recalled, strict=True):
            error: CurlewError | None = None
            if held is None or not _all_held(subscription, (held,), now_s):
                try:
                    held = self._look_closer(subscription, text, now_s, is_repeatable)  # noqa: PLW2901
                except CurlewError as bad:
                    error = bad
            if error is None and held is not None:
                queue, offset, lease_id = held
                acked.setdefault(queue, {})[offset] = lease_id
            results.append(SettleResult(text, "ack", error))
        return Acks(acked, results)

    def _look_closer(
        self, subscription: Subscription, text: str, now_s: float, is_repeatable: bool
    ) -> Held:
        """What a handle acks by what it says itself, or why it cannot."""
        queue, handle = self._locate(subscription, text)
        offset, lease_id = handle.queue_offset, handle.lease_id
        if not queue.leases.get(offset, lease_id, now_s):
            if not _is_repeated_ack(queue, handle, now_s):
                raise _expired()
            if not is_repeatable:
                raise _acked_before()
        return queue, offset, lease_id

    def take(
        self,
        subscription: Subscription,
        looked: Acks,
        runs: Mapping[LeasedQueue, Sequence[int]],
        now_s: float,
        taken: "Taken",
    ) -> None:
        """Ack, in the turn in which `settled_by` of it is appended; `taken` learns of it."""
        for queue, leases in looked.acked.items():
            table = queue.leases
            ended = table.ack_all(leases, now_s)
            known = queue.known_of(ended)
            queue.finish_runs(runs[queue])
            taken.parts.append((queue, known, ended, queue.committed))
            queue.unconfirmed += 1
            if self._message_trace.is_kept(queue.key[1]):
                self._note(TraceKind.ACKED, queue, list(offsets_of(runs[queue])))
        if subscription.is_ordered:
            subscription.line.wake_one()

    def _fail_all(
        self,
        subscription: Subscription,
        action: SettleAction,
        nacks: Iterable[Nack],
        results: list[SettleResult],
        now_s: float,
    ) -> dict[int, FailedDelivery]:
        """End the leases of what is given back or given up; what follows is up to the retrier.

        Returns them by the places of their results.
        """
        failed: dict[int, FailedDelivery] = {}
        for nack in nacks:
            error: CurlewError | None = None
            try:
                failure = self._failure_of(nack, action, is_ordered=subscription.is_ordered)
                queue, handle = self._locate(subscription, nack.receipt_handle)
                lease = queue.leases.fail(handle.queue_offset, handle.lease_id, now_s, failure)
                if lease is None:
                    raise _expired()
                failed[len(results)] = FailedDelivery(queue, handle.queue_offset, lease)
            except CurlewError as bad:
                error = bad
            results.append(SettleResult(nack.receipt_handle, action, error))
        return failed

    def _release_all(
        self,
        subscription: Subscription,
        handles: Iterable[str],
        results: list[SettleResult],
        now_s: float,
    ) -> AppendFuture | None:
        """Hand messages back untouched. On a full disk they are back all the same, as they were
        handed out: a crash before their next delivery counts the attempt."""
        returned: list[Held] = []
        for text in handles:
            error: CurlewError | None = None
            try:
                queue, handle = self._locate(subscription, text)
                offset, lease_id = handle.queue_offset, handle.lease_id
                if queue.leases.get(offset, lease_id, now_s) is None:
                    raise _expired()
                queue.leases.give_back(offset, lease_id)
                returned.append((queue, offset, lease_id))
            except CurlewError as bad:
                error = bad
            results.append(SettleResult(text, "release", error))
        if not returned:
            return None
        with contextlib.suppress(DiskFull):
            return self._releases.write_down(subscription, returned)
        return None

    def _failure_of(self, nack: Nack, action: SettleAction, *, is_ordered: bool) -> Failure:
        if action == "dead_letter":
            return Failure(_kept(nack.reason) or REJECTED_REASON, is_final=True)
        if nack.delay_ms is not None and not 0 <= nack.delay_ms <= self._limits.delay_ms_max:
            raise _bad_delay(nack.delay_ms, self._limits)
        if not nack.is_counted and not is_ordered:
            raise InvalidRequest(
                "count_attempt is for groups in order, where a nack blocks its key",
                hint="release the message: it comes again at once, and no attempt is counted",
                fields={"parameter": "count_attempt"},
            )
        reason = _kept(nack.reason) or NACKED_REASON
        return Failure(reason, nack.delay_ms, is_counted=nack.is_counted)

    def _extend_all(
        self,
        subscription: Subscription,
        extends: Iterable[Extend],
        results: list[SettleResult],
        now_s: float,
    ) -> None:
        """The log hears how long the leases last now, for a restart; nobody waits for that."""
        extended: dict[int, list[Held]] = {}
        results += [self._extend(subscription, each, now_s, extended) for each in extends]
        now_ms = self._clock.now_ms()
        for invisible_ms, held in extended.items():
            self._consumer_journal.note_leases(subscription, held, now_ms + invisible_ms)

    def _extend(
        self,
        subscription: Subscription,
        extend: Extend,
        now_s: float,
        extended: dict[int, list[Held]],
    ) -> SettleResult:
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
            return SettleResult(text, "extend", error)
        extended.setdefault(invisible_ms, []).append((queue, offset, lease.lease_id))
        self._note(TraceKind.EXTENDED, queue, (offset,))
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

    def _note(self, kind: TraceKind, queue: LeasedQueue, offsets: Sequence[int]) -> None:
        group, topic, _ = queue.key
        place = queue.stored_topic, queue.stored_queue_id
        self._message_trace.note(kind, topic, place, offsets, group=group)

    def _locate(self, subscription: Subscription, text: str) -> tuple[LeasedQueue, ReceiptHandle]:
        handle = self._signer.read(text)
        if handle.topic != subscription.topic or handle.group != subscription.group:
            raise invalid_handle()
        queue = subscription.find(handle.queue_id)
        if queue is None:
            raise _expired()
        return queue, handle


class Taken:
    """What acks have changed in memory until the log has them: kept then, undone else."""

    __slots__ = ("_consumer_journal", "_lease_ids", "_offset_cache", "_subscription", "parts")

    def __init__(
        self,
        subscription: Subscription,
        offset_cache: OffsetCache,
        progress: ConsumerJournal,
        lease_ids: LeaseIds,
    ) -> None:
        self._subscription = subscription
        self._offset_cache = offset_cache
        self._consumer_journal = progress
        self._lease_ids = lease_ids
        self.parts: list[tuple[LeasedQueue, Known, dict[int, Lease], int]] = []
        """Each queue, what it knew before, its leases that ended, by offset, and what was committed
        then."""

    def settled(self, error: CurlewError | None) -> None:
        """The log has the acks, or refused them. SQL hears of no offset that the log has not.

        Undone, a repeated request finds the messages as they were, unless their queue has begun
        again since; and who does not repeat it gets them again when the leases end.
        """
        if error is None:
            for queue, known, _, committed in self.parts:
                queue.unconfirmed -= 1
                if queue.leases is known.table and not queue.is_retry and self._counts(queue):
                    # Less, when an earlier one was refused.
                    self._offset_cache.advance(queue.key, min(committed, queue.committed))
            return
        for queue, known, leases, _ in self.parts:
            queue.unconfirmed -= 1
            is_same = queue.reopen(known, leases)
            if self._subscription.is_closed:
                continue
            if not is_same:
                queue.start_over(self._lease_ids.next)
            elif queue.leases is known.table:
                for offset, lease in leases.items():
                    if not queue.progress.is_acked(offset):  # by a commit since
                        queue.leases.restore(offset, lease)
        self._subscription.line.wake_one()

    def _counts(self, queue: LeasedQueue) -> bool:
        """Whether it is that of a group and a topic that were not deleted since."""
        return self._consumer_journal.find(queue.key) is queue.state


@contextlib.contextmanager
def _kept_failing(failed: Iterable[FailedDelivery]) -> Iterator[None]:
    """What is raised before these are dealt with leaves them to the lease watch."""
    try:
        yield
    except BaseException:
        for queue, offset, lease in failed:
            queue.leases.keep_failing(offset, lease)
        raise


def _tell_of_ended(
    results: list[SettleResult],
    failed: Mapping[int, FailedDelivery],
    ended: Iterable[FailedDelivery],
) -> None:
    """Say of dead letters whose leases something else ended meanwhile that there are none. What was
    to be given back is back."""
    places = {(item.queue, item.offset) for item in ended}
    for at, item in failed.items():
        if results[at].action == "dead_letter" and (item.queue, item.offset) in places:
            results[at] = replace(results[at], error=_expired())


def settled_by(subscription: Subscription, runs: Mapping[LeasedQueue, list[int]]) -> Settled:
    """The entry that writes these acks down."""
    topic = subscription.topic
    return Settled(
        subscription.group, [(topic, queue.queue_id, acked) for queue, acked in runs.items()]
    )


def _all_held(
    subscription: Subscription, recalled: Sequence[Held | None], now_s: float
) -> dict[LeasedQueue, dict[int, int]]:
    """Offset to lease id by queue, when all of them are the subscription's and live; else nothing,
    also for none and where one offset comes twice."""
    found: dict[LeasedQueue, dict[int, int]] = {}
    for held in recalled:
        if held is None:
            return {}
        queue, offset, lease_id = held
        if queue in found:
            found[queue][offset] = lease_id
        else:
            found[queue] = {offset: lease_id}
    for queue, leases in found.items():
        is_known = subscription.find(queue.queue_id) is queue
        if not (is_known and queue.leases.are_live(leases, now_s)):
            return {}
    return found if sum(map(len, found.values())) == len(recalled) else {}


def _is_repeated_ack(queue: LeasedQueue, handle: ReceiptHandle, now_s: float) -> bool:
    """Whether this very handle has acked the message, and its lease would last still. Of a handle
    of before a restart only the table knows, which held its lease."""
    is_first = handle.is_first
    if handle.lease_id < queue.first_lease_id:
        is_first = False
    elif handle.expires_monotonic_ms <= now_s * 1000:
        return False
    return queue.progress.is_acked(handle.queue_offset) and queue.leases.was_acked_by(
        handle.queue_offset, handle.lease_id, is_first
    )


def _kept(reason: str | None) -> str | None:
    """As much of a reason as is stored; a lease may be kept for long."""
    return None if reason is None else reason[:REASON_BYTES_MAX]


def _expired() -> ReceiptHandleExpired:
    return ReceiptHandleExpired(
        "the lease behind this handle has ended or was replaced",
        hint="receive again; extend before the invisible time is over",
    )


def _acked_before() -> ReceiptHandleExpired:
    return ReceiptHandleExpired(
        "this handle has acked its message already",
        hint="when this request is repeated: the first one succeeded, and its sends are stored",
    )


def _bad_delay(delay_ms: int, limits: Limits) -> IllegalInvisibleTime:
    return IllegalInvisibleTime(
        f"a delay of {delay_ms} ms is not possible",
        hint=f"from 0 to {limits.delay_ms_max} ms",
        fields={"max_ms": limits.delay_ms_max},
    )


def tell_hooks(hooks: Hooks, topic: str, group: str, results: Sequence[SettleResult]) -> None:
    """Of what a request has settled, if any hook hears of that."""
    if not hooks.hear_settles:
        return

    def handles() -> list[SettledHandle]:
        return [
            SettledHandle(
                each.receipt_handle, each.action, None if each.error is None else each.error.code
            )
            for each in results
        ]

    hooks.settled(SettledMessages(topic, group, len(results), handles))
