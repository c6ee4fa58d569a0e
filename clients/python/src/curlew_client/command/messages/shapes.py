"""Messages as lines: tables for people, one JSON document a line for programs, and back. Pure.

A line of JSON has the members of the API: `text`, `body` (JSON) or `body_base64`, and `tag`,
`keys`, `sharding_key`, `properties`, `content_type`, `unique_id`, `flag`, `queue_id`, `delay`,
`deliver_at_ms`. What the API adds to a message that is stored (`message_id`, `queue_offset`, …) may
stand there and means nothing when it is sent, so that what one command prints another one sends.
"""

import binascii
import json
from base64 import b64decode
from typing import Any, Final

from curlew_client.command.words import NotSo, body_of, body_text, printable, time_text
from curlew_client.producing.messages import Message

_BODIES: Final = ("text", "body", "body_base64")
_GIVEN: Final = frozenset(
    {
        *("tag", "keys", "sharding_key", "properties", "content_type", "unique_id", "flag"),
        *("queue_id", "delay", "deliver_at_ms"),
    }
)
_STORED: Final = frozenset(
    {
        *("message_id", "topic", "queue_offset", "born_time_ms", "store_time_ms", "receipt_handle"),
        *("delivery_attempt", "max_attempts", "invisible_until_ms", "correlation_id", "cursor"),
        *("reply_until_ms", "group", "reason", "dead_ms", "original_topic", "origin", "id"),
        *("deliver_time_ms", "recall_handle", "body_bytes", "transaction_id", "ordered"),
    }
)

COLUMNS: Final = ("queue", "offset", "stored", "tag", "keys", "body")
BODY_LENGTH: Final = 80


def message_of(line: bytes, where: str, *, keep_queues: bool) -> Message:
    """The message of a line of JSON. Raises `NotSo` with its place."""
    try:
        shown = json.loads(line)
    except UnicodeDecodeError:
        raise NotSo(f"{where} is not UTF-8") from None
    except ValueError as error:
        raise NotSo(f"{where} is no JSON: {error}") from None
    if not isinstance(shown, dict):
        raise NotSo(f'{where} is no JSON object; write it as {{"text": "…"}}')
    is_of_the_past = "message_id" in shown
    _check_members(shown, where, is_of_the_past=is_of_the_past)
    options = {name: shown[name] for name in _GIVEN if shown.get(name) is not None}
    if is_of_the_past and not keep_queues:
        options.pop("queue_id", None)
    try:
        return Message(_body(shown, where), **options)
    except (TypeError, ValueError) as error:
        raise NotSo(f"{where}: {error}") from None


def _check_members(shown: dict[str, Any], where: str, *, is_of_the_past: bool) -> None:
    known = _GIVEN | set(_BODIES) | _STORED
    unknown = sorted(shown.keys() - known)
    if unknown and not is_of_the_past:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], _GIVEN | set(_BODIES), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotSo(f"{where}: a message has no {unknown[0]!r}{hint}")
    if len([name for name in _BODIES if name in shown]) != 1:
        raise NotSo(f"{where}: give the body as one of text, body (JSON) and body_base64")


def _body(shown: dict[str, Any], where: str) -> bytes:
    if "body_base64" in shown:
        try:
            return b64decode(shown["body_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise NotSo(f"{where}: body_base64 is no Base64") from None
    if "text" in shown:
        if not isinstance(shown["text"], str):
            raise NotSo(f"{where}: text is no text; give JSON as body")
        return shown["text"].encode()
    return json.dumps(shown["body"], ensure_ascii=False, separators=(",", ":")).encode()


def row_of(shown: dict[str, Any]) -> tuple[object, ...]:
    """The cells of `COLUMNS`."""
    return (
        shown["queue_id"],
        shown["queue_offset"],
        time_text(shown["store_time_ms"]),
        shown.get("tag") or "",
        list(shown.get("keys", ())) or "",
        body_text(body_of(shown), BODY_LENGTH),
    )


def line_of(shown: dict[str, Any]) -> str:
    """One line for a person who reads as messages come."""
    keys = ",".join(shown.get("keys", ()))
    labels = " ".join(filter(None, (shown.get("tag"), keys)))
    place = f"{shown['queue_id']}@{shown['queue_offset']}"
    body = body_text(body_of(shown))
    return f"{time_text(shown['store_time_ms'])}  {place:<10} {printable(labels):<12} {body}"


def json_line(shown: dict[str, Any]) -> str:
    """One line for a program."""
    return json.dumps(shown, ensure_ascii=False)
