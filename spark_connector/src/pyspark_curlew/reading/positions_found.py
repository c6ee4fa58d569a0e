"""From a bound (names, offsets, times) to one offset for each queue. Pure, given the look-ups.

Queues that a JSON value does not name begin at the earliest offset (and end at the latest), as
queues that are added while a query runs do. Called by `stream` and `batch`, on the driver, once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark_curlew.errors import OptionInvalid
from pyspark_curlew.reading.offsets import Positions, TopicQueue
from pyspark_curlew.reading.positions_wanted import EARLIEST, LATEST, Bound


@dataclass(frozen=True, slots=True)
class Lookups:
    """What the service knows. The functions are asked after the mappings were fetched."""

    earliest: Positions
    latest: Positions
    at_time: Callable[[str, int], Mapping[int, int]]
    """Topic and epoch milliseconds to the offset of each queue."""
    committed: Callable[[str], Mapping[int, int]]
    """Topic to the offsets that the group has committed."""


def resolve(bound: Bound, found: Lookups, option: str) -> dict[TopicQueue, int]:
    """One offset for each queue of `found.latest`; `option` names the bound in errors."""
    _check_names(bound, found.latest, option)
    committed = _committed(bound, found)
    resolved: dict[TopicQueue, int] = {}
    for key, end in found.latest.items():
        moment = bound.timestamp_ms
        if moment is None:
            moment = bound.timestamps.get(key.topic, {}).get(key.queue)
        if moment is not None:
            resolved[key] = _by_time(bound, found, key, moment)
            continue
        wanted = bound.offsets.get(key.topic, {}).get(key.queue)
        if wanted is None:
            wanted = _by_name(bound, key, committed)
        if wanted > end:
            raise OptionInvalid(
                f"option {option!r} puts queue {key.queue} of topic {key.topic!r} at {wanted},"
                f" beyond its end {end}"
            )
        resolved[key] = {LATEST: end, EARLIEST: found.earliest.get(key, end)}.get(wanted, wanted)
    return resolved


def _check_names(bound: Bound, latest: Positions, option: str) -> None:
    """A queue that is named and not there is a mistake, not something to pass over."""
    for mapping in (bound.offsets, bound.timestamps):
        for topic, queues in mapping.items():
            present = [key.queue for key in latest if key.topic == topic]
            if not present:
                raise OptionInvalid(f"option {option!r} names topic {topic!r}, which is not read")
            strangers = sorted(set(queues) - set(present))
            if strangers:
                raise OptionInvalid(
                    f"option {option!r} names queue {strangers[0]} of topic {topic!r}, which has"
                    f" {len(present)} queues ({min(present)} to {max(present)})"
                )


def _by_time(bound: Bound, found: Lookups, key: TopicQueue, moment: int) -> int:
    """The first message stored at or after `moment`.

    The service answers the end when there is none. That end may be newer than the one in `found`;
    what came in between is not as new as was asked for, or is read from the older end on anyway.
    """
    offset = found.at_time(key.topic, moment).get(key.queue, found.latest[key])
    if offset >= found.latest[key]:
        if bound.too_new == "error":
            raise OptionInvalid(
                f"no message in queue {key.queue} of topic {key.topic!r} is as new as {moment}"
                " (epoch milliseconds); option startingOffsetsByTimestampStrategy=latest begins"
                " such queues at their end"
            )
        return found.latest[key]
    return offset


def _committed(bound: Bound, found: Lookups) -> dict[TopicQueue, int]:
    if bound.default != "committed" or bound.timestamp_ms is not None:
        return {}
    return {
        TopicQueue(topic, queue): offset
        for topic in sorted({key.topic for key in found.latest})
        for queue, offset in found.committed(topic).items()
    }


def _by_name(bound: Bound, key: TopicQueue, committed: Positions) -> int:
    point = bound.default
    if point == "committed":
        if key in committed:
            return committed[key]
        if bound.fallback == "error":
            raise OptionInvalid(
                f"the consumer group has committed nothing in queue {key.queue} of topic"
                f" {key.topic!r}, and option startingOffsetsFallback is error"
            )
        point = bound.fallback
    return LATEST if point == "latest" else EARLIEST
