"""What a send under a claim appends beside its entry, and what there is to tell about it.

Values for `deduplicator`. Event loop only, but for the making of `Parts`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from app.broker.dedup.dedup_entries import Fresh
from app.broker.dedup.tokens import Claim, KeyToken
from app.broker.delays.delayed_sends import Delayed
from app.broker.journal.append_future import AppendFuture
from app.broker.produce.send_steps import fill_in
from app.broker.results import FrameResult, SendResult
from app.domain.errors import CurlewError, SequenceOutOfOrder
from app.store import Appended, StepPart


class Pending:
    """Tells the table and whoever waits what became of an append.

    The table takes back what is certainly not stored. What may be stored stays under way in it, for
    as long as this broker lasts: a repetition is told so, and not that nothing is stored. That is
    when the store takes no more writes, and whoever comes after it reads in the log what it is.
    """

    __slots__ = ("confirmation", "settle")

    def __init__(self, confirmation: AppendFuture) -> None:
        self.confirmation = confirmation
        self.settle: Callable[[bool], None] = _nobody

    def done(self, error: CurlewError | None) -> None:
        """The store's callback; never in the turn of the append."""
        if error is None or error.outcome == "not_stored":
            self.settle(error is None)
        self.confirmation.done(error)


class Parts(NamedTuple):
    """Messages that are to be stored, as parts of a step."""

    chosen: dict[int, list[int]]
    """Queue → places of its messages in the request."""
    size: int
    """Of the request, in messages."""
    parts: list[StepPart]
    delayed: list[Delayed]
    """In the order of the request; nothing when they are for now."""


def queues_of(chosen: Mapping[int, Sequence[int]], count: int) -> list[int]:
    """The queue of each of so many messages, in the order of the request."""
    queues = [0] * count
    for queue, indexes in chosen.items():
        for index in indexes:
            queues[index] = queue
    return queues


class Stored(NamedTuple):
    """Messages that were appended and wait for their confirmation."""

    topic: str
    size: int
    chosen: dict[int, list[int]]
    appended: Sequence[Appended]
    confirmation: AppendFuture

    async def placed(self) -> list[SendResult]:
        """What to tell the producer, in the order of the request, confirmed or not."""
        found: list[SendResult | CurlewError | None] = [None] * self.size
        for (queue_id, indexes), part in zip(self.chosen.items(), self.appended, strict=True):
            await fill_in(found, self.topic, queue_id, indexes, part)
        return cast("list[SendResult]", found)


def _nobody(_is_safe: bool) -> None:
    raise AssertionError("an append was confirmed before its entry was taken")


def moved(claim: Claim, skip: int) -> Claim:
    """The claim of what is left when the first `skip` messages are stored already.

    A key stands for the whole request, whose parts count as following one another.
    """
    return claim if isinstance(claim, KeyToken) else claim._replace(seq=claim.seq + skip)


def overlap(claim: Claim, found: Fresh) -> SequenceOutOfOrder:
    """What to tell of a batch whose first messages were stored with another one."""
    expected = found.skip + (0 if isinstance(claim, KeyToken) else claim.seq)
    return SequenceOutOfOrder(
        f"the first {found.skip} messages of this batch were stored before, with another batch",
        hint=f"send on from {expected}",
        fields={"expected_seq": expected},
    )


def frame_result(topic: str, queue_id: int, appended: Appended) -> FrameResult:
    """What to tell of a frame that was appended."""
    return FrameResult(
        topic,
        queue_id,
        appended.first_queue_offset,
        appended.count,
        appended.store_time_ms,
        appended.message_ids,
    )
