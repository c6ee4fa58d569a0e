"""Sends whose caller waits for the medium only so long: what they are told when the time is over.

The time ends the wait, never the write: what is told has its place in the log, and is synced all
the same. Deadlines are seconds of the event loop's time. Event loop only, and in a task.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from app.broker.journal.append_future import AppendFuture
from app.broker.results import FrameResult, SendResult
from app.domain.errors import CurlewError, FlushDiskTimeout

_ERRORS_A_TURN: Final = 1_000
"""Of a large batch; a few microseconds each."""

_HINT: Final = (
    "it becomes readable when it is on the medium; who sends it again with the same "
    "Idempotency-Key or producer sequence stores it once"
)


class Placing(Protocol):
    """Messages that were appended and wait for their confirmation."""

    async def is_safe_by(self, deadline_s: float | None) -> bool:
        """Whether they are safe by then; raises what went wrong."""
        ...

    async def placed(self) -> Sequence[SendResult | CurlewError]:
        """Where they are, confirmed or not."""
        ...


def not_safe_yet(place: SendResult) -> FlushDiskTimeout:
    """What to tell about a message that has its place and is not on the medium in time."""
    fields = _fields(place.message_id, place.topic, place.queue_id, place.store_time_ms)
    if place.recall_handle is None:
        fields["queue_offset"] = place.queue_offset
    else:
        fields["recall_handle"] = place.recall_handle
    return _timeout("the message is", fields)


def frame_not_safe_yet(place: FrameResult) -> FlushDiskTimeout:
    """The same of a frame; its first message stands for all."""
    first_id = place.message_ids[0]
    fields = _fields(first_id, place.topic, place.queue_id, place.store_time_ms)
    if place.first_queue_offset >= 0:
        fields["queue_offset"] = place.first_queue_offset
    fields["count"] = place.count
    return _timeout("the frame is", fields)


async def results_by(sent: Placing, deadline_s: float | None) -> Sequence[SendResult | CurlewError]:
    """The place of each message that is safe by then, or `FlushDiskTimeout` of each."""
    if await sent.is_safe_by(deadline_s):
        return await sent.placed()
    results: list[SendResult | CurlewError | None] = list(await sent.placed())
    await refuse_unsafe(results, range(len(results)))
    return [result for result in results if result is not None]


async def refuse_unsafe(
    results: list[SendResult | CurlewError | None], indexes: Sequence[int]
) -> None:
    """Put `FlushDiskTimeout` where these have a place; of many messages in several turns."""
    for count, index in enumerate(indexes, 1):
        if count % _ERRORS_A_TURN == 0:
            await asyncio.sleep(0)
        place = results[index]
        if isinstance(place, SendResult):
            results[index] = not_safe_yet(place)


async def wait_with_place(
    confirmation: AppendFuture, deadline_s: float, place: SendResult | FrameResult
) -> None:
    """Return when it is safe; raise `FlushDiskTimeout` when it is not by then."""
    if not await confirmation.is_safe_by(deadline_s):
        if isinstance(place, SendResult):
            raise not_safe_yet(place)
        raise frame_not_safe_yet(place)


def _fields(message_id: str, topic: str, queue_id: int, store_time_ms: int) -> dict[str, int | str]:
    return {
        "send_status": "FLUSH_DISK_TIMEOUT",
        "message_id": message_id,
        "topic": topic,
        "queue_id": queue_id,
        "store_time_ms": store_time_ms,
    }


def _timeout(what: str, fields: dict[str, int | str]) -> FlushDiskTimeout:
    return FlushDiskTimeout(
        f"{what} written, and not on the medium in the time given",
        hint=_HINT,
        fields=fields,
        outcome="unknown",
    )
