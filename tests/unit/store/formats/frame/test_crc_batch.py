"""Checksums that follow from those of the first piece are those of each piece by itself."""

from random import Random
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.domain.limits import Limits
from app.domain.message import Message
from app.store.formats.frame import batch_frame
from app.store.formats.frame import crc_batch as even_checksums
from app.store.formats.frame.crc_batch import add_columns, add_parts
from app.store.formats.record.record import check
from tests.support.clients.frames import request_frame

LENGTHS = st.tuples(st.sampled_from([8, 16, 88]), st.integers(0, 40), st.integers(4, 300))


def sums_of(rows: NDArray[np.uint8], head: int, part: int) -> list[int]:
    """By the columns of the head and the sums of the part; the rest is the same for all."""
    width = rows.shape[1]
    sums = np.full(len(rows), crc32(rows[0].tobytes()), np.uint32)
    add_columns(sums, rows[:, :head], width - head)
    parts = [crc32(row[head : head + part].tobytes()) for row in rows]
    add_parts(sums, np.array(parts, np.uint32), width - head - part)
    return [int(each) for each in sums]


@given(LENGTHS, st.integers(1, 9), st.randoms(use_true_random=False))
def test_sums_follow_from_the_first(
    lengths: tuple[int, int, int], count: int, random: Random
) -> None:
    head, part, tail = lengths
    end = random.randbytes(tail)
    pieces = [random.randbytes(head + part) + end for _ in range(count)]
    rows = np.frombuffer(b"".join(pieces), np.uint8).reshape(count, -1)
    assert sums_of(rows, head, part) == [crc32(piece) for piece in pieces]


def test_control_a_table_for_another_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    right = even_checksums._table
    monkeypatch.setattr(even_checksums, "_table", lambda behind: right(behind + 1))
    rows = np.arange(66, dtype=np.uint8).reshape(3, 22)
    rows[:, 18:] = 7
    assert sums_of(rows, 8, 10) != [crc32(row.tobytes()) for row in rows]


@pytest.mark.parametrize("length", [0, 1, 4_096, 4_097])
def test_records_of_one_size_are_right_by_themselves(length: int) -> None:
    bodies = [bytes((number,)) * length for number in range(200)]
    for tags in (["a"], ["a", "b"]):
        messages = [Message(b, tag=tags[n % len(tags)]) for n, b in enumerate(bodies)]
        data = bytearray(request_frame(messages, "orders"))
        frame = batch_frame.parse_request(data, topic="orders", limits=Limits())
        base = 0xFFFF00  # so that the places carry into a fourth byte
        batch_frame.place(
            frame,
            queue_id=1,
            first_queue_offset=250,
            physical_offsets=frame.positions + base,
            store_time_ms=1_700_000_000_000,
            store_host=bytes(8),
            synced_end=77,
        )
        for at, size in zip(frame.positions.tolist(), frame.sizes.tolist(), strict=True):
            assert check(frame.records[at : at + size], base + at) == ""


@pytest.mark.parametrize("number", [0, 9, 10, 999, 1_000, 1_999_999, 999_999_999, 0x7FFFFFFF])
def test_digits(number: int) -> None:
    (digits,) = batch_frame._digits(np.array([number], np.uint32))
    assert digits.tobytes() == (b"%010d" % number)[::-1]
