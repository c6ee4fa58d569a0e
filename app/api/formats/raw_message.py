"""A message as an HTTP answer: the body as it is, everything else in headers. Pure."""

from collections.abc import Mapping
from typing import Final

from app.api.bodies.packing import VARY, names, takes
from app.api.formats.cloudevents import VERSION_PROPERTY, is_attribute
from app.api.formats.decoding import is_header_text
from app.api.formats.mq_headers import encode_header
from app.api.formats.wire import encode
from app.api.http.errors import NotAcceptable
from app.api.http.request_context import Headers
from app.api.naming.request_namespace import shown
from app.broker.produce.request_reply import expectation_of
from app.domain.limits import (
    RAW_HEADERS_BYTES_MAX,
    RAW_PROPERTY_HEADERS_BYTES_MAX,
    RAW_PROPERTY_HEADERS_MAX,
)
from app.domain.message import StoredEncoding, StoredMessage

_OCTETS: Final = b"application/octet-stream"
_HEADER_SAFE_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
_TRACE_PROPERTIES: Final = ("traceparent", "tracestate")


def raw_headers(message: StoredMessage) -> Headers:
    """Everything about `message` but its body, as headers that a send understands.

    Raises `NotAcceptable` when there is more than clients read.
    """
    headers: Headers = [
        *content_type_headers(message.content_type, message.properties),
        (b"mq-message-id", encode_header(message.message_id)),
        (b"mq-topic", shown(message.topic).encode()),
        (b"mq-queue-id", b"%d" % message.queue_id),
        (b"mq-queue-offset", b"%d" % message.queue_offset),
        (b"mq-born-time-ms", b"%d" % message.born_time_ms),
        (b"mq-store-time-ms", b"%d" % message.store_time_ms),
    ]
    if message.tag is not None:
        headers.append((b"mq-tag", encode_header(message.tag)))
    if message.unique_id is not None:
        headers.append((b"mq-unique-id", encode_header(message.unique_id)))
    if message.flag:
        headers.append((b"mq-flag", b"%d" % message.flag))
    if message.keys:
        headers.append((b"mq-keys", b" ".join(encode_header(key) for key in message.keys)))
    if message.sharding_key is not None:
        headers.append((b"mq-sharding-key", encode_header(message.sharding_key)))
    expectation = expectation_of(message) if message.system else None
    if expectation is not None:
        headers.append((b"mq-correlation-id", encode_header(expectation.correlation_id)))
        headers.append((b"mq-reply-until-ms", b"%d" % expectation.until_ms))
    headers += property_headers(message.properties)
    return check_raw(headers, message.message_id)


def raw_body(message: StoredMessage, accept_encoding: bytes | None) -> tuple[bytes, Headers]:
    """The body as it is stored when that is how the client takes it, else plain; the headers that
    say so."""
    packed = message.packed
    if packed is None:
        return message.body, []
    encoding = packed.encoding.encode()
    is_taken = names if packed.encoding is StoredEncoding.LZ4 else takes
    if accept_encoding is None or not is_taken(accept_encoding, encoding):
        return message.body, [VARY]
    return packed.data, [(b"content-encoding", encoding), VARY]


def content_type_headers(content_type: str | None, properties: Mapping[str, str]) -> Headers:
    """Bytes where nothing else is known; but an event would gain an attribute by that."""
    if content_type is not None and is_header_text(content_type):
        return [(b"content-type", content_type.encode("ascii"))]
    if content_type is None and VERSION_PROPERTY in properties:
        return []
    return [(b"content-type", _OCTETS)]


def property_headers(properties: Mapping[str, str]) -> Headers:
    """Names that survive HTTP as headers of their own, the others in one JSON header.

    All are in that one where there are more than clients read, attributes of events too.
    """
    if len(properties) <= RAW_PROPERTY_HEADERS_MAX:
        headers = _apart(properties)
        if _size_of(headers) <= RAW_PROPERTY_HEADERS_BYTES_MAX:
            return headers
    return [_together(properties)]


def check_raw(headers: Headers, message_id: str) -> Headers:
    """`headers`, when clients can read so much; else `NotAcceptable`."""
    size = _size_of(headers)
    if size > RAW_HEADERS_BYTES_MAX:
        raise NotAcceptable(
            f"message {message_id} has {size} bytes beside its body, which is more than headers "
            f"carry ({RAW_HEADERS_BYTES_MAX}): it cannot be given raw",
            hint="leave out format=raw: JSON carries all of it",
            fields={"message_id": message_id, "limit_bytes": RAW_HEADERS_BYTES_MAX},
        )
    return headers


def _apart(properties: Mapping[str, str]) -> Headers:
    headers: Headers = []
    others: dict[str, str] = {}
    is_event = VERSION_PROPERTY in properties
    for name, value in properties.items():
        if name in _TRACE_PROPERTIES or (is_event and is_attribute(name)):
            headers.append((name.encode("ascii"), encode_header(value)))
        elif _HEADER_SAFE_NAME.issuperset(name):
            headers.append((b"mq-prop-" + name.encode("ascii"), encode_header(value)))
        else:
            others[name] = value
    if others:
        headers.append(_together(others))
    return headers


def _together(properties: Mapping[str, str]) -> tuple[bytes, bytes]:
    return b"mq-properties", encode_header(encode(properties).decode())


def _size_of(headers: Headers) -> int:
    """Of the lines: name, colon and space, value, line end."""
    return sum([len(name) + len(value) + 4 for name, value in headers])
