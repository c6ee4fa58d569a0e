"""Where blocks of the log begin and end: what a leader may send, what a follower may take. Pure.

A *block* stands in the log whole or not at all: a lone record, a step (`atomic_batch`), the
end-of-file mark of a segment. Blocks travel as they stand, one behind the other, but for the filler
behind a mark, which means nothing. A *range* of blocks lies in one segment; one with the mark ends
where the next segment begins.

A frame is not told apart from lone records, nor is the entry of its claim before it. A range may
end within it as a crash may (docs/adr/0022); the high watermark does not stop there, because it
moves by the ends that the leader's writer tells.
"""

from typing import NamedTuple

from app.store.formats.record.record import (
    END_OF_FILE_BYTES,
    Found,
    encode_end_of_file,
    inspect,
)
from app.store.formats.record.record_block import distances, intact, walk
from app.store.log.atomic_batch import marks_in
from app.store.log.log_scan import ScannedBlock


class BlocksRefused(Exception):
    """What came are not the whole, intact blocks of their place. Nothing of them was written."""

    def __init__(self, reason: str, at: int | None = None) -> None:
        super().__init__(reason)
        self.at = at
        """Physical offset of the record that is not intact; None: it is not one alone."""


class BlocksUnreadable(Exception):
    """The own log has no whole block where one should stand: it is damaged there, or gone."""


class BlockRange(NamedTuple):
    """Whole blocks of one segment, as they travel. Ends are physical offsets."""

    start: int
    end: int
    data: bytes | memoryview
    """From `start` on; without the filler behind a mark."""


class LogShape(NamedTuple):
    """What of the store's meta all replicas of a shard have in common."""

    segment_bytes: int
    unchecked_end: int = 0
    """Below it records may lack our checksum: another program wrote them."""

    def segment_end(self, physical_offset: int) -> int:
        """Where the next segment begins."""
        return physical_offset - physical_offset % self.segment_bytes + self.segment_bytes


class Piece(NamedTuple):
    """Whole blocks that a piece of the log begins with."""

    size: int
    """Bytes of them, a mark among them."""
    is_closed: bool
    """Whether the last of them is the mark of the segment's end."""
    wanted: int
    """How many bytes show the first block whole, or tell more of it; where `size` is 0."""


def whole_blocks(data: bytes, start: int, end: int, shape: LogShape) -> Piece:
    """What whole blocks `data` begins with, which was read at `start`; `end` is a block's end.

    Records are not checked: who takes them does. Raises `BlocksUnreadable` where neither a record
    nor a mark begins.
    """
    marks = walk(data, 0, len(data))
    starts, sizes, behind = marks[:-1], distances(marks), marks[-1]
    whole = _without_unfinished(ScannedBlock(data, starts, sizes, start), shape)
    left = shape.segment_end(start) - start - behind
    mark = data[behind : behind + END_OF_FILE_BYTES]
    if whole == len(starts) and start + behind < end and mark == encode_end_of_file(left):
        return Piece(behind + END_OF_FILE_BYTES, is_closed=True, wanted=0)
    if whole:
        return Piece(marks[whole], is_closed=False, wanted=0)
    if starts or len(data) < END_OF_FILE_BYTES:
        return Piece(0, is_closed=False, wanted=2 * len(data) + END_OF_FILE_BYTES)
    finding = inspect(memoryview(data), start, left=left, checksum_required=False)
    if finding.found is not Found.TORN:
        raise BlocksUnreadable(f"no record at {start}: {finding.reason or finding.found.value}")
    return Piece(0, is_closed=False, wanted=int.from_bytes(data[:4]))


def _without_unfinished(block: ScannedBlock, shape: LogShape) -> int:
    """How many records there are before the step whose end is not in the block."""
    marks = marks_in(block, shape.unchecked_end)
    number = len(block.starts) - 1
    left = marks.get(number, 0)
    if not left:
        return number + 1
    while marks.get(number - 1) == left + 1:
        number, left = number - 1, left + 1
    return number


def check_blocks(blocks: BlockRange, shape: LogShape) -> ScannedBlock:
    """The records in it. Refuses what is not the whole, intact blocks of its place with
    `BlocksRefused`.

    Each record has its checksum, its place and its length; steps are whole; the bytes are neither
    more nor fewer than the range says, and the mark is the one of this place.
    """
    start, end, data = blocks
    segment_end = shape.segment_end(start)
    if not 0 <= start < end <= segment_end:
        raise BlocksRefused(f"{start} to {end} is no range of one segment")
    size = len(data)
    if size > end - start:
        raise BlocksRefused(f"{size} bytes for {start} to {end}")
    if end == segment_end:
        size -= END_OF_FILE_BYTES
        if size < 0 or data[size:] != encode_end_of_file(segment_end - start - size):
            raise BlocksRefused(f"the segment of {start} is not closed as its end {end} says")
    elif size != end - start:
        raise BlocksRefused(f"{size} bytes for {start} to {end}")
    return _checked_records(memoryview(data)[:size], start, shape)


def _checked_records(data: memoryview, start: int, shape: LogShape) -> ScannedBlock:
    marks = walk(data, 0, len(data))
    if marks[-1] != len(data):
        at = start + marks[-1]
        raise BlocksRefused(f"no whole record at {at}", at)
    block = ScannedBlock(data, marks[:-1], distances(marks), start)
    if not block.starts:
        return block
    _check_sums(block, shape)
    steps = marks_in(block, shape.unchecked_end)
    for number, left in steps.items():
        if left and steps.get(number + 1) != left - 1:
            raise BlocksRefused(
                f"the step of the record at {start + block.starts[number]} is not whole"
            )
    return block


def _check_sums(block: ScannedBlock, shape: LogShape) -> None:
    view, (starts, sizes) = memoryview(block.data), block.places()
    is_checked = block.base >= shape.unchecked_end
    if is_checked and intact(view, starts, sizes, starts + block.base).all():
        return
    segment_end = shape.segment_end(block.base)
    for at, size in zip(block.starts, block.sizes, strict=True):
        place = block.base + at
        finding = inspect(
            view[at : at + size],
            place,
            left=segment_end - place,
            checksum_required=place >= shape.unchecked_end,
        )
        if finding.found is not Found.RECORD:
            reason = finding.reason or finding.found.value
            raise BlocksRefused(f"the record at {place} is not intact: {reason}", place)
