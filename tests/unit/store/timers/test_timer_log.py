"""Which records wait: in memory and in runs, and what a damaged file leaves."""

import pytest

from app.store import Timer, TimerLog, paths
from tests.support.stores.simulated_files import SimulatedFiles

FIRST = Timer(0, -1)
LATE_MS = 1_000


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def loaded(files: SimulatedFiles, max_offset: int = 0) -> TimerLog:
    log = TimerLog(files, flush_entries=2)
    log.load(0, max_offset)
    return log


def flush(log: TimerLog) -> None:
    flushing = log.begin_flush()
    assert flushing is not None
    flushing.run()
    log.finish(flushing)


def add(log: TimerLog, *timers: Timer) -> None:
    for timer in timers:
        log.add(timer, "orders")
        log.position = timer.offset + 1


def test_records_come_in_the_order_of_their_due_times(files: SimulatedFiles) -> None:
    log = loaded(files)
    add(log, Timer(700, 0), Timer(300, 1))
    flush(log)
    add(log, Timer(500, 2), Timer(LATE_MS + 1, 3))
    assert log.page(FIRST).read(LATE_MS, 9) == [Timer(300, 1), Timer(500, 2), Timer(700, 0)]
    assert log.page(FIRST).read(LATE_MS, 1) == [Timer(300, 1)]
    assert log.page(Timer(300, 1)).read(LATE_MS, 9) == [Timer(500, 2), Timer(700, 0)]


def test_a_record_that_was_taken_back_waits_no_more_wherever_it_was(files: SimulatedFiles) -> None:
    log = loaded(files)
    add(log, Timer(300, 0), Timer(400, 1))
    flush(log)
    log.remove(Timer(300, 0), "orders")
    assert log.page(FIRST).read(LATE_MS, 9) == [Timer(400, 1)]
    assert (log.count, log.count_for("orders"), log.count_for("payments")) == (1, 1, 0)


def test_what_is_flushed_is_there_after_a_start(files: SimulatedFiles) -> None:
    log = loaded(files)
    add(log, Timer(300, 0), Timer(400, 1))
    assert log.is_flush_due()
    flush(log)
    again = TimerLog(files)
    assert again.load(0, 2)
    assert (again.watermark, again.count) == (2, 2)
    assert again.page(FIRST).read(LATE_MS, 9) == [Timer(300, 0), Timer(400, 1)]


def test_files_that_know_more_than_the_topic_are_thrown_away(files: SimulatedFiles) -> None:
    log = loaded(files)
    add(log, Timer(300, 0), Timer(400, 1))
    flush(log)
    again = TimerLog(files)
    assert not again.load(0, 1)
    assert (again.position, again.count) == (0, 0)
    assert files.list(paths.TIMER_LOG) == []


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_flush_of_what_was_forgotten_meanwhile_brings_nothing_back(
    files: SimulatedFiles, has_failed: bool
) -> None:
    """As where a replica begins to lead while one runs, and its topic was trimmed beyond that."""
    log = loaded(files)
    add(log, Timer(300, 0), Timer(400, 1))
    flushing = log.begin_flush()
    assert flushing is not None
    log.reset(10)
    assert log.begin_flush() is None, "the files are those of one at a time"
    flushing.run()
    (log.abandon if has_failed else log.finish)(flushing)
    assert (log.watermark, log.count, log.page(FIRST).read(LATE_MS, 9)) == (10, 0, [])
    add(log, Timer(700, 10))
    log.remove(Timer(400, 1), "orders")
    assert log.page(FIRST).read(LATE_MS, 9) == [Timer(700, 10)]
    flush(log)
    assert (log.watermark, log.changes) == (11, 0)
    again = TimerLog(files)
    assert again.load(10, 11)
    assert again.page(FIRST).read(LATE_MS, 9) == [Timer(700, 10)]
