"""Media types: what a request body is, and what the caller wants back. Pure, cached by value."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, TypeVar

from app.api.formats.cloudevents import EVENT, EVENTS
from app.api.http.errors import NotAcceptable
from app.domain.errors import InvalidRequest, UnsupportedContentType

ENVELOPE: Final = "application/vnd.curlew+json"
FRAMES: Final = "application/vnd.curlew.batch"
NDJSON: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
OCTETS: Final = "application/octet-stream"

JSON_HEADER: Final = (b"content-type", b"application/json")
NDJSON_HEADER: Final = (b"content-type", NDJSON.encode("ascii"))
EVENTS_HEADER: Final = (b"content-type", EVENTS.encode("ascii"))
FRAMES_HEADER: Final = (b"content-type", FRAMES.encode("ascii"))

_CURLS_DEFAULT: Final = "application/x-www-form-urlencoded"
"""What `curl -d` says when it is told nothing; taken as JSON where only JSON makes sense."""

_FORM: Final = "multipart/form-data"
"""What `curl -F` sends."""

BodyKind = Literal["raw", "envelope", "event"]
BatchKind = Literal["json", "ndjson", "frames", "events", "lines"]
StreamKind = Literal["events", "lines"]
PullKind = Literal["json", "ndjson", "frames", "events"]
PollKind = Literal["json", "frames"]
BrowseKind = Literal["json", "ndjson"]
MessageKind = Literal["json", "event", "raw"]

_Kind = TypeVar("_Kind", bound=str)

_OURS: Final = "application/vnd.curlew"

_BATCH_KINDS: Final[dict[str, BatchKind]] = {
    JSON: "json",
    ENVELOPE: "json",
    _CURLS_DEFAULT: "json",
    NDJSON: "ndjson",
    FRAMES: "frames",
    EVENTS: "events",
}
_PULL_KINDS: Final[dict[str, PullKind]] = {
    JSON: "json",
    "application/*": "json",
    "*/*": "json",
    NDJSON: "ndjson",
    FRAMES: "frames",
    EVENTS: "events",
}
_POLL_KINDS: Final[dict[str, PollKind]] = {
    JSON: "json",
    "application/*": "json",
    "*/*": "json",
    FRAMES: "frames",
    "multipart/mixed": "frames",
}
_BROWSE_KINDS: Final[dict[str, BrowseKind]] = {
    JSON: "json",
    "application/*": "json",
    "*/*": "json",
    NDJSON: "ndjson",
}
_STREAM_KINDS: Final[dict[str, StreamKind]] = {
    EVENT_STREAM: "events",
    "text/*": "events",
    "*/*": "events",
    NDJSON: "lines",
    "application/*": "lines",
}


_MESSAGE_KINDS: Final[dict[str, MessageKind]] = {
    JSON: "json",
    "application/*": "json",
    "*/*": "json",
    EVENT: "event",
    OCTETS: "raw",
}


def media_type(content_type: bytes) -> str:
    """The type without its parameters, in lower case."""
    return content_type.partition(b";")[0].strip().lower().decode("latin-1")


@lru_cache(maxsize=512)
def send_content(content_type: bytes | None) -> tuple[BodyKind, str | None]:
    """How to read the body of a single send, and the content type to store with a raw one."""
    if not content_type:
        return "raw", None
    kind = media_type(content_type)
    if kind == ENVELOPE:
        return "envelope", None
    if kind == EVENT:
        return "event", None
    if kind.startswith("application/cloudevents"):
        raise UnsupportedContentType(
            f"{kind!r} is not taken for one message",
            hint=f"send {EVENT}, or a batch as {EVENTS} to messages:batch",
        )
    if kind.startswith(_OURS):  # stored as it is, a frame of many would be one message
        raise UnsupportedContentType(
            f"{kind!r} is not taken for one message",
            hint=f"send {ENVELOPE}, or a frame as {FRAMES} to messages:batch",
        )
    return "raw", raw_content_type(content_type)


def raw_content_type(content_type: bytes | None) -> str | None:
    """The content type to store with a line; what curl says by itself means nothing."""
    if not content_type:
        return None
    kind = media_type(content_type)
    if kind == _CURLS_DEFAULT:
        return None
    if kind == _FORM:
        raise UnsupportedContentType(
            "a multipart form is not taken for a message: all of the form would be stored, not "
            "the file in it",
            hint="send the file itself: curl --data-binary @file",
        )
    text = content_type.decode("latin-1")
    if not (text.isascii() and text.isprintable()):
        raise InvalidRequest("Content-Type has characters other than printable ASCII")
    return text


@lru_cache(maxsize=512)
def batch_content(content_type: bytes | None) -> BatchKind:
    """How to read the body of a batch."""
    kind = JSON if not content_type else media_type(content_type)
    try:
        return _BATCH_KINDS[kind]
    except KeyError:
        raise _unsupported(kind, (JSON, NDJSON, FRAMES, EVENTS)) from None


@lru_cache(maxsize=512)
def require_json(content_type: bytes | None) -> None:
    """Raise unless the body can be meant as JSON."""
    kind = JSON if not content_type else media_type(content_type)
    if kind not in {JSON, ENVELOPE, _CURLS_DEFAULT}:
        raise _unsupported(kind, (JSON,))


@lru_cache(maxsize=512)
def require_merge_patch(content_type: bytes | None) -> None:
    """Raise unless the body can be meant as a JSON merge patch (RFC 7396)."""
    kind = JSON if not content_type else media_type(content_type)
    if kind not in {MERGE_PATCH, JSON, _CURLS_DEFAULT}:
        raise _unsupported(kind, (MERGE_PATCH, JSON))


def _unsupported(kind: str, taken: tuple[str, ...]) -> UnsupportedContentType:
    return UnsupportedContentType(
        f"content type {kind!r} is not taken here", hint="send " + " or ".join(taken)
    )


@lru_cache(maxsize=512)
def pull_answer_kind(accept: bytes | None) -> PullKind:
    """The form of a pull's answer: the best of `Accept` that we have; JSON when it is open."""
    return _best(accept, _PULL_KINDS) or "json"


