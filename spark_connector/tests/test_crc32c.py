"""CRC-32C without the compiled library: published values, and agreement with that library."""

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_curlew.crc32c import crc32c, crc32c_numpy


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # these four are the examples of RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_published_values(data: bytes, checksum: int) -> None:
    assert crc32c_numpy(np.frombuffer(data, dtype=np.uint8)) == checksum
    assert crc32c(np.frombuffer(data, dtype=np.uint8)) == checksum


@given(st.binary(max_size=300))
def test_both_ways_agree(data: bytes) -> None:
    assert crc32c_numpy(np.frombuffer(data, dtype=np.uint8)) == google_crc32c.value(data)


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 100_003])
def test_both_ways_agree_on_large_blocks(size: int) -> None:
    data = bytes(index * 7 % 251 for index in range(size))
    assert crc32c_numpy(np.frombuffer(data, dtype=np.uint8)) == google_crc32c.value(data)


@given(st.binary(max_size=70), st.binary(max_size=70))
def test_it_goes_on_from_what_came_before(first: bytes, second: bytes) -> None:
    whole = google_crc32c.value(first + second)
    for one in (crc32c, crc32c_numpy):
        begun = one(np.frombuffer(first, dtype=np.uint8))
        assert one(np.frombuffer(second, dtype=np.uint8), begun) == whole


def test_the_compiled_one_is_used_where_it_is_installed() -> None:
    assert crc32c is not crc32c_numpy
