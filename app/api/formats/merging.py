"""A message of a body, and what headers and query say of it: one message, or a contradiction.

Pure; for every operation that takes an envelope or an event.
"""

from msgspec.structs import replace

from app.api.formats.mq_headers import SendOptions, put_property
from app.api.http.parameters import agreed
from app.domain.message import Message


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
