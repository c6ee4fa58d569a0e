"""The form that a stored body takes in JSON, and that no byte is lost."""

import base64
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.formats.decoding import envelope_decoder, message_of
from app.api.formats.rendering import (
    delivered_view,
    delivered_views,
    piece_views,
    record_views,
    view_of,
)
from app.api.formats.wire import SettleAnswer, SettleResult, all_acked, encode, encode_line
from app.broker.results import Delivery
from app.domain.message import PROPERTY_TIMER, Message, StoredMessage
from app.domain.positions import PhysicalOffset, QueueOffset, TimestampMs
from app.store import Piece
from app.store.formats.record.message_id import encode_message_id
from app.store.formats.record.record import (
    LOOPBACK_HOST,
    decode_message,
    encode_properties,
    encode_record,
)


def stored(body: bytes, content_type: str | None = None) -> StoredMessage:
    return StoredMessage(
        message_id="01",
        topic="orders",
        queue_id=3,
        queue_offset=QueueOffset(88),
        physical_offset=PhysicalOffset(0),
        body=body,
        tag="t",
        keys=("k",),
        sharding_key=None,
        properties={"P": "1"},
        content_type=content_type,
        born_time_ms=TimestampMs(1),
        store_time_ms=TimestampMs(2),
        reconsume_times=0,
    )


STORE_ID = bytes.fromhex("a1b2c3d4")


def record_of(message: Message) -> bytes:
    return encode_record(
        topic=b"orders",
        queue_id=3,
        queue_offset=88,
        physical_offset=4096,
        body=message.body,
        properties=encode_properties(message),
        born_time_ms=4,
        store_time_ms=5,
        store_host=LOOPBACK_HOST,
        reconsume_times=message.reconsume_times,
        flag=message.flag,
    )


def decode(record: memoryview) -> StoredMessage:
    return decode_message(record, STORE_ID)


def rendered(body: bytes, content_type: str | None = None, *, base64: bool = False) -> bytes:
    return encode(view_of(stored(body, content_type), force_base64=base64))


def form(body: bytes, content_type: str | None = None) -> str:
    document = msgspec.json.decode(rendered(body, content_type))
    forms = {"body", "text", "body_base64"} & document.keys()
    assert len(forms) == 1
    return str(forms.pop())


JSON = "application/json"


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b'{"a":1}', JSON, "body"),
        (b'{"a":1}', "application/vnd.x+json; charset=utf-8", "body"),
        (b"null", JSON, "body"),
        (b'{"a":1}', None, "text"),
        (b'{"a":1}', "text/plain", "text"),
        (b'{"a":', JSON, "text"),
        (b"", JSON, "text"),
        (b"\xef\xbb\xbf1", JSON, "text"),
        (b'"\\ud800"', JSON, "text"),
        (b"[" * 100_000, JSON, "text"),
        (b'"\xff"', JSON, "body_base64"),
        (b"\xff", None, "body_base64"),
        (b"a\x00b", None, "text"),
    ],
)
def test_the_form_of_the_body(body: bytes, content_type: str | None, expected: str) -> None:
    assert form(body, content_type) == expected


def test_json_is_spliced_digit_for_digit() -> None:
    body = b'{"n":12345678901234567890.50,"e":1E400,"d":1,"d":2}'
    assert b'"body":' + body in rendered(body, JSON)


def test_json_with_line_breaks_fits_one_line() -> None:
    line = rendered(b'{\r\n "a": "x\\ny"\n}', JSON)
    assert b"\n" not in line
    assert b"\r" not in line
    assert msgspec.json.decode(line)["body"] == {"a": "x\ny"}


def test_base64_can_be_asked_for() -> None:
    document = msgspec.json.decode(rendered(b"{}", JSON, base64=True))
    assert base64.b64decode(document["body_base64"]) == b"{}"
    assert "body" not in document


def test_what_is_absent_is_left_out() -> None:
    document = msgspec.json.decode(rendered(b"x"))
    assert "sharding_key" not in document
    assert "content_type" not in document
    assert document["tag"] == "t"


def test_a_delivery_has_the_lease_too() -> None:
    view = delivered_view(Delivery(stored(b"x"), "handle", 2, 16, 99))
    document = msgspec.json.decode(encode(view))
    assert document["receipt_handle"] == "handle"
    assert (document["delivery_attempt"], document["max_attempts"]) == (2, 16)
    assert document["queue_offset"] == 88


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20
)