@lru_cache(maxsize=512)
def poll_answer_kind(accept: bytes | None) -> PollKind:
    """The form of a poll's answer, likewise."""
    return _best(accept, _POLL_KINDS) or "json"


@lru_cache(maxsize=512)
def browse_answer_kind(accept: bytes | None) -> BrowseKind:
    """The form of a browse's answer, likewise."""
    return _best(accept, _BROWSE_KINDS) or "json"


@lru_cache(maxsize=512)
def stream_kind(accept: bytes | None) -> StreamKind:
    """The form of a stream, likewise; events when it is open."""
    return _best(accept, _STREAM_KINDS) or "events"


@lru_cache(maxsize=512)
def message_answer_kind(accept: bytes | None, content_type: str | None) -> MessageKind:
    """The form of one message: raw also where just its content type is accepted."""
    kinds = dict(_MESSAGE_KINDS)
    if content_type is not None:
        kinds.setdefault(media_type(content_type.encode()), "raw")
    return _best(accept, kinds) or "json"


def _best(accept: bytes | None, kinds: Mapping[str, _Kind]) -> _Kind | None:
    """The kind that `accept` likes best; None when it is not given."""
    if not accept:
        return None
    best: tuple[float, _Kind] | None = None
    for part in accept.decode("latin-1").split(","):
        name, _, parameters = part.partition(";")
        kind = kinds.get(name.strip().lower())
        quality = _quality(parameters)
        if kind is not None and quality > 0 and (best is None or quality > best[0]):
            best = quality, kind
    if best is None:
        *others, last = (name for name in kinds if "*" not in name)
        raise NotAcceptable(
            f"cannot answer in {accept.decode('latin-1')!r}",
            hint=f"accept {', '.join(others)} or {last}",
        )
    return best[1]


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
