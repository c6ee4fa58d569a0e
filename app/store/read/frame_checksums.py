"""Sums of the blocks of frames that follow each other in a queue, made while they are appended.

A block may begin in one frame and end in the next, so what is left of each queue's last frame is
kept: the sum of its open block, and those of the small blocks of an open large one. The data of a
large block is not read again. Where a reader would read along what lies between two frames
(`gap_bytes`), they are not joined, and it has to look for itself. See `verified_blocks`. Event
loop.
"""

from typing import Final, NamedTuple

from app.domain.limits import FRAME_RESTS_MAX
from app.store.formats.files.consume_queue import UNIT_BYTES
from app.store.formats.frame.batch_frame import RequestFrame
from app.store.formats.record.checksum import crc32, crc32_combine
from app.store.read.verified_blocks import Known, Noted, sums_of_parts, sums_of_units, whole_blocks

_Part = tuple[int, int]
"""CRC-32 and length of some bytes of the log."""
_NOTHING: Final = (0, 0)


class _Rest(NamedTuple):
    """What was appended to a queue last: records that are in no whole large block."""

    first: int
    """Queue offset of the first; a small block begins there."""
    units: bytes
    log_end: int
    """Behind the last record."""
    small: list[_Part]
    """Whole small blocks."""
    open: _Part
    """The records behind them, fewer than a small block has."""


class FrameChecksums:
    """Of all queues of one store."""

    def __init__(self, known: Known, segment_bytes: int, gap_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._known = known
        self._gap_bytes = gap_bytes
        self._rests: dict[int, _Rest] = {}
        self._next: _Rest | None = None
        """What is left of the frame that was asked about last."""

    def forget(self) -> None:
        """Join nothing that comes to what has come."""
        self._rests.clear()

    def of(
        self, queue: int, frame: RequestFrame, units: bytes, first: int, start: int
    ) -> list[Noted]:
        """What is to be noted when `frame`, all of it at `start` in the log, is confirmed.

        `queue` is the queue's number, `first` the queue offset of the first record. Nothing is
        kept for the next frame until `keep` is called, which is when this one is submitted.
        """
        self._next = None
        known, step = self._known.small, self._known.small.records
        blocks = whole_blocks(first, frame.count, step)
        head = min(blocks.start, frame.count)
        rest = self._before(queue, first, start)
        if rest is None:
            if head < blocks.start:
                return []
            units = units[head * UNIT_BYTES :]
            rest = _Rest(first + head, b"", 0, [], _NOTHING)
            opened = _NOTHING
        else:
            units = rest.units + units
            opened = _joined(rest.open, frame, 0, head)
        small = rest.small.copy()
        if head == blocks.start:
            if opened != _NOTHING:
                small.append(opened)
            small += _whole_parts(frame, blocks)
            opened = _joined(_NOTHING, frame, head + step * len(blocks), frame.count)
        done = len(rest.small)
        number = rest.first // step + done
        crcs = [crc for crc, _ in small[done:]]
        sums = _with_units(units, step, range(done, len(small)), crcs)
        large = self._large(rest.first, units, small)
        end = start + len(frame.records)
        self._next = self._rest_of(rest.first, units, end, small, opened)
        return [Noted(known, number, sums), large]

    def keep(self, queue: int) -> None:
        """The frame that `of` was asked about last goes to the log: the next one goes on there."""
        self._rests.pop(queue, None)
        if self._next is not None:
            if len(self._rests) >= FRAME_RESTS_MAX:
                self._rests.clear()  # it only spares looks
            self._rests[queue] = self._next

    def _before(self, queue: int, first: int, start: int) -> _Rest | None:
        """What is left of the records right before these, when a reader gets the blocks so, too."""
        rest = self._rests.get(queue)
        if rest is None or rest.first + len(rest.units) // UNIT_BYTES != first:
            return None
        segment_bytes, distance = self._segment_bytes, start - rest.log_end
        is_apart = start // segment_bytes != (rest.log_end - 1) // segment_bytes
        return rest if not distance or is_apart or distance > self._gap_bytes else None

    def _large(self, first: int, units: bytes, small: list[_Part]) -> Noted:
        """The sums of the whole large blocks among small ones; these begin at offset `first`."""
        known = self._known.large
        each = known.records // self._known.small.records
        number, begin = self._first_large(first)
        count = max(len(small) - begin, 0) // each
        crcs: list[int] = []
        for at in range(begin, begin + count * each, each):
            total, _ = small[at]
            for crc, size in small[at + 1 : at + each]:
                total = crc32_combine(total, crc, size)
            crcs.append(total)
        units = units[begin * self._known.small.records * UNIT_BYTES :]
        return Noted(known, number, _with_units(units, known.records, range(count), crcs))

    def _first_large(self, first: int) -> tuple[int, int]:
        """Number of the first large block from an offset on, and the small ones before it."""
        large, step = self._known.large.records, self._known.small.records
        number = -(-first // large)
        return number, (number * large - first) // step

    def _rest_of(
        self, first: int, units: bytes, log_end: int, small: list[_Part], opened: _Part
    ) -> _Rest:
        """What is in no whole large block."""
        step = self._known.small.records
        each = self._known.large.records // step
        _, begin = self._first_large(first)
        gone = min(begin + max(len(small) - begin, 0) // each * each, len(small))
        return _Rest(
            first + gone * step, units[gone * step * UNIT_BYTES :], log_end, small[gone:], opened
        )


def _joined(part: _Part, frame: RequestFrame, low: int, high: int) -> _Part:
    """`part` and records `low` to `high` (exclusive) of a frame behind it."""
    if low >= high:
        return part
    end = int(frame.positions[high - 1] + frame.sizes[high - 1])
    data = frame.records[int(frame.positions[low]) : end]
    return crc32(data, part[0]), part[1] + len(data)


def _whole_parts(frame: RequestFrame, blocks: range) -> list[_Part]:
    """The records of each of `blocks`."""
    step = blocks.step
    last = slice(blocks.start + step - 1, None, step)
    starts = frame.positions[blocks.start : blocks.stop : step]
    ends = frame.positions[last] + frame.sizes[last]
    crcs = sums_of_parts(frame.records, starts.tolist(), ends.tolist())
    return list(zip(crcs, (ends - starts).tolist(), strict=True))


def _with_units(units: bytes, step: int, numbers: range, crcs: list[int]) -> list[int]:
    """The sums of blocks of `step` units each, of which the records have these CRC-32."""
    heads = sums_of_units(units, range(numbers.start * step, numbers.stop * step, step))
    return [head << 32 | crc for head, crc in zip(heads, crcs, strict=True)]
