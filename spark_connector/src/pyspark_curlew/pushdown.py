"""Spark's filters over a batch read, as bounds on topics, queues, offsets and store times.

They only make the range smaller: every filter goes back to Spark, which applies it to the rows, so
none has to be exact here. Store times never run backwards in a queue, so a time is an offset. Pure.
Called by `batch`.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_curlew.bounds import EPOCH, MILLISECOND
from pyspark_curlew.offsets import TopicQueue

_INT64_MAX: Final = 2**63 - 1
_COMPARISONS: Final[Mapping[type[Filter], tuple[int | None, int | None]]] = {
    EqualTo: (0, 1),
    GreaterThan: (1, None),
    GreaterThanOrEqual: (0, None),
    LessThan: (None, 0),
    LessThanOrEqual: (None, 1),
}
"""What is added to the value for the first and for the end (excluded) of what can match."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """What rows must be like; ends are excluded, times in epoch milliseconds."""

    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = _INT64_MAX
    first_ms: int | None = None
    end_ms: int | None = None

    def allows(self, key: TopicQueue) -> bool:
        return (self.topics is None or key.topic in self.topics) and (
            self.queues is None or key.queue in self.queues
        )

    def between(
        self,
        key: TopicQueue,
        start: int,
        end: int,
        at_time: Callable[[str, int], Mapping[int, int]],
    ) -> tuple[int, int]:
        """The part of the range of a queue in which rows can match; empty: start = end."""
        if not self.allows(key):
            return start, start
        first, last = max(start, self.first_offset), min(end, self.end_offset)
        if self.first_ms is not None:
            first = max(first, at_time(key.topic, max(0, self.first_ms)).get(key.queue, first))
        if self.end_ms is not None:
            last = min(last, at_time(key.topic, max(0, self.end_ms)).get(key.queue, last))
        return first, max(first, last)


def restriction_of(filters: Iterable[Filter]) -> Restriction:
    """All that the filters say together, as far as it is understood here."""
    found = Restriction()
    for each in filters:
        name = getattr(each, "attribute", None)
        if isinstance(each, In) and name in {("topic",), ("queue",)}:
            found = _among(found, name[0], frozenset(each.value))
        elif type(each) in _COMPARISONS and isinstance(name, tuple) and len(name) == 1:
            found = _compared(found, name[0], type(each), getattr(each, "value"))  # noqa: B009
    return found


def _among(found: Restriction, name: str, values: frozenset[object]) -> Restriction:
    if name == "topic":
        topics = frozenset(value for value in values if isinstance(value, str))
        return replace(found, topics=topics if found.topics is None else topics & found.topics)
    queues = frozenset(value for value in values if isinstance(value, int))
    return replace(found, queues=queues if found.queues is None else queues & found.queues)


def _compared(found: Restriction, name: str, kind: type[Filter], value: object) -> Restriction:
    if name in {"topic", "queue"}:
        return _among(found, name, frozenset([value])) if kind is EqualTo else found
    first, end = _COMPARISONS[kind]
    if name == "offset" and isinstance(value, int):
        if first is not None:
            found = replace(found, first_offset=max(found.first_offset, value + first))
        if end is not None:
            found = replace(found, end_offset=min(found.end_offset, value + end))
    elif name == "timestamp" and isinstance(value, datetime.datetime):
        # Store times are whole milliseconds: rounded outwards, so that no row is left out.
        moment = (value.astimezone(datetime.UTC) - EPOCH) // MILLISECOND
        if first is not None:
            found = replace(found, first_ms=max(moment, found.first_ms or 0))
        if end is not None:
            found = replace(found, end_ms=min(moment + 1, found.end_ms or _INT64_MAX))
    return found
