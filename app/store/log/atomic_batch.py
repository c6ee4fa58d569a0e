"""Steps at opening: the records of a step come back together or not at all.

A step is several records, for one or more queues, that were appended as one block and acknowledged
at once. Each says how many records of the step follow it (`MQ_STEP`, the last one 0), they stand
one behind the other, and never cross a segment. So the log can only end inside a step when the
write was cut short: nobody was told of it, and the whole step is cut with the torn tail.

Half a step in the middle of the log, with something else where it should go on, is damage: whoever
wrote on did not look. It was never acknowledged, so it is left out as other bad bytes are.
A record of a finished step that is damaged later costs only itself, as any other.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from app.domain.message import PROPERTY_STEP
from app.store.formats.record.record import (
    CHECKSUM_BYTES,
    decode_fields,
    decode_properties,
)
from app.store.formats.record.record_block import tails
from app.store.log.log_scan import Damage, ScannedBlock

_NAME: Final = PROPERTY_STEP.encode() + b"\x01"
_TAIL_BYTES: Final = len(_NAME) + 12 + CHECKSUM_BYTES
"""The mark is the last property but the checksum; its number has at most ten digits."""


def records_left(record: memoryview) -> int:
    """How many records of its step follow a record; 0 also when it is of no step, or is damaged so
    that its lengths do not add up."""
    if not _is_marked(record):
        return 0
    try:
        text = decode_properties(decode_fields(record).properties).get(PROPERTY_STEP, "0")
        return int(text) if text.isdecimal() else 0
    except (struct.error, ValueError, IndexError):
        return 0  # who reads blocks for a replica checks them behind this


def _is_marked(record: memoryview) -> bool:
    return bytes(record[-_TAIL_BYTES:]).find(_NAME) >= 0


class WholeBatches:
    """Passes blocks of a scan on, but for the beginning of a step until its end has come."""

    def __init__(self, unchecked_end: int = 0, damages: Sequence[Damage] = ()) -> None:
        """`damages`: where the scan has found no good record so far; others add to it."""
        self.halves: list[Damage] = []
        """Steps in the middle of the log that do not go on; left out."""
        self._unchecked_end = unchecked_end
        self._damages = damages
        self._held: list[ScannedBlock] = []
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
        """`blocks` without the beginning of a step that the log ends in, and without halves."""
        for block in blocks:
            goes_on = bool(self._held) and self._goes_on(block)
            halves = self._halves_in(block)
            if self._held and (self._is_half(block) if not goes_on else 0 in halves):
                self._note_half([*self.release()])
            first = self._first_of_last_step(block)
            if not goes_on or first > 0 or self._left == 0:
                yield from self.release()
            yield from self._without(halves, _part(block, 0, first))
            if first < len(block.starts):
                self._held.append(_part(block, first, len(block.starts)))

    def _without(self, halves: dict[int, int], block: ScannedBlock) -> Iterator[ScannedBlock]:
        start = 0
        for first, end in [*halves.items(), (len(block.starts), 0)]:
            if start < first:
                yield _part(block, start, first)
            if end:
                self._note_half([_part(block, first, end)])
            start = end

    def _note_half(self, parts: Sequence[ScannedBlock]) -> None:
        start = parts[0].base + parts[0].starts[0]
        end = parts[-1].base + parts[-1].starts[-1] + parts[-1].sizes[-1]
        self.halves.append(Damage(start, end, "half a step, and other records behind it"))

    def _is_half(self, block: ScannedBlock) -> bool:
        """Whether the step held back does not go on in this block, though nothing between them is
        damaged."""
        last = self._held[-1]
        end, start = last.base + last.starts[-1] + last.sizes[-1], block.base + block.starts[0]
        return not any(end <= damage.start < start for damage in self._damages)

    def _halves_in(self, block: ScannedBlock) -> dict[int, int]:
        """Number of the first record of each half of a step → number behind its last one. Not that
        in which the block ends."""
        marks = marks_in(block, self._unchecked_end)
        halves: dict[int, int] = {}
        first = -1
        for number, left in marks.items():
            if first < 0 or marks.get(number - 1, 0) != left + 1:
                first = number
            goes_on = marks.get(number + 1) == left - 1
            if left and not goes_on and number + 1 < len(block.starts):
                halves[first] = number + 1
        return halves

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
        return _mark(block, number, self._unchecked_end)


def marks_in(block: ScannedBlock, unchecked_end: int) -> dict[int, int]:
    """Number of each record that is of a step → how many follow it. One comparison for all tells
    which may be, as most are of none."""
    return {
        number: _mark(block, number, unchecked_end)
        for number in _with_name(block)
        if _is_of_step(block, number)
    }


def _with_name(block: ScannedBlock) -> Iterator[int]:
    """Numbers of records that may have the mark: the name is looked for in the last bytes of all
    together, where it may also stand across two. A record has more bytes than that."""
    if not block.starts:
        return
    found = tails(block.data, *block.places(), _TAIL_BYTES).tobytes()
    at = found.find(_NAME)
    while at >= 0:
        yield at // _TAIL_BYTES
        at = found.find(_NAME, at + 1)


def _is_of_step(block: ScannedBlock, number: int) -> bool:
    start, size = block.starts[number], block.sizes[number]
    return _is_marked(memoryview(block.data)[start : start + size])


def _mark(block: ScannedBlock, number: int, unchecked_end: int) -> int:
    start, size = block.starts[number], block.sizes[number]
    if block.base + start < unchecked_end:
        return 0  # another program's record
    return records_left(memoryview(block.data)[start : start + size])


def _part(block: ScannedBlock, first: int, end: int) -> ScannedBlock:
    return ScannedBlock(block.data, block.starts[first:end], block.sizes[first:end], block.base)
