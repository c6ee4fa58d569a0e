"""Deliveries that were open when the node ended: handed out, and neither settled nor run out. Pure.

Filled while the log is replayed and emptied when the node has taken them up; what happens
afterwards is in the lease tables. Event loop only.
"""

from collections.abc import Iterable
from typing import NamedTuple

from app.broker.progress.progress_entries import (
    Bound,
    ConsumptionSet,
    Entry,
    Forgotten,
    HandedOut,
    Key,
    LeaseRun,
    Parked,
    Placed,
    Released,
    Unsubscribed,
)

OpenRun = tuple[int, LeaseRun]
"""When the leases end, by the wall clock in milliseconds, and which they are."""


class OpenDelivery(NamedTuple):
    """The newest delivery of a message."""

    lease_id: int
    attempt: int
    until_ms: int
    """When its lease ends, by the wall clock."""


class OpenDeliveries:
    """Those that the log tells of. Some may be settled: the caller asks `QueueState`."""

    def __init__(self, now_ms: int = 0) -> None:
        """Leases that have ended by `now_ms` are left out."""
        self._now_ms = now_ms
        self._queues: dict[Key, dict[int, OpenDelivery]] = {}

    def ended_by(self, now_ms: int) -> None:
        """Leave out what has ended by then, of what comes."""
        self._now_ms = now_ms

    def clear(self) -> None:
        self._queues.clear()

    def pairs(self) -> set[tuple[str, str]]:
        """(group, topic) of all."""
        return {key[:2] for key, found in self._queues.items() if found}

    def take(self, key: Key) -> dict[int, OpenDelivery]:
        """Those of one queue, by offset; they are not kept here any more."""
        return self._queues.pop(key, {})

    def apply(self, entry: Entry) -> None:
        """Follow an entry of the log."""
        match entry:
            case HandedOut(group, rows, until_ms, leases):
                for topic, queue_id, delivered in rows:
                    ended = [range(first, first + count) for first, count, _ in delivered]
                    self._end((group, topic, queue_id), ended)
                for (topic, queue_id, _), runs in zip(rows, leases, strict=False):
                    self.add((group, topic, queue_id), [(until_ms, run) for run in runs])
            case Placed(group, places):
                for topic, queue_id, _ in places:
                    self._queues.pop((group, topic, queue_id), None)
            case Parked(group, topic, queue_id, message):
                self._end((group, topic, queue_id), [(message.offset,)])
            case Released(group, topic, queue_id, offset):
                self._end((group, topic, queue_id), [(offset,)])
            case Forgotten(group, topic):
                self._drop([key for key in self._queues if key[0] == group or key[1] == topic])
            case Bound() | ConsumptionSet() | Unsubscribed():
                pair = entry.group, entry.topic
                self._drop([key for key in self._queues if key[:2] == pair])
            case _:
                pass

    def add(self, key: Key, runs: Iterable[OpenRun]) -> None:
        """Deliveries of one queue."""
        for until_ms, (first, count, lease_id, attempt) in runs:
            if until_ms > self._now_ms:
                found = self._queues.setdefault(key, {})
                for number in range(count):
                    found[first + number] = OpenDelivery(lease_id + number, attempt, until_ms)

    def _end(self, key: Key, offsets: Iterable[Iterable[int]]) -> None:
        found = self._queues.get(key)
        if found:
            for some in offsets:
                for offset in some:
                    found.pop(offset, None)

    def _drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            del self._queues[key]
