"""Holding the key index to the log: every key of a record has its entry, every entry its record.

Entries stand in the order of the log, and so come the records: the two are merged, one index file
in memory at a time.
"""

from collections.abc import Iterable
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from app.store import paths
from app.store.formats.files.key_index import (
    ENTRIES,
    HEADER_BYTES,
    SLOT_BYTES,
    chain_heads,
    decode_header,
    entry_at,
    file_bytes,
    index_key,
    key_hashes,
)
from app.store.formats.files.state_file import IndexFileState
from app.store.formats.record.record import RecordFields, decode_properties
from app.store.fs.strays import is_file, names_in
from app.store.lifecycle.dispatcher import TRANSACTION_KIND, TRANSACTION_ROLLBACK, record_keys
from app.store.offline.directory import Directory, Kind, Problem

_BATCH: Final = 512


def keys_of(fields: RecordFields) -> list[str]:
    """The keys under which a record is indexed."""
    if fields.system_flag & TRANSACTION_KIND == TRANSACTION_ROLLBACK:
        return []
    return record_keys(decode_properties(fields.properties))


class KeyCheck:
    """The files that the checkpoint names. `take` every good record, then `finish`."""

    def __init__(self, directory: Directory) -> None:
        self.problems: list[Problem] = []
        self._files = directory.files
        self._slots = directory.meta.index_slots
        self._entries_max = directory.meta.index_entries
        checkpoint = directory.checkpoint
        self._clean = checkpoint is not None and checkpoint.clean
        self._states = checkpoint.index_files if checkpoint else ()
        self._end = checkpoint.indexed_end if checkpoint else 0
        self._begin = self._states[0].begin_offset if self._states else 0
        self._pending: list[tuple[int, str, list[str]]] = []
        self._number = -1
        """Of the file that is held against the records now."""
        self._entries: NDArray[np.void] | None = None
        self._at = 0
        self._strays: list[tuple[IndexFileState, int, int]] = []
        """Entries that no record claimed: file, number, physical offset."""

    def take(self, fields: RecordFields) -> None:
        """Compare one good record with its entries."""
        if self._begin <= fields.physical_offset < self._end and (keys := keys_of(fields)):
            self._pending.append((fields.physical_offset, fields.topic, keys))
            if len(self._pending) >= _BATCH:
                self._drain()

    def finish(self, log_start: int, damaged: Iterable[tuple[int, int]]) -> None:
        """`damaged` are the ranges of the log whose entries have no good record any more."""
        self._drain()
        while self._number < len(self._states):
            self._next_file()
        ranges = ((0, log_start), *damaged)
        for state, number, offset in self._strays:
            if not any(start <= offset < end for start, end in ranges):
                what = f"entry {number} points at {offset}, where no record has this key"
                self._report(state, entry_at(self._slots, number), what)
        known = {state.name for state in self._states}
        for name in names_in(self._files, paths.INDEX) or ():
            path = paths.index_file(name)
            is_ours = paths.is_index_name(name) and is_file(self._files, path)
            if is_ours and name not in known and self._states:
                self.problems.append(Problem(Kind.INDEX, path, 0, "is in no checkpoint"))

    def _drain(self) -> None:
        pending, self._pending = self._pending, []
        hashes = key_hashes([index_key(topic, key) for _, topic, keys in pending for key in keys])
        at = 0
        for offset, _, keys in pending:
            self._match(offset, hashes[at : at + len(keys)], keys)
            at += len(keys)

    def _match(self, offset: int, hashes: list[int], keys: list[str]) -> None:
        states = self._states
        while self._number < 0 or (
            self._number + 1 < len(states) and states[self._number + 1].begin_offset <= offset
        ):
            self._next_file()
        entries = self._entries
        if entries is None:
            return
        while self._at < len(entries) and entries["physical_offset"][self._at] < offset:
            self._skip_entry(entries)
        for hashed, key in zip(hashes, keys, strict=True):
            entry = entries[self._at] if self._at < len(entries) else None
            if entry is None or entry["physical_offset"] != offset or entry["hash"] != hashed:
                what = f"has no entry for key {key!r} of the record at {offset}"
                self._report(states[self._number], 0, what)
            else:
                self._at += 1

    def _skip_entry(self, entries: NDArray[np.void]) -> None:
        offset = int(entries["physical_offset"][self._at])
        self._strays.append((self._states[self._number], self._at + 1, offset))
        self._at += 1

    def _next_file(self) -> None:
        if self._entries is not None:
            while self._at < len(self._entries):
                self._skip_entry(self._entries)
        self._number += 1
        self._at = 0
        self._entries = None
        if self._number < len(self._states):
            self._entries = self._load(self._states[self._number])

    def _load(self, state: IndexFileState) -> NDArray[np.void] | None:
        """The entries of a file, or None when it is damaged as a whole (which is reported)."""
        path = paths.index_file(state.name)
        expected = file_bytes(self._slots, self._entries_max)
        if not is_file(self._files, path):
            self._report(state, 0, "is missing")
            return None
        file = self._files.open(path)
        try:
            size = file.size()
            start = entry_at(self._slots, 1)
            head = file.pread(HEADER_BYTES + SLOT_BYTES * self._slots, 0)
            raw = file.pread(entry_at(self._slots, state.next_entry) - start, start)
        finally:
            file.close()
        if size != expected:
            self._report(state, 0, f"has {size} bytes instead of {expected}")
            return None
        if google_crc32c.value(raw) != state.entries_crc:
            self._report(state, start, "the checksum of the entries does not match")
            return None
        entries = np.frombuffer(raw, ENTRIES)
        if self._clean or state is not self._states[-1]:
            self._check_head(state, head, entries)
        return entries

    def _check_head(self, state: IndexFileState, head: bytes, entries: NDArray[np.void]) -> None:
        """Header and slots. In the last file they may be ahead of an unclean checkpoint."""
        heads = chain_heads(entries, self._slots)
        times = (state.begin_ms, state.end_ms, state.begin_offset, state.end_offset)
        if decode_header(head) != (*times, int(np.count_nonzero(heads)), state.next_entry):
            self._report(state, 0, "the header does not match")
        if head[HEADER_BYTES:] != heads.astype(">i4").tobytes():
            self._report(state, HEADER_BYTES, "the slots do not match the entries")

    def _report(self, state: IndexFileState, position: int, what: str) -> None:
        self.problems.append(Problem(Kind.INDEX, paths.index_file(state.name), position, what))
