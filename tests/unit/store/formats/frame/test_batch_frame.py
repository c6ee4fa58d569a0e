"""The batch frame: what is taken, what is refused, and that placing equals encoding."""

import struct
import zlib
from collections.abc import Callable, Sequence

import google_crc32c
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import (
    BatchTooLarge,
    BodyTooLarge,
    CurlewError,
    IllegalProperty,
    InvalidRequest,
    MalformedFrame,
)
from app.domain.limits import Limits
from app.domain.message import (
    FIELD_PROPERTIES,
    RESERVED_PROPERTIES,
    Message,
    check_message,
    java_hash,
)
from app.store.formats.frame import batch_frame
from app.store.formats.frame.frame_messages import messages_of
from app.store.formats.record.record import decode_properties, encode_properties, encode_record
from app.store.lifecycle.dispatcher import record_keys

LIMITS = Limits(body_bytes_max=1000, batch_messages_max=50)
HOST = b"\x7f\0\0\1\0\0\x22\x06"


def request_record(message: Message, topic: str = "orders", own: int = 9) -> bytes:
    """A record as a producer makes it, by struct and nothing else; its flag and host are `own`."""
    properties = encode_properties(message) + b"__CRC32#\x010000000000\x02"
    tail = bytes([len(topic)]) + topic.encode() + struct.pack(">H", len(properties)) + properties
    size = 88 + len(message.body) + len(tail)
    head = struct.pack(">IIIII", size, 0xDAA320A7, 0, 0, own) + bytes(20)
    head += struct.pack(">QQ", message.born_time_ms or 0, own) + bytes(28)
    return head + struct.pack(">I", len(message.body)) + message.body + tail


def request_frame(
    records: Sequence[bytes],
    hashes: Sequence[int] | None = None,
    *,
    times: Sequence[int] | None = None,
    with_crc32: bool = False,
) -> bytes:
    """A request frame by struct and nothing else."""
    rest = b"".join(struct.pack(">I", len(record)) for record in records)
    rest += b"".join(struct.pack(">q", value) for value in (*(hashes or ()), *(times or ())))
    block = b"".join(records)
    rest += block
    flags = 8 * with_crc32 + 4 * (hashes is not None) + 32 * (times is not None)
    crc = zlib.crc32(rest) if with_crc32 else google_crc32c.value(rest)
    return struct.pack(">4sBBHIIqq", b"CRLW", 1, flags, 0, len(records), crc, 0, len(block)) + rest


def is_taken(message: Message) -> bool:
    """Whether JSON takes it."""
    try:
        check_message(message, LIMITS)
    except InvalidRequest:
        return False
    return True


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)
tags = st.none() | texts.filter(lambda tag: is_taken(Message(b"", tag=tag)))
messages = st.builds(
    Message,
    body=st.binary(max_size=60),
    tag=tags,
    keys=st.lists(st.text("abc", min_size=1, max_size=3), max_size=2).map(tuple),
    properties=st.dictionaries(st.text("xyz", min_size=1, max_size=5), texts, max_size=2),
    born_time_ms=st.none() | st.integers(1, 2**40),
)


def alike(message: Message, tags: Sequence[str]) -> list[Message]:
    """Messages whose records have one size; with one tag, the properties are the same too."""
    length = len(message.body)
    return [
        msgspec.structs.replace(message, tag=tag, body=bytes((number,) * length))
        for number, tag in enumerate(tags)
    ]


batches = st.lists(messages, min_size=1, max_size=8) | st.builds(
    alike, messages, st.lists(st.sampled_from("ab"), min_size=1, max_size=8)
)


