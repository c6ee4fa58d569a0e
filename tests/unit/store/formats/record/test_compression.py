"""Bodies that RocketMQ's clients packed: unpacked for whoever reads messages, within a bound."""

import zlib
from unittest import mock

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from lz4 import frame as lz4_frame  # type: ignore[import-untyped]  # it has no stubs

from app.store.formats.record import compression
from app.store.formats.record.compression import plain_body
from app.store.formats.record.record import decode_message, encode_record

KINDS = {
    0x001: zlib.compress,
    0x301: zlib.compress,
    0x101: lz4_frame.compress,
    0x201: zstandard.compress,
}


@pytest.mark.parametrize("flag", KINDS)
@given(body=st.binary(min_size=1, max_size=300), times=st.integers(1, 100))
def test_each_kind_is_unpacked(flag: int, body: bytes, times: int) -> None:
    assert plain_body(KINDS[flag](body * times), flag) == body * times


def test_a_body_that_is_not_packed_stays() -> None:
    packed = zlib.compress(b"body")
    assert plain_body(packed, 0) == packed
    assert plain_body(packed, 0x300) == packed


@pytest.mark.parametrize("flag", [*KINDS, 0x401])
def test_what_cannot_be_unpacked_is_given_as_stored(flag: int) -> None:
    assert plain_body(b"no such thing", flag) == b"no such thing"
    assert plain_body(b"", flag) == b""


@pytest.mark.parametrize("flag", KINDS)
def test_no_body_takes_any_amount_of_memory(flag: int) -> None:
    packed = KINDS[flag](bytes(100_000))
    with mock.patch.object(compression, "PLAIN_BODY_BYTES_MAX", 99_999):
        assert plain_body(packed, flag) == packed
    with mock.patch.object(compression, "PLAIN_BODY_BYTES_MAX", 100_001):
        assert len(plain_body(packed, flag)) == 100_000


@pytest.mark.parametrize("flag", KINDS)
def test_a_message_has_its_body_unpacked(flag: int) -> None:
    record = encode_record(
        topic=b"orders",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=KINDS[flag](b"long " * 1000),
        properties=b"",
        born_time_ms=1,
        store_time_ms=1,
        store_host=bytes(8),
        system_flag=flag,
    )
    assert decode_message(record, bytes(4)).body == b"long " * 1000
