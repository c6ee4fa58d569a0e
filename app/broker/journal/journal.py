"""State of the broker that survives kill -9: kept in memory, written down in a system topic.

Every change is an entry, a record of queue 0 of the topic. It is put into the same step as the
messages that it belongs to, so that after a crash both are there or neither. From time to time the
whole state is written as a snapshot, and what lies before is trimmed; so replaying at start reads
one snapshot and the entries since.

A snapshot is a begin, chunks and an end, written over many turns of the event loop, and entries are
appended in between. Replaying loads its chunks and then applies again every entry behind the begin.
Two rules make this right:

- A state takes a change in the same turn of the event loop in which its entry is appended, before
  any await. So what a chunk holds stands before it in the log, and is lost only together with it.
- Applying a run of entries, in their order, to a state that has taken some or all of them already
  gives the state that has taken them all.

What is answered to a client waits for the confirmation.

Event loop only.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Protocol

from app.broker.journal.append_future import AppendFuture, flush_store
from app.broker.journal.cold_reads import ColdReads
from app.broker.ports import Store
from app.domain.errors import TooManyRequests
from app.domain.limits import MIB
from app.domain.message import PROPERTY_SNAPSHOT, Message, StoredMessage
from app.domain.positions import FlushMode
from app.store import ReadResult, StepPart

_LOG: Final = logging.getLogger(__name__)

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
    """What a journal keeps. `dump` gives what `load` takes."""

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
        """The whole state in chunks, each of which takes a few milliseconds to make.

        The state goes on changing between two chunks. Each row of a chunk shows its part as it was
        at some moment between the first call and this chunk; what came into being after the first
        call may be left out.
        """
        ...


@dataclass(slots=True)
class _Replayed:
    """A snapshot as far as it has been replayed."""

    snapshot_id: str
    physical_offset: int
    """Of its begin."""
    chunks: list[bytes] = field(default_factory=list)
    """Empty ones too: those of the begin and of a state without rows."""
    entries: list[bytes] = field(default_factory=list)
    """Those behind the begin."""


class WarmBeginning(Protocol):
    """Of a state that has taken a part of the journal already; see `WarmJournal`."""

    offset: int
    has_beginning: bool
    snapshot_at: int | None
    entries: int
    entry_bytes: int

    @property
    def is_usable(self) -> bool: ...


class Journal:
    """The journal of one state. `replay` before use."""

    def __init__(
        self,
        store: Store,
        topic: str,
        state: JournaledState,
        readers: Executor,
        warm: WarmBeginning | None = None,
    ) -> None:
        """`warm` is how far `state` has come already; None: it has nothing."""
        self._warm = warm
        self._store = store
        self._topic = topic
        self._state = state
        self._readers = readers
        self._entries = 0
        self._entry_bytes = 0
        self._snapshot_at = 0
        """Physical end of the log when the last snapshot was written."""
        self.is_demanded = False
        """Whether a snapshot is due because what it says is nowhere else."""
        self._has_snapshot = False
        self._has_beginning = False
        """Whether the journal is replayed from its first entry on."""
        self._passes_over = False
        """Whether a snapshot may have begun before the first record that is replayed: the state is
        whole without it."""
        self._replayed: _Replayed | None = None
        """The snapshot that is being replayed; it may turn out to be torn."""
        self._writing = asyncio.Lock()
        """Held by who writes a snapshot: two that lie between one another are both torn."""

    def entry(self, *entries: bytes) -> StepPart:
        """The part of a step that writes entries down. Append it in this turn."""
        self._entries += len(entries)
        self._entry_bytes += sum(map(len, entries))
        return StepPart(self._topic, QUEUE, [Message(entry) for entry in entries])

    async def write(self, entry: bytes, flush: FlushMode = FlushMode.ASYNC) -> None:
        """Write an entry that belongs to no message; return when it is confirmed."""
        confirmation = AppendFuture()
        self._store.append_step((self.entry(entry),), flush, confirmation.done)
        await confirmation.wait()

    # --- replaying

    async def replay(self) -> None:
        """Bring the state to where the log ends. The chunks of a torn snapshot are passed over,
        unless nothing else is left."""
        offset, end = self._store.bounds(self._topic, QUEUE)
        warm, self._warm, self._replayed = self._warm, None, None
        if warm is not None and warm.is_usable and offset <= warm.offset <= end:
            offset = self._go_on(warm)
        else:
            self._state.clear()
            self._has_beginning = offset == 0
        while offset < end:
            read = await ColdReads(self._readers).run(self._reader(offset, end))
            for record in read.records:
                self._take(self._store.decode(record))
            offset = max(read.next_offset, offset + 1)
        self._end_unfinished()

    def _go_on(self, warm: WarmBeginning) -> int:
        """Where the state has come to."""
        self._has_beginning = warm.has_beginning
        if warm.snapshot_at is not None:
            self._note_snapshot(warm.snapshot_at)
        self._entries, self._entry_bytes = warm.entries, warm.entry_bytes
        self._passes_over = True
        return warm.offset

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

    def _take(self, record: StoredMessage) -> None:
        mark = record.system.get(PROPERTY_SNAPSHOT)
        if mark is None:
            self._take_entry(record.body)
        elif mark.isdecimal():
            self._take_early_chunk(record, int(mark))
        else:
            self._take_chunk(record, mark)

    def _take_entry(self, entry: bytes) -> None:
        if self._replayed is not None:
            self._replayed.entries.append(entry)
        self._entries += 1
        self._entry_bytes += len(entry)
        self._state.apply(entry)

    def _take_chunk(self, record: StoredMessage, mark: str) -> None:
        snapshot_id, number, *end = mark.split()
        replayed = self._replayed
        if replayed is None or replayed.snapshot_id != snapshot_id:
            if self._passes_over and number != "0":
                return
            self._end_unfinished()
            replayed = self._replayed = _Replayed(snapshot_id, record.physical_offset)
        if not end:
            replayed.chunks.append(record.body)
        elif len(replayed.chunks) == int(number):
            self._load(replayed)
        else:
            self._replayed = None
            self._deal_with_damage(replayed)

    def _end_unfinished(self) -> None:
        """The snapshot that is being replayed has no end: it is torn, or its end is damaged.

        A torn one replaces nothing, so what it was to replace is there. If nothing is, it had an
        end, or is the best that is left.
        """
        unfinished, self._replayed = self._replayed, None
        if unfinished is not None and not (self._has_snapshot or self._has_beginning):
            self._deal_with_damage(unfinished)

    def _deal_with_damage(self, snapshot: _Replayed) -> None:
        """A snapshot was written to its end, and some of its records cannot be read."""
        _LOG.warning("a snapshot in %s is damaged: records cannot be read", self._topic)
        if not (self._has_snapshot or self._has_beginning):
            self._load(snapshot)  # nothing else is left of what it replaced

    def _take_early_chunk(self, record: StoredMessage, left: int) -> None:
        """Of a snapshot of early versions, which were written in one turn: nothing lies between
        two chunks, and each says how many follow."""
        replayed, next_id = self._replayed, str(left + 1)
        if replayed is None or replayed.snapshot_id != next_id or replayed.entries:
            self._end_unfinished()
            replayed = self._replayed = _Replayed(next_id, record.physical_offset)
        replayed.snapshot_id = str(left)
        replayed.chunks.append(record.body)
        if left == 0:
            self._load(replayed)

    def _load(self, snapshot: _Replayed) -> None:
        """The snapshot is whole: begin with it, and go on with the entries behind its begin."""
        self._replayed = None
        self._state.clear()
        for chunk in filter(None, snapshot.chunks):
            self._state.load(chunk)
        self._note_snapshot(snapshot.physical_offset)
        for entry in snapshot.entries:
            self._take_entry(entry)

    # --- snapshots

    def is_snapshot_due(self) -> bool:
        """Whether replaying would take long, or the last snapshot holds back old segments."""
        if self.is_demanded or self._entries >= ENTRIES_MAX or self._entry_bytes >= ENTRY_BYTES_MAX:
            return True
        is_used = self._has_snapshot or self._entries > 0
        return is_used and self._store.written_end - self._snapshot_at >= LOG_BYTES_MAX

    async def write_snapshot(self) -> None:
        """Write the state down as a whole and trim what it replaces.

        Each chunk is confirmed before the next one is made: so a snapshot of any size needs room
        for one chunk among the appends that wait, and others have their turns.
        """
        async with self._writing:
            await self._write_snapshot()

    async def _write_snapshot(self) -> None:
        before = self._snapshot_at, self._entries, self._entry_bytes
        first = self._store.next_offset(self._topic, QUEUE)
        self._note_snapshot(self._store.written_end)
        try:
            for message, flush in self._snapshot():
                await self._append_chunk(message, flush)
        except BaseException:
            self._snapshot_at = before[0]  # what was due is due still
            self._entries += before[1]
            self._entry_bytes += before[2]
            raise
        self.is_demanded = False
        self._store.trim(self._topic, QUEUE, first)

    def _snapshot(self) -> Iterator[tuple[Message, FlushMode]]:
        """The records of a snapshot, each made when it is asked for."""
        snapshot_id = secrets.token_hex(8)
        number = 0
        for chunk in chain((b"",), self._state.dump()):
            mark = _mark(snapshot_id, number, is_end=False)
            yield Message(chunk, system={PROPERTY_SNAPSHOT: mark}), FlushMode.ASYNC
            number += 1
        mark = _mark(snapshot_id, number, is_end=True)
        yield Message(b"", system={PROPERTY_SNAPSHOT: mark}), FlushMode.SYNC

    async def _append_chunk(self, message: Message, flush: FlushMode) -> None:
        """Append a chunk that was made in this turn, and return when it is confirmed.

        When too much waits to be written it comes behind that. The chunk may hold what waits, and
        the flush fails when any of that does.
        """
        part = StepPart(self._topic, QUEUE, [message])
        while True:
            confirmation = AppendFuture()
            try:
                self._store.append_step((part,), flush, confirmation.done)
            except TooManyRequests:
                await flush_store(self._store)
            else:
                await confirmation.wait()
                return

    async def turn(self) -> None:
        """Write a snapshot when one is due. A service's turn."""
        if self.is_snapshot_due() and self._store.failed is None:
            await self.write_snapshot()

    def _note_snapshot(self, at: int) -> None:
        self._has_snapshot = True
        self._snapshot_at = at
        self._entries = 0
        self._entry_bytes = 0


def _mark(snapshot_id: str, number: int, *, is_end: bool) -> str:
    """What the property of a chunk says: its snapshot, its number, and whether it is the last."""
    return f"{snapshot_id} {number} end" if is_end else f"{snapshot_id} {number}"
