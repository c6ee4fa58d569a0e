"""A flush while more is written: nobody waits for it, and it claims no more than it did."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typing_extensions import override

from app.domain.errors import StoreFailed
from app.domain.positions import FlushMode
from tests.support.stores.simulated_files import NOTHING, CrashPlan, Fault, Inode, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store
from tests.support.stores.turns import WAIT_SECONDS


class SlowDisk(SimulatedFiles):
    """A simulated disk whose syncs take what is there, and then wait to be let go."""

    def __init__(self) -> None:
        super().__init__()
        self._is_slow = False
        self._begun = threading.Semaphore(0)
        self._go_on = threading.Semaphore(0)

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Syncs that begin within the block wait; at its end all are let go."""
        self._is_slow = True
        try:
            yield
        finally:
            self._is_slow = False
            self.let_go()

    @override
    def sync(self, inode: Inode) -> None:
        try:
            super().sync(inode)
        finally:
            if self._is_slow:
                self._begun.release()
                assert self._go_on.acquire(timeout=WAIT_SECONDS), "nobody let the sync go on"

    def wait_for_sync(self) -> None:
        assert self._begun.acquire(timeout=WAIT_SECONDS), "nothing was synced"

    def let_go(self) -> None:
        self._go_on.release()

    def after_power_loss(self) -> list[bytes]:
        """What is read after a loss of everything that was not synced."""
        return open_store(self.crash(CrashPlan(0, {}, NOTHING)), threads=False).bodies()


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def opened(disk: SlowDisk) -> Iterator[OpenStore]:
    opened = open_store(disk)
    opened.send(b"first")
    yield opened
    opened.store.close()


def send_async(opened: OpenStore, body: bytes) -> None:
    """Send in async mode; it must be answered in the turn in which it came."""
    before = len(opened.outcomes)
    opened.append(body, flush=FlushMode.ASYNC)
    opened.turns.run()
    assert opened.outcomes[before:] == [None]


def begin_flush(opened: OpenStore, disk: SlowDisk) -> list[object]:
    """Begin a flush and wait until it is at its sync; what it will say comes into the list."""
    said: list[object] = []
    opened.store.flush(said.append)
    opened.turns.run()
    disk.wait_for_sync()
    return said


def test_async_sends_are_answered_while_a_flush_runs(disk: SlowDisk, opened: OpenStore) -> None:
    send_async(opened, b"before")
    with disk.slow():
        said = begin_flush(opened, disk)
        send_async(opened, b"meanwhile")
        assert opened.bodies() == [b"first", b"before", b"meanwhile"]
        assert said == []
    opened.turns.run_until(lambda: said == [None])


def test_a_flush_claims_what_was_written_when_it_began(disk: SlowDisk, opened: OpenStore) -> None:
    send_async(opened, b"before")
    covered = opened.store.status().written_end
    with disk.slow():
        said = begin_flush(opened, disk)
        send_async(opened, b"meanwhile")
    opened.turns.run_until(lambda: said == [None])
    status = opened.store.status()
    assert status.flushed_end == covered < status.written_end


def test_what_is_written_during_a_flush_is_for_the_next(disk: SlowDisk, opened: OpenStore) -> None:
    """It went to the segment that the first flush had taken already."""
    send_async(opened, b"before")
    with disk.slow():
        first = begin_flush(opened, disk)
        send_async(opened, b"meanwhile")
    opened.turns.run_until(lambda: first == [None])
    assert disk.after_power_loss() == [b"first", b"before"]
    second: list[object] = []
    opened.store.flush(second.append)
    opened.turns.run_until(lambda: second == [None])
    assert disk.after_power_loss() == [b"first", b"before", b"meanwhile"]


def test_two_flushes_at_a_time(disk: SlowDisk, opened: OpenStore) -> None:
    send_async(opened, b"before")
    with disk.slow():
        said = begin_flush(opened, disk)
        send_async(opened, b"meanwhile")
        opened.store.flush(said.append)
        opened.turns.run()
        disk.let_go()
        disk.wait_for_sync()
    opened.turns.run_until(lambda: said == [None, None])
    assert disk.after_power_loss() == [b"first", b"before", b"meanwhile"]


def test_a_sync_send_behind_a_flush_has_its_own_sync(disk: SlowDisk, opened: OpenStore) -> None:
    send_async(opened, b"before")
    with disk.slow():
        said = begin_flush(opened, disk)
        send_async(opened, b"meanwhile")
        outcomes = len(opened.outcomes)
        opened.append(b"safe")
        opened.append(b"behind", flush=FlushMode.ASYNC)
        opened.turns.run()
        assert opened.outcomes[outcomes:] == []
        disk.let_go()
        disk.wait_for_sync()
    opened.settle(outcomes + 2)
    assert opened.outcomes[outcomes:] == [None, None]
    assert said == [None]
    assert disk.after_power_loss() == [b"first", b"before", b"meanwhile", b"safe", b"behind"]


def test_a_flush_that_fails_is_sticky(disk: SlowDisk, opened: OpenStore) -> None:
    send_async(opened, b"before")
    disk.fault = Fault("sync", 1)
    with disk.slow():
        said = begin_flush(opened, disk)
        send_async(opened, b"meanwhile")
        second: list[object] = []
        opened.store.flush(second.append)
        opened.turns.run()
    opened.turns.run_until(lambda: bool(said and second))
    (failure,), (later,) = said, second
    assert isinstance(failure, StoreFailed)
    assert isinstance(later, StoreFailed)
    assert opened.store.status().flushed_end < opened.store.status().written_end
    with pytest.raises(StoreFailed):
        opened.append(b"later")


def test_a_store_that_closes_finishes_its_flush(disk: SlowDisk, opened: OpenStore) -> None:
    send_async(opened, b"before")
    said: list[object] = []
    opened.store.flush(said.append)
    opened.turns.run()
    opened.store.close()
    assert said == [None]
    assert disk.after_power_loss() == [b"first", b"before"]
