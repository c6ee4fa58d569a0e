"""Where reading begins and ends, as the options say it: names, offsets or times.

No I/O: `positions_found` turns a bound into offsets. Kafka's precedence: one time for everything,
then a time for each queue, then offsets. Called by `options`.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from pyspark_curlew.errors import OptionInvalid, OptionMissing
from pyspark_curlew.option_reader import OptionReader

EARLIEST: Final = -2
"""In a JSON value of offsets: the first offset that can be read. Kafka's number."""
LATEST: Final = -1
"""In a JSON value of offsets: one past the last offset. Kafka's number."""

Point: TypeAlias = Literal["earliest", "latest", "committed"]
ByQueue: TypeAlias = Mapping[str, Mapping[int, int]]
"""Topic to queue to number."""

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_POINTS: Final[tuple[Point, ...]] = get_args(Point)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of what is read. `default` holds for queues that the mappings do not name."""

    default: Point
    offsets: ByQueue = field(default_factory=dict)
    """`EARLIEST` and `LATEST` stand for the ends."""
    timestamp_ms: int | None = None
    timestamps: ByQueue = field(default_factory=dict)
    too_new: Literal["error", "latest"] = "latest"
    """What to do where no message is as new as the time."""
    fallback: Literal["earliest", "latest", "error"] = "earliest"
    """Where a group begins that has committed nothing."""


STARTING_NAMES: Final = (
    "startingOffsets",
    "startingOffsetsFallback",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
ENDING_NAMES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


def read_starting(reader: OptionReader, default: Point) -> Bound:
    """The beginning; `default` is what an option that is not given stands for."""
    point, offsets = _offsets(reader, "startingOffsets", default, "earliest")
    if point == "committed" and not reader.given("consumerGroup"):
        raise OptionMissing("option 'consumerGroup' is required beside startingOffsets=committed")
    strategy, times = "startingOffsetsByTimestampStrategy", "startingOffsetsByTimestamp"
    start = Bound(
        default=point,
        offsets=offsets,
        timestamp_ms=_timestamp(reader, "startingTimestamp"),
        timestamps=_timestamps(reader, times),
        too_new=reader.choice(strategy, "error", "latest"),
        fallback=reader.choice("startingOffsetsFallback", "earliest", "latest", "error"),
    )
    of_group = "startingOffsets=committed"
    reader.check_use("startingOffsetsFallback", of_group, is_there=point == "committed")
    by_time = bool(reader.given("startingTimestamp", times))
    reader.check_use(strategy, f"'startingTimestamp' or {times!r}", is_there=by_time)
    return start


def read_ending(reader: OptionReader) -> Bound:
    """The end of a batch read, excluded; `latest` when no option says otherwise."""
    point, offsets = _offsets(reader, "endingOffsets", "latest", "latest")
    if point != "latest" or EARLIEST in _numbers(offsets):
        raise OptionInvalid("option 'endingOffsets' ends at the earliest offset: nothing is read")
    return Bound(
        default=point,
        offsets=offsets,
        timestamp_ms=_timestamp(reader, "endingTimestamp"),
        timestamps=_timestamps(reader, "endingOffsetsByTimestamp"),
    )


def check_batch_start(start: Bound) -> None:
    """A batch that begins at the end reads nothing; most likely a stream was meant."""
    by_time = start.timestamp_ms is not None
    if by_time:
        return
    if start.default == "latest":
        raise OptionInvalid("option 'startingOffsets' = 'latest' cannot begin a batch read")
    for topic, queues in start.offsets.items():
        for queue, number in queues.items():
            if number == LATEST:
                raise OptionInvalid(
                    f"option 'startingOffsets' puts queue {queue} of topic {topic!r} at -1"
                    " (latest), which cannot begin a batch read"
                )


def _numbers(offsets: ByQueue) -> set[int]:
    return {number for queues in offsets.values() for number in queues.values()}


def _offsets(
    reader: OptionReader, name: str, default: Point, for_others: Point
) -> tuple[Point, ByQueue]:
    """The point, or the JSON with the point for queues that it does not name."""
    value = reader.text(name, default).lower()
    for point in _POINTS:
        if value == point:
            return point, {}
    like = '{"orders":{"0":23,"1":-2}} (-2 earliest, -1 latest), nor earliest or latest'
    return for_others, _by_queue(reader, name, like, minimum=EARLIEST)


def _timestamps(reader: OptionReader, name: str) -> ByQueue:
    if not reader.given(name):
        return {}
    return _by_queue(reader, name, '{"orders":{"0":1700000000000}} (epoch milliseconds)', minimum=0)


def _by_queue(reader: OptionReader, name: str, like: str, *, minimum: int) -> ByQueue:
    document = reader.json_object(name, like)
    wrong = OptionInvalid(f"option {name!r} = {reader.text(name)!r} is not JSON like {like}")
    found: dict[str, dict[int, int]] = {}
    for topic, queues in document.items():
        if not isinstance(queues, dict) or not queues:
            raise wrong
        found[topic] = {}
        for queue, number in queues.items():
            if not queue.isdecimal() or type(number) is not int or number < minimum:
                raise wrong
            found[topic][int(queue)] = number
    return found


def _timestamp(reader: OptionReader, name: str) -> int | None:
    """Epoch milliseconds, or ISO 8601; without an offset from UTC it is taken as UTC."""
    if not reader.given(name):
        return None
    value = reader.text(name)
    if re.fullmatch(r"[0-9]{1,15}", value):
        return int(value)
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        raise OptionInvalid(
            f"option {name!r} = {value!r} is neither epoch milliseconds nor a time like"
            " 2026-11-21T14:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    # Messages have whole milliseconds: what is stored then or later is so from the next one on.
    return max(0, -((EPOCH - moment) // MILLISECOND))
