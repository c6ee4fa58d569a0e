"""Request bodies of the data plane: bytes → wire structs → `Message`. Pure.

Every fault becomes a problem with a JSON pointer and, for a misspelt field, the nearest known name.
In a batch a faulty entry is an error in its own place, so that the others can be stored.
"""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final, Generic, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, Struct

from app.api.bodies.entry_counting import check_batch_count, too_many
from app.api.formats.wire import (
    AckBody,
    BatchEntry,
    BatchRequest,
    DeadLetterBody,
    Envelope,
    ExtendBody,
    NackBody,
    ReceiptChange,
    ReceiveBody,
    SettleBody,
)
from app.api.http.errors import FieldError, InvalidBody, UnsupportedFeature, did_you_mean
from app.domain.errors import CurlewError
from app.domain.message import Message
from app.domain.positions import TimestampMs

FIELDS_OF_LATER_VERSIONS: Final = frozenset(
    {
        *("transaction", "producer_group"),
        *("idempotency_key", "dedup_id", "producer_id", "producer_epoch", "producer_seq"),
    }
)
"""Planned in the contract, not in this version: refused by name, so that none is dropped."""

JSON_CONTENT_TYPE: Final = "application/json"
TEXT_CONTENT_TYPE: Final = "text/plain; charset=utf-8"

_LINE: Final = re.compile(rb"[^\n]+")
_LINE_THAT_SAYS_SOMETHING: Final = re.compile(rb"\s*+([^\n]+)")

_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape in a JSON text; `half` is of a surrogate that stands alone."""

_WRONG_TYPE: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_OUT_OF_RANGE: Final = re.compile(r"Expected `(?:int|float)` (>=|<=|>|<) (-?[\d.e+]+)")
_BOUNDS: Final = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_TOO_LONG: Final = re.compile(r"Expected `str` of length <= (\d+)")
_IN_JSON: Final = {
    "array": "an array",
    "bool": "true or false",
    "bytes": "text",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "text",
}

DECODE_FAULTS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises on bytes that are not the JSON asked for."""

_T = TypeVar("_T", bound=Struct)


