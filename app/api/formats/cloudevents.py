"""CloudEvents 1.0 over HTTP: events → messages and back. Pure.

An attribute `x` is the property `ce-x`; `datacontenttype` is the content type, `data` the body, and
`partitionkey` also the sharding key. Attributes come back as texts, as the HTTP binding has them in
binary mode. Any message can be read as an event: what was not sent as one gets its id and source
from Curlew.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from app.api.bodies.entry_counting import check_events_count
from app.api.formats.decoding import (
    DECODE_FAULTS,
    JSON_CONTENT_TYPE,
    check_content_type,
    check_count,
    shown_fault,
)
from app.api.formats.mq_headers import decode_header
from app.api.formats.rendering import body_members, is_json
from app.api.http.errors import FieldError, InvalidBody
from app.api.http.request_context import Headers
from app.api.naming.request_namespace import shown
from app.domain.errors import CurlewError, InvalidRequest
from app.domain.message import Message, StoredMessage

EVENT: Final = "application/cloudevents+json"
EVENTS: Final = "application/cloudevents-batch+json"
VERSION_HEADER: Final = b"ce-specversion"
VERSION_PROPERTY: Final = "ce-specversion"
PROPERTY_PREFIX: Final = "ce-"

_HEADER_PREFIX: Final = b"ce-"
_REQUIRED: Final = ("id", "source", "type")
_ATTRIBUTE_NAME: Final = re.compile(r"[a-z0-9]{1,64}")
_INTEGER_MAX: Final = 2**31 - 1
_TYPE_OF_OTHERS: Final = "curlew.message"

_decode_object: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list: Final = msgspec.json.Decoder(list[Raw]).decode
_decode_attribute: Final = msgspec.json.Decoder(str | bool | int | None).decode
_decode_text: Final = msgspec.json.Decoder(str).decode
_decode_base64: Final = msgspec.json.Decoder(bytes).decode


def is_attribute(name: str) -> bool:
    """Whether a property of this name can be an attribute, which has a header of its own."""
    return name.startswith(PROPERTY_PREFIX) and bool(
        _ATTRIBUTE_NAME.fullmatch(name, len(PROPERTY_PREFIX))
    )


def attributes_of_headers(headers: Headers) -> dict[str, str]:
    """The properties of an event in binary mode."""
    attributes: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(_HEADER_PREFIX):
            attribute = name[len(_HEADER_PREFIX) :].decode("latin-1")
            if attribute in attributes:
                raise InvalidRequest(f"header {name.decode('latin-1')} is given twice")
            attributes[attribute] = text_of_header(name, value)
    return _properties_of(attributes)


def text_of_header(name: bytes, value: bytes) -> str:
    """An attribute of an event in binary mode. Raises `InvalidRequest` for what is no text."""
    quoted = len(value) > 1 and value[:1] == value[-1:] == b'"'
    return decode_header(name, value[1:-1] if quoted else value)


def _properties_of(attributes: Mapping[str, str]) -> dict[str, str]:
    version = attributes.get("specversion")
    if version != "1.0":
        given = "missing" if version is None else repr(version)
        raise InvalidRequest(
            f"specversion is {given}; 1.0 is the only one known here",
            hint="a CloudEvent has at least specversion, id, source and type",
        )
    for name in _REQUIRED:
        if not attributes.get(name):
            raise InvalidRequest(f"the CloudEvent has no {name}", fields={"attribute": name})
    for name in attributes:
        if not _ATTRIBUTE_NAME.fullmatch(name) or name in {"data", "datacontenttype"}:
            raise InvalidRequest(f"{name!r} cannot be the name of an attribute")
    return {PROPERTY_PREFIX + name: value for name, value in attributes.items()}


def decode_event(source: bytes | Raw) -> Message:
    """The message that a structured event describes."""
    try:
        members = _decode_object(source)
    except DECODE_FAULTS as error:
        raise InvalidBody(f"the CloudEvent cannot be read: {shown_fault(error)}") from error
    data, data_base64 = members.pop("data", None), members.pop("data_base64", None)
    attributes = {
        name: text for name, raw in members.items() if (text := _attribute(name, raw)) is not None
    }
    content_type = attributes.pop("datacontenttype", None)
    if content_type is not None:
        check_content_type(content_type)
    properties = _properties_of(attributes)
    body, content_type = _body_of(data, data_base64, content_type)
    return Message(
        body,
        sharding_key=attributes.get("partitionkey"),
        properties=properties,
        content_type=content_type,
    )


def decode_events(body: bytes, count_max: int) -> list[Message | CurlewError]:
    """The messages of a batch of events; a faulty one is an error in its place.

    `BatchTooLarge` when there are more than `count_max`.
    """
    check_events_count(body, count_max)
    try:
        sources = _decode_list(body)
    except DECODE_FAULTS as error:
        raise InvalidBody(f"the batch of CloudEvents cannot be read: {error}") from error
    check_count(len(sources), count_max)
    return [_event_or_error(source) for source in sources]


def _event_or_error(source: Raw) -> Message | CurlewError:
    try:
        return decode_event(source)
    except CurlewError as error:
        return error


def _attribute(name: str, raw: Raw) -> str | None:
    """The canonical text of an attribute; None when it is null, which means absent."""
    try:
        value = _decode_attribute(raw)
    except DECODE_FAULTS:
        value = _INTEGER_MAX + 1
    if isinstance(value, int) and not -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX:  # no bool is
        fault = FieldError(f"/{name}", "use a text, a boolean or an integer of 32 bits")
        raise InvalidBody(f"attribute {name!r} has a value that no attribute may have", [fault])
    return None if value is None else text_of(value)


def text_of(value: str | bool | int) -> str:  # a value, and no switch
    """The canonical text of a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _body_of(
    data: Raw | None, data_base64: Raw | None, content_type: str | None
) -> tuple[bytes, str | None]:
    if data is not None and data_base64 is not None:
        raise InvalidBody("data and data_base64 are both given")
    try:
        if data_base64 is not None:
            return _decode_base64(data_base64), content_type
        if data is None:
            return b"", content_type
        if content_type is None or is_json(content_type):
            body = bytes(data)
            str(body, "utf-8")
            return body, content_type or JSON_CONTENT_TYPE
        return (
            (_decode_text(data).encode() if bytes(data)[:1] == b'"' else bytes(data)),
            content_type,
        )
    except DECODE_FAULTS as error:
        raise InvalidBody(f"the data cannot be read: {error}") from error


TRACE_ATTRIBUTES: Final = ("traceparent", "tracestate")
"""The extension for distributed tracing; kept as properties of these names."""


def event_of(message: StoredMessage, *, force_base64: bool = False) -> dict[str, object]:
    """`message` as a structured event, ready to be encoded."""
    properties = message.properties
    event: dict[str, object] = {
        name[len(PROPERTY_PREFIX) :]: value
        for name, value in properties.items()
        if is_attribute(name)
    }
    if "specversion" not in event:
        event = {
            "specversion": "1.0",
            "id": message.message_id,
            "source": f"/v1/topics/{shown(message.topic)}",
            "type": _TYPE_OF_OTHERS,
        }
    for name in TRACE_ATTRIBUTES:
        if name in properties:
            event.setdefault(name, properties[name])
    if message.content_type is not None:
        event["datacontenttype"] = message.content_type
    if not message.body:
        return event
    body, text, _ = body_members(message.body, message.content_type, force_base64=force_base64)
    if isinstance(body, Raw):
        event["data"] = body
    elif isinstance(text, str) and message.content_type and not is_json(message.content_type):
        event["data"] = text
    else:
        event["data_base64"] = message.body
    return event
