"""What requests ask to be sent: one message or the entries of a batch, of body, headers and query.

Pure; for every operation that takes an envelope or an event. What is said twice in two ways is a
contradiction, which in a batch stands in its entry's place.
"""

from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from app.api.bodies.delivery_times import due_of
from app.api.formats.cloudevents import decode_event, decode_events
from app.api.formats.decoding import (
    decode_batch,
    decode_lines,
    envelope_decoder,
    lines_of,
    message_of,
)
from app.api.formats.media import BatchKind, BodyKind
from app.api.formats.mq_headers import SendOptions, put_property
from app.api.formats.wire import BatchEntry
from app.api.http.parameters import agreed
from app.broker.results import BatchItem
from app.domain.delays import Due
from app.domain.errors import CurlewError, IllegalMessageId, InvalidRequest
from app.domain.limits import KIB
from app.domain.message import Message, StoredEncoding

SMALL_BODY_BYTES_MAX: Final = 256 * KIB
SMALL_BODY_MARKS_MAX: Final = 2_000
"""Braces and ends of lines. What is larger is for a thread: a second of processor time at the
limits."""

_SAMPLE_BYTES: Final = 4 * KIB
"""To count in all of a large body would cost more than its decoding may."""
_NOTHING: Final = SendOptions()


class MessageToSend(NamedTuple):
    """A message, the queue that was asked for, and when to deliver it (None: now)."""

    message: Message
    queue_id: int | None
    due: Due | None


def message_to_send(
    kind: BodyKind,
    content_type: str | None,
    body: bytes,
    options: SendOptions,
    encoding: StoredEncoding | None = None,
) -> MessageToSend:
    """What a request for one message asks for, in headers, query and body; `encoding` is how a raw
    body stays packed."""
    due = due_of(options.delay, options.deliver_at)
    if kind == "raw":
        message = Message(
            body,
            tag=options.tag,
            keys=options.keys or (),
            sharding_key=options.sharding_key,
            properties=options.properties,
            content_type=content_type,
            born_time_ms=options.born_time_ms,
            unique_id=options.unique_id,
            flag=options.flag or 0,
            encoding=encoding,
        )
        return MessageToSend(message, options.queue_id, due)
    if kind == "event":
        return MessageToSend(merged(decode_event(body), options), options.queue_id, due)
    envelope = envelope_decoder.decode(body)
    if options == _NOTHING:  # most often all is in the envelope
        due = due_of(envelope.delay, envelope.deliver_at_ms)
        return MessageToSend(message_of(envelope), envelope.queue_id, due)
    agreed("flag", envelope.flag, options.flag)
    queue_id = agreed("queue_id", envelope.queue_id, options.queue_id)
    due = agreed("the time of delivery", due_of(envelope.delay, envelope.deliver_at_ms), due)
    return MessageToSend(merged(message_of(envelope), options), queue_id, due)


def message_beside_body(options: SendOptions) -> Message | None:
    """The message without its body and content type, where `options` have nothing but tag, keys,
    sharding key and properties; None: they also say who sends, how, or when."""
    of_message = SendOptions(
        tag=options.tag,
        keys=options.keys,
        sharding_key=options.sharding_key,
        properties=options.properties,
    )
    if options != of_message:
        return None
    return Message(
        b"",
        tag=options.tag,
        keys=options.keys or (),
        sharding_key=options.sharding_key,
        properties=options.properties,
    )


def merged(message: Message, options: SendOptions) -> Message:
    """`message` with what `options` add to it; `InvalidRequest` where they contradict it."""
    properties = dict(message.properties)
    for name, text in options.properties.items():
        put_property(properties, name, text)
    return replace(
        message,
        tag=agreed("tag", message.tag, options.tag),
        keys=agreed("keys", message.keys or None, options.keys) or (),
        sharding_key=agreed("sharding_key", message.sharding_key, options.sharding_key),
        properties=properties,
        born_time_ms=agreed("born_time_ms", message.born_time_ms, options.born_time_ms),
        unique_id=agreed("unique_id", message.unique_id, options.unique_id),
        flag=message.flag or options.flag or 0,
    )


class Entry(Struct, frozen=True):
    """One entry of a batch: what the client calls it, and what is in it."""

    id: str | None
    item: BatchItem | CurlewError

    @property
    def unique_id(self) -> str | None:
        """The producer's id of its message."""
        return self.item.message.unique_id if isinstance(self.item, BatchItem) else None


