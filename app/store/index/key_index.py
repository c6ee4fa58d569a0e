"""The key index: which records have a key, by topic and time.

Keys of confirmed records are collected (`add`, a list append) and hashed many at a time, in slices
when they are very many: so a look-up may have to wait for the hashing as for the disk. The index
has its own watermark in the checkpoint; what was added behind it is taken off again at opening and
dispatched anew, so an entry is there once. Files that are missing or damaged are dropped with all
behind them and made again from the log.

`add` and `add_some` belong to the event loop, `flush` to a thread that writes a checkpoint,
`drop_below` to the thread of retention; `candidates` may run in reader threads. The event loop
never waits for those.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np

from app.domain.limits import STORE_TIME_LEAD_MS_MAX
from app.store import paths
from app.store.damage import DamageKind, Damages
from app.store.formats.files.key_index import hashed_together, index_key, key_hashes, topic_hash
from app.store.formats.files.state_file import IndexFileState, StoreMeta
from app.store.fs.file_cache import FileCache
from app.store.fs.files import ColdRead
from app.store.index.index_file import IndexDamaged, IndexFile, KeyedRecord

_LOG: Final = logging.getLogger(__name__)

PENDING_MAX: Final = 512
"""Parts that wait to be hashed."""

PART_RECORDS_MAX: Final = 128
"""Records of one part."""

KEYS_A_TURN: Final = 8_192
"""Keys that one turn of the event loop hashes, if it is more than one part: some milliseconds."""

BEHIND_TURNS_MAX: Final = 32
"""Turns in which all is hashed that waits, however many keys come in a turn."""

Keyed = Sequence[tuple[int, Sequence[str]]]
"""Physical offsets of records with keys, and those keys."""


class _Part(NamedTuple):
    """Records of one topic and store time with their keys."""

    topic: str
    store_time_ms: int
    keyed: Keyed

    @property
    def key_count(self) -> int:
        keyed = self.keyed
        return len(keyed[0][1]) if len(keyed) == 1 else sum([len(keys) for _, keys in keyed])


class KeyIndex:
    """All index files of a store, oldest first; keys go into the last one."""

    def __init__(
        self,
        cache: FileCache,
        meta: StoreMeta,
        damages: Damages,
        call_soon: Callable[[Callable[[], object]], object],
    ) -> None:
        self._fs = cache.files
        self._cache = cache
        self._slots = meta.index_slots
        self._entries = meta.index_entries
        self._files: list[IndexFile] = []
        self._pending: list[_Part] = []
        self._call_soon = call_soon
        self._is_hashing_soon = False
        self._lock = threading.Lock()
        self._damages = damages
        self._damaged: set[str] = set()
        """Files of which damage was told."""
        self.wrong_slots = 0
        """Of the last file at opening, which are put right."""
        self.damaged_from: int | None = None
        """Physical offset of the first record whose keys may be missing; made again at opening."""

    @property
    def is_behind(self) -> bool:
        """Whether keys are still to be hashed by the next turns of the event loop."""
        return self._is_hashing_soon

    def load(self, states: Sequence[IndexFileState], indexed_end: int) -> int:
        """Take the files of a checkpoint; the physical offset from which keys must be added."""
        for state in states:
            if state.begin_offset >= indexed_end:
                break
            self._files.append(IndexFile.restore(self._cache, state, self._slots, self._entries))
        for number, file in enumerate(self._files):
            last = number == len(self._files) - 1
            if not self._is_there(file, indexed_end if last else None):
                del self._files[number:]
                indexed_end = file.begin_offset
                break
        self._remove_strangers()
        return indexed_end

    def _is_there(self, file: IndexFile, resume_at: int | None) -> bool:
        """Whether a file is fit for use; the last one is taken up again for appending."""
        if resume_at is None:
            return self._fs.exists(paths.index_file(file.name))
        try:
            self.wrong_slots = file.resume(resume_at)
        except IndexDamaged:
            return False
        return True

    def _remove_strangers(self) -> None:
        known = {file.name for file in self._files}
        for name in self._fs.list(paths.INDEX):
            if paths.is_index_name(name) and name not in known:
                with suppress(IsADirectoryError, PermissionError):  # a stranger
                    self._fs.remove(paths.index_file(name))

    def add(
        self, physical_offset: int, store_time_ms: int, topic: str, keys: Sequence[str]
    ) -> None:
        """Note the keys of a record of the log; offsets rise from call to call."""
        self._pending.append(_Part(topic, store_time_ms, ((physical_offset, keys),)))
        if len(self._pending) >= PENDING_MAX and self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def add_some(self, store_time_ms: int, topic: str, keyed: Keyed) -> None:
        """Note the keys of records that become readable now; offsets rise from call to call.

        Hashes nothing: that is for later turns of the event loop.
        """
        if len(keyed) <= PART_RECORDS_MAX:
            self._pending.append(_Part(topic, store_time_ms, keyed))
            if len(self._pending) < PENDING_MAX:
                return
        else:
            for first in range(0, len(keyed), PART_RECORDS_MAX):
                part = keyed[first : first + PART_RECORDS_MAX]
                self._pending.append(_Part(topic, store_time_ms, part))
        self._hash_soon()

    def _hash_soon(self) -> None:
        if not self._is_hashing_soon:
            self._is_hashing_soon = True
            self._call_soon(self._hash_some)

    def _hash_some(self) -> None:
        """A turn's work. What a thread holds up is left for the next call of `add_some`."""
        self._is_hashing_soon = False
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._drain(self._parts_of_turn())
        except Exception:  # noqa: BLE001 - it costs searches, not messages: they are readable
            _LOG.exception("keys are not indexed; the next start makes the index again")
        finally:
            self._lock.release()
        if self._pending:
            self._hash_soon()

    def _parts_of_turn(self) -> int:
        """How many of the pending parts one turn hashes."""
        keys = 0
        for number, part in enumerate(self._pending):
            keys += part.key_count
            if number and keys > KEYS_A_TURN:
                return max(number, len(self._pending) // BEHIND_TURNS_MAX)
        return len(self._pending)

    def _drain(self, count: int | None = None) -> None:
        """Put what is pending, or its first parts, into the last file. The lock is held; others may
        be added meanwhile."""
        pending = self._pending[:count]
        if not pending:
            return
        del self._pending[: len(pending)]
        try:
            self._hash(pending)
        except BaseException:
            self._miss_from(pending[0].keyed[0][0])
            raise

    def _hash(self, pending: Sequence[_Part]) -> None:
        rows = [(at, part.store_time_ms, keys) for part in pending for at, keys in part.keyed]
        topics = {topic: topic_hash(topic) for topic in {part.topic for part in pending}}
        hashes = hashed_together(
            [key for _, _, keys in rows for key in keys],
            np.repeat(
                np.array([topics[part.topic] for part in pending], np.uint32),
                [part.key_count for part in pending],
            ),
        )
        first = at = 0
        while first < len(rows):
            file = self._file_for(rows[first])
            end, count = first + 1, len(rows[first][2])
            while (
                end < len(rows)
                and count + len(rows[end][2]) <= file.room
                and _is_in_order(rows[end - 1][1], rows[end][1])
            ):
                count += len(rows[end][2])
                end += 1
            file.append(rows[first:end], hashes[at : at + count])
            first, at = end, at + count

    def _file_for(self, row: KeyedRecord) -> IndexFile:
        """The last file, or a new one: all keys of a record are in one file.

        Writes nothing: it is called where a message is told to be stored, which a full disk must
        not undo. A full file stays in memory until `flush`.
        """
        last = self._files[-1] if self._files else None
        is_fit = last is not None and last.appendable and last.room >= len(row[2])
        if last is not None and is_fit and _is_in_order(last.end_ms, row[1]):
            return last
        time_ms = row[1]
        while self._files and paths.index_name(time_ms) <= self._files[-1].name:
            time_ms += 1
        file = IndexFile(self._cache, paths.index_name(time_ms), self._slots, self._entries)
        self._files.append(file)
        return file

    def flush(self) -> tuple[IndexFileState, ...]:
        """Move everything to the files, which the cache counts as dirty; for a checkpoint.

        Keys may be in them of records behind it; they are taken off again at opening.
        """
        with self._lock:
            self._drain()
            for number, file in enumerate(self._files, 1):
                if file.appendable:
                    file.flush()
                    if number < len(self._files):
                        file.seal()
            return tuple(file.state() for file in self._files)

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, *, wait_for_disk: bool
    ) -> Iterator[int | None]:
        """Physical offsets of records that may have the key, newest first.

        One item for each entry that was looked at, None for those of other keys, so that the caller
        can bound the work.
        """
        if not self._lock.acquire(blocking=wait_for_disk):
            raise ColdRead
        try:
            if not wait_for_disk and self._parts_of_turn() < len(self._pending):
                raise ColdRead
            self._drain()
            files = self._files[::-1]
        finally:
            self._lock.release()
        hashed = key_hashes([index_key(topic, key)])[0]
        for file in files:
            if file.begin_ms > end_ms or file.end_ms < begin_ms:
                continue
            try:
                if wait_for_disk and file.verify():
                    what = f"{file.name}: slots were wrong and are put right"
                    self._damages.note(DamageKind.INDEX, what)
                for same, offset, seconds in file.chain(hashed, wait_for_disk=wait_for_disk):
                    earliest = file.begin_ms + 1000 * seconds
                    wanted = same and earliest <= end_ms and earliest + 999 >= begin_ms
                    yield offset if wanted else None
            except IndexDamaged as error:
                self._note_damage(file, str(error))

    def _note_damage(self, file: IndexFile, what: str) -> None:
        with self._lock:
            if file not in self._files:
                return  # retention was quicker
            self._miss_from(file.begin_offset)
            if file.name in self._damaged:
                return
            self._damaged.add(file.name)
        what += "; keys are missing until the next start makes the file again"
        self._damages.note(DamageKind.INDEX, what)

    def _miss_from(self, physical_offset: int) -> None:
        if self.damaged_from is None or physical_offset < self.damaged_from:
            self.damaged_from = physical_offset

    def drop_below(self, log_start: int) -> list[str]:
        """Remove files of which no record is left; their names. The last one stays."""
        removed: list[str] = []
        with self._lock:
            while len(self._files) > 1 and self._files[0].end_offset < log_start:
                file = self._files.pop(0)
                path = paths.index_file(file.name)
                self._cache.forget(path)
                if self._fs.exists(path):
                    self._fs.remove(path)
                removed.append(path)
        return removed


def _is_in_order(before_ms: int, time_ms: int) -> bool:
    """Whether store times go on; else they were begun anew, and a file has one range of times."""
    return time_ms + STORE_TIME_LEAD_MS_MAX >= before_ms
