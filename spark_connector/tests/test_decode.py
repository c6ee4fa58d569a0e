"""Frames to rows, against frames that were built by an independent encoder.

Each is read in both ways: whole, and in pieces that put the bodies apart.
"""

import datetime
import json
import struct
import sys
import zlib

import numpy as np
import pytest
import urllib3
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark_curlew.errors import FrameDamaged, ProtocolViolation, Unsupported
from pyspark_curlew.wire import frame as frame_module
from pyspark_curlew.wire import parting
from pyspark_curlew.wire.columns import Decoded, decode
from pyspark_curlew.wire.frame import CONTENT_TYPE, crc32, parse_frame
from pyspark_curlew.wire.reserved import HIDDEN, SHOWN

from app.domain.message import RESERVED_PROPERTIES
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.records import Record, frame, properties

STORE_ID = bytes.fromhex("0a0b0c0d")
RECORD_1_OF_A_ROCKETMQ_STORE = (
    bytes.fromhex(
        "000000a8daa320a73610a6860000000000000007000000000000000000000000000000000000000000000"
        "18bcfe567fb0a0102030000d4310000018bcfe56800c0a8000900002a9f00000000000000000000000000"
        "00000568656c6c6f06546f70696341004275017602"
    )
    + b"KEYS\x01k1 k2\x02UNIQ_KEY\x01AC1415116D1418B4AAC217FE1B4E6800\x02TAGS\x01TagA"
)