def entries_of(
    kind: BatchKind,
    body: bytes,
    line_type: str | None,
    count_max: int,
    trace: dict[str, str],
    queue_id: int | None,
) -> list[Entry]:
    """The entries with what the request says for all of them. Any thread."""
    entries = _decoded(kind, body, line_type, count_max)
    if trace:
        entries = [traced(entry, trace) for entry in entries]
    if queue_id is not None:
        entries = [_of_queue(entry, queue_id) for entry in entries]
    return named_once(entries, "/messages/{}" if kind == "json" else "")


def is_small(body: bytes | bytearray | memoryview) -> bool:
    """Whether `entries_of` a body keeps the event loop for some milliseconds at most, as its
    beginning lets expect. No entry is without a brace or an end of line of its own, most have one
    or two."""
    if len(body) > SMALL_BODY_BYTES_MAX:
        return False
    beginning = bytes(body[:_SAMPLE_BYTES])
    marks = beginning.count(b"{") + beginning.count(b"\n")
    return marks * len(body) <= SMALL_BODY_MARKS_MAX * len(beginning)


def _decoded(kind: BatchKind, body: bytes, line_type: str | None, count_max: int) -> list[Entry]:
    """At most `count_max`, or `BatchTooLarge`: small faults must not become large errors."""
    if kind == "lines":
        return [
            Entry(None, BatchItem(Message(line, content_type=line_type), None))
            for line in lines_of(body, count_max)
        ]
    if kind == "events":
        return [_entry_of_event(event) for event in decode_events(body, count_max)]
    decode = decode_batch if kind == "json" else decode_lines
    return [entry_of(each) for each in decode(body, count_max)]


def named_once(entries: list[Entry], place: str) -> list[Entry]:
    """The entries, with a fault in place of one whose unique id another before it has. `place` is
    the JSON pointer of an entry, with `{}` for its number."""
    items = [entry.item for entry in entries]
    ids = [item.message.unique_id for item in items if isinstance(item, BatchItem)]
    if ids.count(None) == len(ids):  # as nearly always
        return entries
    first: dict[str, int] = {}
    for index, item in enumerate(items):
        unique_id = item.message.unique_id if isinstance(item, BatchItem) else None
        if unique_id is None or (known := first.setdefault(unique_id, index)) == index:
            continue
        error = named_twice(unique_id, index, known, place)
        entries[index] = replace(entries[index], item=error)
    return entries


def named_twice(unique_id: str, index: int, known: int, place: str) -> IllegalMessageId:
    """The fault of an entry whose unique id the entry `known` before it has."""
    return IllegalMessageId(
        f"unique_id {unique_id!r} is that of entry {known} of this request, too",
        hint="an id names one message: give each its own, or leave it out",
        pointer=f"{place.format(index)}/unique_id",
        fields={"unique_id": unique_id, "index": index, "first_index": known},
    )


def _of_queue(entry: Entry, queue_id: int) -> Entry:
    """`entry`, or its fault when it names another queue than the request does."""
    if isinstance(entry.item, CurlewError):
        return entry
    try:
        agreed("queue_id", entry.item.queue_id, queue_id)
    except InvalidRequest as error:
        return replace(entry, item=error)
    return entry


def traced(entry: Entry, trace: dict[str, str]) -> Entry:
    """A message without a trace context of its own belongs to that of the request."""
    item = entry.item
    if isinstance(item, CurlewError) or "traceparent" in item.message.properties:
        return entry
    message = replace(item.message, properties={**item.message.properties, **trace})
    return replace(entry, item=replace(item, message=message))


def _entry_of_event(event: Message | CurlewError) -> Entry:
    if isinstance(event, CurlewError):
        return Entry(None, event)
    return Entry(event.properties["ce-id"], BatchItem(event, None))


def entry_of(entry: BatchEntry | CurlewError) -> Entry:
    """What an entry of a batch asks for; its fault stands in its place."""
    if isinstance(entry, CurlewError):
        return Entry(None, entry)
    try:
        due = None
        if entry.delay is not None or entry.deliver_at_ms is not None:
            due = due_of(entry.delay, entry.deliver_at_ms)
        return Entry(entry.id, BatchItem(message_of(entry), entry.queue_id, due))
    except CurlewError as error:
        return Entry(entry.id, error)