class BodyDecoder(Generic[_T]):
    """Decodes one kind of request body; every fault becomes a problem with its JSON pointer."""

    def __init__(self, kind: type[_T]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode

    def decode(self, body: bytes | Raw) -> _T:
        if not body:
            raise InvalidBody(
                "the request body is empty",
                hint="send JSON; known here: " + ", ".join(fields_at(self.kind)),
            )
        try:
            return self._decode(body)
        except DECODE_FAULTS as error:
            raise decode_fault(error, body, self.kind) from error


def decode_fault(error: Exception, body: bytes | Raw, kind: type[Struct]) -> CurlewError:
    """The problem that a failed decode of a `kind` stands for."""
    whole = _fault_of_the_whole(error, body, fields_at(kind))
    return whole or _fault_of_a_field(error, kind)


def fields_at(kind: type[Struct], pointer: str = "") -> list[str]:
    """The fields, sorted, that an object has where `pointer` points in the JSON of a `kind`."""
    found: type[Struct] | None = kind
    for step in pointer.split("/")[1:]:
        if found is None or step.isdigit():
            continue
        types = [each.type for each in msgspec.structs.fields(found) if each.name == step]
        found = _struct_in(types[0]) if types else None
    return [] if found is None else sorted(each.name for each in msgspec.structs.fields(found))


def _struct_in(annotation: object) -> type[Struct] | None:
    """The struct that the values of a field are, or have in them."""
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation
    return next(filter(None, map(_struct_in, get_args(annotation))), None)


def shown_fault(error: Exception) -> str:
    """What is wrong with JSON that msgspec cannot read, in a few words."""
    if isinstance(error, UnicodeDecodeError):
        return f"the JSON is not UTF-8: it has the byte 0x{error.object[error.start]:02x}"
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return str(error)


def _fault_of_the_whole(
    error: Exception, body: bytes | Raw, own_fields: Sequence[str]
) -> InvalidBody | None:
    """The problem of a body that is no JSON object at all; None when it is one."""
    known = ", ".join(own_fields)
    detail = str(error)
    if not isinstance(error, msgspec.MsgspecError):
        return InvalidBody(shown_fault(error), hint="send UTF-8, without needless nesting")
    if detail == "Expected `object`, got `array`":
        return InvalidBody(
            "a JSON object is expected, not an array", hint=f"known in the object: {known}"
        )
    is_cut = detail == "Input data was truncated"
    if is_cut or "surrogate" in detail:
        halves = (each["half"] for each in _ESCAPE.finditer(bytes(body)))
        half = next((each for each in halves if each), None)
        if half is not None:
            return InvalidBody(
                f"\\{half.decode('ascii')} stands for half of a character: it is no text",
                hint="write both halves of the surrogate pair, or the character itself in UTF-8",
            )
    if is_cut:
        return InvalidBody(
            "the JSON ends too early", hint="in a shell, put it between single quotes"
        )
    if detail.startswith("JSON is malformed"):
        return InvalidBody(detail, hint=f"send a JSON object; known here: {known}")
    return None


def _fault_of_a_field(error: Exception, kind: type[Struct]) -> CurlewError:
    """The problem that a failed decode of an object stands for."""
    detail, _, path = str(error).partition(" - at `$")
    pointer = _pointer(path.rstrip("`"))
    missing = _MISSING.fullmatch(detail)
    if missing is not None:
        fault = FieldError(f"{pointer}/{missing[1]}", f"{missing[1]} is missing")
        return InvalidBody(fault.detail, [fault])
    detail = _in_words(detail, pointer)
    marker = "unknown field `"
    if marker not in detail:
        return InvalidBody(detail, [FieldError(pointer, detail)] if pointer or path else [])
    name = detail.partition(marker)[2].rstrip("`")
    hint = did_you_mean(name, fields_at(kind, pointer))
    pointer = f"{pointer}/{name}"
    if name in FIELDS_OF_LATER_VERSIONS:
        return UnsupportedFeature(
            f"this version does not have {name!r} yet",
            hint="leave it out; it was refused because dropping it silently would lose its meaning",
            pointer=pointer,
        )
    fault = FieldError(pointer, f"unknown field {name!r}")
    return InvalidBody(fault.detail, [fault], hint=hint)


def _in_words(detail: str, pointer: str) -> str:
    """msgspec's complaint about a type or a bound, in the words of JSON, with the field's name."""
    name = pointer.rpartition("/")[2] or "the document"
    if name.isdigit():
        name = f"entry {name}"
    long = _TOO_LONG.fullmatch(detail)
    if long is not None:
        return f"{name} is too long; at most {long[1]} characters are taken"
    beyond = _OUT_OF_RANGE.fullmatch(detail)
    if beyond is not None:
        return f"{name} must be {_BOUNDS[beyond[1]]} {beyond[2]}"
    found = _WRONG_TYPE.fullmatch(detail)
    if found is None:
        return detail
    wanted = [_IN_JSON.get(each, each) for each in found[1].split(" | ") if each != "null"]
    return f"{name} must be {' or '.join(wanted)}, not {_IN_JSON.get(found[2], found[2])}"


def _pointer(path: str) -> str:
    """The JSON pointer of msgspec's path: `.messages[1].tag` → `/messages/1/tag`."""
    return path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")


envelope_decoder: Final = BodyDecoder(Envelope)
entry_decoder: Final = BodyDecoder(BatchEntry)
batch_decoder: Final = BodyDecoder(BatchRequest)
receive_decoder: Final = BodyDecoder(ReceiveBody)
settle_decoder: Final = BodyDecoder(SettleBody)
ack_decoder: Final = BodyDecoder(AckBody)
nack_decoder: Final = BodyDecoder(NackBody)
extend_decoder: Final = BodyDecoder(ExtendBody)
dead_letter_decoder: Final = BodyDecoder(DeadLetterBody)
receipt_change_decoder: Final = BodyDecoder(ReceiptChange)


class _RawEntries(Struct, forbid_unknown_fields=True):
    messages: list[Raw]


_raw_entries: Final = BodyDecoder(_RawEntries)


def decode_batch(body: bytes, count_max: int) -> list[BatchEntry | CurlewError]:
    """The entries of a JSON batch; a faulty entry is an error in its place, the rest is kept.

    `BatchTooLarge` when there are more than `count_max`, before anything is made of them.
    """
    check_batch_count(body, count_max)
    try:
        return list(batch_decoder.decode(body).messages)
    except CurlewError:
        entries = enumerate(_raw_entries.decode(body).messages)
        return [_decode_entry(raw, f"/messages/{index}") for index, raw in entries]


def decode_lines(body: bytes, count_max: int) -> list[BatchEntry | CurlewError]:
    """The entries of an NDJSON batch, one per line; empty lines are skipped. As `decode_batch`."""
    if body.count(b"\n") <= count_max:
        lines = [line for line in body.split(b"\n") if line.strip()]
    else:  # without trailing space, each search ends where it begins
        found = _LINE_THAT_SAYS_SOMETHING.finditer(body.rstrip())
        lines = [each[1] for each in islice(found, count_max + 1)]
    check_count(len(lines), count_max)
    return [_decode_entry(line) for line in lines]


def lines_of(body: bytes, count_max: int) -> list[bytes]:
    """The lines that are not empty, without their line feeds. As `decode_batch`."""
    if body.count(b"\n") <= count_max:
        lines = [line for line in body.split(b"\n") if line]
    else:
        lines = [each[0] for each in islice(_LINE.finditer(body), count_max + 1)]
    check_count(len(lines), count_max)
    return lines


def check_count(count: int, count_max: int) -> None:
    """Raise `BatchTooLarge` for a batch of more than `count_max` messages."""
    if count > count_max:
        raise too_many(count_max)


def _decode_entry(source: bytes | Raw, place: str = "") -> BatchEntry | CurlewError:
    """An entry, or its fault with pointers into the document in which it stands at `place`."""
    try:
        return entry_decoder.decode(source)
    except CurlewError as error:
        if isinstance(error, InvalidBody):
            error.faults = tuple([FieldError(place + at, what) for at, what in error.faults])
        elif error.pointer is not None:
            error.pointer = place + error.pointer
        return error


def message_of(envelope: Envelope) -> Message:
    """The message that `envelope` describes."""
    body, content_type = _body_of(envelope)
    if envelope.content_type is not None:
        content_type = check_content_type(envelope.content_type)
    return Message(
        body,
        envelope.tag,
        tuple(envelope.keys) if envelope.keys else (),
        envelope.sharding_key,
        envelope.properties or {},
        content_type,
        born_time_ms=None if envelope.born_time_ms is None else TimestampMs(envelope.born_time_ms),
        unique_id=envelope.unique_id,
        flag=envelope.flag or 0,
    )


def _body_of(envelope: Envelope) -> tuple[bytes, str | None]:
    """The bytes of the one body given, and the content type that it has by itself."""
    if envelope.text is not None and envelope.body is UNSET and envelope.body_base64 is None:
        return envelope.text.encode(), TEXT_CONTENT_TYPE
    given = (
        (envelope.body is not UNSET)
        + (envelope.text is not None)
        + (envelope.body_base64 is not None)
    )
    if given != 1:
        raise InvalidBody(
            f"{given or 'none'} of body, text and body_base64 given; exactly one is needed",
            hint='an empty message is {"text": ""}',
        )
    if envelope.body_base64 is not None:
        return envelope.body_base64, None
    body = bytes(envelope.body)  # type: ignore[arg-type]
    try:
        str(body, "utf-8")
    except UnicodeDecodeError as error:
        fault = FieldError("/body", shown_fault(error))
        raise InvalidBody("body is not UTF-8", [fault]) from error
    return body, JSON_CONTENT_TYPE


def check_content_type(text: str) -> str:
    """`text`, when it can be given back as a header; else `InvalidBody`."""
    if not is_header_text(text):
        raise InvalidBody(
            "content_type is empty or has characters that a header cannot carry",
            [FieldError("/content_type", "use printable ASCII, for instance image/png")],
        )
    return text


def is_header_text(text: str) -> bool:
    """Whether `text` can be sent as a header value as it is."""
    return bool(text) and text.isascii() and text.isprintable()
