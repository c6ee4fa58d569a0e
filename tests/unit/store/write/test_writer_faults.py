"""What raises where nobody expects it ends neither the writer nor the waiting of those who send."""

import errno

import pytest

from app.domain.errors import DiskFull, StoreFailed
from app.store.log.commit_log import CommitLog
from app.store.queues.consume_queue import ConsumeQueue
from app.store.write.appender import Appender
from app.store.write.visibility import Publication
from tests.support.stores.simulated_files import Fault, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def opened(files: SimulatedFiles) -> OpenStore:
    opened = open_store(files, threads=False)
    opened.send(b"first")
    return opened


def refused_for_room(files: SimulatedFiles, opened: OpenStore) -> None:
    """Send until the next segment finds no room."""
    files.fault = Fault("create", 1, errno.ENOSPC, lasting=True)
    while not isinstance(opened.outcomes[-1], DiskFull):
        opened.append(bytes(1000))
        opened.settle()
    files.fault = None


def raising(error: Exception) -> object:
    def function(*_: object) -> None:
        raise error

    return function


def test_looking_for_room_goes_on_after_a_lack_of_memory(
    files: SimulatedFiles, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_for_room(files, opened)
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "prepare", raising(MemoryError()))
        opened.store.look_again()
        opened.turns.run()
    assert opened.store.status().failed is None
    opened.send(b"after")
    assert opened.bodies()[-1] == b"after"


def test_looking_for_room_that_finds_a_fault_fails_the_store(
    files: SimulatedFiles, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_for_room(files, opened)
    monkeypatch.setattr(CommitLog, "prepare", raising(RuntimeError("broken")))
    opened.store.look_again()
    opened.turns.run()
    assert "broken" in (opened.store.status().failed or "")
    with pytest.raises(StoreFailed):
        opened.append(b"after")


def test_a_flush_that_lacks_memory_is_answered(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a batch of its own, with nothing in it that could be taken back."""
    flushes: list[object] = []
    sync = CommitLog.sync

    def second_lacks_memory(log: CommitLog) -> None:
        if len(flushes) == 1:
            raise MemoryError
        sync(log)
        flushes.append(None)
        opened.store.flush(flushes.append)

    monkeypatch.setattr(CommitLog, "sync", second_lacks_memory)
    opened.send(b"second")
    opened.turns.run_until(lambda: len(flushes) == 2)
    (_, outcome) = flushes
    assert isinstance(outcome, StoreFailed)
    assert outcome.outcome == "unknown"


def test_all_who_wait_are_told_when_positions_cannot_go_back(
    files: SimulatedFiles, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Appender, "roll_back", raising(MemoryError()))
    files.fault = Fault("write", 1, errno.ENOSPC, lasting=True)
    before = len(opened.outcomes)
    for _ in range(3):
        opened.append(b"refused")
    opened.turns.run()
    told = opened.outcomes[before:]
    assert [type(outcome) for outcome in told] == [StoreFailed] * 3
    assert {outcome.outcome for outcome in told if outcome is not None} == {"not_stored"}
    assert "while a refused write was taken back" in (opened.store.status().failed or "")
    files.fault = None
    assert open_store(files.kill(), threads=False).bodies() == [b"first"]


def test_no_checkpoint_counts_on_a_queue_that_lacks_a_confirmed_message(
    files: SimulatedFiles, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "append", raising(MemoryError()))
        opened.append(b"second")
        opened.settle()
    outcome = opened.outcomes[-1]
    assert isinstance(outcome, StoreFailed)
    assert outcome.outcome == "unknown"
    with pytest.raises(OSError, match="a queue is not what the log says"):
        opened.store.begin_checkpoint().run()
    opened.store.close()
    again = open_store(files.kill(), threads=False)
    assert again.bodies() == [b"first", b"second"]


def test_what_is_written_and_not_shown_keeps_its_offsets_when_later_blocks_are_refused(
    files: SimulatedFiles, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while replicas have not confirmed it. Given again, one offset would name two messages."""
    shown: list[Publication] = []

    def later(publication: Publication) -> None:
        shown.append(publication)

    with monkeypatch.context() as patch:
        patch.setattr(Publication, "publish", later)
        opened.append(b"written")
        opened.turns.run()
    files.fault = Fault("write", 1, errno.ENOSPC, lasting=True)
    for _ in range(3):
        opened.append(b"refused")
    opened.turns.run()
    assert opened.outcomes[-3:] != [None] * 3
    files.fault = None
    opened.store.look_again()
    opened.turns.run()
    assert opened.store.next_offset("orders", 0) == 2
    for publication in shown:
        publication.publish()
    opened.send(b"third")
    assert opened.bodies() == [b"first", b"written", b"third"]
