"""A message of kombu as one of Curlew, and back. Pure.

The body stays what it is, with its content type, so that any HTTP client can read a task and send
one. The routing key is the tag, the id of a task is a key, and what else kombu says is one
property.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kombu.utils import json as kombu_json

from curlew_client.celery.names import routing_key_of, tag_of
from curlew_client.consuming.messages import Received
from curlew_client.producing.messages import Message

PROPERTY: Final = "kombu"
"""Of a message: JSON of its headers, properties, content encoding, exchange and routing key."""
DELAY_MS_MAX: Final = 40 * 24 * 3_600 * 1_000
"""What a node takes unless it is set otherwise."""
_OF_ONE_DELIVERY: Final = frozenset({"delivery_info", "delivery_tag", "body_encoding"})
KEY_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was published."""

    exchange: str
    routing_key: str


def message_of(
    payload: Mapping[str, Any], origin: Origin, now_ms: int, delay_ms_max: int = DELAY_MS_MAX
) -> Message:
    """What is sent. A task with an `eta` is delivered when it is due, so that it waits in the node
    and not in a worker; one that is due later than the node delays comes then, and is sent on."""
    body = payload["body"]
    properties = {
        name: value
        for name, value in payload["properties"].items()
        if name not in _OF_ONE_DELIVERY and value is not None
    }
    said = {
        "exchange": origin.exchange,
        "routing_key": origin.routing_key,
        "headers": payload["headers"],
        "properties": properties,
        "content-encoding": payload["content-encoding"],
    }
    headers = payload["headers"]
    due_ms = due_ms_of(headers)
    return Message(
        body.encode() if isinstance(body, str) else bytes(body),
        tag=tag_of(origin.routing_key),
        keys=_keys_of(headers.get("id")),
        properties={PROPERTY: kombu_json.dumps(said)},
        content_type=payload["content-type"],
        deliver_at_ms=min(due_ms, now_ms + delay_ms_max) if due_ms > now_ms else None,
    )


def payload_of(message: Received[Any], delivery_tag: str, exchange: str) -> dict[str, Any]:
    """What kombu is given. A message that another program has sent has no property: its routing key
    is its tag, its exchange the one whose topic it came from.

    Raises `ValueError` when the property is none that kombu can have written.
    """
    said = message.properties.get(PROPERTY)
    found = kombu_json.loads(said) if said else {}
    if not isinstance(found, dict) or not all(
        isinstance(found.get(name, {}), dict) for name in ("headers", "properties")
    ):
        raise ValueError(f"the property {PROPERTY!r} is no object with headers and properties")
    info = {
        "exchange": found.get("exchange", exchange),
        "routing_key": found.get("routing_key", routing_key_of(message.tag)),
        "redelivered": message.attempt > 1,
    }
    return {
        "body": message.body,
        "content-type": message.content_type,
        "content-encoding": found.get("content-encoding", "utf-8"),
        "headers": found.get("headers", {}),
        "properties": {
            **found.get("properties", {}),
            "delivery_tag": delivery_tag,
            "delivery_info": info,
        },
    }


def _keys_of(task_id: object) -> tuple[str, ...]:
    """The id of a task, where it can be a key: without spaces, and of a key's length."""
    if not isinstance(task_id, str) or not 0 < len(task_id) <= KEY_CHARS_MAX:
        return ()
    return (task_id,) if task_id.isprintable() and " " not in task_id else ()


def due_ms_of(headers: Mapping[str, Any]) -> int:
    """The time of the `eta`, in ms since 1970; 0 when there is none, or none that can be read."""
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return 0
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        return 0
    return round((due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp() * 1_000)