@given(batches, st.data(), st.booleans(), st.booleans(), st.booleans())
def test_placing_a_frame_equals_encoding_each_record(
    batch: list[Message], data: st.DataObject, given_hashes: bool, is_ours: bool, with_crc32: bool
) -> None:
    hashes = [java_hash(m.tag) if m.tag else 0 for m in batch]
    own = st.integers(0, 3)
    count = len(batch)
    each = st.lists(own, min_size=count, max_size=count)
    owns = data.draw(each | st.builds(lambda one: [one] * count, own))
    records = [request_record(m, own=own) for m, own in zip(batch, owns, strict=True)]
    sent = request_frame(records, hashes if given_hashes else None, with_crc32=with_crc32)
    body = bytearray(sent) if is_ours else sent
    frame = batch_frame.parse_request(body, topic="orders", limits=LIMITS)
    assert (frame.records.obj is body) == is_ours, "what is ours is not copied"
    assert frame.tag_hashes.tolist() == hashes
    assert frame.keyed == [(n, list(each.keys)) for n, each in enumerate(batch) if each.keys]
    offsets = [1_000 * (index + 1) for index in range(len(batch))]
    batch_frame.place(
        frame,
        queue_id=2,
        first_queue_offset=500,
        physical_offsets=offsets,
        store_time_ms=1_700_000_000_000,
        store_host=HOST,
    )
    expected = b"".join(
        encode_record(
            topic=b"orders",
            queue_id=2,
            queue_offset=500 + index,
            physical_offset=offsets[index],
            body=message.body,
            properties=encode_properties(message),
            born_time_ms=message.born_time_ms or 1_700_000_000_000,
            born_host=owns[index].to_bytes(8, "big"),
            store_time_ms=1_700_000_000_000,
            store_host=HOST,
            flag=owns[index],
        )
        for index, message in enumerate(batch)
    )
    assert bytes(frame.records) == expected
    assert (bytes(body) == sent) != is_ours
    units = struct.iter_unpack(">qiq", frame.units(offsets))
    assert [unit[0] for unit in units] == offsets


def test_an_answer_says_where_every_record_is() -> None:
    records = [b"first", b"the second"]
    sizes = np.array([len(record) for record in records])
    data = batch_frame.encode_answer(sizes, [7, -8], records, 41) + b"".join(records)
    magic, version, flags, _, count, crc, first, size = struct.unpack_from(">4sBBHIIqq", data)
    assert (magic, version, flags, count, first, size) == (b"CRLW", 1, 5, 2, 41, 15)
    assert crc == google_crc32c.value(data[32:])
    assert struct.unpack_from(">2I2q", data, 32) == (5, 10, 7, -8)
    assert data[56:] == b"firstthe second"


GOOD = [request_record(Message(b"body", tag="a", properties={"p": "v"})) for _ in range(3)]


def patched(record: bytes, offset: int, data: bytes) -> bytes:
    return record[:offset] + data + record[offset + len(data) :]


def second(record: bytes) -> bytes:
    return request_frame([GOOD[0], record, GOOD[2]])


def with_properties(raw: bytes) -> bytes:
    tail = b"\x06orders" + struct.pack(">H", len(raw) + 20) + raw + b"__CRC32#\x010000000000\x02"
    return struct.pack(">II", 88 + len(tail), 0xDAA320A7) + bytes(80) + tail


