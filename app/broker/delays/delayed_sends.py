"""Sending delayed messages: when they are due, where they wait meanwhile, and their handles.

Event loop only.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.delays.timer_records import QUEUE
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.send_future import Sends, begun
from app.broker.ports import Topic
from app.broker.results import SendResult
from app.broker.topic_lookup import check_current
from app.domain.delays import Due
from app.domain.handles.recall import RecallHandle, RecallSigner
from app.domain.message import Message
from app.domain.names import TIMER_TOPIC
from app.domain.positions import FlushMode
from app.store import Appended, Done, StepPart
from app.store.formats.record.record import encode_properties

DELAYED_A_TURN: Final = 1_000
"""Delayed messages that one turn appends, or whose results it makes; each weighed."""


class Delayed(NamedTuple):
    """A message, its queue, and when it goes there."""

    message: Message
    queue_id: int
    due_ms: int


class Waiting:
    """Delayed messages that were appended and wait for their confirmation."""

    def __init__(
        self,
        topic: str,
        sent: Sequence[Delayed],
        appended: Appended,
        signer: RecallSigner,
        confirmation: AppendFuture,
    ) -> None:
        self._topic = topic
        self._sent = sent
        self._appended = appended
        self._signer = signer
        self.confirmation = confirmation

    @property
    def count(self) -> int:
        """Of the messages."""
        return len(self._sent)

    async def results(self) -> list[SendResult]:
        """What to tell the producer, in order; raises when they were not stored."""
        await self.confirmation.wait()
        return await self.placed()

    async def placed(self) -> list[SendResult]:
        """The `results` as they will be, confirmed or not."""
        appended = self._appended
        results: list[SendResult] = []
        for place, (_, queue_id, due_ms) in enumerate(self._sent):
            if place and place % DELAYED_A_TURN == 0:
                await asyncio.sleep(0)
            message_id = appended.message_ids[place]
            offset = appended.first_queue_offset + place
            handle = RecallHandle(self._topic, offset, due_ms, message_id)
            results.append(
                SendResult(
                    message_id,
                    self._topic,
                    queue_id,
                    -1,
                    appended.store_time_ms,
                    due_ms,
                    self._signer.issue(handle),
                )
            )
        return results


class DelayedSends:
    """Takes delayed messages from producers. One per broker."""

    def __init__(
        self, context: Context, delays: DelayDelivery, signer: RecallSigner, sends: Sends | None
    ) -> None:
        self._store = context.store
        self._sends = sends
        self._metadata = context.metadata
        self._delays = delays
        self._clock = context.clock
        self._limits = context.limits
        self._signer = signer

    def due_ms(self, due: Due | None) -> int | None:
        """The due time; None when the message is for now. Raises `IllegalDeliveryTime`."""
        if due is None:
            return None
        now_ms = self._clock.now_ms()
        at_ms = due.at(now_ms, self._limits)
        return at_ms if at_ms > now_ms else None

    def append(self, topic: Topic, sent: Sequence[Delayed], flush: FlushMode | None) -> Waiting:
        """Store messages where they wait, in one piece."""
        confirmation = begun(self._sends, len(sent))
        part = self.part(topic, sent)
        mode = flush or topic.flush
        appended = self._store.append(
            *(part.topic, part.queue_id, part.messages, mode, confirmation.done),
            answer=confirmation.answer,
        )
        return self.waiting(topic.name, sent, appended, confirmation)

    def append_after(
        self,
        entry: StepPart,
        part: StepPart,
        topic: Topic,
        sent: Sequence[Delayed],
        flush: FlushMode | None,
        confirmation: AppendFuture,
        done: Done,
    ) -> Waiting:
        """The same with their `waiting_part`, in one step with an entry of a journal; `done` tells
        `confirmation`."""
        self.check(topic)
        mode = flush or topic.flush
        appended = self._store.append_step(
            (entry, part), mode, done, is_send=True, answer=confirmation.answer
        )
        return self.waiting(topic.name, sent, appended[1], confirmation)

    def part(self, topic: Topic, sent: Sequence[Delayed]) -> StepPart:
        """Delayed messages of one topic as a part of a step. Raises as `check`."""
        self.check(topic)
        return self.waiting_part(topic, sent)

    def check(self, topic: Topic) -> None:
        """Raise `TopicNotFound` when the topic was deleted since it was looked up."""
        if self._store.is_gone(topic.name, topic.generation):
            check_current(self._metadata, topic)

    def waiting_part(self, topic: Topic, sent: Sequence[Delayed]) -> StepPart:
        """Delayed messages as a part of a step, with their properties; `check` comes first. Any
        thread."""
        messages = [
            self._delays.part(message, topic.name, queue_id, due_ms, topic.generation).messages[0]
            for message, queue_id, due_ms in sent
        ]
        properties = [encode_properties(message) for message in messages]
        return StepPart(TIMER_TOPIC, QUEUE, messages, properties=properties)

    def waiting(
        self, topic: str, sent: Sequence[Delayed], appended: Appended, confirmation: AppendFuture
    ) -> Waiting:
        """What there is to tell about a `part` that was appended."""
        return Waiting(topic, sent, appended, self._signer, confirmation)
