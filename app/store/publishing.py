"""What a confirmed block makes visible: units in its queue, keys in the index, then an arrival.

The writer calls a publication once, in the order of the log: without an error when the block is
confirmed, with one when it is not in the log. Event loop only.
"""

from collections.abc import Callable, Sequence

import msgspec
from typing_extensions import override

from app.domain.errors import CurlewError
from app.store.consume_queue import ConsumeQueue
from app.store.key_index import KeyIndex
from app.store.known_blocks import Noted
from app.store.writer import Done

Keyed = Sequence[tuple[int, Sequence[str]]]
"""Physical offsets of records with keys, and those keys."""


class Audience(msgspec.Struct, frozen=True, eq=False):
    """What of a store learns of every message that becomes readable."""

    index: KeyIndex
    on_arrival: Callable[[str, int], object]
    """Topic and queue id."""


class Publication(msgspec.Struct, eq=False):
    """Messages of one queue that have one store time."""

    audience: Audience
    queue: ConsumeQueue
    units: bytes
    keyed: Keyed
    store_time_ms: int
    done: Done

    def __call__(self, error: CurlewError | None) -> None:
        if error is None:
            self.publish()
        self.done(error)
        if error is None:
            self.announce()

    def publish(self) -> None:
        """Make the messages readable."""
        self.queue.append(self.units)
        for physical_offset, keys in self.keyed:
            self.audience.index.add(physical_offset, self.store_time_ms, self.queue.topic, keys)

    def announce(self) -> None:
        """Tell who waits for messages of this queue."""
        self.audience.on_arrival(self.queue.topic, self.queue.queue_id)


class FramePublication(Publication, eq=False):
    """Those of a frame, whose blocks are known as soon as it is readable."""

    noted: Sequence[Noted]

    @override
    def publish(self) -> None:
        for known, first, sums in self.noted:
            known.note(self.queue.number, first, sums)
        super().publish()


class StepPublication(msgspec.Struct, eq=False):
    """The parts of a step: all become readable before anybody is told of one."""

    parts: list[Publication]
    done: Done

    def __call__(self, error: CurlewError | None) -> None:
        if error is None:
            for part in self.parts:
                part.publish()
        self.done(error)
        if error is None:
            for part in self.parts:
                part.announce()
