"""Which bytes of the log are let go of, and that they are read from the disk then: real files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from app.domain.limits import MIB
from app.domain.positions import FlushMode
from app.store import OsFiles, StoreConfig, paths
from app.store.cache_bound import STEP_BYTES, CacheBound
from app.store.commit_log import CommitLog
from app.store.files import OsFile
from app.store.page_cache import is_in_memory
from tests.support.simulated_files import SimulatedFile, SimulatedFiles
from tests.support.stores import OpenStore, open_store

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
    bound = CacheBound(log, KEPT, 0)
    for flushed in (0, KEPT, KEPT + STEP_BYTES - 1):
        bound.follow(flushed)
    assert log.gone == []
    for flushed in (KEPT + STEP_BYTES, KEPT + 2 * STEP_BYTES - 1, KEPT + 5 * STEP_BYTES + 7):
        bound.follow(flushed)
    assert log.gone == [(0, STEP_BYTES), (STEP_BYTES, 5 * STEP_BYTES)]


def test_what_was_there_before_is_left_as_it_is() -> None:
    log = Recorded()
    end = KEPT + 10 * STEP_BYTES + 5
    bound = CacheBound(log, KEPT, end)
    bound.follow(end + STEP_BYTES)
    assert log.gone == [(10 * STEP_BYTES, 11 * STEP_BYTES)]


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
    bound = CacheBound(log, KEPT, 0)

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
    file = OsFile(os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT, 0o600))
    try:
        file.pwritev([BODY], 0)
        file.sync()
        was_in_memory = is_in_memory(file._descriptor, 0, 1)
        file.drop_cached()
        return was_in_memory and not is_in_memory(file._descriptor, 0, 1)
    finally:
        file.close()


@pytest.fixture
def opened(tmp_path: Path, kept: int | None) -> Iterator[OpenStore]:
    config = StoreConfig(segment_bytes=SEGMENT, log_cache_bytes=kept)
    found = open_store(OsFiles(tmp_path), config)
    try:
        yield found
    finally:
        found.store.close()


def _cold(root: Path) -> list[int]:
    """The MiB of the written log of which not even the first byte is in memory."""
    cold = []
    for number in range(MESSAGES - 1):
        base = number * MIB // SEGMENT * SEGMENT
        with (root / paths.segment(base)).open("rb") as file:
            if not is_in_memory(file.fileno(), number * MIB - base, 1):
                cold.append(number)
    return cold


@pytest.mark.parametrize("flush", FlushMode)
@pytest.mark.parametrize("kept", [None, KEPT])
def test_the_newest_stay_and_all_can_be_read(
    opened: OpenStore, tmp_path: Path, flush: FlushMode, kept: int | None, lets_go: bool
) -> None:
    for number in range(MESSAGES):
        opened.send(b"%d " % number + BODY, flush=flush)
    for _ in range(2):  # the second begins when all of the first is done
        opened.store.flush(opened.outcomes.append)
        opened.settle()
    if lets_go:
        assert _cold(tmp_path) == (list(range(LET_GO)) if kept else [])
    numbers = [int(body.split(b" ")[0]) for body in opened.bodies()]
    assert numbers == list(range(MESSAGES))
    assert _cold(tmp_path) == [] or not lets_go
