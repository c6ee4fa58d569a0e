"""A journal's state, kept up by a replica that follows: the broker of a term goes on from there.

It takes each entry as it is dispatched. A snapshot comes in chunks, and each is loaded when it
comes, into a state of its own that takes the place of the other at the snapshot's end: so none is
loaded in one piece while the replica's thread has other work, and what a snapshot knows that no
entry has said is not lost.

The replica's thread, until a broker begins with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from app.broker.journal.journal import QUEUE, JournaledState
from app.broker.ports import QueueRecords
from app.domain.limits import MIB
from app.domain.message import PROPERTY_SNAPSHOT, StoredMessage

_READ_MESSAGES: Final = 512
_READ_BYTES: Final = 1 * MIB

State = TypeVar("State", bound=JournaledState)


@dataclass(slots=True)
class _Snapshot(Generic[State]):
    """One whose end has not come."""

    snapshot_id: str
    physical_offset: int
    state: State
    chunks: int = 0
    entries: list[bytes] = field(default_factory=list)
    """Those behind its begin."""


class WarmJournal(Generic[State]):
    """Of one opening of a replica's store."""

    def __init__(self, store: QueueRecords, topic: str, make: Callable[[], State]) -> None:
        """`make` makes an empty state."""
        self.state = make()
        self.offset = store.bounds(topic, QUEUE).min_offset
        """Records below are in the state."""
        self.has_beginning = self.offset == 0
        """Whether it has taken the journal from its first entry on."""
        self.snapshot_at: int | None = None
        """Physical offset of the snapshot that it began with; None: there was none."""
        self.entries = 0
        self.entry_bytes = 0
        """Since then."""
        self._store = store
        self._topic = topic
        self._make = make
        self._snapshot: _Snapshot[State] | None = None
        self._is_early = False

    @property
    def is_usable(self) -> bool:
        """Whether the state is that of the journal up to `offset`; else it has to be replayed."""
        return (self.has_beginning or self.snapshot_at is not None) and not self._is_early

    def advance(self) -> bool:
        """Take some of what is dispatched; whether there is more. Raises as `QueueRecords.read`
        with `wait_for_disk`, and goes on there the next time."""
        start, end = self._store.bounds(self._topic, QUEUE)
        if self.offset < start:  # a snapshot begins there: until its end comes nothing is whole
            self.offset, self._snapshot = start, None
            self.has_beginning, self.snapshot_at = False, None
        if self.offset >= end:
            return False
        read = self._store.read(
            self._topic,
            QUEUE,
            self.offset,
            max_messages=_READ_MESSAGES,
            max_bytes=_READ_BYTES,
            end_offset=end,
            wait_for_disk=True,
        )
        for record in read.records:
            self._take(self._store.decode(record))
        self.offset = max(read.next_offset, self.offset + 1)
        return self.offset < end

    def _take(self, record: StoredMessage) -> None:
        mark = record.system.get(PROPERTY_SNAPSHOT)
        if mark is None:
            self._take_entry(record.body)
        elif mark.isdecimal():  # of a version without replicas
            self._is_early = True
        else:
            self._take_chunk(record, *mark.split())

    def _take_entry(self, entry: bytes) -> None:
        if self._snapshot is not None:
            self._snapshot.entries.append(entry)
        self.entries += 1
        self.entry_bytes += len(entry)
        self.state.apply(entry)

    def _take_chunk(
        self, record: StoredMessage, snapshot_id: str, number: str, end: str = ""
    ) -> None:
        snapshot = self._snapshot
        if snapshot is None or snapshot.snapshot_id != snapshot_id:
            at = record.physical_offset
            snapshot = self._snapshot = _Snapshot(snapshot_id, at, self._make())
        if not end:
            snapshot.chunks += 1
            if record.body:
                snapshot.state.load(record.body)
            return
        self._snapshot = None
        if snapshot.chunks == int(number):  # else some cannot be read: nothing is replaced
            self._begin_with(snapshot)

    def _begin_with(self, snapshot: _Snapshot[State]) -> None:
        self.state, self.snapshot_at = snapshot.state, snapshot.physical_offset
        self.entries = self.entry_bytes = 0
        for entry in snapshot.entries:
            self._take_entry(entry)
