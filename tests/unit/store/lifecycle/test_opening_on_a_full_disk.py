"""After a crash a store opens on a full disk, and no checkpoint counts on what was not written."""

import errno

import pytest

from app.store import paths
from app.store.lifecycle import recovery
from app.store.queues.consume_queue import ConsumeQueue
from tests.support.stores.simulated_files import (
    EVERYTHING,
    NOTHING,
    CrashPlan,
    Fault,
    SimulatedFiles,
)
from tests.support.stores.stores import OpenStore, open_store, undispatched_bytes

BODIES = [b"%03d" % number for number in range(60)]
CHECKPOINTS = (paths.CHECKPOINT, paths.CHECKPOINT_COPY)


def killed() -> SimulatedFiles:
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    for body in BODIES:
        opened.send(body)
    return files.kill()


def filled(files: SimulatedFiles) -> SimulatedFiles:
    """No new file finds room from now on."""
    files.fault = Fault("create", 1, errno.ENOSPC, lasting=True)
    return files


@pytest.mark.parametrize(
    "flush_at_bytes",
    [200, 600, 1180],
    ids=["takes several times", "takes twice", "leaves nothing in the tail"],
)
def test_units_that_opening_could_not_write_come_with_the_next_checkpoint(
    monkeypatch: pytest.MonkeyPatch, flush_at_bytes: int
) -> None:
    monkeypatch.setattr(recovery, "FLUSH_AT_BYTES", flush_at_bytes)
    files = filled(killed())
    opened = open_store(files, threads=False)
    assert opened.bodies() == BODIES
    assert undispatched_bytes(opened.store) == len(BODIES) * 20
    files.fault = None
    opened.store.begin_checkpoint().run()
    assert undispatched_bytes(opened.store) == 0
    assert opened.bodies() == BODIES
    lost = CrashPlan(len(files._changes), {}, NOTHING)
    after = open_store(files.crash(lost), threads=False)
    assert after.store.status().recovery.rebuilt_queues == 0
    assert after.bodies() == BODIES


def test_what_was_taken_is_written_before_more_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room comes back while the log is read: nothing is left out, nothing held for longer."""
    monkeypatch.setattr(recovery, "FLUSH_AT_BYTES", 200)
    files = killed()
    files.fault = Fault("create", 1, errno.ENOSPC)
    taken: list[int] = []
    take_tail = ConsumeQueue.take_tail

    def noted(queue: ConsumeQueue, confirmed_end: int | None = None) -> object:
        taken.append(queue.tail_bytes)
        return take_tail(queue, confirmed_end)

    monkeypatch.setattr(ConsumeQueue, "take_tail", noted)
    opened = open_store(files, threads=False)
    assert max(taken[1:]) < len(BODIES) * 20 // 2
    assert undispatched_bytes(opened.store) == 0
    assert opened.bodies() == BODIES


def stopped_clean() -> SimulatedFiles:
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    opened.send(b"a")
    opened.store.close()
    return files.kill()


def is_refused(opened: OpenStore) -> bool:
    return opened.store.status().refusal is not None


@pytest.mark.parametrize("missing", CHECKPOINTS)
def test_a_store_opens_on_a_full_disk_without_one_of_its_checkpoints(missing: str) -> None:
    files = stopped_clean()
    files.remove(missing)
    files.sync_directory("")
    (left,) = set(CHECKPOINTS) - {missing}
    before = bytes(files.names[left].seen)
    opened = open_store(filled(files), threads=False)
    assert opened.bodies() == [b"a"]
    assert not is_refused(opened)
    assert bytes(files.names[left].seen) != before, "it still says that the stop was clean"
    opened.send(b"b")
    power_lost = files.crash(CrashPlan(len(files._changes), {}, EVERYTHING))
    after = open_store(power_lost, threads=False)
    assert after.store.status().recovery.power_lost
    assert after.bodies() == [b"a", b"b"]


@pytest.mark.parametrize("missing", [paths.META, paths.META_COPY])
def test_a_store_opens_on_a_full_disk_without_one_of_its_meta_files(missing: str) -> None:
    files = stopped_clean()
    whole = bytes(files.names[missing].seen)
    files.remove(missing)
    files.sync_directory("")
    opened = open_store(filled(files), threads=False)
    assert opened.bodies() == [b"a"]
    assert not is_refused(opened)
    opened.send(b"b")
    assert missing not in files.names
    files.fault = None
    opened.store.close()
    assert open_store(files, threads=False).bodies() == [b"a", b"b"]
    assert bytes(files.names[missing].seen) == whole, "the start that has room writes it again"
