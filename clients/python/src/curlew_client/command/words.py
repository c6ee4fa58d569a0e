"""What people write and read: times, sizes, counts, texts from messages. Pure, but for the zone of
this machine."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from curlew_client.wire.durations import milliseconds_of


class NotSo(Exception):
    """The words of a user cannot be carried out; the text says why and what to do."""


def moment_ms(name: str, text: str, now_ms: Callable[[], int]) -> int:
    """Epoch milliseconds from `now`, `15m` (so long ago), epoch milliseconds, or ISO 8601."""
    if text == "now":
        return now_ms()
    if re.fullmatch(r"\d{9,}", text):
        return int(text)
    if re.fullmatch(r"-?\d+(\.\d+)?(ms|s|m|h|d)", text):
        return now_ms() - milliseconds_of(name, text.removeprefix("-"))
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        raise NotSo(
            f"{name} is {text!r}; write a time such as 2026-01-31T12:00 (of this machine's zone), "
            "2026-01-31T12:00Z, 15m (so long ago), now, or epoch milliseconds"
        ) from None


def time_text(ms: object) -> str:
    """A time in the zone of this machine; empty when there is none."""
    if not isinstance(ms, int):
        return ""
    moment = datetime.fromtimestamp(ms / 1_000).astimezone()
    return moment.isoformat(" ", "milliseconds")[:23]


def span_text(ms: float | None) -> str:
    """How long, with two units at most."""
    if ms is None:
        return ""
    if ms < 1_000:
        return f"{ms:.0f}ms"
    seconds = int(ms // 1_000)
    for size, unit, smaller, name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit}{f' {rest}{name}' if rest else ''}"
    return f"{ms / 1_000:.1f}s"


def bytes_text(count: float) -> str:
    """A size in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1_024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_024
    return f"{count:.1f} TiB"


def printable(text: object) -> str:
    """A text that moves no cursor and rings no bell, whoever wrote it."""
    shown = "" if text is None else str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def body_of(shown: dict[str, Any]) -> bytes | None:
    """The body in a document of a message; None when it was not asked for."""
    from curlew_client.wire.bodies import shown_body

    has_one = "body_base64" in shown or "text" in shown or "body" in shown
    return shown_body(shown) if has_one else None


def body_text(body: bytes | None, length: int | None = None) -> str:
    """A body on one line: its text, or how many bytes it has when it is none."""
    if body is None:
        return ""
    try:
        text = printable(body.decode())
    except UnicodeDecodeError:
        text = f"<{len(body)} bytes: {body[:12].hex(' ')}…>"
    if length is not None and len(text) > length:
        return f"{text[: length - 1]}…"
    return text


def pairs_of(name: str, texts: "tuple[str, ...] | list[str]") -> dict[str, str]:
    """`name=value` each."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise NotSo(f"{name} is {text!r}; write it as name=value")
        found[key] = value
    return found


def value_of(text: str) -> Any:
    """The value of a setting: JSON if it is JSON, else the text as it is."""
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text
