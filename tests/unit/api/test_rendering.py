"""The form that a stored body takes in JSON, and that no byte is lost."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.decoding import envelope_decoder, message_of
from app.api.rendering import delivered_view, view_of
from app.api.wire import encode
from app.broker.results import Delivery
from app.domain.message import StoredMessage
from app.domain.positions import PhysicalOffset, QueueOffset, TimestampMs


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
