"""State of the broker that survives kill -9: kept in memory, written down in a system topic.

Every change is an entry, a record of queue 0 of the topic. It is put into the same step as the
messages that it belongs to, so that after a crash both are there or neither. From time to time the
whole state is written as a snapshot, in chunks, and what lies before is trimmed; so replaying at
start reads one snapshot and the entries since.

The rule that makes this right: a state takes a change in the same turn of the event loop in which
its entry is appended, before any await. Then a snapshot holds every entry before it in the log, and
none behind it. What is answered to a client waits for the confirmation.

Event loop only.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol

from app.broker.confirming import Confirmation
from app.broker.ports import Store
from app.broker.reading import DiskAccess
from app.domain.errors import CurlewError
from app.domain.limits import MIB
from app.domain.message import PROPERTY_SNAPSHOT, Message, StoredMessage
from app.domain.positions import FlushMode
from app.store import ReadResult, StepPart

QUEUE: Final = 0
ENTRIES_MAX: Final = 50_000
"""Entries after which a snapshot is due: a tenth of a second of replay when they are acks in order,
two seconds when they are acks in no order or decisions of transactions (measured)."""

ENTRY_BYTES_MAX: Final = 16 * MIB
"""Bytes of entries after which a snapshot is due."""

LOG_BYTES_MAX: Final = 1024 * MIB
"""Log behind the last snapshot after which a new one is due, so that old segments can go."""

_READ_MESSAGES: Final = 4_096
_READ_BYTES: Final = 4 * MIB


class JournaledState(Protocol):
    """What a journal keeps. `dump` gives what `load` takes, in chunks of at most 1 MiB or so."""

    def clear(self) -> None:
        """Begin with nothing."""
        ...

    def load(self, chunk: bytes) -> None:
        """Take a chunk of a snapshot."""
        ...

    def apply(self, entry: bytes) -> None:
        """Take an entry again that was written in an earlier life."""
        ...

    def dump(self) -> Iterable[bytes]:
        """The whole state now."""
        ...


class Journal:
    """The journal of one state. `replay` before use."""

    def __init__(self, store: Store, topic: str, state: JournaledState, readers: Executor) -> None:
        self._store = store
        self._topic = topic
        self._state = state
        self._readers = readers
        self._entries = 0
        self._entry_bytes = 0
        self._snapshot_at = 0
        """Physical end of the log when the last snapshot was written."""
        self._has_snapshot = False
        self._chunks_left = 0
        """Of the snapshot that is being replayed."""

    def entry(self, *entries: bytes) -> StepPart:
        """The part of a step that writes entries down. Append it in this turn."""
        self._entries += len(entries)
        self._entry_bytes += sum(map(len, entries))
        return StepPart(self._topic, QUEUE, [Message(entry) for entry in entries])

    async def write(self, entry: bytes, flush: FlushMode = FlushMode.ASYNC) -> None:
        """Write an entry that belongs to no message; return when it is confirmed."""
        confirmation = Confirmation()
        self._store.append_step((self.entry(entry),), flush, confirmation.done)
        await confirmation.wait()

    # --- replaying

    async def replay(self) -> None:
        """Bring the state to where the log ends. Entries of a torn snapshot are passed over."""
        self._state.clear()
        offset, end = self._store.bounds(self._topic, QUEUE)
        chunks: list[bytes] = []
        while offset < end:
            read = await DiskAccess(self._readers).run(self._reader(offset, end))
            for record in read.records:
                self._take(self._store.decode(record), chunks)
            offset = max(read.next_offset, offset + 1)

    def _reader(self, offset: int, end: int) -> Callable[[bool], ReadResult]:
        def read(wait_for_disk: bool) -> ReadResult:
            return self._store.read(
                self._topic,
                QUEUE,
                offset,
                max_messages=_READ_MESSAGES,
                max_bytes=_READ_BYTES,
                end_offset=end,
                wait_for_disk=wait_for_disk,
            )

        return read

    def _take(self, record: StoredMessage, chunks: list[bytes]) -> None:
        left = record.system.get(PROPERTY_SNAPSHOT)
        if left is None:
            chunks.clear()
            self._entries += 1
            self._entry_bytes += len(record.body)
            self._state.apply(record.body)
            return
        if int(left) + 1 != self._chunks_left:
            chunks.clear()  # of a snapshot that was torn, right before this one
        self._chunks_left = int(left)
        chunks.append(record.body)
        if left == "0":
            self._state.clear()
            for chunk in chunks:
                self._state.load(chunk)
            chunks.clear()
            self._note_snapshot(record.physical_offset)

    # --- snapshots

    def is_snapshot_due(self) -> bool:
        """Whether replaying would take long, or the last snapshot holds back old segments."""
        if self._entries >= ENTRIES_MAX or self._entry_bytes >= ENTRY_BYTES_MAX:
            return True
        is_used = self._has_snapshot or self._entries > 0
        return is_used and self._store.status().written_end - self._snapshot_at >= LOG_BYTES_MAX

    async def write_snapshot(self) -> None:
        """Write the state down as a whole and trim what it replaces."""
        chunks = list(self._state.dump()) or [b""]
        messages = [
            Message(chunk, system={PROPERTY_SNAPSHOT: str(left)})
            for left, chunk in zip(range(len(chunks) - 1, -1, -1), chunks, strict=True)
        ]
        before = self._snapshot_at, self._entries, self._entry_bytes
        first = self._store.next_offset(self._topic, QUEUE)
        self._note_snapshot(self._store.status().written_end)
        try:
            await self._append_snapshot(messages)
        except CurlewError:
            self._snapshot_at = before[0]  # what was due is due still
            self._entries += before[1]
            self._entry_bytes += before[2]
            raise
        self._store.trim(self._topic, QUEUE, first)

    async def _append_snapshot(self, messages: Sequence[Message]) -> None:
        """Each chunk in a step of its own: a nearly full disk takes steps, and one step for all of
        them might be larger than a segment. They are confirmed in this order."""
        confirmation = Confirmation()
        for message in messages:
            done = confirmation.done if message is messages[-1] else _not_the_last
            self._store.append_step(
                (StepPart(self._topic, QUEUE, [message]),), FlushMode.SYNC, done
            )
        await confirmation.wait()

    async def turn(self) -> None:
        """Write a snapshot when one is due. A service's turn."""
        if self.is_snapshot_due() and self._store.status().failed is None:
            await self.write_snapshot()

    def _note_snapshot(self, at: int) -> None:
        self._has_snapshot = True
        self._snapshot_at = at
        self._entries = 0
        self._entry_bytes = 0


def _not_the_last(_error: CurlewError | None) -> None:
    """The last one fails with it."""
