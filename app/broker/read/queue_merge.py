"""The messages of several queues in the order of the log, or against it, by their queue units.

Within a node the log is the order in which messages were stored, so their physical offsets order
them across queues; store times agree. Nothing is read but units of 20 bytes, some of each queue at
a time.
"""

import heapq
from typing import NamedTuple

from app.broker.ports import Store
from app.store import Unit

_UNITS_MIN = 16
_UNITS_MAX = 1_024


class Item(NamedTuple):
    """One message: which, and where the log has it."""

    queue_id: int
    offset: int
    unit: Unit
    position: int
    """Physical offset; of a lost unit that of its neighbour."""


class _Walk:
    """One queue on the way: what is left of it, and units read ahead."""

    __slots__ = ("ahead", "high", "low", "position", "queue_id")

    def __init__(self, queue_id: int, low: int, high: int, position: int) -> None:
        self.queue_id = queue_id
        self.low = low
        self.high = high
        self.position = position
        self.ahead: list[tuple[int, Unit]] = []
        """Offsets and units, the next one last."""


class QueueMerge:
    """Gives the messages of `ranges` one by one. A cold unit raises `ColdRead` and loses nothing.

    Not for several threads at a time.
    """

    def __init__(
        self,
        store: Store,
        topic: str,
        ranges: list[tuple[int, int, int]],
        *,
        is_forward: bool,
        position: int,
        units_at_a_time: int,
    ) -> None:
        """`ranges` are queue id, first offset and end; `position` is where the walk begins."""
        self._store = store
        self._topic = topic
        self._is_forward = is_forward
        self._step = max(_UNITS_MIN, min(_UNITS_MAX, units_at_a_time // max(len(ranges), 1)))
        self._waiting = [_Walk(*each, position) for each in ranges]
        """Queues whose next message is not in the heap."""
        self._heap: list[tuple[int, int, _Walk]] = []

    def next(self, wait_for_disk: bool) -> Item | None:
        """The next message; None at the end."""
        while self._waiting:
            walk = self._waiting[-1]
            if not walk.ahead:
                self._read_ahead(walk, wait_for_disk)
            self._waiting.pop()
            if walk.ahead:
                position, size, _ = walk.ahead[-1][1]
                if size > 0:
                    walk.position = position
                key = walk.position if self._is_forward else -walk.position
                heapq.heappush(self._heap, (key, walk.queue_id, walk))
        if not self._heap:
            return None
        walk = heapq.heappop(self._heap)[2]
        offset, unit = walk.ahead.pop()
        self._waiting.append(walk)
        return Item(walk.queue_id, offset, unit, walk.position)

    def _read_ahead(self, walk: _Walk, wait_for_disk: bool) -> None:
        if walk.low >= walk.high:
            return
        low, high = walk.low, walk.high
        if self._is_forward:
            high = min(high, low + self._step)
        else:
            low = max(low, high - self._step)
        units = self._store.units(
            self._topic, walk.queue_id, low, high, wait_for_disk=wait_for_disk
        )
        walk.ahead = list(enumerate(units, low))
        if self._is_forward:
            walk.ahead.reverse()
            walk.low = high
        else:
            walk.high = low
