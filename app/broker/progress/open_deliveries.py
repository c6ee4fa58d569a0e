"""Deliveries that were open when the node ended: handed out, and neither settled nor run out. Pure.

Filled while the log is replayed and emptied when the node has taken them up; what happens
afterwards is in the lease tables. Event loop only.
"""

from collections.abc import Iterable, Sequence
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
    Settled,
    Unsubscribed,
    offsets_of,
)
from app.domain.consumers.consumption import Consumption

OpenRun = tuple[int, LeaseRun]
"""When the leases end, by the wall clock in milliseconds, and which they are."""


class OpenDelivery(NamedTuple):
    """The newest delivery of a message."""

    lease_id: int
    attempt: int
    until_ms: int
    """When its lease ends, by the wall clock."""


class _Run(NamedTuple):
    """Deliveries of neighbours, of which some may be settled. One object for all of them."""

    until_ms: int
    first: int
    lease_id: int
    attempt: int
    is_ordered: bool


class OpenDeliveries:
    """Those that the log tells of. Some may be done, by a commit: the caller asks `QueueState`."""

    def __init__(self, now_ms: int = 0) -> None:
        """Leases that have ended by `now_ms` are left out."""
        self._now_ms = now_ms
        self._pairs: dict[tuple[str, str], dict[int, dict[int, _Run]]] = {}
        """(Group, topic) → queue id → offset → what it was handed out with."""

    def clear(self) -> None:
        self._pairs.clear()

    def offsets(self) -> dict[Key, Iterable[int]]:
        """Of all queues."""
        return {
            (*pair, queue_id): found.keys()
            for pair, queues in self._pairs.items()
            for queue_id, found in queues.items()
        }

    def take(self, key: Key, *, is_ordered: bool) -> dict[int, OpenDelivery]:
        """Those of one queue, by offset; they are not kept here any more. Leases that a group got
        before it was set to deliver in order, or no longer so, have ended with that."""
        return {
            offset: OpenDelivery(run.lease_id + offset - run.first, run.attempt, run.until_ms)
            for offset, run in self._pop(key).items()
            if run.is_ordered == is_ordered
        }

    def apply(self, entry: Entry) -> None:
        """Follow an entry of the log."""
        match entry:
            case HandedOut():
                self._hand_out(entry)
            case Settled(group, done):
                for topic, queue_id, runs in done:
                    self._end((group, topic, queue_id), [offsets_of(runs)])
            case Placed(group, places):
                for topic, queue_id, _ in places:
                    self._pop((group, topic, queue_id))
            case Parked(group, topic, queue_id, message):
                self._end((group, topic, queue_id), [(message.offset,)])
            case Released(group, topic, queue_id, offset):
                self._end((group, topic, queue_id), [(offset,)])
            case Forgotten() | Bound() | ConsumptionSet() | Unsubscribed():
                self._drop(entry)
            case _:
                pass

    def _hand_out(self, entry: HandedOut) -> None:
        for topic, queue_id, delivered in entry.rows:
            ended = [range(first, first + count) for first, count, _ in delivered]
            self._end((entry.group, topic, queue_id), ended)
        for (topic, queue_id, _), runs in zip(entry.rows, entry.leases, strict=False):
            opened = [(entry.until_ms, run) for run in runs]
            self.add((entry.group, topic, queue_id), opened, is_ordered=entry.is_ordered)

    def _drop(self, entry: Forgotten | Bound | ConsumptionSet | Unsubscribed) -> None:
        """That it leases a group may say late: when messages are handed out already."""
        if isinstance(entry, ConsumptionSet) and entry.consumption is Consumption.LEASE:
            return
        if isinstance(entry, Forgotten):
            group, topic = entry.group, entry.topic
            for pair in [pair for pair in self._pairs if pair[0] == group or pair[1] == topic]:
                del self._pairs[pair]
            return
        self._pairs.pop((entry.group, entry.topic), None)

    def add(self, key: Key, runs: Sequence[OpenRun], *, is_ordered: bool) -> None:
        """Deliveries of one queue."""
        for until_ms, (first, count, lease_id, attempt) in runs:
            if until_ms > self._now_ms:
                run = _Run(until_ms, first, lease_id, attempt, is_ordered)
                group, topic, queue_id = key
                found = self._pairs.setdefault((group, topic), {}).setdefault(queue_id, {})
                found.update(dict.fromkeys(range(first, first + count), run))

    def _end(self, key: Key, offsets: Iterable[Iterable[int]]) -> None:
        queues = self._pairs.get(key[:2])
        found = None if queues is None else queues.get(key[2])
        if found:
            for some in offsets:
                for offset in some:
                    found.pop(offset, None)

    def _pop(self, key: Key) -> dict[int, _Run]:
        queues = self._pairs.get(key[:2])
        return {} if queues is None else queues.pop(key[2], {})
