"""What streams look like on the wire: server-sent events, and lines of JSON. Pure.

Server-sent events (the HTML standard, section 9.2): a message is an event without a name, with its
JSON as `data` and, without a group, its cursor as `id`; `gap`, `end`, `partial` (shards of which
nothing comes now) and `effects` (what opening it by force has ended) are events of these names; a
heartbeat is a comment. Lines: a message is a JSON object, with its `cursor`; `{"gap":…}`,
`{"end":…}`, `{"partial":[…]}` and `{"effects":[…]}` have that one member; a heartbeat is an empty
line.

Where a filter leaves out everything, the cursor goes on all the same: as an `id` without data,
which no listener sees, or as a line `{"cursor":…}`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import UNSET, Struct, UnsetType

from app.api.formats import media
from app.api.formats.rendering import delivered_view, view_of
from app.api.formats.wire import MessageView, encode
from app.api.http.errors import EntryProblem
from app.broker.results import Delivery
from app.broker.streams.topic_stream import StreamGap, TopicChunk
from app.domain.consumers.consumption import ConsumptionEffect

RETRY_MS: Final = 1_000
"""How soon a browser connects again, by what the stream tells it."""


class StreamedMessageView(MessageView, frozen=True, gc=False, kw_only=True):
    """A message of a stream without a group; `cursor` says where to go on after it."""

    cursor: str


class StreamGapView(Struct, frozen=True, rename={"from_": "from"}):
    """Offsets of a queue that cannot be delivered; `to` is one past the last."""

    queue_id: int
    from_: int
    to: int
    reason: str


class StreamEndView(Struct, frozen=True, omit_defaults=True):
    """Why the stream ended. `cursor` says where to go on; `error` is there when it failed."""

    reason: str
    cursor: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    error: EntryProblem | UnsetType = UNSET


class StreamText(Protocol):
    """One form of a stream. Made per stream, because it remembers the cursor it has told."""

    content_type: bytes
    preamble: bytes
    """Goes out at once, so that the client knows that it is connected."""
    heartbeat: bytes

    def chunk(self, chunk: TopicChunk) -> bytes: ...

    def effects(self, effects: Sequence[ConsumptionEffect]) -> bytes: ...

    def deliveries(self, deliveries: Sequence[Delivery]) -> bytes: ...

    def end(self, reason: str, cursor: str | None, error: EntryProblem | None) -> bytes: ...


class MergedText(Protocol):
    """The same, for what has come from several shards as lines of JSON."""

    content_type: bytes
    preamble: bytes
    heartbeat: bytes

    def passed_on(self, message: bytes, cursor: str) -> bytes:
        """A message in JSON, without its cursor, and the cursor that it has here."""
        ...

    def given(self, message: bytes) -> bytes:
        """A message in JSON that is leased."""
        ...

    def effects(self, effects: Sequence[object]) -> bytes: ...

    def told(self, cursor: str) -> bytes:
        """The cursor alone, which has gone on."""
        ...

    def gap(self, gap: bytes) -> bytes:
        """A gap in JSON."""
        ...

    def partial(self, shards: Sequence[str]) -> bytes:
        """The shards of which nothing comes now."""
        ...

    def end(self, reason: str, cursor: str | None, error: EntryProblem | None) -> bytes: ...


class EventLines:
    """`text/event-stream`."""

    content_type = media.EVENT_STREAM.encode("ascii")
    preamble = b"retry: %d\n\n" % RETRY_MS
    heartbeat = b": heartbeat\n\n"

    def __init__(self, force_base64: bool) -> None:
        self._force_base64 = force_base64
        self._told = ""

    def chunk(self, chunk: TopicChunk) -> bytes:
        parts = [self.gap(encode(_gap_view(gap))) for gap in chunk.gaps]
        for message, cursor in chunk.messages:
            view = view_of(message, force_base64=self._force_base64)
            parts.append(b"id: %b\ndata: %b\n\n" % (cursor.encode("ascii"), encode(view)))
        last = chunk.messages[-1].cursor if chunk.messages else self._told
        if chunk.cursor != last:
            parts.append(self.told(chunk.cursor))
        self._told = chunk.cursor
        return b"".join(parts)

    def passed_on(self, message: bytes, cursor: str) -> bytes:
        return b"id: %b\ndata: %b\n\n" % (cursor.encode("ascii"), message)

    def given(self, message: bytes) -> bytes:
        return b"data: %b\n\n" % message

    def told(self, cursor: str) -> bytes:
        return b": heartbeat\nid: %b\n\n" % cursor.encode("ascii")

    def gap(self, gap: bytes) -> bytes:
        return b"event: gap\ndata: %b\n\n" % gap

    def partial(self, shards: Sequence[str]) -> bytes:
        return b"event: partial\ndata: %b\n\n" % encode({"partial": shards})

    def effects(self, effects: Sequence[object]) -> bytes:
        return b"event: effects\ndata: %b\n\n" % encode(effects)

    def deliveries(self, deliveries: Sequence[Delivery]) -> bytes:
        force = self._force_base64
        views = [encode(delivered_view(each, force_base64=force)) for each in deliveries]
        return b"".join([self.given(view) for view in views])

    def end(self, reason: str, cursor: str | None, error: EntryProblem | None) -> bytes:
        identity = b"" if cursor is None else b"id: %b\n" % cursor.encode("ascii")
        view = encode(_end_view(reason, cursor, error))
        return b"event: end\n%bdata: %b\n\n" % (identity, view)


class JsonLines:
    """`application/x-ndjson`."""

    content_type = media.NDJSON.encode("ascii")
    preamble = b"\n"
    heartbeat = b"\n"

    def __init__(self, force_base64: bool) -> None:
        self._force_base64 = force_base64
        self._told = ""

    def chunk(self, chunk: TopicChunk) -> bytes:
        parts = [self.gap(encode(_gap_view(gap))) for gap in chunk.gaps]
        for message, cursor in chunk.messages:
            view = view_of(message, force_base64=self._force_base64)
            fields = {name: getattr(view, name) for name in view.__struct_fields__}
            parts.append(encode(StreamedMessageView(**fields, cursor=cursor)) + b"\n")
        last = chunk.messages[-1].cursor if chunk.messages else self._told
        if chunk.cursor != last:
            parts.append(self.told(chunk.cursor))
        self._told = chunk.cursor
        return b"".join(parts)

    def passed_on(self, message: bytes, cursor: str) -> bytes:
        return b'%b,"cursor":"%b"}\n' % (message[:-1], cursor.encode("ascii"))

    def given(self, message: bytes) -> bytes:
        return message + b"\n"

    def told(self, cursor: str) -> bytes:
        return b'{"cursor":"%b"}\n' % cursor.encode("ascii")

    def gap(self, gap: bytes) -> bytes:
        return b'{"gap":%b}\n' % gap

    def partial(self, shards: Sequence[str]) -> bytes:
        return encode({"partial": shards}) + b"\n"

    def effects(self, effects: Sequence[object]) -> bytes:
        return b'{"effects":%b}\n' % encode(effects)

    def deliveries(self, deliveries: Sequence[Delivery]) -> bytes:
        force = self._force_base64
        views = [encode(delivered_view(each, force_base64=force)) for each in deliveries]
        return b"".join([self.given(view) for view in views])

    def end(self, reason: str, cursor: str | None, error: EntryProblem | None) -> bytes:
        return b'{"end":%b}\n' % encode(_end_view(reason, cursor, error))


def _end_view(reason: str, cursor: str | None, error: EntryProblem | None) -> StreamEndView:
    is_over = error is not None and not error.retryable
    return StreamEndView(
        reason=reason,
        cursor=UNSET if cursor is None else cursor,
        retry_after_ms=UNSET if is_over else RETRY_MS,
        error=UNSET if error is None else error,
    )


def _gap_view(gap: StreamGap) -> StreamGapView:
    return StreamGapView(gap.queue_id, *gap.gap)
