"""Checkpoints that the event loop begins and a thread writes, with anything in between."""

import errno
from pathlib import Path

import pytest

from app.store import Checkpointing, OsFiles
from app.store.formats.files.consume_queue import UNIT
from tests.support.stores.simulated_files import NOTHING, CrashPlan, Fault, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store, undispatched_bytes


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def opened(files: SimulatedFiles) -> OpenStore:
    return open_store(files, threads=False)


def send(opened: OpenStore, *bodies: bytes) -> None:
    for body in bodies:
        opened.append(body)
        opened.turns.run()


def collected(opened: OpenStore) -> Checkpointing:
    checkpointing = opened.store.begin_large_checkpoint()
    while checkpointing.collect(1):
        pass
    return checkpointing


def after_power_loss(files: SimulatedFiles) -> list[bytes]:
    """What is read after a loss of everything that was not synced."""
    return open_store(files.crash(CrashPlan(0, {}, NOTHING)), threads=False).bodies()


def test_beginning_touches_no_file(files: SimulatedFiles, opened: OpenStore) -> None:
    for queue_id in range(30):
        opened.append(b"x", queue_id=queue_id)
        opened.turns.run()
    calls: list[str] = []
    files.call = calls.append  # type: ignore[method-assign, assignment]
    checkpointing = collected(opened)
    assert calls == []
    checkpointing.run()
    assert len([call for call in calls if call == "sync_directory"]) >= 30


def test_units_are_readable_at_every_moment(files: SimulatedFiles, opened: OpenStore) -> None:
    send(opened, *[b"%d" % n for n in range(20)])
    before = opened.store.begin_large_checkpoint()
    assert not before.collect(None)
    send(opened, *[b"%d" % n for n in range(20, 40)])
    expected = [b"%d" % n for n in range(40)]
    assert opened.bodies() == expected
    after = collected(opened)
    assert opened.bodies() == expected
    queue = opened.store._queues.find("orders", 0)
    assert queue is not None
    for first in range(0, 40, 3):
        for end in range(first, 41, 7):
            assert len(queue.units(first, end)) == end - first
            assert queue.units(first, end) == queue.units(0, 40)[first:end]
    before.run()
    assert opened.bodies() == expected
    after.run()
    assert opened.bodies() == expected
    assert undispatched_bytes(opened.store) == 0
    assert after_power_loss(files) == expected


@pytest.mark.parametrize("first", [0, 1])
def test_a_checkpoint_claims_what_is_on_the_medium(
    files: SimulatedFiles, opened: OpenStore, first: int
) -> None:
    """Whichever is written first: the older one knows nothing of what the newer one took."""
    send(opened, b"1", b"2")
    both = [collected(opened)]
    send(opened, b"3")
    both.append(collected(opened))
    both[first].run()
    assert after_power_loss(files) == [b"1", b"2", b"3"]
    both[1 - first].run()
    assert after_power_loss(files) == [b"1", b"2", b"3"]


def test_one_that_is_overtaken_while_it_collects_says_nothing(
    files: SimulatedFiles, opened: OpenStore
) -> None:
    send(opened, b"1")
    opened.append(b"a", queue_id=1)
    opened.turns.run()
    slow = opened.store.begin_large_checkpoint()
    assert slow.collect(1)
    opened.append(b"b", queue_id=1)
    opened.turns.run()
    collected(opened)
    assert not slow.collect(1)
    slow.run()
    after = open_store(files.crash(CrashPlan(0, {}, NOTHING)), threads=False)
    assert (after.bodies(), after.bodies(queue_id=1)) == ([b"1"], [b"a", b"b"])


@pytest.mark.parametrize("kind", ["open", "write", "truncate", "sync_directory"])
def test_units_that_could_not_be_written_are_written_by_the_next_one(
    files: SimulatedFiles, opened: OpenStore, kind: str
) -> None:
    bodies = [b"%d" % n for n in range(40)]  # three files
    send(opened, *bodies[:30])
    checkpointing = collected(opened)
    files.fault = Fault(kind, 2, errno.ENOSPC)
    with pytest.raises(OSError, match="ENOSPC"):
        checkpointing.run()
    assert opened.bodies() == bodies[:30]
    send(opened, *bodies[30:])
    collected(opened).run()
    assert undispatched_bytes(opened.store) == 0
    assert opened.bodies() == bodies
    opened.store.close()
    again = open_store(files.kill(), threads=False)
    assert again.store.status().recovery.scanned_bytes == 0
    assert again.bodies() == bodies


def test_a_unit_is_put_right_while_it_is_written(tmp_path: Path) -> None:
    opened = open_store(OsFiles(tmp_path), threads=False)
    send(opened, b"1", b"2", b"3")
    queue = opened.store._queues.find("orders", 0)
    assert queue is not None
    right = queue.units(1, 2)[0]
    queue._tail[1][20:40] = bytes(20)
    checkpointing = collected(opened)
    queue.mend(1, UNIT.pack(*right))
    assert queue.units(1, 2) == [right]
    checkpointing.run()
    assert opened.bodies() == [b"1", b"2", b"3"]
    opened.store.close()


def test_keys_are_found_while_a_checkpoint_is_begun(opened: OpenStore) -> None:
    send(opened, b"1")
    with opened.store.index._lock:  # as while a thread writes the index
        assert opened.store.index.damaged_from is None
        for number in range(600):
            opened.store.index.add(10_000 + number, 5, "orders", ["k"])
    assert len(opened.store.index._pending) == 600
    collected(opened).run()
    assert opened.store.index._pending == []