@pytest.fixture(autouse=True, params=["whole", "parted"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "parted":
        monkeypatch.setattr(parting, "PIECE_BYTES_MIN", 1)
        monkeypatch.setattr(parting, "PIECE_BYTES_MAX", 300)


def decoded(data: bytes, *, include_properties: bool = False) -> Decoded:
    return decode(parse_frame(data), "orders", 3, STORE_ID, include_properties=include_properties)


def rows(data: bytes, *, include_properties: bool = False) -> list[dict[str, object]]:
    batch, _ = decoded(data, include_properties=include_properties)
    batch.validate(full=True)
    listed: list[dict[str, object]] = batch.to_pylist()
    return listed


def rows_of(*records: Record, include_properties: bool = False) -> list[dict[str, object]]:
    data = frame([record.encode() for record in records])
    return rows(data, include_properties=include_properties)


def test_a_row_has_all_the_columns() -> None:
    record = Record(
        queue_offset=17,
        body=b'{"id":17}',
        properties=properties(
            ("KEYS", "order-17 customer-4"), ("TAGS", "created"), ("__CRC32#", "0123456789")
        ),
        physical_offset=0x123456789A,
        born_ms=1_700_000_000_123,
        store_ms=1_700_000_000_456,
    )
    assert rows_of(record) == [
        {
            "key": b"order-17",
            "value": b'{"id":17}',
            "topic": "orders",
            "queue": 3,
            "offset": 17,
            "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 456_000, datetime.UTC),
            "born_timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, datetime.UTC),
            "message_id": "010A0B0C0D018BCFE569C800123456789A",
            "tag": "created",
            "partition": 3,
        }
    ]


def test_a_record_that_rocketmq_wrote() -> None:
    (row,) = rows(frame([RECORD_1_OF_A_ROCKETMQ_STORE]), include_properties=True)
    assert (row["value"], row["key"], row["tag"]) == (b"hello", b"k1", "TagA")
    assert row["message_id"].startswith("01")
    assert row["properties"] == [
        ("u", "v"),
        ("KEYS", "k1 k2"),
        ("UNIQ_KEY", "AC1415116D1418B4AAC217FE1B4E6800"),
        ("TAGS", "TagA"),
    ]


def test_an_empty_frame_has_no_rows() -> None:
    assert rows(frame([])) == []
    assert rows(frame([]), include_properties=True) == []


def test_an_empty_body_is_a_value_and_no_properties_are_nulls() -> None:
    (row,) = rows_of(Record(queue_offset=0), include_properties=True)
    assert row["value"] == b""
    assert (row["key"], row["tag"]) == (None, None)
    assert row["properties"] == []


def test_the_sharding_key_is_the_key_where_there_is_one() -> None:
    found = rows_of(
        Record(0, properties=properties(("KEYS", "k"), ("__SHARDINGKEY", "shard a"))),
        Record(1, properties=properties(("KEYS", "k"))),
        Record(2, properties=properties(("__SHARDINGKEY", "shard"))),
        Record(3),
    )
    assert [row["key"] for row in found] == [b"shard a", b"k", b"shard", None]


def test_ids_given_by_clients_stand_beside_those_of_the_store() -> None:
    derived = "010A0B0C0D018BCFE56805000000000000"
    elsewhere = "010A0B0C0D018BCFE56805000000000007"
    of_another = "01AAAAAAAA018BCFE56805000000000007"
    for pairs, expected in (
        ([], derived),
        ([("UNIQ_KEY", "mine")], derived),
        ([("UNIQ_KEY", of_another)], derived),
        ([("UNIQ_KEY", elsewhere + "0")], derived),
        ([("UNIQ_KEY", elsewhere)], elsewhere),
        ([("UNIQ_KEY", "schedule:nightly:5")], "schedule:nightly:5"),
        ([("UNIQ_KEY", elsewhere), ("MQ_ID", "-")], derived),
        ([("UNIQ_KEY", "mine"), ("MQ_ID", elsewhere)], elsewhere),
    ):
        both = Record(0, properties=properties(*pairs)), Record(1)
        found = rows_of(*both, include_properties=True)
        assert [row["message_id"] for row in found] == [expected, derived]
        assert not any("MQ_ID" in dict(row["properties"]) for row in found)


@pytest.mark.parametrize("wide_topic", [False, True])
@pytest.mark.parametrize("born_v6", [False, True])
@pytest.mark.parametrize("store_v6", [False, True])
def test_every_shape_of_the_fixed_part(wide_topic: bool, born_v6: bool, store_v6: bool) -> None:
    odd = Record(
        queue_offset=1,
        body=b"odd one",
        properties=properties(("TAGS", "x")),
        topic=b"t" * (200 if wide_topic else 6),
        born_ms=5,
        store_ms=7,
        wide_topic=wide_topic,
        born_v6=born_v6,
        store_v6=store_v6,
    )
    found = rows_of(Record(0, body=b"a"), odd, Record(2, body=b"c"))
    assert [row["value"] for row in found] == [b"a", b"odd one", b"c"]
    assert [row["tag"] for row in found] == [None, "x", None]
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert found[1]["born_timestamp"] == epoch + datetime.timedelta(milliseconds=5)
    assert found[1]["timestamp"] == epoch + datetime.timedelta(milliseconds=7)


def test_tag_hashes_behind_the_sizes_are_stepped_over() -> None:
    data = frame([Record(4, body=b"x").encode()], tag_hashes=True)
    assert [row["value"] for row in rows(data)] == [b"x"]


# What RocketMQ's reader makes of these property strings (its own output).
ROCKETMQ_PROPERTIES = [
    ("", {}),
    ("a", {}),
    ("k\x01v", {"k": "v"}),
    ("k\x01v\x02", {"k": "v"}),
    ("k\x01v\x02k2\x01v2", {"k": "v", "k2": "v2"}),
    ("k\x01", {}),
    ("k\x01\x02", {}),
    ("\x01v", {}),
    ("\x01v\x02k2\x01v2", {"k2": "v2"}),
    ("k\x01v\x02\x01v2", {"k": "v"}),
    ("k\x01\x02k2\x01v2", {"k2": "v2"}),
    ("k\x01v\x01w", {"k": "v\x01w"}),
    ("k\x01v\x02k\x01w", {"k": "w"}),
    ("\x02\x02k\x01v", {"k": "v"}),
    ("k\x01v\x02\x02", {"k": "v"}),
    ("1\x011\x022\x012", {"1": "1", "2": "2"}),
    ("k \x01 v ", {"k ": " v "}),
    ("k\x01v\x02x", {"k": "v"}),
    ("x\x02k\x01v", {"k": "v"}),
    ("k\x01你好\x02", {"k": "你好"}),
    ("a\x01b\x01c\x02d\x01e", {"a": "b\x01c", "d": "e"}),
]


def test_property_strings_mean_what_they_mean_in_rocketmq() -> None:
    records = [
        Record(index, properties=raw.encode()) for index, (raw, _) in enumerate(ROCKETMQ_PROPERTIES)
    ]
    found = rows_of(*records, include_properties=True)
    assert [row["properties"] for row in found] == [
        list(expected.items()) for _, expected in ROCKETMQ_PROPERTIES
    ]


def reference_properties(raw: str) -> dict[str, str]:
    """The rule of RocketMQ's reader, one piece at a time."""
    found: dict[str, str] = {}
    for piece in raw.split("\x02"):
        name, separator, value = piece.partition("\x01")
        if separator and name and value:
            found[name] = value
    return found


PIECES = st.lists(
    st.sampled_from(
        [
            *("TAGS", "TAGS2", "KEYS", "XKEYS", "UNIQ_KEY", "UNIQ_KEYS"),
            *("__SHARDINGKEY", "__SHARDINGKEX", "\x01", "\x02", "\x01", "\x02"),
            *("a", " ", "é", "value"),
        ]
    ),
    max_size=14,
).map("".join)


def even(*pieces: str) -> list[str]:
    """Records of two pieces each, as one producer sends them."""
    return [
        f"{first}\x02{second}\x02" for first, second in zip(pieces[::2], pieces[1::2], strict=True)
    ]


@example(even("TAGS\x01v", "a\x01b", "TAGS\x01w", "a\x01b"))
@example(even("TAGS\x01v", "a\x01b", "a\x01b", "TAGS\x01w"))
@example(even("TAGS\x01v", "TAGS\x01w", "a\x01b", "a\x01b"))
@example(even("TAGS\x01v", "a\x01b", "TAGS\x01", "a\x01b"))
@example(even("a\x01b", "a\x01b", "TAGS\x01v", "TAGS\x01w"))
@example(even("TAGS\x01v", "TAGS\x01w", "TAGS\x01x", "a\x01b"))
@given(st.lists(PIECES, min_size=1, max_size=6))
def test_any_property_string_is_read_as_by_the_reference(raws: list[str]) -> None:
    found = rows_of(
        *(Record(index, properties=raw.encode()) for index, raw in enumerate(raws)),
        include_properties=True,
    )
    for raw, row in zip(raws, found, strict=True):
        expected = reference_properties(raw)
        keys = expected.get("KEYS", "").split(" ")[0] or None
        key = expected.get("__SHARDINGKEY") or keys
        assert sorted(row["properties"]) == sorted(expected.items())  # type: ignore[call-overload]
        assert row["tag"] == expected.get("TAGS")
        assert row["key"] == (key.encode() if key else None)
        assert row["message_id"].startswith("01")


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_bodies_come_back_byte_for_byte(bodies: list[bytes]) -> None:
    found = rows_of(*(Record(index, body=body) for index, body in enumerate(bodies)))
    assert [row["value"] for row in found] == bodies
    assert [row["offset"] for row in found] == list(range(len(bodies)))


def test_properties_of_the_store_are_not_shown() -> None:
    raw = properties(("a", "1"), ("MQ_STEP", "2"), ("TAGS", "t"), ("__CRC32#", "0123456789"))
    found = rows_of(Record(0, properties=raw), Record(1), include_properties=True)
    assert [row["properties"] for row in found] == [[("a", "1"), ("TAGS", "t")], []]


def test_what_is_not_shown_is_what_the_service_reserves() -> None:
    assert {name.decode() for name in HIDDEN | SHOWN} == RESERVED_PROPERTIES


def test_a_batch_in_one_step_shows_what_was_sent(real: RealNode, topic: str) -> None:
    """A batch over several queues is written as a step, and its records say so to the store."""
    real.add_topic(topic, 2)
    pool = urllib3.PoolManager()
    sent = [{"text": "x", "queue_id": n % 2, "properties": {"n": str(n)}} for n in range(4)]
    claim = {"Content-Type": "application/json", "Idempotency-Key": f'"{topic}"'}
    path = f"{real.base_url}/v1/topics/{topic}"
    batch = json.dumps({"messages": sent})
    answer = pool.request("POST", f"{path}/messages:batch", body=batch, headers=claim)
    assert answer.status in {200, 201}, answer.data
    wanted = {"Accept": CONTENT_TYPE}
    query = "messages?offset=0&checksum=crc32"
    frames = [
        pool.request("GET", f"{path}/queues/{queue}/{query}", headers=wanted).data
        for queue in (0, 1)
    ]
    assert all(b"MQ_STEP\x01" in each for each in frames), "or this test shows nothing"
    found = [row for each in frames for row in rows(each, include_properties=True)]
    kind = ("MQ_CONTENT_TYPE", "text/plain; charset=utf-8")
    assert [row["properties"] for row in found] == [[("n", n), kind] for n in "0213"]


GOOD = frame([Record(0, body=b"first").encode(), Record(1, body=b"second").encode()])


def test_the_checksum_has_the_published_value_and_is_the_fast_one() -> None:
    digits = np.frombuffer(b"123456789", dtype=np.uint8)
    assert crc32 is not zlib.crc32
    for function in (crc32, zlib.crc32):
        assert function(digits, 0) == 0xCBF43926  # the check value of CRC-32/ISO-HDLC
        assert function(digits[4:], function(digits[:4], 0)) == 0xCBF43926


def test_without_isal_zlib_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert frame_module._crc32() is zlib.crc32


def test_a_truncated_frame_is_damaged() -> None:
    for size in range(len(GOOD)):
        with pytest.raises(FrameDamaged):
            parse_frame(GOOD[:size])


def test_no_bit_may_change() -> None:
    for position in range(8, len(GOOD)):
        if 16 <= position < 24:  # the first offset, which nobody reads
            continue
        data = bytearray(GOOD)
        data[position] ^= 0x10
        with pytest.raises(FrameDamaged):
            decoded(bytes(data))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<html>" + bytes(40), "not a batch frame"),
        (GOOD[:4] + b"\x02" + GOOD[5:], "version 2"),
        (frame([], flags=8), "flags 0x8"),
        (frame([], flags=1), "flags 0x1"),
        (frame([], flags=11), "flags 0xb"),
    ],
)
def test_what_is_not_our_frame_is_not_fetched_again(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolViolation, match=words) as refusal:
        parse_frame(data)
    assert not isinstance(refusal.value, FrameDamaged)


