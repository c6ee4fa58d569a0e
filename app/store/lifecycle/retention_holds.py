"""What background services still need of the log, whatever its age: retention stops there.

A service that keeps its work as records (delayed messages, half messages, its own journal)
registers a hold: a function that gives a physical offset, or None. No segment at or above that
offset is deleted, for age, size or a full disk. Each pass reports which service holds what; at the
disk's refusal ratio writes are refused.

The broker's own topics (`rmq_sys_…`) need no hold: they never expire, and the log is kept from
their first offset on, which their owner trims.

Holds are added on the event loop, before retention runs. `oldest` is called by the thread that
carries out retention: it must only read a value, and may be behind but never ahead of the truth.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

Oldest = Callable[[], int | None]
"""Physical offset of the oldest record that a service still needs; None: it needs nothing."""


class Held(NamedTuple):
    """The pin that holds the most."""

    name: str
    physical_offset: int


class _Pin(NamedTuple):
    name: str
    oldest: Oldest
    topics: Collection[str]


class RetentionHolds:
    """All pins of one store."""

    def __init__(self) -> None:
        self._pins: list[_Pin] = []

    def add(self, name: str, oldest: Oldest, topics: Collection[str] = ()) -> None:
        """Register a pin; `name` is for reports.

        Messages of `topics` (system topics that the service reads by queue offset) at or behind
        the pin do not expire by age either; without topics the service reads by physical offset.
        """
        self._pins.append(_Pin(name, oldest, topics))

    def held(self) -> Held | None:
        """The lowest pin now."""
        found = [Held(pin.name, at) for pin in self._pins if (at := pin.oldest()) is not None]
        return min(found, key=lambda held: held.physical_offset, default=None)

    def of_topic(self, topic: str) -> int | None:
        """From which physical offset on messages of `topic` must not expire; None: all may."""
        found = [at for p in self._pins if topic in p.topics and (at := p.oldest()) is not None]
        return min(found, default=None)