BAD_RECORDS: dict[str, bytes] = {
    "size field": patched(GOOD[1], 0, b"\0\0\0\1"),
    "magic": patched(GOOD[1], 4, b"\0\0\0\0"),
    "queue id": patched(GOOD[1], 12, b"\0\0\0\1"),
    "queue offset": patched(GOOD[1], 27, b"\1"),
    "physical offset": patched(GOOD[1], 35, b"\1"),
    "system flag": patched(GOOD[1], 39, b"\1"),
    "store time": patched(GOOD[1], 63, b"\1"),
    "store host": patched(GOOD[1], 64, b"\1"),
    "reconsume times": patched(GOOD[1], 75, b"\1"),
    "prepared offset": patched(GOOD[1], 83, b"\1"),
    "body length": patched(GOOD[1], 84, b"\0\0\xff\xff"),
    "body length off by one": patched(GOOD[1], 84, b"\0\0\0\5"),
    "topic": request_record(Message(b""), topic="others"),
    "longer topic": request_record(Message(b""), topic="orders2"),
    "no checksum": patched(GOOD[1], len(GOOD[1]) - 20, b"x"),
    "checksum filled": patched(GOOD[1], len(GOOD[1]) - 5, b"1"),
    "property without end": with_properties(b"a\x01b"),
    "property without separator": with_properties(b"ab\x02"),
    "property without name": with_properties(b"\x01b\x02"),
    "property without value": with_properties(b"a\x01\x02"),
    "empty pair": with_properties(b"\x02"),
    "not UTF-8": with_properties(b"a\x01\xff\x02"),
    "reserved name": with_properties(b"a\x01b\x02DELAY\x013\x02"),
    "reserved transaction mark": with_properties(b"TRAN_MSG\x01true\x02"),
    "tag twice": with_properties(b"TAGS\x01a\x02own\x01b\x02TAGS\x01a\x02"),
    "sharding key twice": with_properties(b"__SHARDINGKEY\x01a\x02__SHARDINGKEY\x01b\x02"),
    "id twice": with_properties(b"UNIQ_KEY\x01a\x02KEYS\x01b\x02UNIQ_KEY\x01b\x02"),
    "a checksum of its own": with_properties(b"__CRC32#\x011\x02"),
    "too many properties": with_properties(b"a\x01b\x02" * (LIMITS.properties_count_max + 1)),
    "too short": bytes(50),
}


@pytest.mark.parametrize("bad", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_the_first_bad_record_is_named(bad: bytes) -> None:
    with pytest.raises(MalformedFrame) as caught:
        batch_frame.parse_request(second(bad), topic="orders", limits=LIMITS)
    assert caught.value.fields["index"] == 1


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_a_name_that_json_refuses_is_refused_or_says_what_has_a_field(name: str) -> None:
    with pytest.raises(IllegalProperty):
        check_message(Message(b"", properties={name: "v"}), LIMITS)
    body = request_frame([with_properties(f"own\x01b\x02{name}\x01v\x02".encode())])
    if name not in FIELD_PROPERTIES:
        with pytest.raises(MalformedFrame, match="is reserved"):
            batch_frame.parse_request(body, topic="orders", limits=LIMITS)
        return
    (message,) = messages_of(batch_frame.parse_request(body, topic="orders", limits=LIMITS))
    assert message.properties == {"own": "b"}
    fields = message.tag, *message.keys, message.sharding_key, message.content_type
    assert [each for each in (*fields, message.unique_id) if each] == ["v"]


def test_a_record_has_as_many_properties_as_json_takes_and_its_fields() -> None:
    most = LIMITS.properties_count_max
    texts = ["".join(f"p{number}\x01v\x02" for number in range(most)), "TAGS\x01a\x02KEYS\x01b\x02"]
    full = with_properties("".join(texts).encode())
    (message,) = messages_of(
        batch_frame.parse_request(request_frame([full]), topic="orders", limits=LIMITS)
    )
    assert (len(message.properties), message.tag, message.keys) == (most, "a", ("b",))
    check_message(message, LIMITS)
    over = with_properties(f"{''.join(texts)}more\x01v\x02".encode())
    with pytest.raises(MalformedFrame, match=f"it has {most + 1} properties") as caught:
        batch_frame.parse_request(request_frame([full, over]), topic="orders", limits=LIMITS)
    assert caught.value.fields == {"index": 1, "limit": most}


def test_many_records_may_have_the_same_fields() -> None:
    texts = [b"TAGS\x01a\x02__SHARDINGKEY\x01k%d\x02" % number for number in range(20)]
    body = request_frame([with_properties(text) for text in texts])
    assert batch_frame.parse_request(body, topic="orders", limits=LIMITS).count == 20


@given(batches, st.data(), st.booleans())
def test_delivery_times_and_messages_are_those_that_were_sent(
    batch: list[Message], data: st.DataObject, given_hashes: bool
) -> None:
    count = len(batch)
    moments = st.integers(-(2**40), 2**40)
    times = data.draw(st.lists(moments, min_size=count, max_size=count))
    skip = data.draw(st.integers(0, count - 1))
    hashes = [java_hash(m.tag) if m.tag else 0 for m in batch] if given_hashes else None
    body = request_frame([request_record(each) for each in batch], hashes, times=times)
    frame = batch_frame.parse_request(body, topic="orders", limits=LIMITS)
    assert (frame.delivery_times is None) == (not any(times))
    if frame.delivery_times is not None:
        assert frame.delivery_times.tolist() == times
        rest = frame.without(skip).delivery_times
        assert rest is not None
        assert rest.tolist() == times[skip:]
    assert messages_of(frame) == [msgspec.structs.replace(each, flag=9) for each in batch]


def test_the_good_frame_is_taken() -> None:
    assert batch_frame.parse_request(request_frame(GOOD), topic="orders", limits=LIMITS).count == 3


def damage(change: Callable[[bytearray], object]) -> bytes:
    data = bytearray(request_frame(GOOD))
    change(data)
    return bytes(data)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"CRLW",
        damage(lambda d: d.__setitem__(0, 0)),
        damage(lambda d: d.__setitem__(4, 2)),
        damage(lambda d: d.__setitem__(5, 1)),
        damage(lambda d: d.__setitem__(5, 2)),
        damage(lambda d: d.__setitem__(5, 8)),
        request_frame(GOOD, with_crc32=True)[:-1] + b"\1",
        request_frame([GOOD[0][:50]] * 3),
        damage(lambda d: d.__setitem__(7, 1)),
        damage(lambda d: d.__setitem__(11, 2)),
        damage(lambda d: d.__setitem__(15, d[15] ^ 1)),
        damage(lambda d: d.__setitem__(23, 1)),
        damage(lambda d: d.__setitem__(31, d[31] ^ 1)),
        damage(lambda d: d.__setitem__(60, d[60] ^ 1)),
        damage(lambda d: d.append(0)),
        damage(lambda d: d.pop()),
    ],
)
def test_a_frame_that_does_not_check_out_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedFrame):
        batch_frame.parse_request(body, topic="orders", limits=LIMITS)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (request_frame([]), BatchTooLarge),
        (request_frame(GOOD * 17), BatchTooLarge),
        (request_frame([request_record(Message(bytes(1001)))]), BodyTooLarge),
    ],
)
def test_bounds(body: bytes, error: type[CurlewError]) -> None:
    with pytest.raises(error):
        batch_frame.parse_request(body, topic="orders", limits=LIMITS)


