"""Sends whose caller waits only so long, for the medium or for other replicas: what they are told
when the time is over.

The time ends the wait, never the write: what is told has its place in the log, is synced all the
same, and may be confirmed yet. Deadlines are seconds of the event loop's time, and end both waits;
that for replicas has a bound of its own (`send_future`). A one-way send waits for neither. Event
loop only, and with a deadline in a task.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from app.broker.journal.append_future import AppendFuture
from app.broker.produce.one_way import OneWay
from app.broker.results import FrameResult, SendResult
from app.domain.errors import CurlewError, FlushDiskTimeout, ReplicationTimeout

_ERRORS_A_TURN: Final = 1_000
"""Of a large batch; a few microseconds each."""

Unsafe = FlushDiskTimeout | ReplicationTimeout
"""It has its place in the log, and is not as safe as it was asked for."""

_HINT: Final = (
    "it becomes readable when it is on the medium; who sends it again with the same "
    "Idempotency-Key or producer sequence stores it once"
)

_REPLICAS_HINT: Final = (
    "it becomes readable when the replicas in sync have it, unless this node fails first; who sends"
    " it again with the same Idempotency-Key or producer sequence stores it once"
)


Deadline = float | OneWay | None
"""How long the sender waits: until a time, not at all, or as long as it takes."""


class Placing(Protocol):
    """Messages that were appended and wait for their confirmation."""

    @property
    def confirmation(self) -> AppendFuture: ...

    @property
    def count(self) -> int:
        """Of the messages."""
        ...

    async def placed(self) -> Sequence[SendResult | CurlewError]:
        """Where they are, confirmed or not."""
        ...


def not_safe_yet(place: SendResult, confirmation: AppendFuture) -> Unsafe:
    """What to tell about a message that has its place and is not safe in time."""
    fields = _fields(place.message_id, place.topic, place.queue_id, place.store_time_ms)
    if place.recall_handle is None:
        fields["queue_offset"] = place.queue_offset
    else:
        fields["recall_handle"] = place.recall_handle
    return _timeout("the message is", fields, confirmation)


def frame_not_safe_yet(place: FrameResult, confirmation: AppendFuture) -> Unsafe:
    """The same of a frame; its first message stands for all."""
    first_id = place.message_ids[0]
    fields = _fields(first_id, place.topic, place.queue_id, place.store_time_ms)
    if place.first_queue_offset >= 0:
        fields["queue_offset"] = place.first_queue_offset
    fields["count"] = place.count
    return _timeout("the frame is", fields, confirmation)


async def results_by(sent: Placing, deadline: Deadline) -> Sequence[SendResult | CurlewError]:
    """The place of each message that is safe by then, or what is `Unsafe` of each."""
    if await is_safe_by(deadline, sent.confirmation, sent.count):
        return await sent.placed()
    results: list[SendResult | CurlewError | None] = list(await sent.placed())
    await refuse_unsafe(results, range(len(results)), sent.confirmation)
    return [result for result in results if result is not None]


async def refuse_unsafe(
    results: list[SendResult | CurlewError | None],
    indexes: Sequence[int],
    confirmation: AppendFuture,
) -> None:
    """Put what is `Unsafe` where these have a place; of many messages in several turns."""
    for count, index in enumerate(indexes, 1):
        if count % _ERRORS_A_TURN == 0:
            await asyncio.sleep(0)
        place = results[index]
        if isinstance(place, SendResult):
            results[index] = not_safe_yet(place, confirmation)


async def wait_with_place(
    confirmation: AppendFuture, deadline: Deadline, place: SendResult | FrameResult
) -> None:
    """Return when it is safe, or is not waited for; raise what is `Unsafe` when it is not in
    time."""
    count = place.count if isinstance(place, FrameResult) else 1
    if not await is_safe_by(deadline, confirmation, count):
        if isinstance(place, SendResult):
            raise not_safe_yet(place, confirmation)
        raise frame_not_safe_yet(place, confirmation)


async def is_safe_by(deadline: Deadline, confirmation: AppendFuture, count: int) -> bool:
    """Whether so many messages that were appended are safe by then; of a one-way send they pass
    for it. Raises what went wrong."""
    if isinstance(deadline, OneWay):
        deadline.leave(confirmation, count)
        return True
    return await confirmation.is_safe_by(deadline)


def _fields(message_id: str, topic: str, queue_id: int, store_time_ms: int) -> dict[str, int | str]:
    return {
        "message_id": message_id,
        "topic": topic,
        "queue_id": queue_id,
        "store_time_ms": store_time_ms,
    }


def _timeout(what: str, fields: dict[str, int | str], confirmation: AppendFuture) -> Unsafe:
    if confirmation.is_here:
        return ReplicationTimeout(
            f"{what} written, and not confirmed by the other replicas in the time given",
            hint=_REPLICAS_HINT,
            fields={"send_status": "FLUSH_SLAVE_TIMEOUT", **fields},
            outcome="unknown",
        )
    return FlushDiskTimeout(
        f"{what} written, and not on the medium in the time given",
        hint=_HINT,
        fields={"send_status": "FLUSH_DISK_TIMEOUT", **fields},
        outcome="unknown",
    )
