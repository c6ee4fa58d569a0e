"""What a leader reads for a follower are whole blocks, one behind the other, at their places."""

from itertools import pairwise

import pytest

from app.store import paths
from app.store.formats.record.record import END_OF_FILE_BYTES
from app.store.log.commit_log import CommitLog
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import (
    BlockRange,
    BlocksRefused,
    BlocksUnreadable,
    LogShape,
    check_blocks,
)
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL
from tests.unit.store.replica.logs import SHAPE, block_ends, fill, last_of_step


def filled(seed: int = 1) -> tuple[SimulatedFiles, CommitLog, int]:
    files = SimulatedFiles()
    end = fill(files, seed)
    return files, CommitLog(files, SMALL.segment_bytes), end


def ranges(log: CommitLog, end: int, range_bytes: int, start: int = 0) -> list[BlockRange]:
    reader = BlockReader(log, SHAPE, range_bytes)
    found: list[BlockRange] = []
    while start < end:
        found.append(reader.read(start, end))
        start = found[-1].end
    assert start == end
    return found


@pytest.mark.parametrize("range_bytes", [1, 8, 90, 300, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("seed", [1, 2])
def test_ranges_are_whole_blocks_of_any_size(seed: int, range_bytes: int) -> None:
    _, log, end = filled(seed)
    assert end > 3 * SMALL.segment_bytes
    ends = set(block_ends(log)) | set(log.bases)
    found = ranges(log, end, range_bytes)
    for blocks in found:
        assert blocks.end in ends
        check_blocks(blocks, SHAPE)
        place = blocks.start % SMALL.segment_bytes
        assert (
            blocks.data == log.read(blocks.start, SMALL.segment_bytes - place)[: len(blocks.data)]
        )
    if range_bytes == 1:
        assert len(found) > 40, "about a block at a time"


@pytest.mark.parametrize("range_bytes", [300, 4096, 1 << 20])
def test_what_is_new_is_read_to_the_same_ranges(range_bytes: int) -> None:
    """Each block as it is written, and then several; also where a segment ends between them."""
    _, log, end = filled()
    ends = [0, *block_ends(log)]
    reader = BlockReader(log, SHAPE, range_bytes)
    assert ends[-1] == end
    for step in (1, 3):
        for start, behind in pairwise(ends[::step]):
            assert reader.read_new(start, behind) == reader.read(start, behind)


def test_filler_is_not_sent_but_the_mark_is() -> None:
    files, log, end = filled()
    base = SMALL.segment_bytes
    whole = next(each for each in ranges(log, end, 1 << 20) if each.end == base)
    filler = whole.end - whole.start - len(whole.data)
    assert filler > END_OF_FILE_BYTES
    inode = files.names[paths.segment(0)]
    inode.seen[-filler:] = b"x" * filler
    assert BlockReader(log, SHAPE).read(whole.start, end) == whole


def test_nothing_behind_the_end_is_read() -> None:
    _, log, _ = filled()
    for start, end in pairwise([0, *block_ends(log)]):
        found = ranges(log, end, 1 << 20, start)
        assert found[-1].end == end


def test_what_is_damaged_or_gone_is_said() -> None:
    files, log, end = filled()
    ends = block_ends(log)
    files.names[paths.segment(0)].seen[ends[2] : ends[2] + 8] = b"\0" * 8
    reader = BlockReader(log, SHAPE)
    assert reader.read(0, end).end == ends[2]
    with pytest.raises(BlocksUnreadable, match=f"no record at {ends[2]}: nothing"):
        reader.read(ends[2], end)
    with pytest.raises(BlocksUnreadable, match="the log has nothing at"):
        reader.read(end + 10 * SMALL.segment_bytes, end + 11 * SMALL.segment_bytes)


def test_a_step_without_its_end_is_said() -> None:
    files, log, end = filled()
    at, _ = last_of_step(log)
    start = max(each for each in block_ends(log) if each < at)
    assert BlockReader(log, SHAPE, 1).read(start, end).start == start
    with pytest.raises(BlocksUnreadable, match="not whole"):
        BlockReader(log, SHAPE, 1).read(start, at)
    files.names[paths.segment(log.base_of(at))].seen[at % 4096 + 4] = 0
    with pytest.raises(BlocksUnreadable):
        BlockReader(log, SHAPE, 1).read(start, end)


def refusal(blocks: BlockRange, shape: LogShape = SHAPE) -> str:
    with pytest.raises(BlocksRefused) as refused:
        check_blocks(blocks, shape)
    return str(refused.value)


def test_each_flipped_bit_is_refused() -> None:
    _, log, end = filled()
    first, *_, last = [each for each in ranges(log, end, 1500) if each.end % 4096 == 0]
    for blocks in (first, last):
        check_blocks(blocks, SHAPE)
        for at in range(len(blocks.data)):
            data = bytearray(blocks.data)
            data[at] ^= 1 << at % 8
            refusal(blocks._replace(data=bytes(data)))


def test_whatever_is_damaged_of_a_step_is_read_and_refused_or_unreadable() -> None:
    """A leader reads what it sends by lengths alone: a length of a record that was damaged on the
    medium ended the replica, and one that was asked for good blocks, too."""
    files, log, end = filled()
    at, size = last_of_step(log)
    start, reader = max(each for each in block_ends(log) if each < at), BlockReader(log, SHAPE, 1)
    seen = files.names[paths.segment(log.base_of(at))].seen
    refused: set[int | None] = set()
    for place in range(start, at + size):
        for bit in (1, 128):
            seen[place % SMALL.segment_bytes] ^= bit
            try:
                check_blocks(reader.read(start, end), SHAPE)
            except BlocksRefused as error:
                refused.add(error.at)
            except BlocksUnreadable:
                refused.add(None)
            else:
                raise AssertionError(place)
            seen[place % SMALL.segment_bytes] ^= bit
    assert at in refused, "it is known which record is damaged"


def test_more_fewer_or_misplaced_bytes_are_refused() -> None:
    _, log, end = filled()
    blocks = BlockReader(log, SHAPE, 600).read(0, end)
    size = blocks.end
    ends = {0, *block_ends(log)}
    for cut in range(size):
        if cut not in ends:
            refusal(blocks._replace(end=cut, data=blocks.data[:cut]))
        assert "bytes for" in refusal(blocks._replace(data=blocks.data[:cut]))
    assert "bytes for" in refusal(blocks._replace(data=bytes(blocks.data) + b"\0"))
    assert "another position" in refusal(blocks._replace(start=8, end=size + 8))
    assert "no range" in refusal(blocks._replace(start=0, end=SMALL.segment_bytes + 1))
    assert "no range" in refusal(blocks._replace(start=4, end=4))
    assert "is not closed" in refusal(blocks._replace(end=SMALL.segment_bytes))


def test_half_a_step_is_refused() -> None:
    _, log, end = filled()
    at, size = last_of_step(log)
    start = max(each for each in block_ends(log) if each < at)
    whole = BlockReader(log, SHAPE, 1).read(start, end)
    assert whole.end == at + size
    half = BlockRange(start, at, whole.data[: at - start])
    assert "is not whole" in refusal(half)


def test_records_of_another_program_need_no_checksum_of_ours() -> None:
    _, log, end = filled()
    blocks = BlockReader(log, SHAPE, 1).read(0, end)
    data = bytearray(blocks.data)
    data[-12] = ord("x")  # within the name of the checksum's property
    damaged = blocks._replace(data=bytes(data))
    assert "no checksum" in refusal(damaged)
    check_blocks(damaged, LogShape(SMALL.segment_bytes, unchecked_end=1))
