"""Records with packed bodies, rewritten for readers who do not unpack."""

import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from app.domain.message import StoredEncoding
from app.store.formats.record.compression import encoding_of, plain_body, system_flag_of
from app.store.formats.record.record import check, decode_fields, decode_message, encode_record
from app.store.formats.record.unpacked_record import are_packed, unpacked_records

STORE_ID = bytes(4)
PACK: dict[StoredEncoding, Callable[[bytes], bytes]] = {
    StoredEncoding.DEFLATE: zlib.compress,
    StoredEncoding.ZSTD: zstandard.compress,
}


def record_of(body: bytes, system_flag: int, topic: bytes = b"orders", at: int = 4096) -> bytes:
    return encode_record(
        topic=topic,
        queue_id=3,
        queue_offset=7,
        physical_offset=at,
        body=body,
        properties=b"TAGS\x01red\x02",
        born_time_ms=1,
        store_time_ms=2,
        store_host=bytes(8),
        flag=9,
        system_flag=system_flag,
    )


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("topic", [b"orders", b"o" * 130])
@given(body=st.binary(min_size=1, max_size=200), times=st.integers(1, 20))
def test_the_same_message_is_in_an_intact_record(
    encoding: StoredEncoding, topic: bytes, body: bytes, times: int
) -> None:
    packed = record_of(PACK[encoding](body * times), system_flag_of(encoding), topic)
    [plain] = unpacked_records([memoryview(packed)], (), 10_000)
    assert check(plain, 4096) == ""
    assert bytes(plain) == record_of(body * times, 0, topic)
    before, after = decode_message(packed, STORE_ID), decode_message(plain, STORE_ID)
    assert before.packed is not None
    assert (before.packed.encoding, after.packed) == (encoding, None)
    assert before.body == after.body == body * times


@pytest.mark.parametrize("encoding", PACK)
def test_what_the_reader_takes_or_nobody_can_unpack_stays(encoding: StoredEncoding) -> None:
    packed = PACK[encoding](b"long " * 1_000)
    flag = system_flag_of(encoding)
    for body, taken, ratio in ((packed, {encoding}, 1_000), (b"no such", (), 9), (packed, (), 9)):
        record = memoryview(record_of(body, flag))
        assert unpacked_records([record], taken, ratio) == [record]
    other = set(StoredEncoding) - {encoding}
    [plain] = unpacked_records([memoryview(record_of(packed, flag))], other, 1_000)
    assert decode_fields(plain).system_flag == 0


@pytest.mark.parametrize("encoding", StoredEncoding)
def test_no_more_is_unpacked_than_may_be_given(encoding: StoredEncoding) -> None:
    """A body of 40 MB in some KiB, of which ten times as much may be given."""
    pack = {**PACK, StoredEncoding.LZ4: lz4.frame.compress}[encoding]
    bomb = pack(bytes(40_000_000))
    record = memoryview(record_of(bomb, system_flag_of(encoding)))
    tracemalloc.start()
    try:
        assert unpacked_records([record], (), 10) == [record]
        assert tracemalloc.get_traced_memory()[1] < 20 * len(bomb) + 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", StoredEncoding)
def test_exactly_as_much_as_may_be_given_is(encoding: StoredEncoding) -> None:
    pack = {**PACK, StoredEncoding.LZ4: lz4.frame.compress}[encoding]
    body = pack(b"x" * 1_000)
    assert len(plain_body(body, system_flag_of(encoding), 1_000)) == 1_000
    assert plain_body(body, system_flag_of(encoding), 999) is body


def test_records_with_packed_bodies_are_found_among_others() -> None:
    records = [record_of(b"plain", 0), record_of(zlib.compress(b"x"), 0x301), record_of(b"p", 0)]
    data = b"".join(records)
    starts = np.cumsum([0, *map(len, records[:-1])])
    assert are_packed(memoryview(data), starts).tolist() == [False, True, False]


def test_only_what_is_packed_has_an_encoding() -> None:
    assert [encoding_of(flag) for flag in (0, 0x300, 0x401)] == [None, None, None]
    for encoding in StoredEncoding:
        assert encoding_of(system_flag_of(encoding)) is encoding
