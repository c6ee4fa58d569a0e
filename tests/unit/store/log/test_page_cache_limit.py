"""Which bytes of the log are let go of, and that they are read from the disk then: real files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from app.domain.limits import MIB
from app.domain.positions import FlushMode
from app.store import OsFiles, StoreConfig, paths
from app.store.fs.page_cache import is_in_memory
from app.store.log.commit_log import CommitLog
from app.store.log.page_cache_limit import STEP_BYTES, PageCacheLimit
from tests.support.stores.simulated_files import SimulatedFile, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store

KEPT = 20 * MIB
SEGMENT = 32 * MIB
MESSAGES = 80
"""Each a little smaller than a MiB."""
LET_GO = 48
"""MiB: three steps; the fourth would end less than `KEPT` before the end."""
BODY = bytes(MIB - 1024)


class Recorded(CommitLog):
    """A log that only writes down what it should let go of."""

    def __init__(self) -> None:
        super().__init__(SimulatedFiles(), SEGMENT)
        self.gone: list[tuple[int, int]] = []

    @override
    def let_go(self, start: int, end: int) -> None:
        self.gone.append((start, end))


def test_it_goes_in_whole_steps_and_once() -> None:
    log = Recorded()
    bound = PageCacheLimit(log, KEPT, 0)
    for flushed in (0, KEPT, KEPT + STEP_BYTES - 1):
        bound.follow(flushed)
    assert log.gone == []
    for flushed in (KEPT + STEP_BYTES, KEPT + 2 * STEP_BYTES - 1, KEPT + 5 * STEP_BYTES + 7):
        bound.follow(flushed)
    assert log.gone == [(0, STEP_BYTES), (STEP_BYTES, 5 * STEP_BYTES)]


def test_what_was_there_before_is_left_as_it_is() -> None:
    log = Recorded()
    end = KEPT + 10 * STEP_BYTES + 5
    bound = PageCacheLimit(log, KEPT, end)
    bound.follow(end + STEP_BYTES)
    assert log.gone == [(10 * STEP_BYTES, 11 * STEP_BYTES)]


def step(first: int, count: int = 1) -> tuple[int, int]:
    """Where steps begin and end."""
    return first * STEP_BYTES, (first + count) * STEP_BYTES


WIDE = 8 * STEP_BYTES
"""So much stays, and as much of what is read again when it is older than half of that."""


def test_what_is_read_again_and_again_stays_until_it_is_not() -> None:
    log = Recorded()
    bound = PageCacheLimit(log, WIDE, 0)
    for number in range(1, 15):
        bound.was_read(2 * STEP_BYTES + 5, STEP_BYTES - 4)  # to the first byte of the next one
        bound.follow(number * STEP_BYTES)
    assert log.gone == [step(0), step(1), step(4), step(5)]
    log.gone.clear()
    for number in range(15, 23):
        bound.follow(number * STEP_BYTES)
    # Read last when the log ended after 13 steps: as much as stays before 21.
    assert log.gone == [*map(step, range(6, 12)), step(2, 2), step(12), step(13)]


def test_who_reads_at_the_end_keeps_nothing_longer() -> None:
    log = Recorded()
    bound = PageCacheLimit(log, WIDE, 0)
    for number in range(1, 15):
        bound.follow(number * STEP_BYTES)
        bound.was_read(max(number - 4, 0) * STEP_BYTES, 4 * STEP_BYTES)
    assert log.gone == [step(number) for number in range(6)]
    assert bound._read_at == {}


def test_who_is_behind_by_more_than_half_keeps_what_he_reads() -> None:
    log = Recorded()
    bound = PageCacheLimit(log, WIDE, 0)
    for number in range(1, 15):
        bound.follow(number * STEP_BYTES)
        bound.was_read(max(number - 5, 0) * STEP_BYTES, STEP_BYTES)
    # Step 0 was read first when the log ended after 5 steps, and steps 1 and 2 after 6 and 7.
    assert log.gone == [step(0), step(1)]


def test_of_more_than_that_what_was_read_last_stays() -> None:
    log = Recorded()
    bound = PageCacheLimit(log, WIDE, 0)
    for number in range(8, 17):
        bound.follow(number * STEP_BYTES)
        if number < 16:
            bound.was_read(0, number * STEP_BYTES)
    assert log.gone == []
    bound.was_read(8 * STEP_BYTES, 1)
    bound.follow(17 * STEP_BYTES)
    assert log.gone == [step(7)]


def test_what_was_let_go_is_let_go_once() -> None:
    """Whoever reads it then leaves it to the kernel."""
    log = Recorded()
    bound = PageCacheLimit(log, WIDE, 0)
    bound.follow(9 * STEP_BYTES)
    bound.was_read(0, STEP_BYTES)
    bound.follow(26 * STEP_BYTES)
    bound.was_read(18 * STEP_BYTES, STEP_BYTES)
    bound.follow(28 * STEP_BYTES)
    assert log.gone == [step(0), step(1, 17), step(19)]
    bound.follow(40 * STEP_BYTES)
    assert log.gone[3:] == [step(18), step(20, 12)]
    assert bound._read_at == {}  # of what is gone nothing is remembered


def test_the_log_says_what_is_read_of_it() -> None:
    files = SimulatedFiles()
    files.make_directory(paths.COMMIT_LOG)
    log = CommitLog(files, 4096)
    log.prepare(4096)
    told: list[tuple[int, int]] = []
    log.on_read = lambda start, size: told.append((start, size))
    log.read_view(4100, 20)
    log.file_part(4200, 30)
    assert told == [(4100, 20), (4200, 30)]
    assert log.file_part(100, 1) is None
    assert len(log.read_view(100, 1)) == 0
    assert len(told) == 2


def test_each_segment_that_is_still_there_gives_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[tuple[int, int]] = []
    monkeypatch.setattr(
        SimulatedFile, "drop_cached", lambda _, offset, size: gone.append((offset, size))
    )
    files = SimulatedFiles()
    files.make_directory(paths.COMMIT_LOG)
    log = CommitLog(files, 4096)
    for base in (0, 4096, 8192):
        log.prepare(base)
    log.let_go(100, 9000)
    assert gone == [(100, 3996), (0, 4096), (0, 808)]
    gone.clear()
    log.drop_first()
    log.let_go(100, 9000)
    assert gone == [(0, 4096), (0, 808)]


def test_a_disk_that_cannot_let_go_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Recorded()
    bound = PageCacheLimit(log, KEPT, 0)

    def refuse(_start: int, _end: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(log, "let_go", refuse)
    bound.follow(KEPT + STEP_BYTES)
    monkeypatch.undo()
    bound.follow(KEPT + 2 * STEP_BYTES)
    assert log.gone == [(STEP_BYTES, 2 * STEP_BYTES)]


@pytest.fixture
def lets_go(tmp_path: Path) -> bool:
    """Whether the file system can, and tells: one that is in memory itself, as /tmp may be, or lies
    over another one does not."""
    descriptor = os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, BODY, 0)
        os.fdatasync(descriptor)
        was_in_memory = is_in_memory(descriptor, 0, 1)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return was_in_memory and not is_in_memory(descriptor, 0, 1)
    finally:
        os.close(descriptor)


@pytest.fixture
def opened(tmp_path: Path, kept: int | None) -> Iterator[OpenStore]:
    config = StoreConfig(segment_bytes=SEGMENT, log_cache_bytes=kept)
    found = open_store(OsFiles(tmp_path), config)
    try:
        yield found
    finally:
        found.store.close()


@pytest.fixture
def let_go(monkeypatch: pytest.MonkeyPatch, lets_go: bool) -> set[int]:
    """The MiB of the log that the kernel is told to let go of, as it is told."""
    gone: set[int] = set()
    real = os.posix_fadvise

    def note(descriptor: int, offset: int, size: int, advice: int) -> None:
        if advice == os.POSIX_FADV_DONTNEED:
            segment = Path(f"/proc/self/fd/{descriptor}").readlink()
            start = int(segment.name) + offset
            gone.update(range(start // MIB, (start + (size or SEGMENT - offset)) // MIB))
        real(descriptor, offset, size, advice)

    monkeypatch.setattr(os, "posix_fadvise", note)
    return gone


def _cold(root: Path) -> set[int]:
    """The MiB of the written log of which not even the first byte is in memory.

    They may be more than were let go of: a kernel may take back, within seconds, what it thinks
    nobody needs.
    """
    cold = set()
    for number in range(MESSAGES - 1):
        base = number * MIB // SEGMENT * SEGMENT
        with (root / paths.segment(base)).open("rb") as file:
            if not is_in_memory(file.fileno(), number * MIB - base, 1):
                cold.add(number)
    return cold


@pytest.mark.parametrize("flush", FlushMode)
@pytest.mark.parametrize("kept", [None, KEPT])
def test_the_newest_stay_and_all_can_be_read(
    opened: OpenStore,
    tmp_path: Path,
    flush: FlushMode,
    kept: int | None,
    lets_go: bool,
    let_go: set[int],
) -> None:
    for number in range(MESSAGES):
        opened.send(b"%d " % number + BODY, flush=flush)
    for _ in range(2):  # the second begins when all of the first is done
        opened.store.flush(opened.outcomes.append)
        opened.settle()
    assert let_go == (set(range(LET_GO)) if kept else set())
    assert let_go <= _cold(tmp_path) or not lets_go
    numbers = [int(body.split(b" ")[0]) for body in opened.bodies()]
    assert numbers == list(range(MESSAGES))
    assert let_go == (set(range(LET_GO)) if kept else set())  # of what was read nothing more


@pytest.mark.parametrize("kept", [2 * STEP_BYTES])
def test_what_is_read_meanwhile_stays_in_memory(
    opened: OpenStore, tmp_path: Path, lets_go: bool, let_go: set[int]
) -> None:
    for number in range(MESSAGES):
        opened.send(b"%d " % number + BODY)
        opened.store.read("orders", 0, 0, max_messages=1, max_bytes=MIB, wait_for_disk=True)
    assert let_go == set(range(16, 32))
    assert let_go <= _cold(tmp_path) or not lets_go
