"""Delays and delivery times in requests: text → `Due`. Pure; called by both planes."""

from datetime import datetime
from typing import Final

from app.domain.delays import Due, level
from app.domain.durations import parse_duration_ms
from app.domain.errors import IllegalDeliveryTime

LEVEL_PREFIX: Final = "level:"
_DIGITS_MAX: Final = 15


def due_of(delay: str | None, deliver_at: str | int | None) -> Due | None:
    """When to deliver; None: now. `IllegalDeliveryTime` for what cannot be read, or both."""
    if delay is not None and deliver_at is not None:
        raise IllegalDeliveryTime(
            "both a delay and a delivery time are given", hint="leave one of them out"
        )
    if delay is not None:
        return delay_of(delay)
    return None if deliver_at is None else time_of(deliver_at)


def delay_of(text: str) -> Due:
    """`30s`, `2h`, `level:3`."""
    if text.startswith(LEVEL_PREFIX):
        number = text[len(LEVEL_PREFIX) :]
        if number.isascii() and number.isdigit() and len(number) <= 3:
            return level(int(number))
        raise IllegalDeliveryTime(
            f"{text!r} is not a delay level", hint="write level:1 to level:18"
        )
    try:
        return Due(parse_duration_ms(text), is_delay=True)
    except ValueError as error:
        raise IllegalDeliveryTime(
            f"the delay {text!r} cannot be read", hint="write 250ms, 30s, 5m, 2h, 3d, or level:3"
        ) from error


def time_of(moment: str | int) -> Due:
    """Epoch milliseconds, or RFC 3339 with an offset."""
    if isinstance(moment, int):
        return Due(moment, is_delay=False)
    if moment.isascii() and moment.isdigit() and len(moment) <= _DIGITS_MAX:
        return Due(int(moment), is_delay=False)
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise IllegalDeliveryTime(
            f"the delivery time {moment!r} cannot be read",
            hint="write epoch milliseconds, or RFC 3339 such as 2026-12-24T18:00:00Z",
        )
    return Due(round(parsed.timestamp() * 1_000), is_delay=False)