@pytest.mark.parametrize("length", range(1, 45))
def test_a_last_pair_without_separator_is_refused_whatever_its_length(length: int) -> None:
    bad = with_properties(b"a\x01b\x02" + b"x" * length + b"\x02")
    with pytest.raises(MalformedFrame) as caught:
        batch_frame.parse_request(request_frame([GOOD[0], bad]), topic="orders", limits=LIMITS)
    assert caught.value.fields["index"] == 1


pairs = st.lists(
    st.tuples(
        st.sampled_from(("KEYS", "UNIQ_KEY", "TAGS", "own")), st.sampled_from(("a b", "c"))
    ).map(lambda pair: (pair[0], pair[1].replace(" ", "-") if pair[0] == "UNIQ_KEY" else pair[1])),
    max_size=4,
    unique_by=lambda pair: pair[0],
)


@given(st.lists(pairs, min_size=1, max_size=4) | st.builds(lambda one: [one] * 3, pairs))
def test_keys_are_those_that_verify_expects_in_any_order(
    records: list[list[tuple[str, str]]],
) -> None:
    own = [
        [(name, f"{value}{number}" if name == "UNIQ_KEY" else value) for name, value in each]
        for number, each in enumerate(records)
    ]
    strings = ["".join(f"{name}\x01{value}\x02" for name, value in each) for each in own]
    frame = request_frame([with_properties(text.encode()) for text in strings])
    keyed = batch_frame.parse_request(frame, topic="orders", limits=LIMITS).keyed
    expected = [record_keys(decode_properties(text.encode())) for text in strings]
    assert keyed == [(number, keys) for number, keys in enumerate(expected) if keys]
