"""Messages of a step by where they go, and what there is to tell about them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count, repeat
from typing import Final, NamedTuple, TypeVar

from app.broker.delays.delayed_sends import Delayed, DelayedSends, Waiting
from app.broker.journal.append_future import AppendFuture
from app.broker.ports import Topic
from app.broker.produce.batch_parts import SMALL_MESSAGES_MAX
from app.broker.results import BatchItem, FrameResult, SendResult
from app.domain.delays import Due
from app.domain.errors import CurlewError, IllegalDeliveryTime
from app.domain.message import Message
from app.store import Appended, StepPart
from app.store.formats.frame.batch_frame import RequestFrame
from app.store.formats.frame.frame_messages import messages_of
from app.store.formats.record.record import encode_properties

RESULTS_A_TURN: Final = 2_500
"""Results of one send that one turn of the event loop makes; some milliseconds."""

_result_of: Final[Callable[[tuple[object, ...]], SendResult]] = partial(tuple.__new__, SendResult)
"""As `SendResult._make`, without a call of Python's for each."""

_Made = TypeVar("_Made")


class Chosen(NamedTuple):
    """A message on its way; with `due_ms` it waits first."""

    topic: Topic
    queue_id: int
    item: BatchItem
    due_ms: int | None


class SendStep:
    """Made by any thread; the rest is for the event loop. `check` in the turn of the append."""

    def __init__(self, delayed: DelayedSends, chosen: Sequence[Chosen]) -> None:
        self.confirmation = AppendFuture()
        """Of the append; a send puts its own here before."""
        self.appended: Sequence[Appended] = ()
        self._delayed = delayed
        self.count = len(chosen)
        self._now: dict[tuple[str, int], list[int]] = {}
        self._later: dict[str, list[int]] = {}
        self._topics = topics = {each.topic.name: each.topic for each in chosen}
        for index, each in enumerate(chosen):
            if each.due_ms is None:
                self._now.setdefault((each.topic.name, each.queue_id), []).append(index)
            else:
                self._later.setdefault(each.topic.name, []).append(index)
        self._waiting = {
            topic: [
                Delayed(each.item.message, each.queue_id, each.due_ms)
                for index in indexes
                if (each := chosen[index]).due_ms is not None
            ]
            for topic, indexes in self._later.items()
        }
        self.parts = [
            *(
                encoded_part(
                    topic,
                    queue_id,
                    [chosen[index].item.message for index in indexes],
                    topics[topic].generation,
                )
                for (topic, queue_id), indexes in self._now.items()
            ),
            *(delayed.waiting_part(topics[topic], sent) for topic, sent in self._waiting.items()),
        ]

    @property
    def has_delayed(self) -> bool:
        """Whether some of it waits first: nobody is told of that before it is confirmed."""
        return bool(self._later)

    def check(self) -> None:
        """Raise `TopicNotFound` when a topic of delayed messages was deleted since it was looked
        up; the store sees to the others."""
        for topic in self._waiting:
            self._delayed.check(self._topics[topic])

    async def results(self) -> list[SendResult | CurlewError]:
        """In the order of the request, when the step is safe. Raises what became of it else."""
        await self.confirmation.wait()
        return await self.placed()

    def frame_result(self, topic: str, queue_id: int) -> FrameResult:
        """The result of a step that was made of a frame."""
        ids = [""] * self.count
        first = -1
        parts = iter(self.appended)
        for indexes in (*self._now.values(), *self._later.values()):
            part = next(parts)
            for index, message_id in zip(indexes, part.message_ids, strict=True):
                ids[index] = message_id
        if self._now:
            first = self.appended[0].first_queue_offset
        delayed = sum(map(len, self._later.values()))
        stored_ms = self.appended[0].store_time_ms
        waiting = self.appended[-1].first_queue_offset if delayed else -1
        return FrameResult(topic, queue_id, first, self.count, stored_ms, ids, delayed, waiting)

    async def placed(self) -> list[SendResult | CurlewError]:
        """The `results` as they will be, confirmed or not."""
        found: list[SendResult | CurlewError | None] = [None] * self.count
        parts = iter(self.appended)
        for (topic, queue_id), indexes in self._now.items():
            await fill_in(found, topic, queue_id, indexes, next(parts))
        for topic, indexes in self._later.items():
            sent = self._waiting[topic]
            waiting: Waiting = self._delayed.waiting(topic, sent, next(parts), self.confirmation)
            for index, result in zip(indexes, await waiting.placed(), strict=True):
                found[index] = result
        return [result for result in found if result is not None]


def encoded_part(
    topic: str, queue_id: int, messages: Sequence[Message], generation: int
) -> StepPart:
    """Messages as a part of a step, with their properties. Any thread."""
    properties = [encode_properties(message) for message in messages]
    return StepPart(topic, queue_id, messages, generation, properties)


async def made(make: Callable[[], _Made], messages: int) -> _Made:
    """What `make` gives; for many messages made on a thread."""
    if messages <= SMALL_MESSAGES_MAX:
        return make()
    return await asyncio.get_running_loop().run_in_executor(None, make)


async def step_of_frame(
    delayed: DelayedSends, topic: Topic, queue_id: int, frame: RequestFrame
) -> SendStep:
    """The step of a frame with delivery times; a large one is made on a thread.

    Raises `IllegalDeliveryTime` with the index of the record.
    """
    times = frame.delivery_times
    assert times is not None
    dues = [_due_ms(delayed, index, ms) for index, ms in enumerate(times.tolist())]

    def make() -> SendStep:
        items = map(BatchItem, messages_of(frame))
        return SendStep(
            delayed,
            [Chosen(topic, queue_id, *each) for each in zip(items, dues, strict=True)],
        )

    return await made(make, frame.count)


def _due_ms(delayed: DelayedSends, index: int, time_ms: int) -> int | None:
    """When a record is due; None: now. `time_ms` as in a frame."""
    if time_ms == 0:
        return None
    try:
        return delayed.due_ms(Due(abs(time_ms), is_delay=time_ms < 0))
    except IllegalDeliveryTime as error:
        raise IllegalDeliveryTime(
            f"record {index}: {error.detail}",
            hint=error.hint,
            fields={**error.fields, "index": index},
            outcome="not_stored",
        ) from error


async def step_of(delayed: DelayedSends, chosen: Sequence[Chosen]) -> SendStep:
    """A step; a large one is made on a thread."""
    return await made(partial(SendStep, delayed, chosen), len(chosen))


async def fill_in(
    found: list[SendResult | CurlewError | None],
    topic: str,
    queue_id: int,
    indexes: Sequence[int],
    part: Appended,
) -> None:
    """The results of one part of a batch, in their places; of many messages in several turns."""
    offsets, times, none = count(part.first_queue_offset), repeat(part.store_time_ms), repeat(None)
    ids: Iterable[str] = part.message_ids
    rows = zip(ids, repeat(topic), repeat(queue_id), offsets, times, none, none, strict=False)
    results = map(_result_of, rows)
    if len(indexes) == len(found) < RESULTS_A_TURN:  # most often all go to one queue
        found[:] = results
        return
    for place, (index, result) in enumerate(zip(indexes, results, strict=True)):
        if place % RESULTS_A_TURN == RESULTS_A_TURN - 1:
            await asyncio.sleep(0)
        found[index] = result
