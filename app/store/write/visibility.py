"""What a confirmed block makes visible: units in its queue, keys in the index, then an arrival.

The writer calls a publication once, in the order of the log: without an error when the block is
confirmed, with one when it is not in the log. Event loop only.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from typing_extensions import override

from app.domain.errors import CurlewError, StoreFailed
from app.store.index.key_index import Keyed, KeyIndex
from app.store.queues.consume_queue import ConsumeQueue
from app.store.read.verified_blocks import Noted
from app.store.write.blocks import Done

_LOG: Final = logging.getLogger(__name__)


def _nobody(_topic: str, _queue_id: int) -> None:
    """Nobody waits yet."""


class Audience(msgspec.Struct, eq=False):
    """What of a store learns of every message that becomes readable."""

    index: KeyIndex
    on_fault: Callable[[str], object]
    """Told, with the reason, when confirmed messages cannot be shown: the store has to stop."""
    on_arrival: Callable[[str, int], object] = _nobody
    """Topic and queue id."""


class Publication(msgspec.Struct, eq=False):
    """Messages of one queue that have one store time."""

    audience: Audience
    queue: ConsumeQueue
    first: int
    """Queue offset of the first."""
    units: bytes
    keyed: Keyed
    store_time_ms: int
    done: Done

    def __call__(self, error: CurlewError | None) -> None:
        if error is None:
            try:
                self.publish()
            except Exception as fault:  # noqa: BLE001 - whoever waits has to be told
                error = _not_shown(self.audience, fault)
        try:
            self.done(error)
        finally:
            if error is None:  # `announce`, written out: each send comes here
                self.audience.on_arrival(self.queue.topic, self.queue.queue_id)

    def publish(self) -> None:
        """Make the messages readable."""
        queue = self.queue
        if queue.max_offset != self.first:
            queue.pass_over(self.first)
        queue.append(self.units)
        if self.keyed:
            self._index()

    def _index(self) -> None:
        """Note the keys. What fails here costs a search, not the messages: they are readable."""
        try:
            self.audience.index.add_some(self.store_time_ms, self.queue.topic, self.keyed)
        except Exception:  # noqa: BLE001
            _LOG.exception("keys are not indexed; the next start makes the index again")

    def announce(self) -> None:
        """Tell who waits for messages of this queue."""
        self.audience.on_arrival(self.queue.topic, self.queue.queue_id)


class FramePublication(Publication, eq=False):
    """Those of a frame, whose blocks are known as soon as it is readable."""

    noted: Sequence[Noted]

    @override
    def publish(self) -> None:
        for noted in self.noted:
            noted.enter(self.queue.number)
        super().publish()


class StepPublication(msgspec.Struct, eq=False):
    """The parts of a step: all become readable before anybody is told of one."""

    parts: list[Publication]
    done: Done

    def __call__(self, error: CurlewError | None) -> None:
        if error is None:
            try:
                for part in self.parts:
                    part.publish()
            except Exception as fault:  # noqa: BLE001 - whoever waits has to be told
                error = _not_shown(self.parts[0].audience, fault)
        try:
            self.done(error)
        finally:
            if error is None:
                for part in self.parts:
                    part.announce()


def publications_of(done: Done) -> Sequence[Publication]:
    """What a block makes visible, in order; nothing for a flush."""
    if isinstance(done, StepPublication):
        return done.parts
    return (done,) if isinstance(done, Publication) else ()


def _not_shown(audience: Audience, fault: Exception) -> StoreFailed:
    """A queue that is not what the log says: no offset may be given from it any more.

    The next start dispatches the log anew and puts the queue right.
    """
    _LOG.error("confirmed messages cannot be shown", exc_info=fault)
    audience.on_fault(f"a queue is not what the log says ({fault!r})")
    return StoreFailed(
        "the messages are in the log, but their queue cannot show them",
        hint="restart the node: it makes the queues from the log",
        outcome="unknown",
    )
