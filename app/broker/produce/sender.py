"""Sending: check, choose a queue, append, wait until the store confirms.

Every error that leaves here carries `outcome`. Before the append it is "not_stored"; after it, what
the store says, or "unknown". A caller that is cancelled while it waits leaves the append to finish:
nothing is taken back, and nobody says "not stored" about it. Event loop only.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.delays.delayed_sends import DELAYED_A_TURN, Delayed, DelayedSends, Waiting
from app.broker.journal.append_future import AppendFuture, with_outcome
from app.broker.lifecycle.lifecycle import Lifecycle
from app.broker.ports import Topic
from app.broker.produce.batch_parts import (
    SMALL_MESSAGES_MAX,
    parts_of,
    ranges_of,
    weight_of,
)
from app.broker.produce.message_types import check_type, check_type_of_frame
from app.broker.produce.one_way import OneWay
from app.broker.produce.queue_choice import QueueChoice
from app.broker.produce.send_deadlines import (
    Deadline,
    is_safe_by,
    refuse_unsafe,
    results_by,
    wait_with_place,
)
from app.broker.produce.send_steps import Chosen, SendStep, fill_in, made, step_of_frame
from app.broker.produce.topic_admission import TopicAdmission, check_body, check_write_queue
from app.broker.results import BatchItem, FrameResult, SendResult
from app.broker.topic_lookup import check_queue, find_topic
from app.domain.delays import Due
from app.domain.errors import BatchTooLarge, CurlewError, InvalidRequest, TopicNotFound
from app.domain.limits import MIB
from app.domain.message import Message, check_message
from app.domain.positions import FlushMode
from app.runtime.direct import in_task
from app.store import Appended
from app.store.formats.frame.batch_frame import RequestFrame, parse_request, promised_count

CHECKED_A_TURN_MAX: Final = 4_000
"""Messages of a batch that one turn checks; weighed as for `TURN_MESSAGES_MAX`."""

LARGE_FRAME_BYTES: Final = 8 * MIB
LARGE_FRAME_MESSAGES: Final = 2_000
"""A larger frame is checked on a thread: 1 ms a MiB, and with keys up to 20 µs a message."""


class _Part(NamedTuple):
    """Messages of one queue that are being stored."""

    queue_id: int
    indexes: Sequence[int]
    """Their places in the batch."""
    appended: Appended
    confirmation: AppendFuture


class Sender:
    """Appends for producers. One per broker."""

    def __init__(self, context: Context, delayed: DelayedSends, lifecycle: Lifecycle) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self._made_by_use = context.made_by_use
        self._delayed = delayed
        self._lifecycle = lifecycle
        self._gate = context.gate
        self._admit = TopicAdmission(context).admit
        self.one_way = OneWay()
        """The deadline of sends that nobody waits for."""
        self.queues = queues = QueueChoice(context.metadata)
        self._choose_queue = queues.choose
        self._choose_queues = queues.choose_for_all

    async def send(
        self,
        topic_name: str,
        message: Message,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        due: Due | None = None,
        deadline: Deadline = None,
    ) -> SendResult:
        """Store one message; with `due` deliver it later. Errors carry `outcome`.

        Without `queue_id` the queue is that of the sharding key, or the next in turn. Returns when
        the message is as safe as `flush`, or else the topic, asks; `FlushDiskTimeout` when it is
        not by `deadline` of the loop's time. With `one_way` in its place, when it is in the log.
        """
        if self._gate.closed_because:
            self._gate.check_for_sends()
        try:
            topic = self._metadata.snapshot.topics.get(topic_name)
            if topic is None:
                topic = await self.find_or_create(topic_name)
            check_message(message, self._limits)
            if queue_id is None:
                queue_id = self._choose_queue(topic, message.sharding_key)
            else:
                check_write_queue(topic, queue_id)
            if due is not None or topic.is_guarded:
                check_type(topic, message, is_delayed=due is not None)
                size = len(message.body)
                self._admit(topic, 1, size, size)
                due_ms = self._delayed.due_ms(due)
                if due_ms is not None:
                    return await self._send_delayed(
                        topic, message, queue_id, due_ms, flush, deadline
                    )
            confirmation = AppendFuture()
            appended = self._store.append(
                topic_name,
                queue_id,
                (message,),
                flush or topic.flush,
                confirmation.done,
                topic.generation,
            )
        except CurlewError as error:
            with_outcome(error, "not_stored")
            raise
        result = SendResult(
            appended.message_ids[0],
            topic_name,
            queue_id,
            appended.first_queue_offset,
            appended.store_time_ms,
        )
        if deadline is None:
            await confirmation.wait()
        else:
            await wait_with_place(confirmation, deadline, result)
        return result

    async def _send_delayed(
        self,
        topic: Topic,
        message: Message,
        queue_id: int,
        due_ms: int,
        flush: FlushMode | None,
        deadline: Deadline,
    ) -> SendResult:
        waiting = self._delayed.append(topic, [Delayed(message, queue_id, due_ms)], flush)
        (result,) = await results_by(waiting, deadline)
        if isinstance(result, CurlewError):
            raise result
        return result

    async def send_frame(
        self,
        topic_name: str,
        body: bytes | bytearray | memoryview,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        deadline: Deadline = None,
    ) -> FrameResult:
        """Store a batch frame in one piece, in one queue. Errors carry `outcome`. `deadline` as
        for `send`. One with delivery times is one step."""
        self._gate.check_for_sends()
        try:
            topic = await self.find_or_create(topic_name)
            frame = await self.checked_frame(topic_name, body)
            if queue_id is not None:
                check_write_queue(topic, queue_id)
            queue_id = self.choose_one(topic, queue_id, frame)
            self.admit_frame(topic, frame)
            if frame.delivery_times is not None:
                step = await self.step_of_frame(topic, queue_id, frame)
                return await self._send_step(topic, queue_id, step, flush, deadline)
            confirmation = AppendFuture()
            appended = self._store.append_frame(
                topic_name,
                queue_id,
                frame,
                flush or topic.flush,
                confirmation.done,
                generation=topic.generation,
            )
        except CurlewError as error:
            with_outcome(error, "not_stored")
            raise
        result = FrameResult(
            topic_name,
            queue_id,
            appended.first_queue_offset,
            appended.count,
            appended.store_time_ms,
            appended.message_ids,
        )
        if deadline is None:
            await confirmation.wait()
        else:
            await wait_with_place(confirmation, deadline, result)
        return result

    async def _send_step(
        self,
        topic: Topic,
        queue_id: int,
        step: SendStep,
        flush: FlushMode | None,
        deadline: Deadline,
    ) -> FrameResult:
        step.check()
        confirmation = step.confirmation
        step.appended = self._store.append_step(
            step.parts, flush or topic.flush, confirmation.done, is_send=True
        )
        result = step.frame_result(topic.name, queue_id)
        if deadline is None:
            await confirmation.wait()
        else:
            await wait_with_place(confirmation, deadline, result)
        return result

    async def step_of_frame(self, topic: Topic, queue_id: int, frame: RequestFrame) -> SendStep:
        """The step of a frame with delivery times."""
        return await step_of_frame(self._delayed, topic, queue_id, frame)

    async def checked_frame(
        self, topic_name: str, body: bytes | bytearray | memoryview
    ) -> RequestFrame:
        """The frame, checked; a large one on a thread. What can be written to is ours."""
        check = partial(parse_request, body, topic=topic_name, limits=self._limits)
        if len(body) <= LARGE_FRAME_BYTES and promised_count(body) <= LARGE_FRAME_MESSAGES:
            return check()
        return await asyncio.get_running_loop().run_in_executor(None, check)

    async def send_batch(
        self,
        topic_name: str,
        items: Sequence[BatchItem | CurlewError],
        *,
        queue_id: int | None = None,
        spread: bool = False,
        strict: bool = False,
        flush: FlushMode | None = None,
        deadline: Deadline = None,
    ) -> list[SendResult | CurlewError]:
        """Store many; one result per entry, in order. An entry that is an error stays one.

        Messages without sharding key go to one queue together, unless `spread`. With `strict`
        all are stored or nothing is: they are one step. Errors carry `outcome`. `deadline` as
        for `send`, for each entry.
        """
        self._gate.check_for_sends()
        try:
            topic = await self.find_or_create(topic_name)
            self.check_batch(items)
            if queue_id is not None:
                check_write_queue(topic, queue_id)
        except CurlewError as error:
            with_outcome(error, "not_stored")
            raise
        results = await self._check_items(topic, items)
        chosen = self._choose_queues(topic, items, results, queue_id, spread)
        if strict and any(error is not None for error in results):
            return _refuse_all(results)
        try:
            self.admit(topic, [items[at] for indexes in chosen.values() for at in indexes])
        except CurlewError as error:
            with_outcome(error, "not_stored")
            raise
        if strict:
            return await self._append_together(topic, items, chosen, flush, deadline)
        return await self._append_by_queue(topic, items, chosen, results, flush, deadline)

    # --- choosing queues

    async def place(
        self, topic_name: str, message: Message, queue_id: int | None
    ) -> tuple[Topic, int]:
        """Topic and queue of a message that becomes visible later; as for a send."""
        topic = await self.find_or_create(topic_name)
        self._admit(topic, 1, len(message.body), len(message.body))
        if queue_id is None:
            return topic, self._choose_queue(topic, message.sharding_key)
        check_write_queue(topic, queue_id)
        return topic, queue_id

    def admit(self, topic: Topic, items: Sequence[BatchItem | CurlewError]) -> None:
        """Raise when the topic's permission or limits forbid these messages; count them else."""
        if topic.is_guarded:
            sizes = [len(each.message.body) for each in items if isinstance(each, BatchItem)]
            if sizes:
                self._admit(topic, len(sizes), sum(sizes), max(sizes))

    def admit_frame(self, topic: Topic, frame: RequestFrame) -> None:
        """The same for a frame."""
        if topic.is_guarded:
            sizes = frame.body_lengths
            self._admit(topic, frame.count, int(sizes.sum()), int(sizes.max()))

    def choose_one(self, topic: Topic, queue_id: int | None, frame: RequestFrame) -> int:
        """The queue of a frame: the one that was asked for, or the one whose turn it is."""
        check_type_of_frame(topic, frame)
        if queue_id is None:
            return self._choose_queue(topic, None)
        check_queue(topic, queue_id)
        return queue_id

    async def choose(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        queue_id: int | None,
        spread: bool,
    ) -> dict[int, list[tuple[int, Message]]]:
        """Queue → the entries that go there, each with its place in the batch.

        Raises when the batch or any entry of it is not valid; what the topic takes now is for
        `admit`, since it may be a repetition.
        """
        self.check_batch(items)
        if queue_id is not None:
            check_queue(topic, queue_id)
        errors = await self._check_items(topic, items, is_fresh=False)
        for error in errors:
            if error is not None:
                raise error
        chosen = self._choose_queues(topic, items, errors, queue_id, spread)
        if len(items) > SMALL_MESSAGES_MAX:
            await asyncio.sleep(0)
        return {
            queue: [
                (index, item.message)
                for index in indexes
                if isinstance(item := items[index], BatchItem)
            ]
            for queue, indexes in chosen.items()
        }

    async def _check_items(
        self, topic: Topic, items: Sequence[BatchItem | CurlewError], *, is_fresh: bool = True
    ) -> list[CurlewError | None]:
        """What forbids each entry, if anything does; of a large batch in several turns."""
        if len(items) <= SMALL_MESSAGES_MAX:
            return [self.check_item(topic, item, is_fresh=is_fresh) for item in items]
        errors: list[CurlewError | None] = []
        weight = 0
        for item in items:
            weight += 1 if isinstance(item, CurlewError) else weight_of(item.message)
            if weight > CHECKED_A_TURN_MAX:
                weight = 0
                await asyncio.sleep(0)
            errors.append(self.check_item(topic, item, is_fresh=is_fresh))
        return errors

    def check_item(
        self, topic: Topic, item: BatchItem | CurlewError, *, is_fresh: bool = True
    ) -> CurlewError | None:
        """What forbids this entry, if anything does."""
        if isinstance(item, CurlewError):
            return with_outcome(item, "not_stored")
        try:
            check_message(item.message, self._limits)
            if item.due is not None or topic.is_guarded:
                check_type(topic, item.message, is_delayed=item.due is not None)
                self._delayed.due_ms(item.due)
                if is_fresh:
                    check_body(topic, len(item.message.body))
            if item.queue_id is not None:
                (check_write_queue if is_fresh else check_queue)(topic, item.queue_id)
        except CurlewError as error:
            return with_outcome(error, "not_stored")
        return None

    def check_batch(self, items: Sequence[BatchItem | CurlewError]) -> None:
        """Raise `InvalidRequest` or `BatchTooLarge` by number and bytes."""
        limits = self._limits
        if not items:
            raise InvalidRequest("the batch has no messages")
        if len(items) > limits.batch_messages_max:
            raise BatchTooLarge(
                f"the batch has {len(items)} messages; at most {limits.batch_messages_max} are"
                " taken",
                fields={"limit": limits.batch_messages_max},
            )
        size = sum([len(item.message.body) for item in items if isinstance(item, BatchItem)])
        if size > limits.batch_bytes_max:
            raise BatchTooLarge(
                f"the bodies have {size} bytes; at most {limits.batch_bytes_max} are taken",
                fields={"limit_bytes": limits.batch_bytes_max},
            )

    # --- appending

    async def _append_by_queue(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        chosen: dict[int, list[int]],
        errors: list[CurlewError | None],
        flush: FlushMode | None,
        deadline: Deadline,
    ) -> list[SendResult | CurlewError]:
        """One append per queue, then one wait for each.

        No await lies between the first append and the last, so they share one write; but a large
        batch is appended in several turns of the loop, and others may come between its parts. When
        one part of a queue is refused or fails, so is the rest of that queue: who repeats what was
        not stored keeps the order.
        """
        results: list[SendResult | CurlewError | None] = list(errors)
        pending: list[_Part] = []
        refusals: dict[int, CurlewError] = {}
        delayed = await self._append_delayed(topic, items, chosen, results, flush)
        for queue_id, indexes, messages, begins_turn in parts_of(items, chosen):
            if begins_turn:
                await asyncio.sleep(0)
            refusal = refusals.get(queue_id) or _failure_before(pending, queue_id)
            if refusal is None:
                confirmation = AppendFuture()
                try:
                    appended = self._store.append(
                        topic.name,
                        queue_id,
                        messages,
                        flush or topic.flush,
                        confirmation.done,
                        topic.generation,
                    )
                except CurlewError as error:
                    refusal = with_outcome(error, "not_stored")
                else:
                    pending.append(_Part(queue_id, indexes, appended, confirmation))
            if refusal is not None:
                refusals[queue_id] = refusal
                _fill(results, indexes, refusal)
        for part in pending:
            await _fill_confirmed(results, topic.name, part, deadline)
        for waiting in delayed:
            if len(delayed) > 1:
                await asyncio.sleep(0)
            await _fill_delayed(results, *waiting, deadline)
        return [result for result in results if result is not None]

    async def _append_together(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        chosen: dict[int, list[int]],
        flush: FlushMode | None,
        deadline: Deadline,
    ) -> list[SendResult | CurlewError]:
        """A strict batch as one step: all is stored or nothing, also in a crash. It is appended in
        one turn; the step of a large one is made before on a thread."""
        queues = {index: queue_id for queue_id, indexes in chosen.items() for index in indexes}
        due_ms = self._delayed.due_ms

        def made_step() -> SendStep:
            sent = [
                Chosen(topic, queues[index], item, due_ms(item.due))
                for index, item in enumerate(items)
                if isinstance(item, BatchItem)
            ]
            return SendStep(self._delayed, sent)

        try:
            step = await made(made_step, len(items))
            step.check()
            done = step.confirmation.done
            mode = flush or topic.flush
            step.appended = self._store.append_step(step.parts, mode, done, is_send=True)
        except CurlewError as error:
            return [with_outcome(error, "not_stored")] * len(items)
        try:
            return list(await results_by(step, deadline))
        except CurlewError as error:
            return [error] * len(items)

    async def _append_delayed(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        chosen: dict[int, list[int]],
        results: list[SendResult | CurlewError | None],
        flush: FlushMode | None,
    ) -> list[tuple[list[int], Waiting]]:
        """Take those that are for later out of `chosen` and append them where they wait; of a
        large batch in several turns."""
        later, sent = self._take_later(items, chosen)
        pending: list[tuple[list[int], Waiting]] = []
        for first, end in ranges_of([each.message for each in sent], DELAYED_A_TURN):
            indexes = later[first:end]
            if first:
                await asyncio.sleep(0)
            try:
                waiting = self._delayed.append(topic, sent[first:end], flush)
            except CurlewError as error:
                _fill(results, indexes, with_outcome(error, "not_stored"))
            else:
                pending.append((indexes, waiting))
        return pending

    def _take_later(
        self, items: Sequence[BatchItem | CurlewError], chosen: dict[int, list[int]]
    ) -> tuple[list[int], list[Delayed]]:
        """Take the places of those that are for later out of `chosen`; and what is delayed."""
        later: list[int] = []
        sent: list[Delayed] = []
        for queue_id, indexes in chosen.items():
            for index in indexes:
                item = items[index]
                if isinstance(item, BatchItem) and item.due is not None:
                    due_ms = self._delayed.due_ms(item.due)
                    if due_ms is not None:
                        later.append(index)
                        sent.append(Delayed(item.message, queue_id, due_ms))
        if not later:
            return later, sent
        waits = frozenset(later)
        for queue_id, indexes in list(chosen.items()):
            chosen[queue_id] = [index for index in indexes if index not in waits]
            if not chosen[queue_id]:
                del chosen[queue_id]
        return later, sent

    async def find_or_create(self, name: str) -> Topic:
        """The topic; made where the configuration allows it, else `TopicNotFound`."""
        try:
            return find_topic(self._metadata, name)
        except TopicNotFound:
            if not self._made_by_use.topics:
                raise
        await in_task()  # which drivers of databases need
        return await self._lifecycle.ensure_topic(name)


