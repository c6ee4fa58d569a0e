"""Sending: check, choose a queue, append, wait until the store confirms.

Every error that leaves here carries `outcome`. Before the append it is "not_stored"; after it, what
the store says, or "unknown". A caller that is cancelled while it waits leaves the append to finish:
nothing is taken back, and nobody says "not stored" about it. Event loop only.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from app.broker.context import Context
from app.broker.delays.delayed_sends import Delayed, DelayedSends
from app.broker.journal.append_future import AppendFuture, with_outcome
from app.broker.journal.send_future import Sends, begun
from app.broker.lifecycle.lifecycle import Lifecycle
from app.broker.ports import Topic
from app.broker.produce.batch_appends import BatchAppends
from app.broker.produce.batch_parts import SMALL_MESSAGES_MAX
from app.broker.produce.entry_checks import EntryChecks, refuse_all
from app.broker.produce.message_types import check_type, check_type_of_frame
from app.broker.produce.one_way import OneWay
from app.broker.produce.queue_choice import QueueChoice
from app.broker.produce.send_deadlines import (
    Deadline,
    results_by,
    wait_with_place,
)
from app.broker.produce.send_steps import SendStep, step_of_frame
from app.broker.produce.topic_admission import TopicAdmission, check_write_queue
from app.broker.results import BatchItem, FrameResult, SendResult
from app.broker.topic_lookup import check_here, find_topic
from app.domain.delays import Due
from app.domain.errors import CurlewError, TopicNotFound
from app.domain.limits import KIB, MIB
from app.domain.message import Message, check_message
from app.domain.positions import FlushMode
from app.runtime.direct import in_task
from app.store.formats.frame.batch_frame import RequestFrame, open_request, parse_request

LARGE_FRAME_BYTES: Final = 8 * MIB
LARGE_PROPERTIES_BYTES: Final = 64 * KIB
"""What is larger is checked on a thread: 1 ms a MiB of a frame, and up to 20 µs for the properties
of a message. Where all messages have the same, or none, they are looked into once, which costs less
than a thread."""


class Sender:
    """Appends for producers. One per broker."""

    def __init__(
        self, context: Context, delayed: DelayedSends, lifecycle: Lifecycle, sends: Sends | None
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self._made_by_use = context.made_by_use
        self._delayed = delayed
        self._lifecycle = lifecycle
        self._gate = context.gate
        self.checks = EntryChecks(context.limits, delayed)
        self._sends = sends
        self._appends = BatchAppends(context.store, delayed, sends)
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
        the message is as safe as `flush`, or else the topic, asks, and replicas confirm it, unless
        the topic's replication is async; `FlushDiskTimeout` or `ReplicationTimeout` when it is not
        by `deadline` of the loop's time. With `one_way` in its place, when it is in the log.
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
            sends = self._sends
            confirmation = AppendFuture() if sends is None else sends.begin(1, topic)
            appended = self._store.append(
                topic_name,
                queue_id,
                (message,),
                flush or topic.flush,
                confirmation.done,
                topic.generation,
                confirmation.answer,
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
        if deadline is None and sends is None:
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
            sends = self._sends
            confirmation = begun(sends, frame.count, topic)
            appended = self._store.append_frame(
                topic_name,
                queue_id,
                frame,
                flush or topic.flush,
                confirmation.done,
                generation=topic.generation,
                answer=confirmation.answer,
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
        if deadline is None and sends is None:
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
        sends = self._sends
        confirmation = step.confirmation = begun(sends, step.count)
        step.appended = self._store.append_step(
            *(step.parts, flush or topic.flush, confirmation.done),
            is_send=True,
            answer=confirmation.answer,
        )
        result = step.frame_result(topic.name, queue_id)
        if deadline is None and sends is None:
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
        """The frame, checked; a large one on a thread, or large properties. What can be written to
        is ours."""
        if len(body) > LARGE_FRAME_BYTES:
            check = partial(parse_request, body, topic=topic_name, limits=self._limits)
            return await asyncio.get_running_loop().run_in_executor(None, check)
        opened = open_request(body, topic=topic_name, limits=self._limits)
        if len(opened.properties.text) <= LARGE_PROPERTIES_BYTES:
            return opened.checked(self._limits)
        return await asyncio.get_running_loop().run_in_executor(None, opened.checked, self._limits)

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
            self.checks.check_batch(items)
            if queue_id is not None:
                check_write_queue(topic, queue_id)
        except CurlewError as error:
            with_outcome(error, "not_stored")
            raise
        results = await self.checks.errors_of(topic, items)
        if len(items) > SMALL_MESSAGES_MAX:
            await asyncio.sleep(0)
        chosen = self._choose_queues(topic, items, results, queue_id, spread)
        if strict and any(error is not None for error in results):
            return refuse_all(results)
        try:
            self.admit(topic, [items[at] for indexes in chosen.values() for at in indexes])
        except CurlewError as error:
            with_outcome(error, "not_stored")
            raise
        if strict:
            return await self._appends.together(topic, items, chosen, flush, deadline)
        return await self._appends.by_queue(topic, items, chosen, results, flush, deadline)

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
        check_here(topic, queue_id)
        return queue_id

    async def choose(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        queue_id: int | None,
        spread: bool,
    ) -> dict[int, list[int]]:
        """Queue → the places in the batch of the entries that go there.

        Raises when the batch or any entry of it is not valid; what the topic takes now is for
        `admit`, since it may be a repetition.
        """
        self.checks.check_batch(items)
        if queue_id is not None:
            check_here(topic, queue_id)
        errors = await self.checks.errors_of(topic, items, is_fresh=False)
        for error in errors:
            if error is not None:
                raise error
        return self._choose_queues(topic, items, errors, queue_id, spread)

    async def find_or_create(self, name: str) -> Topic:
        """The topic; made where the configuration allows it, else `TopicNotFound`."""
        try:
            return find_topic(self._metadata, name)
        except TopicNotFound:
            if not self._made_by_use.topics:
                raise
        await in_task()  # which drivers of databases need
        return await self._lifecycle.ensure_topic(name)
