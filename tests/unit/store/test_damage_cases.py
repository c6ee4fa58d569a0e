"""The 25 ways to damage a store that were tried on RocketMQ 4.9.8, each ending as it should.

The store has the six records of RocketMQ's golden store in spirit: TopicA/0 with four messages
(the third and fourth in the second segment), TopicA/1 and TopicB/0 with one each, and keys. `N`
damages it after a clean stop, `A` after a kill. Where RocketMQ loses records, indexes or offsets,
this store must lose the damaged record and nothing else.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import OsFiles, StoreConfig, StoreUnusable
from tests.support.stores import OpenStore, open_store

CONFIG = StoreConfig(
    segment_bytes=1024,
    queue_file_units=10,
    record_bytes_max=1000,
    index_slots=100,
    index_entries=1000,
)
PLACES = [("TopicA", 0), ("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("TopicA", 0), ("TopicA", 0)]
KEYS = [("k1", "k2"), ("k3",), (), ("k1",), ("Aa",), ("BB",)]
BODIES = [b"hello", b"world!!", b"no tag", b"x" * 300, b"y" * 300, b"last"]
ALL = frozenset(range(6))


@dataclass
class Damaged:
    """A closed store, and where its records stand."""

    root: Path
    offsets: list[int]
    sizes: list[int]
    end: int

    def segment(self, number: int) -> Path:
        return self.root / "commitlog" / f"{number * 1024:020d}"

    def change(self, physical_offset: int, data: bytes) -> None:
        path = self.segment(physical_offset // 1024)
        content = bytearray(path.read_bytes())
        at = physical_offset % 1024
        content[at : at + len(data)] = data
        path.write_bytes(content)

    def flip(self, record: int, at: int) -> None:
        place = self.offsets[record] + at
        byte = self.segment(place // 1024).read_bytes()[place % 1024]
        self.change(place, bytes((byte ^ 1,)))

    def flip_body(self, record: int) -> None:
        self.flip(record, 88)

    def flip_property(self, record: int) -> None:
        self.flip(record, self.sizes[record] - 25)

    def zero(self, record: int, start: int = 0) -> None:
        self.change(self.offsets[record] + start, bytes(self.sizes[record] - start))

    def remove(self, *names: str) -> None:
        for name in names:
            path = self.root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def zero_units(self, topic: str, queue_id: int, first: int, end: int) -> None:
        path = self.root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"
        content = bytearray(path.read_bytes())
        content[20 * first : 20 * end] = bytes(20 * (end - first))
        path.write_bytes(content)


def make(root: Path, *, killed: bool, checkpoint: bool = True) -> Damaged:
    opened = open_store(OsFiles(root), CONFIG)
    offsets = []
    for number, (topic, queue_id) in enumerate(PLACES):
        tag = None if number == 2 else "TagA"
        message = Message(BODIES[number], tag=tag, keys=KEYS[number])
        opened.append_all([message], topic=topic, queue_id=queue_id, flush=FlushMode.SYNC)
        opened.settle(number + 1)
        assert opened.outcomes[-1] is None
        offsets.append(last_offset(opened, topic, queue_id))
        opened.clock.advance(ms=1000)
    assert offsets[4] >= 1024
    end = opened.store.status().written_end
    if killed:
        if checkpoint:
            opened.store.begin_checkpoint().run()
        opened.store.fail("killed")
    opened.store.close()
    sizes = [int.from_bytes(raw(root, at)[:4]) for at in offsets]
    return Damaged(root, offsets, sizes, end)


def raw(root: Path, at: int) -> bytes:
    return (root / "commitlog" / f"{at - at % 1024:020d}").read_bytes()[at % 1024 :]


def last_offset(opened: OpenStore, topic: str, queue_id: int) -> int:
    last = opened.store.bounds(topic, queue_id).max_offset - 1
    read = opened.store.read(topic, queue_id, last, max_messages=1, max_bytes=1)
    return opened.store.decode(read.records[0]).physical_offset


class Case(NamedTuple):
    """`lost` are the records that are gone; everything else is as it was."""

    name: str
    killed: bool
    damage: Callable[[Damaged], object]
    lost: frozenset[int] = frozenset()
    checkpoint: bool = True


def nothing(_: Damaged) -> None:
    """No damage."""


def no_checkpoint(damaged: Damaged) -> None:
    damaged.remove("checkpoint.curlew", "checkpoint.curlew.copy")


def empty(damaged: Damaged, number: int, size: int) -> None:
    path = damaged.segment(number)
    path.write_bytes(path.read_bytes()[:size])


CASES = [
    Case("N0 none", False, nothing),
    Case("A-kill killed", True, nothing, checkpoint=False),
    Case("N1 last body flipped", False, lambda d: d.flip_body(5), frozenset({5})),
    Case("A1 last body flipped", True, lambda d: d.flip_body(5), frozenset({5}), False),
    Case("A2 last torn", True, lambda d: d.zero(5, 60), frozenset({5}), False),
    Case("A3 last zeroed", True, lambda d: d.zero(5), frozenset({5}), False),
    Case("N2 early body flipped", False, lambda d: d.flip_body(1), frozenset({1})),
    Case("A4c early body flipped", True, lambda d: d.flip_body(1), frozenset({1}), False),
    Case("A4 early flipped, checkpoint behind", True, lambda d: d.flip_body(1), frozenset({1})),
    Case("N3 property flipped", False, lambda d: d.flip_property(0), frozenset({0})),
    Case("A0 abort, undamaged", True, nothing),
    Case("A6 abort, no checkpoint since opening", True, nothing, checkpoint=False),
    Case("A10 abort, checkpoint lost", True, no_checkpoint),
    Case("N5 index deleted", False, lambda d: d.remove("index")),
    Case("N4 queues deleted", False, lambda d: d.remove("consumequeue")),
    Case("N10 queue tail zeroed", False, lambda d: d.zero_units("TopicA", 0, 3, 4)),
    Case("A5 abort, queues deleted", True, lambda d: d.remove("consumequeue")),
    Case("N11 middle unit zeroed", False, lambda d: d.zero_units("TopicA", 0, 1, 2)),
    Case("N7 last file empty", True, lambda d: empty(d, 1, 0), frozenset({4, 5})),
    Case("N8 last file short", True, lambda d: empty(d, 1, 500), frozenset({5})),
    Case("N12 first file short", False, lambda d: empty(d, 0, 400), frozenset({2, 3})),
    Case("N9 end of file broken", True, lambda d: d.change(943, b""), checkpoint=False),
    Case("N13 first file missing", False, lambda d: d.segment(0).unlink(), frozenset(range(4))),
    Case("A7 checkpoint missing", True, no_checkpoint),
    Case("A11 last file missing", True, lambda d: d.segment(1).unlink(), frozenset({4, 5})),
]


def break_end_of_file(damaged: Damaged) -> None:
    end = damaged.offsets[3] + damaged.sizes[3]
    damaged.change(end + 4, b"\0\0\0\0")


CASES = [
    case._replace(damage=break_end_of_file) if case.name.startswith("N9") else case
    for case in CASES
]


def readable(opened: OpenStore) -> dict[tuple[str, int, int], bytes]:
    found = {}
    for topic, queue_id in set(PLACES):
        first = opened.store.bounds(topic, queue_id).min_offset
        for offset, body in enumerate(opened.bodies(topic, queue_id), first):
            if body != b"GAP":
                found[topic, queue_id, offset] = body
    return found


def expected(lost: frozenset[int]) -> dict[tuple[str, int, int], bytes]:
    wanted = {}
    counts: dict[tuple[str, int], int] = {}
    for number, place in enumerate(PLACES):
        offset = counts[place] = counts.get(place, -1) + 1
        if number not in lost:
            wanted[*place, offset] = BODIES[number]
    return wanted


def keys(opened: OpenStore) -> list[tuple[str, str, list[int]]]:
    found = []
    for topic, key in sorted({(PLACES[n][0], key) for n in range(6) for key in KEYS[n]}):
        candidates = opened.store.index.candidates(topic, key, 0, 1 << 60, wait_for_disk=True)
        hits = sorted(at for at in candidates if at is not None)
        assert len(hits) == len(set(hits)), "a key is in the index twice"
        records = opened.store.find_by_key(topic, key, wait_for_disk=True)
        bodies = [BODIES.index(opened.store.decode(record).body) for record in records]
        found.append((topic, key, bodies))
    return found


def expected_keys(lost: frozenset[int]) -> list[tuple[str, str, list[int]]]:
    pairs = sorted({(PLACES[n][0], key) for n in range(6) for key in KEYS[n]})
    kept = [n for n in range(6) if n not in lost]
    return [
        (topic, key, [n for n in kept if PLACES[n][0] == topic and key in KEYS[n]])
        for topic, key in pairs
    ]


def test_there_are_25() -> None:
    """With N6 below and the kill, which is no damage."""
    assert len(CASES) == 25
    assert len({case.name.split()[0] for case in CASES}) == 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_what_is_damaged_is_lost(tmp_path: Path, case: Case) -> None:
    damaged = make(tmp_path, killed=case.killed, checkpoint=case.checkpoint)
    case.damage(damaged)
    for _ in range(2):  # a second opening changes nothing more
        opened = open_store(OsFiles(tmp_path), CONFIG)
        assert readable(opened) == expected(case.lost)
        assert keys(opened) == expected_keys(case.lost)
        opened.store.close()
    opened = open_store(OsFiles(tmp_path), CONFIG)
    opened.clock.advance(ms=60_000)
    bounds = opened.store.bounds("TopicA", 0)
    assert opened.send(b"next", topic="TopicA").first_queue_offset == bounds.max_offset
    assert opened.bodies("TopicA")[-1] == b"next"
    opened.store.close()
    assert not (tmp_path / "abort").exists()
    assert {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()} == {1024}


@pytest.mark.parametrize("killed", [False, True])
def test_n6_a_deleted_log_is_refused(tmp_path: Path, killed: bool) -> None:
    """RocketMQ wipes the queues and starts at 0, so that consumers stand beyond the end."""
    damaged = make(tmp_path, killed=killed)
    damaged.remove("commitlog")
    with pytest.raises(StoreUnusable, match="segments are missing"):
        open_store(OsFiles(tmp_path), CONFIG)
    assert (tmp_path / "consumequeue" / "TopicA" / "0").is_dir()


def test_a_torn_tail_ends_the_log_exactly(tmp_path: Path) -> None:
    damaged = make(tmp_path, killed=True, checkpoint=False)
    damaged.zero(5, 60)
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert opened.store.status().written_end == damaged.offsets[5]
    assert opened.store.bounds("TopicA", 0) == (0, 3)
    opened.store.close()
    assert (tmp_path / "lost+found" / f"commitlog-{damaged.offsets[5]:020d}").stat().st_size > 0


def test_the_first_offset_is_corrected_at_once(tmp_path: Path) -> None:
    make(tmp_path, killed=False).segment(0).unlink()
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert opened.store.bounds("TopicA", 0) == (2, 4)
    assert opened.store.bounds("TopicA", 1) == (1, 1)
    opened.store.close()


def test_offsets_do_not_go_back_when_a_queue_and_its_last_record_are_damaged(
    tmp_path: Path,
) -> None:
    damaged = make(tmp_path, killed=False)
    damaged.flip_body(5)
    damaged.remove("consumequeue")
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert opened.store.bounds("TopicA", 0) == (0, 4)
    assert opened.bodies("TopicA")[3] == b"GAP"
    opened.store.close()
