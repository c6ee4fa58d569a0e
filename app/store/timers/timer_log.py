"""When delayed messages are due: which records of the timer topic wait, ordered by due time.

A log-structured merge tree (O'Neil and others, 1996): changes are kept in memory; when there are
enough they become a sorted file (a run); a run that has grown to half the size of the one before is
merged into it, so that there are about log2(n) runs. Memory does not grow with what waits, not even
when all of it is due in the same second.

Everything here follows from the timer topic's records: the files say what the records below the
watermark say, and whoever owns the log hands in the records from there on, in order, each once.
Deleting the directory costs a reading of the topic, nothing else.

One thread at a time: that of a replica while it follows, then the event loop. `Page.read` and
`Flushing.run` block, and are for another thread.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from app.store import paths
from app.store.damage import DamageKind, Damages
from app.store.formats.files.state_file import StateFileError
from app.store.formats.files.timer_run import (
    RunDamaged,
    TimerManifest,
    decode_manifest,
    encode_manifest,
)
from app.store.fs.files import FileSystem, read_whole, write_atomically
from app.store.timers.timer_runs import Entry, Run, merged, rows_of, write_run

FLUSH_ENTRIES: Final = 20_000
"""Changes in memory that make a flush due: half a second of reading again after a crash."""

OFFSETS_PER_BLOCK: Final = 1_024
"""How finely the oldest waiting record is known."""

NUMBERS_PER_FLUSH: Final = 64
"""More runs than one flush can write: each but the first one is merged of at least two."""

_Key = TypeVar("_Key", int, str)


class Timer(NamedTuple):
    """A waiting record: its due time (epoch ms) and its offset in the timer topic."""

    due_ms: int
    offset: int


class TimerLogDamaged(Exception):
    """A file of the timer log does not check out; `reset` and read the topic again."""


class Page:
    """One look at the waiting records, as of the moment when it was made."""

    def __init__(
        self, recent: Sequence[Sequence[Entry]], runs: Sequence[Run], start: Entry
    ) -> None:
        self._recent = recent
        self._runs = runs
        self._start = start

    def read(self, until_ms: int, limit: int) -> list[Timer]:
        """At most `limit` waiting records due until then, in order. Blocks.

        Raises `TimerLogDamaged`.
        """
        found: list[Timer] = []
        start = self._start
        sources = [run.rows_from(start) for run in self._runs]
        sources += [rows_of(entries) for entries in self._recent]
        try:
            for rows in merged(sources, is_whole=True):
                for due_ms, code in rows[: limit - len(found)].tolist():
                    if due_ms > until_ms:
                        return found
                    found.append(Timer(due_ms, code // 2))
                if len(found) >= limit:
                    break
        except RunDamaged as error:
            raise TimerLogDamaged(str(error)) from error
        return found


class Flushing:
    """A flush under way: `run` on another thread, then `TimerLog.finish` or `abandon`."""

    def __init__(
        self, files: FileSystem, frozen: Sequence[Entry], runs: list[Run], manifest: TimerManifest
    ) -> None:
        self.manifest = manifest
        self.runs = runs
        self._files = files
        self._frozen = frozen
        self._first = manifest.next_run

    def run(self) -> None:
        """Write what is frozen, merge, then say what counts.

        Raises `OSError`, and `TimerLogDamaged` when a run that is merged does not check out.
        """
        files = self._files
        files.make_directory(paths.TIMER_LOG)
        before = list(self.runs)
        try:
            made = self._write_runs()
            write_atomically(files, paths.TIMER_MANIFEST, encode_manifest(self.manifest))
        except (OSError, RunDamaged) as error:
            self._remove_begun()
            if isinstance(error, RunDamaged):
                raise TimerLogDamaged(str(error)) from error
            raise
        for run in before + made:
            if run.number not in self.manifest.runs:
                with suppress(OSError):  # opening removes what is left
                    files.remove(paths.timer_run(run.number))

    def _write_runs(self) -> list[Run]:
        """Make `runs` and `manifest` what they are to be; return the runs that were written."""
        files = self._files
        number = self._first
        run = write_run(files, number, rows_of(self._frozen)) if self._frozen else None
        number += 1
        made = [run] if run else []
        runs = self.runs + made
        while len(runs) > 1 and runs[-1].count * 2 >= runs[-2].count:
            pair = runs[-2:]
            sources = [run.rows_from((0, 0)) for run in pair]
            is_whole = len(runs) == len(pair)
            run = write_run(files, number, merged(sources, is_whole=is_whole))
            number += 1
            runs = runs[:-2] + ([run] if run else [])
            made += [run] if run else []
        self.runs = runs
        self.manifest = replace(
            self.manifest, runs=tuple(run.number for run in runs), next_run=number
        )
        return made

    def _remove_begun(self) -> None:
        """Leave no files behind, or a full disk would never have room again.

        A manifest that came to be all the same counts as damaged: it names what is not there.
        """
        with suppress(OSError):
            for number in range(self._first, self._first + NUMBERS_PER_FLUSH):
                if self._files.exists(paths.timer_run(number)):
                    self._files.remove(paths.timer_run(number))


class TimerLog:
    """The waiting records of one store. `load` before use."""

    def __init__(
        self,
        files: FileSystem,
        flush_entries: int = FLUSH_ENTRIES,
        damages: Damages | None = None,
    ) -> None:
        self._damages = damages or Damages()
        self._files = files
        self._flush_entries = flush_entries
        self._flushing: Flushing | None = None
        self._is_warm = False
        self._clear()

    def _clear(self) -> None:
        self._is_stale = self._flushing is not None
        """Whether the flush under way is of what was forgotten since."""
        self.made_from = 0
        """Records below were never handed in: what ends them changes nothing."""
        self.watermark = 0
        """Offset of the timer topic up to which the files go."""
        self.position = 0
        """Offset up to which records were handed in."""
        self.count = 0
        """Waiting records."""
        self._recent: list[Entry] = []
        self._frozen: list[Entry] = []
        self._runs: list[Run] = []
        self._unread: set[int] = set()
        self._blocks: dict[int, int] = {}
        self._topics: dict[str, int] = {}
        self._next_run = 0

    # --- opening

    def load(self, min_offset: int, max_offset: int) -> bool:
        """Go on from the files, or with what was handed in while the replica followed; False: there
        is nothing that fits, and all is to be handed in again.

        The offsets are the readable ones of the timer topic.
        """
        if self._is_warm and min_offset <= self.position <= max_offset:
            return True
        return self._load(min_offset, max_offset)

    def follow(self, min_offset: int) -> None:
        """Go on from the files while the shard is led elsewhere. The topic may not have come as far
        as they go, and may have been trimmed without this replica."""
        self._is_warm = True
        self._load(min_offset, None)

    def _load(self, min_offset: int, max_offset: int | None) -> bool:
        try:
            data = read_whole(self._files, paths.TIMER_MANIFEST)
            if data is None:
                if min_offset > 0 and not self._is_warm:  # it is trimmed behind the manifest
                    self.note_damage("the manifest is missing")
                self.reset(min_offset)
                return False
            manifest = decode_manifest(data)
            runs = [Run.open(self._files, number) for number in manifest.runs]
        except (OSError, StateFileError, RunDamaged) as error:
            self.note_damage(str(error))
            self.reset(min_offset)
            return False
        end = manifest.watermark if max_offset is None else max_offset
        if not min_offset <= manifest.watermark <= end:
            if not self._is_warm:
                self.note_damage(f"it goes to {manifest.watermark}, its topic to {max_offset}")
            self.reset(min_offset)
            return False
        self._clear()
        self.made_from = manifest.made_from
        self.watermark = self.position = manifest.watermark
        self._runs = runs
        self._blocks = dict(manifest.blocks)
        self._topics = dict(manifest.topics)
        self.count = sum(self._blocks.values())
        self._next_run = manifest.next_run
        known = {paths.timer_run(number) for number in manifest.runs} | {paths.TIMER_MANIFEST}
        self._remove_all_but(known)
        return True

    def note_damage(self, what: str) -> None:
        """Count and say why the files are made again."""
        what += "; the timer log is made again from its topic"
        self._damages.note(DamageKind.TIMER_LOG, what)

    def reset(self, min_offset: int) -> None:
        """Forget everything; records are handed in from `min_offset` on."""
        self._clear()
        self._remove_all_but(set())
        self.watermark = self.position = self.made_from = min_offset

    def forget_beyond(self, min_offset: int, max_offset: int) -> None:
        """What stands behind `max_offset` is about to be replaced: forget everything, on the medium
        as well, where files of an earlier life go further. Raises `OSError`."""
        if self.position > max_offset:
            self.reset(min_offset)
            self._files.sync_directory(paths.TIMER_LOG)

    def _remove_all_but(self, known: set[str]) -> None:
        for name in reversed(self._files.list(paths.TIMER_LOG)):
            path = f"{paths.TIMER_LOG}/{name}"
            if path not in known:
                with suppress(IsADirectoryError, PermissionError):  # a stranger
                    self._files.remove(path)

    # --- changing

    def add(self, timer: Timer, topic: str) -> None:
        """A record waits that is for a topic."""
        insort(self._recent, (timer.due_ms, timer.offset * 2))
        block = timer.offset // OFFSETS_PER_BLOCK
        self._blocks[block] = self._blocks.get(block, 0) + 1
        _count(self._topics, topic, 1)
        self.count += 1

    def remove(self, timer: Timer, topic: str) -> None:
        """A record that was added, for this topic, waits no more. Nothing happens to one that was
        never handed in."""
        if timer.offset < self.made_from or timer.offset in self._unread:
            return
        entry = (timer.due_ms, timer.offset * 2)
        at = bisect_left(self._recent, entry)
        if at < len(self._recent) and self._recent[at] == entry:
            del self._recent[at]
        else:
            insort(self._recent, (timer.due_ms, timer.offset * 2 + 1))
        block = timer.offset // OFFSETS_PER_BLOCK
        _count_down(self._blocks, block)
        _count(self._topics, topic, -1)
        self.count -= 1

    def pass_over(self, start: int, end: int) -> None:
        """These records cannot be read."""
        self._unread.update(range(start, end))

    # --- looking

    @property
    def oldest_offset(self) -> int:
        """No record before it waits."""
        oldest = next(iter(self._blocks), None)  # they are added in rising order
        return self.position if oldest is None else oldest * OFFSETS_PER_BLOCK

    def count_for(self, topic: str) -> int:
        """Records that wait to go to a topic."""
        return self._topics.get(topic, 0)

    def page(self, after: Timer) -> Page:
        """Look at what waits behind `after`."""
        start = (after.due_ms, after.offset * 2 + 2)
        recent = [
            entries[bisect_left(entries, start) :] for entries in (self._frozen, self._recent)
        ]
        return Page(recent, self._runs, start)

    # --- writing down

    @property
    def changes(self) -> int:
        """Changes in memory, that a flush would write down."""
        return len(self._recent)

    def is_flush_due(self) -> bool:
        return self._flushing is None and len(self._recent) >= self._flush_entries

    def begin_flush(self) -> Flushing | None:
        """Write down what was handed in so far; the log must be synced up to there.

        None: one is under way already.
        """
        if self._flushing is not None:
            return None
        self._frozen, self._recent, self._is_stale = self._recent, [], False
        blocks = tuple(sorted(self._blocks.items()))
        topics = dict(self._topics)
        manifest = TimerManifest(self.position, (), blocks, self._next_run, topics, self.made_from)
        self._flushing = Flushing(self._files, self._frozen, list(self._runs), manifest)
        return self._flushing

    def finish(self, flushing: Flushing) -> None:
        """The flush is on the medium."""
        assert flushing is self._flushing
        self._flushing = None
        self._frozen = []
        self._next_run = max(self._next_run, flushing.manifest.next_run)
        if not self._is_stale:  # else the next flush or opening throws its files away
            self._runs = flushing.runs
            self.watermark = flushing.manifest.watermark

    def abandon(self, flushing: Flushing) -> None:
        """The flush has failed: what it was to write down stays in memory."""
        assert flushing is self._flushing
        self._flushing = None
        again, self._frozen = self._frozen, []
        late, self._recent = self._recent, again
        for due_ms, code in late:
            at = bisect_left(again, (due_ms, code - 1))
            if code % 2 and at < len(again) and again[at] == (due_ms, code - 1):
                del again[at]
            else:
                insort(again, (due_ms, code))
        self._next_run = max(self._next_run, flushing.manifest.next_run) + NUMBERS_PER_FLUSH
        """The failed one may have left files of the next numbers; opening removes them."""


def _count(counts: dict[str, int], name: str, by: int) -> None:
    """Below zero where an earlier version has counted a record under another name."""
    count = counts.get(name, 0) + by
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)


def _count_down(counts: dict[_Key, int], key: _Key) -> None:
    left = counts.get(key, 0) - 1
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)
