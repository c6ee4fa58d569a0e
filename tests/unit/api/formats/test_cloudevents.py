"""CloudEvents: examples of the specification in each mode, and what is refused."""

import base64
from typing import Any

import msgspec
import pytest

from app.api.formats.cloudevents import attributes_of_headers, decode_event, decode_events, event_of
from app.domain.errors import CurlewError
from app.domain.message import Message, StoredMessage
from app.domain.positions import PhysicalOffset, QueueOffset, TimestampMs

LEAST: dict[str, Any] = {"specversion": "1.0", "id": "A234", "source": "/a", "type": "com.a"}
PROPERTIES = {"ce-specversion": "1.0", "ce-id": "A234", "ce-source": "/a", "ce-type": "com.a"}
HEADERS = [(name.encode(), value.encode()) for name, value in PROPERTIES.items()]


def decode(**members: Any) -> Message:
    return decode_event(msgspec.json.encode({**LEAST, **members}))


def stored(message: Message) -> StoredMessage:
    return StoredMessage(
        message_id="id-1",
        topic="orders",
        queue_id=0,
        queue_offset=QueueOffset(0),
        physical_offset=PhysicalOffset(0),
        body=message.body,
        tag=message.tag,
        keys=message.keys,
        sharding_key=message.sharding_key,
        properties=message.properties,
        content_type=message.content_type,
        born_time_ms=TimestampMs(1),
        store_time_ms=TimestampMs(1),
        reconsume_times=0,
    )


def round_trip(**members: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(event_of(stored(decode(**members)))))


def test_attributes_become_properties() -> None:
    message = decode(subject="s", time="2018-04-05T17:31:00Z", flag=True, count=-5, gone=None)
    assert message.properties == {
        **PROPERTIES,
        "ce-subject": "s",
        "ce-time": "2018-04-05T17:31:00Z",
        "ce-flag": "true",
        "ce-count": "-5",
    }
    assert (message.body, message.content_type) == (b"", None)


def test_the_partition_key_is_the_sharding_key() -> None:
    assert decode(partitionkey="user-4").sharding_key == "user-4"


@pytest.mark.parametrize(
    ("members", "body", "content_type"),
    [
        ({"data": {"a": 1.50}}, b'{"a":1.5}', "application/json"),
        ({"data": "text"}, b'"text"', "application/json"),
        ({"data": None}, b"null", "application/json"),
        ({"data": "<a/>", "datacontenttype": "text/xml"}, b"<a/>", "text/xml"),
        ({"data": [1], "datacontenttype": "text/xml"}, b"[1]", "text/xml"),
        ({"data_base64": "/wD+"}, b"\xff\x00\xfe", None),
        ({"data_base64": "", "datacontenttype": "image/png"}, b"", "image/png"),
    ],
)
def test_data_becomes_the_body(
    members: dict[str, Any], body: bytes, content_type: str | None
) -> None:
    message = decode(**members)
    assert (message.body, message.content_type) == (body, content_type)


def test_json_data_keeps_its_bytes() -> None:
    source = b'{"specversion":"1.0","id":"1","source":"a","type":"b","data":{ "n" : 1.00e2 }}'
    assert decode_event(source).body == b'{ "n" : 1.00e2 }'


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"subject": "s", "data": {"a": [1, None]}, "datacontenttype": "application/json"},
        {"data": "é", "datacontenttype": "text/plain"},
        {"data_base64": base64.b64encode(bytes(range(256))).decode()},
        {"data_base64": "/w==", "datacontenttype": "image/png", "ext": "x"},
    ],
)
def test_an_event_comes_back_as_it_was(members: dict[str, Any]) -> None:
    assert round_trip(**members) == {**LEAST, **members}


def test_another_message_can_be_read_as_an_event() -> None:
    event = event_of(stored(Message(b"hi", properties={"ce-id": "no version, no event"})))
    assert event == {
        "specversion": "1.0",
        "id": "id-1",
        "source": "/v1/topics/orders",
        "type": "curlew.message",
        "data_base64": b"hi",
    }


@pytest.mark.parametrize(
    "members",
    [
        {"specversion": "0.3"},
        {"specversion": None},
        {"id": ""},
        {"source": None},
        {"type": ""},
        {"Upper": "x"},
        {"with-dash": "x"},
        {"": "x"},
        {"number": 2**31},
        {"number": 1.5},
        {"list": []},
        {"data": 1, "data_base64": "AA=="},
        {"data_base64": "%"},
        {"data_base64": 1},
        {"datacontenttype": "a\nb"},
    ],
)
def test_what_is_no_event_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(CurlewError):
        decode(**members)


@pytest.mark.parametrize("source", [b"", b"[]", b"{", b"\xff", b'{"id":1', b"[" * 100_000])
def test_what_is_no_json_object_is_refused(source: bytes) -> None:
    with pytest.raises(CurlewError):
        decode_event(source)


def test_in_a_batch_only_the_faulty_one_is_refused() -> None:
    first, second = decode_events(msgspec.json.encode([LEAST, {**LEAST, "id": ""}]), 2)
    assert isinstance(first, Message)
    assert isinstance(second, CurlewError)
    with pytest.raises(CurlewError):
        decode_events(b"{}", 2)


def test_binary_mode_reads_percent_encoded_headers() -> None:
    headers = [*HEADERS, (b"ce-comment", b"Euro%20%E2%82%AC%20%F0%9F%98%80"), (b"host", b"x")]
    assert attributes_of_headers(headers) == {**PROPERTIES, "ce-comment": "Euro € 😀"}


@pytest.mark.parametrize(
    "headers",
    [
        HEADERS[1:],
        HEADERS[:1],
        [*HEADERS, HEADERS[1]],
        [*HEADERS, (b"ce-data", b"x")],
        [*HEADERS, (b"ce-a_b", b"x")],
        [*HEADERS, (b"ce-a", b"%ff")],
    ],
)
def test_binary_mode_refuses_what_is_no_event(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(CurlewError):
        attributes_of_headers(headers)
