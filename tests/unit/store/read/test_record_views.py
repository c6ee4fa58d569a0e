"""Records in pieces: the same records whichever way they are asked for."""

from collections.abc import Sequence

import numpy as np
import pytest

from app.store.formats.files.consume_queue import UNIT
from app.store.formats.frame.batch_frame import encode_answer, encode_answer_columns
from app.store.read.record_views import (
    KnownViews,
    Piece,
    RecordViews,
    Together,
    as_buffers,
    first_and_last,
    in_one_piece,
    to_copy,
    total_bytes,
)


def piece_of(*records: bytes, between: bytes = b"") -> Piece:
    sizes = np.array([len(record) for record in records], np.int64)
    starts = np.cumsum(sizes + len(between)) - sizes - len(between)
    return Piece(memoryview(between.join(records)), starts, sizes)


LARGE = [bytes([number]) * 40_000 for number in range(8)]
CASES = {
    "none": ([], []),
    "an empty piece": ([piece_of()], []),
    "one": ([piece_of(b"one", b"four")], [b"one", b"four"]),
    "several small": ([piece_of(b"a", b"bc"), piece_of(b"def")], [b"a", b"bc", b"def"]),
    "others between": (
        [piece_of(b"a", b"bc", between=b"--"), piece_of(), piece_of(b"d")],
        [b"a", b"bc", b"d"],
    ),
    "several large": ([piece_of(*LARGE[:4]), piece_of(*LARGE[4:])], LARGE),
    "large, others between": (
        [piece_of(*LARGE[:4], between=b"-" * 9), piece_of(*LARGE[4:])],
        LARGE,
    ),
    "some left out": (
        [piece_of(b"a", b"bad", b"bc").without([1]), piece_of(b"bad", b"d").without([0])],
        [b"a", b"bc", b"d"],
    ),
}


@pytest.mark.parametrize(("pieces", "records"), CASES.values(), ids=CASES)
def test_records_come_out_of_their_pieces(pieces: list[Piece], records: list[bytes]) -> None:
    views = RecordViews(pieces)
    assert len(views) == len(records)
    assert first_and_last(views) == [*records[:1], *records[-1:]]
    assert total_bytes(views) == sum(map(len, records))
    sizes, buffers = as_buffers(views)
    assert sizes.tolist() == [len(record) for record in records]
    assert b"".join(buffers) == b"".join(records)
    assert list(to_copy(views)) == records
    assert list(views) == records
    assert views[:1] == records[:1]


@pytest.mark.parametrize("records", [[], [b"one"], [b"one", b"two", b"three"]])
def test_a_list_of_records_is_taken_as_well(records: list[bytes]) -> None:
    views: Sequence[memoryview] = [memoryview(record) for record in records]
    assert first_and_last(views) == [*records[:1], *records[-1:]]
    assert total_bytes(views) == sum(map(len, records))
    assert list(to_copy(views)) == records
    sizes, buffers = as_buffers(views)
    assert sizes.tolist() == [len(record) for record in records]
    assert b"".join(buffers) == b"".join(records)


def test_large_pieces_are_handed_on_and_small_ones_are_copied_together() -> None:
    large = [piece_of(*LARGE[:4]), piece_of(*LARGE[4:])]
    buffers = as_buffers(RecordViews(large))[1]
    assert all(given is piece.data for given, piece in zip(buffers, large, strict=True))
    small = [piece_of(b"few bytes") for _ in range(50)]
    assert len(as_buffers(RecordViews(small))[1]) == 1


def together() -> Together:
    """Four records at 700 in the log, with others between."""
    data, starts, sizes = piece_of(b"a", b"bc", b"def", b"g", between=b"--")
    rows = zip(starts.tolist(), sizes.tolist(), strict=True)
    units = b"".join([UNIT.pack(700 + start, size, -size) for start, size in rows])
    return Together(data, units, [0, 4], [(700, 0, len(data), 7)])


def part(whole: Together, low: int, high: int) -> KnownViews:
    start, end = int(whole.starts[low]), int(whole.starts[high - 1] + whole.sizes[high - 1])
    total = int(whole.sizes[low:high].sum())
    return KnownViews(whole, low, high, (700 + start, start, end, total))


def test_parts_of_one_buffer_that_follow_each_other_are_one_piece() -> None:
    whole, other = together(), together()
    found = in_one_piece([part(whole, 0, 2), part(whole, 2, 3)])
    assert found is not None
    assert found.views() == [b"a", b"bc", b"def"]
    assert in_one_piece([part(whole, 0, 2), part(other, 2, 3)]) is None, "of another buffer"
    assert in_one_piece([part(whole, 0, 2), part(whole, 3, 4)]) is None, "one is left out"
    assert in_one_piece([part(whole, 2, 4), part(whole, 0, 2)]) is None, "in another order"
    assert in_one_piece([part(whole, 0, 2), [memoryview(b"def")]]) is None
    assert in_one_piece([[memoryview(b"a")], part(whole, 0, 2)]) is None


@pytest.mark.parametrize(("low", "high"), [(0, 4), (1, 3), (2, 3), (3, 4)])
def test_a_frame_of_known_records_is_that_of_their_sizes_and_hashes(low: int, high: int) -> None:
    known = part(together(), low, high)
    records = [b"a", b"bc", b"def", b"g"][low:high]
    assert [*map(bytes, known)] == records
    sizes, buffers = as_buffers(known)
    frame = encode_answer_columns(known.columns(), buffers, high - low, known.total_bytes, 41)
    assert frame == encode_answer(sizes, [-1, -2, -3, -1][low:high], records, 41)
