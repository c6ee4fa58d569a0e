"""Steps at opening: the records of a step come back together or not at all.

A step is several records, for one or more queues, that were appended as one block and acknowledged
at once. Each says how many records of the step follow it (`MQ_STEP`, the last one 0), they stand
one behind the other, and never cross a segment. So the log can only end inside a step when the
write was cut short: nobody was told of it, and the whole step is cut with the torn tail.

A record of a finished step that is damaged later costs only itself, as any other.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from app.domain.message import PROPERTY_STEP
from app.store.formats.record.record import (
    CHECKSUM_BYTES,
    decode_fields,
    decode_properties,
)
from app.store.log.log_scan import ScannedBlock

_NAME: Final = PROPERTY_STEP.encode() + b"\x01"
_TAIL_BYTES: Final = len(_NAME) + 12 + CHECKSUM_BYTES
"""The mark is the last property but the checksum; its number has at most ten digits."""


def records_left(record: memoryview) -> int:
    """How many records of its step follow an intact record; 0 also when it is of no step."""
    if bytes(record[-_TAIL_BYTES:]).find(_NAME) < 0:
        return 0
    text = decode_properties(decode_fields(record).properties).get(PROPERTY_STEP, "0")
    return int(text) if text.isdecimal() else 0


class WholeBatches:
    """Passes blocks of a scan on, but for the beginning of a step until its end has come."""

    def __init__(self, unchecked_end: int = 0) -> None:
        self._unchecked_end = unchecked_end
        self._held: list[ScannedBlock] = []
        self._end = 0
        self._left = 0

    @property
    def unfinished_from(self) -> int | None:
        """Where the step begins whose end has not come; None when there is none."""
        return self._held[0].base + self._held[0].starts[0] if self._held else None

    def release(self) -> list[ScannedBlock]:
        """The records that were held back."""
        held, self._held = self._held, []
        return held

    def only_whole(self, blocks: Iterable[ScannedBlock]) -> Iterator[ScannedBlock]:
        """`blocks` without the beginning of a step that the log ends in."""
        for block in blocks:
            goes_on = self._held and self._goes_on(block)
            first = self._first_of_last_step(block)
            if not goes_on or first > 0 or self._left == 0:
                yield from self.release()
            if first > 0:
                yield _part(block, 0, first)
            if first < len(block.starts):
                self._held.append(_part(block, first, len(block.starts)))

    def whole_or_below(
        self, confirmed_end: int, blocks: Iterable[ScannedBlock]
    ) -> Iterator[ScannedBlock]:
        """`only_whole`, but a step below `confirmed_end` was whole: its end is damaged."""
        yield from self.only_whole(blocks)
        unfinished = self.unfinished_from
        if unfinished is not None and unfinished < confirmed_end:
            yield from self.release()

    def _goes_on(self, block: ScannedBlock) -> bool:
        """Whether a block begins with the record that the step held back lacks next."""
        last = self._held[-1]
        end = last.base + last.starts[-1] + last.sizes[-1]
        return block.base + block.starts[0] == end and self._mark(block, 0) == self._left - 1

    def _first_of_last_step(self, block: ScannedBlock) -> int:
        """Number of the first record of the step in which a block ends; all when in none."""
        number = len(block.starts) - 1
        self._left = left = self._mark(block, number)
        if not left:
            return number + 1
        while number > 0 and self._mark(block, number - 1) == left + 1:
            number -= 1
            left += 1
        return number

    def _mark(self, block: ScannedBlock, number: int) -> int:
        start, size = block.starts[number], block.sizes[number]
        if block.base + start < self._unchecked_end:
            return 0  # another program's record
        return records_left(memoryview(block.data)[start : start + size])


def _part(block: ScannedBlock, first: int, end: int) -> ScannedBlock:
    return ScannedBlock(block.data, block.starts[first:end], block.sizes[first:end], block.base)
