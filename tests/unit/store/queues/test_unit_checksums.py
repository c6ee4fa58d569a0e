"""Checksums of units: what is covered, across files, blocks, checkpoints and retention."""

from collections.abc import Iterator
from unittest import mock

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.store.formats.files.consume_queue import UNIT_BYTES
from app.store.queues.unit_checksums import UnitChecksums

FILE_UNITS = 10
"""Blocks of four units: 0-3, 4-7, 8-9, then 10-13 …"""


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    with mock.patch("app.store.queues.unit_checksums.BLOCK_UNITS", 4):
        yield


def units(first: int, end: int) -> bytes:
    return b"".join(number.to_bytes(UNIT_BYTES) for number in range(first, end))


def grown(start: int, *ends: int) -> UnitChecksums:
    sums = UnitChecksums(FILE_UNITS)
    sums.begin(start)
    for end in ends:
        sums.extend(units(sums.end, end))
    return sums


@given(start=st.integers(0, 25), steps=st.lists(st.integers(0, 13), max_size=5))
def test_every_unit_is_in_the_sum_of_its_block(start: int, steps: list[int]) -> None:
    ends = [start]
    for step in steps:
        ends.append(ends[-1] + step)
    sums = grown(start, *ends)
    loaded = UnitChecksums(FILE_UNITS)
    assert loaded.load(start, ends[-1], sums.encode())
    blocks = list(loaded.unchecked(start, ends[-1]))
    assert [unit for b in blocks for unit in range(b.first, b.end)] == list(range(start, ends[-1]))
    for block in blocks:
        assert google_crc32c.value(units(block.first, block.end)) == block.crc
        assert block.first // FILE_UNITS == (block.end - 1) // FILE_UNITS
        assert block.end - block.first <= 4
        loaded.settle(block)
    assert list(loaded.unchecked(start, ends[-1])) == []
    loaded.extend(units(ends[-1], ends[-1] + 7))
    assert loaded.encode() == grown(start, ends[-1] + 7).encode()


@given(start=st.integers(0, 25), size=st.integers(0, 30), minimum=st.integers(0, 60))
def test_dropped_blocks_are_those_below_the_minimum(start: int, size: int, minimum: int) -> None:
    sums = grown(start, start + size)
    sums.drop_below(minimum)
    assert start <= sums.start <= max(start, minimum)
    assert min(minimum, sums.end) - sums.start < 4
    loaded = UnitChecksums(FILE_UNITS)
    assert loaded.load(sums.start, sums.end, sums.encode())
    for block in loaded.unchecked(sums.start, sums.end):
        assert google_crc32c.value(units(block.first, block.end)) == block.crc


def test_sums_that_do_not_fit_the_bounds_are_not_taken() -> None:
    encoded = grown(0, 9).encode()
    assert not UnitChecksums(FILE_UNITS).load(0, 30, encoded)
    assert not UnitChecksums(FILE_UNITS).load(9, 0, encoded)
    assert not UnitChecksums(FILE_UNITS).load(0, 9, encoded[1:])