def _failure_before(pending: Sequence[_Part], queue_id: int) -> CurlewError | None:
    """Why the part before in the same queue has failed; None: it has not, or is the first."""
    if not pending or pending[-1].queue_id != queue_id:
        return None
    return pending[-1].confirmation.error


def _fill(
    results: list[SendResult | CurlewError | None], indexes: Sequence[int], error: CurlewError
) -> None:
    for index in indexes:
        results[index] = error


async def _fill_confirmed(
    results: list[SendResult | CurlewError | None],
    topic: str,
    part: _Part,
    deadline: Deadline,
) -> None:
    queue_id, indexes, appended, confirmation = part
    try:
        is_safe = await is_safe_by(deadline, confirmation, len(indexes))
    except CurlewError as error:
        _fill(results, indexes, error)
        return
    await fill_in(results, topic, queue_id, indexes, appended)
    if not is_safe:
        await refuse_unsafe(results, indexes)


async def _fill_delayed(
    results: list[SendResult | CurlewError | None],
    indexes: Sequence[int],
    waiting: Waiting,
    deadline: Deadline,
) -> None:
    try:
        for index, result in zip(indexes, await results_by(waiting, deadline), strict=True):
            results[index] = result
    except CurlewError as error:
        _fill(results, indexes, error)


def _refuse_all(errors: Sequence[CurlewError | None]) -> list[SendResult | CurlewError]:
    """Results of a strict batch with a bad entry: nothing was stored, each entry says why."""
    first_bad = next(index for index, error in enumerate(errors) if error is not None)
    refused = InvalidRequest(
        f"not stored, because entry {first_bad} of this batch is not valid and the batch is strict",
        hint="mend that entry, or send without handling=strict",
        outcome="not_stored",
    )
    return [error or refused for error in errors]