@given(
    st.lists(
        st.builds(
            Message,
            body=st.binary(max_size=40) | st.sampled_from([b'{"a": 1}', b"{\r\n}", b"{"]),
            tag=st.none() | TEXTS,
            message_id=st.none() | TEXTS,
            properties=st.sampled_from([{}, {"a": "b"}]),
            content_type=st.none() | TEXTS | st.sampled_from([JSON, "text/plain"]),
            system=st.sampled_from([{}, {PROPERTY_TIMER: "7"}]),
            reconsume_times=st.integers(0, 2),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_views_of_records_are_those_of_their_messages(
    messages: list[Message], force_base64: bool
) -> None:
    deliveries = [
        Delivery(memoryview(record_of(each)), f"h{n}", n + 1, 16, 99, decode)
        for n, each in enumerate(messages)
    ]
    views, body_bytes = delivered_views(deliveries, STORE_ID, force_base64=force_base64)
    assert [encode(view) for view in views] == [
        encode(delivered_view(each, force_base64=force_base64)) for each in deliveries
    ]
    assert body_bytes == sum(len(each.body) for each in messages)
    records = [memoryview(record_of(each)) for each in messages]
    pulled, pulled_bytes = record_views(records, STORE_ID, decode, force_base64=force_base64)
    assert pulled == [view_of(decode(each), force_base64=force_base64) for each in records]
    assert pulled_bytes == body_bytes
    if messages:
        polled = piece_views(piece_of(records), STORE_ID, force_base64=force_base64)
        assert polled in (None, (pulled, pulled_bytes))


def piece_of(records: Sequence[memoryview]) -> Piece:
    """The records in one buffer, with something else between them."""
    sizes = np.array([len(record) for record in records], np.int64)
    starts = np.cumsum(sizes + 2) - sizes
    return Piece(memoryview(b"--" + b"--".join(records)), starts, sizes)


@pytest.mark.parametrize("force_base64", [False, True])
@pytest.mark.parametrize("content_type", [None, JSON, "text/plain"])
def test_plain_records_in_one_piece_have_the_views_of_each(
    content_type: str | None, force_base64: bool
) -> None:
    bodies = (b"x", b"", b'{"a":\n 1}', "größer".encode(), b"\xff" * 300)
    messages = [Message(body, content_type=content_type) for body in bodies]
    records = [memoryview(record_of(each)) for each in messages]
    found = piece_views(piece_of(records), STORE_ID, force_base64=force_base64)
    assert found == record_views(records, STORE_ID, decode, force_base64=force_base64)
    assert found is not None
    assert found[0][0].message_id == encode_message_id(STORE_ID, 5, 4096)


OTHERS = {
    "a tag": Message(b"x", tag="t"),
    "an id": Message(b"x", unique_id="u-1"),
    "a flag": Message(b"x", flag=7),
    "a property": Message(b"x", properties={"a": "b"}),
    "a type": Message(b"x", content_type=JSON),
    "a reply": Message(b"x", system={PROPERTY_TIMER: "7"}),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_one_that_is_other_than_the_rest_has_no_views_of_a_piece(other: Message) -> None:
    records = [memoryview(record_of(each)) for each in (Message(b"x"), other, Message(b"y"))]
    assert piece_views(piece_of(records), STORE_ID) is None


def test_a_plain_record_needs_no_message_for_its_view() -> None:
    for message in (Message(b"x"), Message(b"{}", content_type=JSON)):
        delivery = Delivery(memoryview(record_of(message)), "h", 1, 16, 99)
        views, _ = delivered_views([delivery], STORE_ID)
        assert views[0].message_id == encode_message_id(STORE_ID, 5, 4096)


def test_the_answer_to_acks_is_the_general_one() -> None:
    for count in (1, 2, 33):
        handles = [f"AbC-_{number}" for number in range(count)]
        results = [SettleResult(handle, "ack", 200) for handle in handles]
        assert all_acked(handles) == encode_line(SettleAnswer(results, count, 0))


@given(st.binary(), st.sampled_from([None, "text/plain", "application/octet-stream"]))
def test_bodies_come_back_byte_for_byte(body: bytes, content_type: str | None) -> None:
    document = msgspec.json.decode(rendered(body, content_type))
    if "text" in document:
        assert document["text"].encode() == body
    else:
        assert base64.b64decode(document["body_base64"]) == body


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_json_bodies_come_back_equal(value: object) -> None:
    envelope = msgspec.json.encode({"body": value})
    sent = message_of(envelope_decoder.decode(envelope))
    assert msgspec.json.decode(rendered(sent.body, sent.content_type))["body"] == value
