"""The record format: golden bytes, inversion, and that no damage goes unnoticed."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.message import RESERVED_PROPERTIES, Message
from app.store.formats.record import record as records
from app.store.formats.record.message_id import decode_message_id, encode_message_id
from app.store.formats.record.record import Found

STORE_ID = bytes.fromhex("a1b2c3d4")

# The first record of a store that RocketMQ 4.9.8 wrote (reference figures, every field known).
ROCKETMQ_RECORD = bytes.fromhex(
    "000000a8daa320a73610a68600000000000000070000000000000000000000000000000000000000"
    "0000018bcfe567fb0a0102030000d4310000018bcfe56800c0a8000900002a9f0000000000000000"
    "000000000000000568656c6c6f06546f70696341" + "0042"
) + (b"u\x01v\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01AC1415116D1418B4AAC217FE1B4E6800\x02TAGS\x01TagA")

texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20
)
messages = st.builds(
    Message,
    body=st.binary(max_size=300),
    tag=st.none() | texts,
    keys=st.lists(texts.filter(lambda t: not any(c.isspace() for c in t)), max_size=3).map(tuple),
    sharding_key=st.none() | texts,
    properties=st.dictionaries(
        texts.filter(lambda t: t not in RESERVED_PROPERTIES), texts, max_size=3
    ),
    content_type=st.none() | texts,
)


def encode(message: Message, *, topic: str = "orders", physical_offset: int = 4096) -> bytes:
    return records.encode_record(
        topic=topic.encode(),
        queue_id=3,
        queue_offset=77,
        physical_offset=physical_offset,
        body=message.body,
        properties=records.encode_properties(message),
        born_time_ms=1_700_000_000_000,
        store_time_ms=1_700_000_000_005,
        store_host=b"\x7f\0\0\1\0\0\x22\x06",
    )


def test_a_record_of_rocketmq_is_read_field_by_field() -> None:
    fields = records.decode_fields(ROCKETMQ_RECORD)
    assert (fields.total_size, fields.queue_id, fields.flag, fields.queue_offset) == (168, 0, 7, 0)
    assert fields.body == b"hello"
    assert fields.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF == 0x3610A686
    assert fields.store_time_ms == 1_700_000_000_000
    assert fields.born_time_ms == fields.store_time_ms - 5
    message = records.decode_message(ROCKETMQ_RECORD, STORE_ID)
    assert message.unique_id == "AC1415116D1418B4AAC217FE1B4E6800"
    assert message.message_id == encode_message_id(STORE_ID, 1_700_000_000_000, 0)
    assert message.flag == 7
    assert (message.topic, message.tag, message.keys) == ("TopicA", "TagA", ("k1", "k2"))
    assert message.properties == {"u": "v"}


def test_a_record_of_rocketmq_passes_only_where_checksums_are_not_required() -> None:
    view = memoryview(ROCKETMQ_RECORD)
    assert records.check(view, 0, checksum_required=False) == ""
    assert records.check(view, 0) == "no checksum"
    assert records.check(view, 168, checksum_required=False) == "the record of another position"


def test_golden_bytes_pin_the_format() -> None:
    data = encode(Message(b"hello", tag="TagA", keys=("k1",)), physical_offset=168)
    assert data.hex() == (
        "0000008cdaa320a73610a6860000000300000000000000000000004d00000000000000a800000000"
        "0000018bcfe568007f000001000000000000018bcfe568057f000001000022060000000000000000"
        "000000000000000568656c6c6f066f72646572730026"
        + b"KEYS\x01k1\x02TAGS\x01TagA\x02__CRC32#\x014373251111\x02".hex()
    )
    assert data[-11:-1].isdigit()
    assert int(data[-2:-12:-1]) == zlib.crc32(data[:-20]) & 0x7FFFFFFF


@given(messages, st.sampled_from(["orders", "t" * 127, "t" * 128, "t" * 255]))
def test_decoding_inverts_encoding(message: Message, topic: str) -> None:
    data = encode(message, topic=topic)
    properties = records.encode_properties(message)
    parts = len(message.body) + len(topic) + (len(topic) > 127) + len(properties)
    assert len(data) == records.RECORD_OVERHEAD_BYTES + parts
    assert records.check(memoryview(data), 4096) == ""
    read = records.decode_message(data, STORE_ID)
    assert (read.topic, read.queue_id, read.queue_offset) == (topic, 3, 77)
    assert (read.body, read.tag, read.keys) == (message.body, message.tag, message.keys)
    assert read.sharding_key == message.sharding_key
    assert read.content_type == message.content_type
    assert dict(read.properties) == dict(message.properties)
    assert read.message_id == encode_message_id(STORE_ID, 1_700_000_000_005, 4096)


def test_every_flipped_bit_is_noticed() -> None:
    data = bytearray(encode(Message(b"some body", tag="TagA", keys=("k1", "k2"))))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        finding = records.inspect(memoryview(data), 4096, left=len(data) + 1000)
        assert finding.found in {Found.DAMAGED, Found.TORN}, bit
        data[bit // 8] ^= 1 << bit % 8
    assert records.inspect(memoryview(data), 4096, left=len(data)).found is Found.RECORD


def test_a_plain_record_is_known_by_its_place_and_by_every_bit() -> None:
    record = encode(Message(b"body", tag="a"))
    place = records.topic_part(b"orders"), 3, 77, 4096
    assert records.is_plain_record_of(memoryview(record), *place)
    for bit in range(8 * len(record)):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not records.is_plain_record_of(memoryview(damaged), *place), bit
    for end in range(len(record)):
        assert not records.is_plain_record_of(memoryview(record)[:end], *place), end
    for part, queue_id, offset, position in (
        (records.topic_part(b"order"), 3, 77, 4096),
        (records.topic_part(b"orderx"), 3, 77, 4096),
        (place[0], 4, 77, 4096),
        (place[0], 3, 78, 4096),
        (place[0], 3, 77, 4097),
    ):
        assert not records.is_plain_record_of(memoryview(record), part, queue_id, offset, position)


def test_a_record_of_rocketmq_is_not_plain() -> None:
    place = records.topic_part(b"TopicA"), 0, 0, 0
    assert not records.is_plain_record_of(memoryview(ROCKETMQ_RECORD), *place)


def test_every_truncation_is_torn_and_not_damage() -> None:
    data = encode(Message(b"some body"))
    for size in range(1, len(data)):
        part = memoryview(data)[:size]
        expected = {Found.TORN} if any(part) else {Found.NOTHING}
        assert records.inspect(part, 4096, left=10_000).found in expected, size


def test_zeros_are_nothing_and_a_stale_record_is_damage() -> None:
    assert records.inspect(memoryview(bytes(100)), 0, left=100).found is Found.NOTHING
    data = memoryview(encode(Message(b"x"), physical_offset=4096))
    finding = records.inspect(data, 8192, left=10_000)
    assert (finding.found, finding.reason) == (Found.DAMAGED, "the record of another position")


def test_an_end_of_file_record_must_fill_the_segment() -> None:
    data = memoryview(records.encode_end_of_file(81) + bytes(73))
    assert records.inspect(data, 943, left=81) == (Found.END_OF_FILE, 81, "")
    assert records.inspect(data, 943, left=80).found is Found.DAMAGED


@pytest.mark.parametrize(
    ("raw", "pairs"),
    [
        ("", {}),
        ("a", {}),
        ("k\x01v", {"k": "v"}),
        ("k\x01v\x02", {"k": "v"}),
        ("k\x01\x02k2\x01v2", {"k2": "v2"}),
        ("\x01v\x02k2\x01v2", {"k2": "v2"}),
        ("k\x01v\x01w", {"k": "v\x01w"}),
        ("k\x01v\x02k\x01w", {"k": "w"}),
        ("x\x02k\x01v", {"k": "v"}),
        ("k \x01 v ", {"k ": " v "}),
        ("k\x01你好\x02", {"k": "你好"}),
    ],
)
def test_properties_are_read_as_rocketmq_reads_them(raw: str, pairs: dict[str, str]) -> None:
    assert records.decode_properties(raw.encode()) == pairs


@settings(max_examples=50)
@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1))
def test_message_ids_invert(store_time_ms: int, physical_offset: int) -> None:
    text = encode_message_id(STORE_ID, store_time_ms, physical_offset)
    assert len(text) == 34
    assert decode_message_id(text) == (STORE_ID, store_time_ms, physical_offset)


@pytest.mark.parametrize(
    "text", ["", "01", "x" * 34, "02" + "0" * 32, "é" * 34, "0" * 36, "0 " * 17]
)
def test_what_is_no_message_id(text: str) -> None:
    assert decode_message_id(text) is None
