"""What a consumer of queues of its own asks for, checked. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from curlew_client.assigned.records import QueueName
from curlew_client.producing.messages import check_name
from curlew_client.wire.durations import Duration, seconds_of

Start = Literal["first", "last"] | int | datetime
"""Where a group begins; an int is a time in epoch milliseconds."""

STARTS: Final[dict[object, str]] = {"first": "earliest", "last": "latest"}
RESETS: Final = ("nearest", "earliest", "latest", "fail")
STRATEGIES: Final = (
    *("averagely", "averagely_by_circle", "consistent_hash", "configuration"),
    *("machine_room", "machine_room_nearby"),
)


class Rebalance(NamedTuple):
    """What a listener is told: the queues that the consumer has now, and what has changed."""

    generation: int
    assigned: list[QueueName]
    gained: list[QueueName]
    lost: list[QueueName]


Listener = Callable[[Rebalance], Any]


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Of one consumer."""

    group: str
    topics: Mapping[str, str | None]
    """Topics, each with its filter."""
    in_order: bool = False
    start: str | int | None = None
    offset_reset: str = "nearest"
    strategy: str | None = None
    hold_s: float = 900.0
    suspend_s: float = 1.0
    max_attempts: int | None = None
    offset_file: Path | None = None
    is_broadcast: bool = False
    listener: Listener | None = None


def topics_of(topics: object, filter_text: object) -> dict[str, str | None]:
    """A topic, several, or a dict from topics to filters."""
    if isinstance(topics, str):
        topics = [topics]
    if isinstance(topics, Mapping):
        if filter_text is not None:
            raise TypeError("filter and a dict of topics say the same twice; use one of them")
        found = dict(topics)
    elif isinstance(topics, list | tuple | set | frozenset):
        found = dict.fromkeys(topics, filter_text)
    else:
        raise TypeError(
            "topic is a str, several of them, or a dict from topics to filters, "
            f"not {type(topics).__name__}"
        )
    if not found:
        raise ValueError("topic names no topic")
    for topic, expression in found.items():
        check_name("topic", topic)
        if expression is not None and not isinstance(expression, str):
            raise TypeError(f"filter is a str, not {type(expression).__name__}")
    return found


def start_of(value: object) -> str | int | None:
    """The `start` of a group, as the node has it."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("start has no time zone; write datetime(…, tzinfo=UTC)")
        return round(value.timestamp() * 1_000)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or value not in STARTS:
        raise ValueError(
            f"start is {value!r}; it is 'first', 'last', a datetime, or a time in epoch ms"
        )
    return STARTS[value]


def member_options(
    group: object,
    topics: object,
    *,
    filter_text: object = None,
    in_order: bool = False,
    start: object = None,
    offset_reset: str = "nearest",
    strategy: str | None = None,
    consume_timeout: Duration = 900.0,
    suspend: Duration = 1.0,
    max_attempts: object = None,
    broadcast: bool = False,
    offset_file: "str | Path | None" = None,
    listener: Listener | None = None,
) -> MemberOptions:
    """Raises `TypeError` or `ValueError` with the right name."""
    name = check_name("group", group)
    for flag, value in (("in_order", in_order), ("broadcast", broadcast)):
        if not isinstance(value, bool):
            raise TypeError(f"{flag} is True or False")
    if offset_reset not in RESETS:
        raise ValueError(f"offset_reset is {offset_reset!r}; it is one of {', '.join(RESETS)}")
    if strategy is not None and strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; it is one of {', '.join(STRATEGIES)}")
    if listener is not None and not callable(listener):
        raise TypeError("on_rebalance is a function of a Rebalance")
    if max_attempts is not None and not in_order:
        raise ValueError("max_attempts counts tries in order; else the group's setting counts")
    if offset_file is not None and not broadcast:
        raise ValueError("offset_file is for broadcast=True; else the node keeps the offsets")
    if offset_file is not None and not isinstance(offset_file, str | Path):
        raise TypeError(f"offset_file is a path, not {type(offset_file).__name__}")
    return MemberOptions(
        name,
        topics_of(topics, filter_text),
        in_order,
        start_of(start),
        offset_reset,
        strategy,
        seconds_of("consume_timeout", consume_timeout),
        seconds_of("suspend", suspend),
        _attempts(max_attempts),
        None if offset_file is None else Path(offset_file),
        broadcast,
        listener,
    )


def _attempts(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"max_attempts is {value!r}; it is an int from 1 on, or None")
    return value
