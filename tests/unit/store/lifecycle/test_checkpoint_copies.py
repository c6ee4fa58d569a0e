"""What the checkpoint knows survives the loss of either copy; what a cut keeps is kept.

Positive control: both copies lost and no floors of what has expired in the log, and it is back.
"""

from collections.abc import Callable

import pytest

from app.store import RetentionPolicy, paths
from app.store.topics.topic_floors import TopicFloors
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store, read_at

HOUR = 3_600_000


def overwrite(files: SimulatedFiles, name: str, at: int, data: bytes) -> None:
    inode = files.names[name]
    inode.seen[at : at + len(data)] = data
    inode.safe = bytearray(inode.seen)
    inode.unsynced.clear()


def lose(*names: str) -> Callable[[SimulatedFiles], None]:
    def do(files: SimulatedFiles) -> None:
        for name in names:
            del files.names[name]

    return do


def flip(name: str) -> Callable[[SimulatedFiles], None]:
    def do(files: SimulatedFiles) -> None:
        overwrite(files, name, 40, bytes((files.names[name].seen[40] ^ 4,)))

    return do


def life(*, clean: bool) -> SimulatedFiles:
    """A topic deleted, another expired in part, and messages since."""
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    for number in range(30):
        for topic in ("gone", "orders"):
            opened.append(b"%02d" % number, topic=topic)
            opened.turns.run()
        opened.clock.advance(ms=HOUR)
    opened.store.apply_retention(RetentionPolicy(default_ms=10 * HOUR))
    opened.store.begin_checkpoint().run()
    opened.store.delete_topic("gone")
    for topic in ("gone", "orders"):
        opened.append(b"new", topic=topic)
        opened.turns.run()
    if clean:
        opened.store.close()
    return files.kill()


def contents(opened: OpenStore) -> tuple[int, list[bytes], int, list[bytes]]:
    gone, orders = (opened.store.bounds(topic, 0).min_offset for topic in ("gone", "orders"))
    return gone, opened.bodies("gone"), orders, opened.bodies("orders")


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("damage", [lose, flip])
@pytest.mark.parametrize("name", [paths.CHECKPOINT, paths.CHECKPOINT_COPY])
def test_what_was_deleted_or_expired_does_not_come_back(
    clean: bool, damage: Callable[[str], Callable[[SimulatedFiles], None]], name: str
) -> None:
    files = life(clean=clean)
    damage(name)(files)
    for _ in range(2):
        opened = open_store(files, threads=False)
        expected = [b"%02d" % number for number in range(20, 30)]
        assert contents(opened) == (30, [b"new"], 20, [*expected, b"new"])
        files = files.kill()
        assert {paths.CHECKPOINT, paths.CHECKPOINT_COPY} <= files.names.keys()


def test_without_both_nothing_comes_back() -> None:
    files = life(clean=False)
    lose(paths.CHECKPOINT, paths.CHECKPOINT_COPY)(files)
    gone, bodies, first, orders = contents(open_store(files, threads=False))
    assert (gone, bodies, first, len(orders)) == (30, [b"new"], 20, 11)


def test_the_control_without_floors_what_had_expired_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TopicFloors, "risen", lambda _floors, _topics, _most: [])
    files = life(clean=False)
    lose(paths.CHECKPOINT, paths.CHECKPOINT_COPY)(files)
    gone, bodies, first, orders = contents(open_store(files, threads=False))
    assert (gone, bodies) == (30, [b"new"])
    assert first < 20
    assert len(orders) > 11


def test_a_second_cut_at_a_place_keeps_the_first_copy() -> None:
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    opened.append(b"first")
    opened.turns.run()
    end = opened.store.status().written_end
    for tail in (b"one torn tail, a long one", b"another"):
        files = files.kill()
        overwrite(files, paths.segment(0), end, tail)
        open_store(files, threads=False)
    kept = [bytes(files.names[paths.cut_tail(end, number)].seen) for number in (1, 2)]
    assert kept == [b"one torn tail, a long one", b"another"]


def test_in_sync_mode_the_next_segment_is_made_ahead() -> None:
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    opened.append(b"first")
    opened.turns.run()
    assert files.list(paths.COMMIT_LOG) == [f"{base:020d}" for base in (0, 4096)]
    opened.append(bytes(1900))
    opened.append(bytes(1900))
    opened.turns.run()
    assert files.list(paths.COMMIT_LOG) == [f"{base:020d}" for base in (0, 4096, 8192)]


def test_a_last_unit_without_a_record_costs_one_reading_only() -> None:
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    for number in range(5):
        opened.append(b"%d" % number)
        opened.turns.run()
    at = read_at(opened.store, 0)
    assert at is not None
    last = opened.store.status().written_end - len(at)
    opened.store.close()
    files = files.kill()
    overwrite(files, paths.segment(0), last + 90, b"?")
    lose("consumequeue/orders/0/" + f"{0:020d}")(files)
    scanned = []
    for _ in range(3):
        opened = open_store(files, threads=False)
        scanned.append(opened.store.status().recovery.scanned_bytes > 0)
        assert opened.store.bounds("orders", 0).max_offset == 5
        assert opened.bodies() == [b"0", b"1", b"2", b"3", b"GAP"]
        opened.store.close()
        files = files.kill()
    assert scanned == [True, False, False]
