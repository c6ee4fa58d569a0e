"""Records of one size are looked at together; what is found is what is found one by one."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from app.store.formats.record.record_block import distances, even_size, intact, tails, walk
from app.store.log.log_scan import ScannedBlock
from tests.unit.store.formats.record.frame_records import record, records


def one_by_one(data: bytes, start: int, end: int) -> list[int]:
    """As `walk`, over a piece so short that nothing is looked at together."""
    found = [start]
    while len(marks := walk(data, found[-1], min(found[-1] + len(record()) * 4, end))) > 1:
        found += marks[1:]
    return found


@pytest.mark.parametrize(
    "bodies",
    [
        [b"same"] * 40,
        [b"same"] * 20 + [b"longer"] * 20,
        [b"longer", *[b"same"] * 20],
        [b"same"] * 3,
        [],
    ],
    ids=["alike", "two sizes", "another one first", "few", "none"],
)
@pytest.mark.parametrize("torn", [0, 1, 30])
def test_places_are_those_of_each_record(bodies: list[bytes], torn: int) -> None:
    data = b"before" + b"".join(records(bodies))
    end = max(len(data) - torn, 6)
    marks = walk(data, 6, end)
    assert list(marks) == one_by_one(data, 6, end)
    assert walk(memoryview(data), 6, end) == marks
    assert list(distances(marks)) == [behind - at for at, behind in pairwise(marks)]
    starts, sizes = ScannedBlock(data, marks[:-1], distances(marks), 0).places()
    assert (starts.tolist(), sizes.tolist()) == (list(marks[:-1]), list(distances(marks)))


def test_a_place_without_a_magic_ends_it() -> None:
    data = bytearray(b"".join(records([b"same"] * 20)))
    size = len(data) // 20
    data[11 * size + 4] ^= 1
    assert walk(bytes(data), 0, len(data)) == range(0, 11 * size + 1, size)


def good(data: bytes, places: Sequence[int]) -> list[bool]:
    starts, sizes = places[:-1], [behind - at for at, behind in pairwise(places)]
    offsets = np.array(starts, np.int64)
    return [bool(each) for each in intact(memoryview(data), starts, sizes, offsets)]


def test_each_flipped_byte_of_a_record_among_its_like_is_seen() -> None:
    data = bytearray(b"".join(records([b"same"] * 12)))
    places = walk(bytes(data), 0, len(data))
    size = places[1]
    assert good(bytes(data), places) == [True] * 12
    for at in range(7 * size, 8 * size):
        data[at] ^= 1
        assert good(bytes(data), places) == [number != 7 for number in range(12)], at
        data[at] ^= 1


def test_a_size_is_that_of_all_or_none() -> None:
    even = np.array([5, 15, 25], np.int64)
    ten = np.array([10, 10, 10], np.int64)
    assert even_size(even, ten) == 10
    assert even_size(np.array([5, 16, 25], np.int64), ten) is None
    assert even_size(even, np.array([10, 9, 10], np.int64)) is None
    assert even_size(even[:1], ten[:1]) == 10


def test_the_last_bytes_of_each_record() -> None:
    data, starts = b"..aXbYcZ", np.array([2, 4, 6], np.int64)
    found = tails(data, starts, np.array([2, 2, 2], np.int64), 1)
    assert found.tobytes() == b"XYZ"
    uneven = tails(data, starts[[0, 2]], np.array([4, 2], np.int64), 1)
    assert uneven.tobytes() == b"YZ"
