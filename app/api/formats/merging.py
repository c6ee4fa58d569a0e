"""A message of a body, and what headers and query say of it: one message, or a contradiction.

Pure; for every operation that takes an envelope or an event.
"""

from typing import NamedTuple

from msgspec.structs import replace

from app.api.bodies.delivery_times import due_of
from app.api.formats.cloudevents import decode_event
from app.api.formats.decoding import envelope_decoder, message_of
from app.api.formats.media import BodyKind
from app.api.formats.mq_headers import SendOptions, put_property
from app.api.http.parameters import agreed
from app.domain.delays import Due
from app.domain.message import Message


class MessageToSend(NamedTuple):
    """A message, the queue that was asked for, and when to deliver it (None: now)."""

    message: Message
    queue_id: int | None
    due: Due | None


def message_to_send(
    kind: BodyKind, content_type: str | None, body: bytes, options: SendOptions
) -> MessageToSend:
    """What a request for one message asks for, in headers, query and body."""
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
        )
        return MessageToSend(message, options.queue_id, due)
    if kind == "event":
        return MessageToSend(merged(decode_event(body), options), options.queue_id, due)
    envelope = envelope_decoder.decode(body)
    queue_id = agreed("queue_id", envelope.queue_id, options.queue_id)
    due = agreed("the time of delivery", due_of(envelope.delay, envelope.deliver_at_ms), due)
    return MessageToSend(merged(message_of(envelope), options), queue_id, due)


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
    )
