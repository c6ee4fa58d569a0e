"""Sends that are stored once: by a producer's sequence, or by an idempotency key.

A request is looked up in the table; a new one is appended together with an entry of the producers'
journal, in one step, so that a crash forgets both or neither. A repetition gets the first result,
read back from the log. Several messages are taken whole or refused whole: a result that is repeated
must not have had failures.

Sends without a claim never come here. Event loop only.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from app.broker.context import Context
from app.broker.dedup.claimed_steps import (
    Parts,
    Pending,
    Stored,
    frame_result,
    moved,
    overlap,
    queues_of,
)
from app.broker.dedup.dedup_journal import DedupJournal
from app.broker.dedup.first_results import FirstResults
from app.broker.dedup.tokens import (
    ANY_QUEUE,
    Claim,
    KeyToken,
    Placed,
    ProducerToken,
    check_producer,
    topic_key,
)
from app.broker.delays.delayed_sends import Delayed, DelayedSends, Waiting
from app.broker.journal.append_future import AppendFuture, with_outcome
from app.broker.journal.send_future import Sends, begun
from app.broker.ports import Topic
from app.broker.produce.batch_parts import SMALL_MESSAGES_MAX
from app.broker.produce.send_deadlines import (
    Deadline,
    is_safe_by,
    not_safe_yet,
    wait_with_place,
)
from app.broker.produce.send_steps import SendStep, made
from app.broker.produce.sender import Sender
from app.broker.produce.topic_admission import check_write_queue
from app.broker.results import BatchItem, FrameResult, SendResult
from app.domain.delays import Due
from app.domain.errors import (
    CurlewError,
    InvalidRequest,
)
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import Appended, StepPart, with_step_marks
from app.store.formats.frame.batch_frame import RequestFrame


class Once(NamedTuple):
    """Results in the order of the request; `is_repeated`: they are those of an earlier one."""

    results: list[SendResult]
    is_repeated: bool


class FrameOnce(NamedTuple):
    """The result of a frame. Of one that was stored in part, of the rest."""

    result: FrameResult
    is_repeated: bool


class Deduplicator:
    """One per broker."""

    def __init__(
        self,
        context: Context,
        kept: DedupJournal,
        sender: Sender,
        delayed: DelayedSends,
        sends: Sends | None,
    ) -> None:
        self._store = context.store
        self._sends = sends
        self._clock = context.clock
        self._limits = context.limits
        self._sender = sender
        self._delayed = delayed
        self._check_open = context.gate.check_for_sends
        self._kept = kept
        self._table = kept.table
        self._journal = kept.journal
        self._first = FirstResults(context)

    async def send(
        self,
        topic_name: str,
        message: Message,
        claim: Claim,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        due: Due | None = None,
        deadline: Deadline = None,
    ) -> Once:
        """Store one message once. Errors carry `outcome`. `deadline` as for `Sender.send`."""
        item = BatchItem(message, due=due)
        return await self.send_batch(
            topic_name, [item], claim, queue_id=queue_id, flush=flush, deadline=deadline
        )

    async def send_batch(
        self,
        topic_name: str,
        items: Sequence[BatchItem | CurlewError],
        claim: Claim,
        *,
        queue_id: int | None = None,
        spread: bool = False,
        flush: FlushMode | None = None,
        deadline: Deadline = None,
    ) -> Once:
        """Store all messages once, or raise the first entry's error and store none.

        `FlushDiskTimeout` or `ReplicationTimeout` of the first stands for all: they are one step.
        It is told when it is confirmed, whatever the topic's replication says: it is not to be
        stored twice, nor lost.
        """
        self._check_open()
        try:
            self._check(claim)
            topic = await self._sender.find_or_create(topic_name)
            key = topic_key(topic_name, topic.generation)
            chosen = await self._sender.choose(topic, items, queue_id, spread)
            scope = ANY_QUEUE if queue_id is None else queue_id
            now_ms = self._clock.now_ms()
            found = self._table.look(claim, key, scope, len(items), now_ms)
            make = partial(self._parts, topic, items, chosen)
            parts: Parts | None = None
            if len(items) > SMALL_MESSAGES_MAX and not isinstance(found, Placed):
                parts = await made(make, len(items))  # takes a while, in which others may send
                now_ms = self._clock.now_ms()
                found = self._table.look(claim, key, scope, len(items), now_ms)
            if isinstance(found, Placed):
                return Once(await self._first.of_messages(topic_name, found), is_repeated=True)
            if found.skip:
                raise overlap(claim, found)
            parts = parts or make()
            if isinstance(claim, KeyToken):  # a producer's plan of its queues stays as it is
                named = {queue_id, *(e.queue_id for e in items if isinstance(e, BatchItem))}
                for queue in named:
                    if queue is not None:
                        check_write_queue(topic, queue)
            self._sender.admit(topic, items)
            stored = self._append(topic, key, parts, claim, scope, now_ms, flush)
        except CurlewError as error:
            raise with_outcome(error, "not_stored") from None
        if deadline is None and self._sends is None:
            await stored.confirmation.wait()
        elif not await is_safe_by(deadline, stored.confirmation, len(items)):
            raise not_safe_yet((await stored.placed())[0], stored.confirmation)
        return Once(await stored.placed(), is_repeated=False)

    async def send_frame(
        self,
        topic_name: str,
        body: bytes | bytearray | memoryview,
        claim: Claim,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        deadline: Deadline = None,
    ) -> FrameOnce:
        """Store a frame once; of one that was stored in part, the rest. `deadline` as for
        `Sender.send`."""
        self._check_open()
        try:
            self._check(claim)
            topic = await self._sender.find_or_create(topic_name)
            key = topic_key(topic_name, topic.generation)
            frame = await self._sender.checked_frame(topic_name, body)
            chosen = self._sender.choose_one(topic, queue_id, frame)
            scope = ANY_QUEUE if queue_id is None else queue_id
            if frame.delivery_times is not None:
                return await self._send_delayed_frame(
                    topic, chosen, frame, claim, scope, flush, deadline
                )
            now_ms = self._clock.now_ms()
            found = self._table.look(claim, key, scope, frame.count, now_ms)
            if isinstance(found, Placed):
                return FrameOnce(await self._first.of_frame(topic_name, found), is_repeated=True)
            if found.skip:
                frame = frame.without(found.skip)
                claim = moved(claim, found.skip)
            elif queue_id is not None and isinstance(claim, KeyToken):
                check_write_queue(topic, queue_id)
            self._sender.admit_frame(topic, frame)
            chosen = chosen if found.queue_id is None else found.queue_id
            first = self._store.next_offset(topic_name, chosen)
            placed = Placed.in_one_queue(chosen, first, frame.count)
            if isinstance(claim, KeyToken):
                placed = Placed.in_one_queue(chosen, first - found.skip, frame.count + found.skip)
            entry = self._table.entry(claim, key, scope, placed, now_ms)
            confirmation, appended = self._append_frame(topic, chosen, frame, entry, flush)
        except CurlewError as error:
            raise with_outcome(error, "not_stored") from None
        result = frame_result(topic_name, chosen, appended)
        await wait_with_place(confirmation, deadline, result)
        return FrameOnce(result, is_repeated=False)

    async def _send_delayed_frame(
        self,
        topic: Topic,
        queue_id: int,
        frame: RequestFrame,
        claim: Claim,
        scope: int,
        flush: FlushMode | None,
        deadline: Deadline,
    ) -> FrameOnce:
        """One with delivery times: the entry and the messages as one step."""
        key = topic_key(topic.name, topic.generation)
        step: SendStep | None = None
        skip = 0
        while True:
            now_ms = self._clock.now_ms()
            found = self._table.look(claim, key, scope, frame.count, now_ms)
            if isinstance(found, Placed):
                result = await self._first.of_frame(topic.name, found)
                return FrameOnce(result, is_repeated=True)
            if step is not None and found.skip == skip:
                break
            skip = found.skip  # making the step takes a while, in which others may send
            rest = frame.without(skip) if skip else frame
            step = await self._sender.step_of_frame(topic, queue_id, rest)
        self._sender.admit_frame(topic, frame.without(skip) if skip else frame)
        step.check()
        # Delayed ones have no offsets yet to come back to, and so a repetition gets none of either.
        placed = Placed(frame.count - skip, (), ())
        entry = self._table.entry(moved(claim, skip), key, scope, placed, now_ms)
        sent = begun(self._sends, step.count)
        pending = Pending(sent)
        steps = (self._journal.entry(entry), *step.parts)
        appended = self._store.append_step(
            steps, flush or topic.flush, pending.done, is_send=True, answer=sent.answer
        )
        pending.settle = self._table.taken(entry)
        step.appended = appended[1:]
        result = step.frame_result(topic.name, queue_id)
        await wait_with_place(sent, deadline, result)
        return FrameOnce(result, is_repeated=False)

    def _check(self, claim: Claim) -> None:
        if isinstance(claim, ProducerToken):
            check_producer(claim.producer_id)
            if self._table.lacks_room_for(claim.producer_id):
                self._make_room()
        elif not 0 < len(claim.key) <= self._limits.idempotency_key_chars_max:
            limit = self._limits.idempotency_key_chars_max
            raise InvalidRequest(f"an idempotency key has 1 to {limit} characters")

    def _make_room(self) -> None:
        """As no more producers can be remembered, forget the one that is idle for longest. Not
        synced: in the log it stands before what is sent in the room that it makes."""
        entry = self._table.forgetting_entry(self._clock.now_ms())
        if entry is not None:
            self._kept.append(entry)
            self._table.taken(entry)

    def _parts(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        chosen: dict[int, list[int]],
    ) -> Parts:
        """The parts of the step that stores these. Any thread."""
        messages = [item.message for item in items if isinstance(item, BatchItem)]
        dues = self._dues(items)
        if not dues:
            if len(chosen) == 1:
                (queue_id,) = chosen
                parts = [StepPart(topic.name, queue_id, messages, topic.generation)]
            else:
                parts = [
                    StepPart(topic.name, queue, [messages[at] for at in indexes], topic.generation)
                    for queue, indexes in chosen.items()
                ]
            many = len(items) > SMALL_MESSAGES_MAX
            return Parts(chosen, len(items), with_step_marks(parts) if many else parts, [])
        queues = queues_of(chosen, len(items))
        sent = [Delayed(*each) for each in zip(messages, queues, dues, strict=True)]
        return Parts(chosen, len(items), [self._delayed.waiting_part(topic, sent)], sent)

    def _append(
        self,
        topic: Topic,
        key: str,
        parts: Parts,
        claim: Claim,
        scope: int,
        now_ms: int,
        flush: FlushMode | None,
    ) -> Stored | Waiting:
        """The entry and the messages as one step, in this turn."""
        sends = self._sends
        sent = AppendFuture() if sends is None else sends.begin(parts.size)
        pending = Pending(sent)
        if parts.delayed:  # they have no offsets yet to come back to
            placed = Placed(len(parts.delayed), (), ())
            entry = self._table.entry(claim, key, scope, placed, now_ms)
            waiting = self._delayed.append_after(
                self._journal.entry(entry),
                parts.parts[0],
                topic,
                parts.delayed,
                flush,
                sent,
                pending.done,
            )
            pending.settle = self._table.taken(entry)
            return waiting
        chosen, next_offset = parts.chosen, self._store.next_offset
        placed = Placed(
            parts.size,
            queues_of(chosen, parts.size) if len(chosen) > 1 else tuple(chosen),
            [(queue, next_offset(topic.name, queue)) for queue in chosen],
        )
        entry = self._table.entry(claim, key, scope, placed, now_ms)
        steps = (self._journal.entry(entry), *parts.parts)
        appended = self._store.append_step(
            steps, flush or topic.flush, pending.done, is_send=True, answer=sent.answer
        )
        pending.settle = self._table.taken(entry)
        return Stored(topic.name, parts.size, chosen, appended[1:], sent)

    def _dues(self, items: Sequence[BatchItem | CurlewError]) -> list[int]:
        """When each message is due, now at the earliest; nothing when none has a delay."""
        wishes = [item.due for item in items if isinstance(item, BatchItem)]
        if not any(wishes):
            return []
        if not all(wishes):
            raise InvalidRequest(
                "a batch under a key or sequence is delayed whole or not at all",
                hint="send the messages for now and those for later in two batches",
            )
        now_ms = self._clock.now_ms()
        return [self._delayed.due_ms(due) or now_ms for due in wishes]

    def _append_frame(
        self,
        topic: Topic,
        queue_id: int,
        frame: RequestFrame,
        entry: bytes,
        flush: FlushMode | None,
    ) -> tuple[AppendFuture, Appended]:
        sent = begun(self._sends, frame.count)
        pending = Pending(sent)
        appended = self._store.append_frame(
            topic.name,
            queue_id,
            frame,
            flush or topic.flush,
            pending.done,
            self._journal.entry(entry),
            topic.generation,
            sent.answer,
        )
        pending.settle = self._table.taken(entry)
        return sent, appended
