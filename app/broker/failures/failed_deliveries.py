"""Carrying out what follows a failed delivery: a copy for later, or a dead letter.

The copy goes to the group's retry topic, at once or through the delayed messages; the last one goes
to its dead letters. The copy and the entry that the original is done are one step: a crash leaves
both or neither, so no message is lost and none is doubled. What cannot be written stays failing;
the service `lease-watch` (`Broker.expire_leases`) tries it again. `retry_policy` decides between
retry and dead letter, and how long a retry waits.

A group in order keeps a message in its place, where it blocks its key; what follows its last
delivery is up to the group. Event loop only.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.delays.delay_delivery import DelayDelivery, retry_identity
from app.broker.groups.groups import Groups
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.cold_reads import ColdReads
from app.broker.leasing.lease_table import LeaseTable
from app.broker.leasing.leases import Lease
from app.broker.leasing.ordering import Key
from app.broker.leasing.retry_policy import EXPIRED, LOST, Again, GivenUp, after
from app.broker.leasing.subscriptions import Held, Known, LeasedQueue, Subscription
from app.broker.ports import Group
from app.broker.progress.progress_entries import Parked, ParkedMessage, Released, Settled, runs_of
from app.broker.retries_and_dead_letters import dead_letter, retry_copy
from app.broker.row_faults import is_of_message
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import TraceKind
from app.domain.durations import format_duration
from app.domain.errors import CurlewError, DiskFull
from app.domain.limits import DEAD_LETTER_RETENTION_MS, MIB
from app.domain.message import Message, StoredMessage
from app.domain.names import dead_letter_topic, retry_topic
from app.domain.positions import FlushMode
from app.domain.settings import WhenExhausted
from app.store import ReadResult, StepPart

STEP_MESSAGES: Final = 128
STEP_BYTES: Final = MIB
"""Bounds of one step; a single message may be larger."""

FAULTS_MAX: Final = 16
"""Messages that fail each by itself, after which the rest has to wait for the next turn."""

WATCH_MESSAGES: Final = 2_048
"""Failed deliveries of one queue that one turn of the lease watch deals with."""

QUEUE: Final = 0
"""Retry and dead-letter topics have one queue."""


class FailedDelivery(NamedTuple):
    """A message in state moving."""

    queue: LeasedQueue
    offset: int
    lease: Lease


@dataclass(slots=True)
class _Course:
    """How dealing with some messages went, but for those that all went well with."""

    bad: list[tuple[FailedDelivery, Exception]] = field(default_factory=list)
    """Cannot be dealt with, each for itself."""
    ended: list[FailedDelivery] = field(default_factory=list)
    """Nothing was done: a commit, a reset, a deletion or another order ended the lease before."""


@dataclass(slots=True)
class _Step:
    """Messages of one queue that are dealt with together."""

    queue: LeasedQueue
    table: LeaseTable
    items: Sequence[FailedDelivery]
    parts: list[StepPart]
    given_up: list[tuple[FailedDelivery, GivenUp]] = field(default_factory=list)
    """Those of the dead letters, in their order."""


class FailedDeliveries:
    """One per broker."""

    def __init__(
        self,
        context: Context,
        groups: Groups,
        delays: DelayDelivery,
        message_trace: MessageTrace,
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._statistics = context.statistics
        self._clock = context.clock
        self._readers = context.readers
        self._lease_ids = groups.lease_ids
        self._offset_cache = groups.offset_cache
        self._consumer_journal = groups.consumer_journal
        self._delays = delays
        self._message_trace = message_trace

    def retention_ms(self) -> dict[str, int]:
        """How long retry and dead-letter topics keep their messages."""
        snapshot = self._metadata.snapshot
        kept = {
            retry_topic(group, topic): snapshot.topics[topic].retention_ms
            for group, topic in self._consumer_journal.retried()
            if topic in snapshot.topics
        }
        longest = DEAD_LETTER_RETENTION_MS
        return kept | {dead_letter_topic(group): longest for group in snapshot.groups}

    async def watch(self, subscription: Subscription) -> None:
        """Deal with what has failed by itself: leases that ran out, steps that did not succeed.

        Every queue has its turn; then the first fault is raised, if there was one.
        """
        group = self._metadata.snapshot.groups.get(subscription.group)
        if group is None:
            return
        fault: Exception | None = None
        for queue in subscription.sources:
            if subscription.is_closed:
                return  # what it holds is let go over some turns
            if queue.leases.has_failing:
                taken = queue.leases.take_failing(WATCH_MESSAGES)
                items = [FailedDelivery(queue, offset, lease) for offset, lease in taken]
                try:
                    await self.deal_with(subscription, group, items)
                except Exception as error:  # noqa: BLE001 - one queue must not stop the others
                    fault = fault or error
        if fault is not None:
            raise fault

    async def deal_with(
        self, subscription: Subscription, group: Group, items: Sequence[FailedDelivery]
    ) -> list[FailedDelivery]:
        """Do what the group's policy says; return when it is written down.

        Returns those with which nothing was done, since something else ended their leases first.
        Raises the store's error; then the messages that were not dealt with are failing again. So
        is a message that cannot be dealt with for itself; the others are, and its fault is raised.
        """
        course = _Course()
        left = sorted(items, key=lambda item: (item.queue.queue_id, item.offset))
        try:
            if subscription.is_ordered:
                left = await self._deal_in_place(subscription, group, left, course)
            for queue, run in _runs(list(left)):
                start = 0
                while start < len(run):
                    done = await self._try_some(subscription, group, queue, run[start:], course)
                    start += done
                    del left[:done]
        finally:
            for queue, offset, lease in [*left, *(item for item, _ in course.bad)]:
                if queue.leases.is_moving(offset, lease):
                    queue.leases.keep_failing(offset, lease)
        if course.bad:
            raise course.bad[0][1]
        return course.ended

    async def _try_some(
        self,
        subscription: Subscription,
        group: Group,
        queue: LeasedQueue,
        run: Sequence[FailedDelivery],
        course: _Course,
    ) -> int:
        """Deal with the first messages of a run, or with the first alone when that fails; return
        with how many. One that fails alone is noted in `course`, but for the last that it takes."""
        try:
            return await self._deal_with_some(subscription, group, queue, run, course)
        except Exception as error:
            if not is_of_message(error) or len(course.bad) >= FAULTS_MAX:
                raise
            if len(run) == 1:
                course.bad.append((run[0], error))
                return 1
        return await self._try_some(subscription, group, queue, run[:1], course)

    async def _deal_in_place(
        self,
        subscription: Subscription,
        group: Group,
        items: list[FailedDelivery],
        course: _Course,
    ) -> list[FailedDelivery]:
        """In a group in order a message stays where it is and blocks its key, until the last
        delivery. Returns those that are to go to the dead letters."""
        if subscription.is_closed:
            course.ended += items
            return []
        again = 0
        dead: list[FailedDelivery] = []
        uncounted: list[Held] = []
        ended: list[Held] = []
        given_up: list[tuple[FailedDelivery, str]] = []
        now_s = self._clock.monotonic_s()
        for item in items:
            queue, offset, lease = item
            decision = after(lease.failure, lease.attempt, group.max_attempts, group.retry_policy)
            match decision:
                case Again(delay_ms, _):
                    self._note(item, decision)
                    queue.leases.delay(offset, now_s + delay_ms / 1_000)
                    again += lease.failure.is_counted
                    (ended if lease.failure.is_counted else uncounted).append(_ended(item))
                case GivenUp() if (
                    lease.failure.is_final or group.on_exhausted is WhenExhausted.DEAD_LETTER
                ):
                    dead.append(item)
                case GivenUp(reason):
                    given_up.append((item, reason))
        figures = self._statistics.group(subscription.group, subscription.topic)
        if figures is not None:
            figures.retries += again
        subscription.expire(now_s)
        self._consumer_journal.note_leases(subscription, ended)
        if uncounted:
            with contextlib.suppress(DiskFull):  # then a crash counts the attempts
                await self._consumer_journal.take_back(subscription, uncounted).wait()
        for item, reason in given_up:
            await self._give_up_in_place(subscription, group, item, reason, course)
        return dead

    async def _give_up_in_place(
        self,
        subscription: Subscription,
        group: Group,
        item: FailedDelivery,
        reason: str,
        course: _Course,
    ) -> None:
        key = await self._key_of(item)
        is_moving = item.queue.leases.is_moving(item.offset, item.lease)
        if subscription.is_closed or not is_moving:
            course.ended.append(item)  # while another was written, or its key was read
        elif group.on_exhausted is WhenExhausted.SKIP:
            await self.skip(subscription, item)
            self._note_end(TraceKind.SKIPPED, item, reason)
        else:
            await self._park(subscription, item, key, reason)
            self._note_end(TraceKind.PARKED, item, reason)

    async def skip(self, subscription: Subscription, item: FailedDelivery) -> None:
        """The message is done without a copy."""
        await self._write(subscription, _Step(item.queue, item.queue.leases, [item], []))

    async def _key_of(self, item: FailedDelivery) -> Key | None:
        """The key that a message blocks. One that was handed out before a restart, and at which
        nobody has looked since, does not stand in line yet."""
        queue, offset, _ = item
        assert queue.order is not None
        if queue.order.has_turn(offset):
            return queue.order.key_of(offset)
        read = await self._read(queue, offset, offset + 1)
        return self._store.decode(read.records[0]).sharding_key if read.records else None

    async def _park(
        self, subscription: Subscription, item: FailedDelivery, key: Key | None, reason: str
    ) -> None:
        queue, offset, lease = item
        message = ParkedMessage(offset, key, lease.attempt, reason, self._clock.now_ms())
        state, table = queue.state, queue.leases

        def settled(error: CurlewError | None) -> None:
            if error is not None and state.unpark(message):
                if queue.leases is table and table.is_parked(offset):
                    table.fail_parked(offset)
                else:
                    self._start_over(subscription, queue)

        entry = Parked(*queue.key, message)
        confirmation = self._consumer_journal.change(entry, FlushMode.SYNC, settled)
        table.park(offset)
        await confirmation.wait()

    async def release(
        self, subscription: Subscription, queue: LeasedQueue, message: ParkedMessage
    ) -> None:
        """Let a parked message be delivered again, its attempts counted anew, as soon as that is
        written down. Raises the store's error; then it is parked as before."""
        state, table, offset = queue.state, queue.leases, message.offset
        epoch, deliveries = state.epoch, state.deliveries.get(offset, message.attempts)
        if not table.is_parked(offset):  # nobody has looked since a restart
            table.park_unseen(offset, message.attempts)

        def settled(error: CurlewError | None) -> None:
            is_same = queue.leases is table and table.is_parked(offset)
            if error is not None:
                state.park_again(epoch, message, deliveries)
                if not is_same and offset in state.parked:
                    self._start_over(subscription, queue)
            elif is_same and offset >= queue.fetch_offset:
                table.drop_parked(offset)
            elif is_same:
                table.unpark(offset)
                subscription.line.wake_one()

        entry = Released(*queue.key, offset)
        await self._consumer_journal.change(entry, FlushMode.SYNC, settled).wait()

    def _start_over(self, subscription: Subscription, queue: LeasedQueue) -> None:
        """What the queue was told since is not so."""
        if not subscription.is_closed:
            queue.start_over(self._lease_ids.next)
            subscription.line.wake_one()

    async def _deal_with_some(
        self,
        subscription: Subscription,
        group: Group,
        queue: LeasedQueue,
        run: Sequence[FailedDelivery],
        course: _Course,
    ) -> int:
        """Deal with the first messages of a run; return how many."""
        run = run[:STEP_MESSAGES]
        read = await self._read(queue, run[0].offset, run[-1].offset + 1)
        messages = {
            offset: self._store.decode(record)
            for offset, record in zip(read.queue_offsets, read.records, strict=True)
        }
        some = [item for item in run if item.offset < max(read.next_offset, run[0].offset + 1)]
        live: list[FailedDelivery] = []
        for item in some:
            is_live = not subscription.is_closed and queue.leases.is_moving(item.offset, item.lease)
            (live if is_live else course.ended).append(item)
        if live:
            step = _Step(queue, queue.leases, live, [])
            self._add_parts(subscription, group, step, messages)
            figures = self._statistics.group(subscription.group, subscription.topic)
            await self._write(subscription, step)
            if figures is not None:
                letters = dead_letter_topic(subscription.group)
                dead = sum(len(part.messages) for part in step.parts if part.topic == letters)
                figures.dead_letters += dead
                figures.retries += sum(len(part.messages) for part in step.parts) - dead
        return len(some)

    async def _read(self, queue: LeasedQueue, start: int, end: int) -> ReadResult:
        low = self._store.bounds(queue.stored_topic, queue.stored_queue_id).min_offset
        if start < low:
            return ReadResult([], [], [], min(low, end), 0, [])

        def read(wait_for_disk: bool) -> ReadResult:
            return self._store.read(
                queue.stored_topic,
                queue.stored_queue_id,
                start,
                max_messages=STEP_MESSAGES,
                max_bytes=STEP_BYTES,
                end_offset=end,
                wait_for_disk=wait_for_disk,
            )

        return await ColdReads(self._readers).run(read)

    def _add_parts(
        self,
        subscription: Subscription,
        group: Group,
        step: _Step,
        messages: dict[int, StoredMessage],
    ) -> None:
        """Copies of what can still be read; the rest is done, since nobody can deliver it."""
        parts = step.parts
        now_ms = self._clock.now_ms()
        again: list[Message] = []
        dead: list[Message] = []
        target = retry_topic(subscription.group, subscription.topic)
        for item in step.items:
            lease = item.lease
            message = messages.get(item.offset)
            if message is None:
                continue
            decision = after(lease.failure, lease.attempt, group.max_attempts, group.retry_policy)
            match decision:
                case GivenUp(reason):
                    step.given_up.append((item, decision))
                    dead.append(
                        dead_letter(message, lease.attempt, reason, subscription.generations[1])
                    )
                case Again(0, reason):
                    self._note(item, decision)
                    again.append(retry_copy(message, lease.attempt, reason))
                case Again(delay_ms, reason):
                    self._note(item, decision)
                    copy = retry_copy(message, lease.attempt, reason)
                    identity = retry_identity(subscription.generations)
                    due_ms = now_ms + delay_ms
                    parts.append(self._delays.part(copy, target, QUEUE, due_ms, identity))
        if again:
            parts.append(StepPart(target, QUEUE, again))
        if dead:
            letters = dead_letter_topic(subscription.group)
            parts.append(StepPart(letters, QUEUE, dead, subscription.generations[0]))

    def _note(
        self, item: FailedDelivery, decision: Again | GivenUp, letter: int | None = None
    ) -> None:
        """`letter`: the offset of the dead letter."""
        kind, detail = TraceKind.DEAD_LETTERED, decision.reason
        if isinstance(decision, Again):
            is_expired = item.lease.failure in (EXPIRED, LOST)
            kind = TraceKind.EXPIRED if is_expired else TraceKind.NACKED
            detail = f"{detail}; again in {format_duration(decision.delay_ms)}"
        self._note_end(kind, item, detail, letter)

    def _note_end(
        self, kind: TraceKind, item: FailedDelivery, detail: str, letter: int | None = None
    ) -> None:
        queue, offset, lease = item
        group, topic, _ = queue.key
        place = queue.stored_topic, queue.stored_queue_id
        self._message_trace.note(
            *(kind, topic, place, (offset,)),
            group=group,
            attempt=lease.attempt,
            detail=detail,
            copy=letter,
        )

    async def _write(self, subscription: Subscription, step: _Step) -> None:
        queue, offsets = step.queue, [item.offset for item in step.items]
        row = (subscription.topic, queue.queue_id, runs_of(offsets))
        entry = self._consumer_journal.part(Settled(subscription.group, [row]))
        view = self._metadata.snapshot.topics.get(subscription.topic)
        flush = FlushMode.SYNC if view is None else view.flush
        confirmation = AppendFuture()

        known = queue.known_of(offsets)

        def done(error: CurlewError | None) -> None:
            # Here, not after the wait: whoever waits may be gone by then.
            if error is not None:
                self._undo(subscription, step, known)
            elif queue.leases is step.table and not (subscription.is_closed or queue.is_retry):
                self._offset_cache.advance(queue.key, committed)  # SQL hears of nothing before
            confirmation.done(error)

        appended = self._store.append_step((*step.parts, entry), flush, done)
        if step.given_up:  # the dead letters are the last part before the entry
            first = appended[len(step.parts) - 1].first_queue_offset
            for letter, (item, decision) in enumerate(step.given_up, first):
                self._note(item, decision, letter)
        now_s = self._clock.monotonic_s()
        for offset in offsets:
            step.table.moved(offset, now_s)
        queue.finish(offsets)
        committed = queue.committed
        if subscription.is_ordered:
            subscription.line.wake_one()
        await confirmation.wait()

    def _undo(self, subscription: Subscription, step: _Step, known: Known) -> None:
        """The log has refused the step: its messages are failing again. In a group in order their
        keys' turns were passed on, so the queue begins again where it is committed."""
        queue = step.queue
        is_same = queue.reopen(known, {offset: lease for _, offset, lease in step.items})
        if not is_same:
            self._start_over(subscription, queue)
        elif queue.leases is step.table and not subscription.is_closed:
            for _, offset, lease in step.items:
                if not queue.progress.is_acked(offset):  # by a commit since
                    step.table.keep_failing(offset, lease)


def _ended(item: FailedDelivery) -> Held:
    """The delivery, which counts as an attempt only if its failure does."""
    queue, offset, lease = item
    lease.attempt -= not lease.failure.is_counted
    return queue, offset, lease.lease_id


def _runs(
    items: Iterable[FailedDelivery],
) -> Iterator[tuple[LeasedQueue, list[FailedDelivery]]]:
    """Neighbours of one queue, so that one read finds them all."""
    run: list[FailedDelivery] = []
    for item in items:
        if run and (item.queue is not run[0].queue or item.offset != run[-1].offset + 1):
            yield run[0].queue, run
            run = []
        run.append(item)
    if run:
        yield run[0].queue, run