@pytest.mark.parametrize("damaged", [0, 1])
@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, b"\0\0\0\1"),  # size
        (4, b"\0\0\0\0"),  # magic
        (4, b"\xda\xa3\x20\xa8"),
        (84, b"\0\0\0\5"),  # body length, one too many
        (84, bytes([0, 0, 0, 4 + 8])),
        (84, b"\x7f\xff\xff\xff"),  # far out
        (84, b"\xff\xff\xff\xff"),
        (84, b"\x40\0\0\0"),
        (92, b"\xff"),  # topic length
        (92, b"\x05"),
        (92 + 7, b"\0\0"),  # properties length
    ],
)
def test_a_record_that_contradicts_itself(position: int, value: bytes, damaged: int) -> None:
    """In a frame whose checksum fits."""
    tag = properties(("TAGS", "x"))
    records = [bytearray(Record(n, b"body", tag).encode()) for n in range(2)]
    place = slice(position, position + len(value))
    assert records[damaged][place] != value
    records[damaged][place] = value
    with pytest.raises(FrameDamaged, match=r"length|magic|size"):
        decoded(frame([bytes(each) for each in records]))


@pytest.mark.parametrize("record", [bytes(91), b"short"])
def test_what_is_too_short_for_a_record_is_damage(record: bytes) -> None:
    with pytest.raises(FrameDamaged):
        decoded(frame([record]))


def test_sizes_that_do_not_add_up_are_damage() -> None:
    record = Record(0).encode()
    payload = struct.pack(">I", len(record) - 1) + record
    header = struct.pack(">4sBBHIIqq", b"CRLW", 1, 9, 0, 1, zlib.crc32(payload), 0, len(record))
    with pytest.raises(FrameDamaged, match="do not add up"):
        parse_frame(header + payload)


def test_a_compressed_body_is_refused_and_not_passed_on() -> None:
    with pytest.raises(Unsupported, match="compressed"):
        rows_of(Record(0, compressed=True))


def test_queue_offsets_are_those_of_the_records() -> None:
    data = frame([Record(offset).encode() for offset in (4, 9, 11)], first_offset=4)
    np.testing.assert_array_equal(decoded(data).queue_offsets, [4, 9, 11])
