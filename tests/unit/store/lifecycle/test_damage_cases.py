"""The 25 ways to damage a store that were tried on RocketMQ 4.9.8, each ending as it should.

The store has the six records of RocketMQ's golden store in spirit: TopicA/0 with four messages
(the third and fourth in the second segment), TopicA/1 and TopicB/0 with one each, and keys. `N`
damages it after a clean stop, `A` after a kill. Where RocketMQ loses records, indexes or offsets,
this store must lose the damaged record and nothing else.
"""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from app.domain.limits import DAMAGE_WARNINGS_PER_KIND_MAX
from app.domain.message import Message
from app.domain.names import HALF_TOPIC
from app.domain.positions import FlushMode
from app.store import OsFiles, StoreConfig, StoreUnusable
from app.store.offline.directory import Kind
from app.store.offline.repair import repair
from app.store.offline.verification import verify
from tests.support.stores.clock import FakeClock
from tests.support.stores.stores import OpenStore, open_store
from tests.support.stores.turns import ManualTurns

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
    told: str = ""
    """Kinds of damage that the first opening counts and warns of; what no kind is told of looks
    like what a kill leaves."""


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
    Case(
        "N1 last body flipped", False, lambda d: d.flip_body(5), frozenset({5}), told="log message"
    ),
    Case(
        "A1 last body flipped", True, lambda d: d.flip_body(5), frozenset({5}), False, told="tail"
    ),
    Case("A2 last torn", True, lambda d: d.zero(5, 60), frozenset({5}), False),
    Case("A3 last zeroed", True, lambda d: d.zero(5), frozenset({5}), False),
    Case(
        "N2 early body flipped", False, lambda d: d.flip_body(1), frozenset({1}), told="log message"
    ),
    Case(
        "A4c early body flipped",
        True,
        lambda d: d.flip_body(1),
        frozenset({1}),
        False,
        told="log message",
    ),
    Case(
        "A4 early flipped, checkpoint behind",
        True,
        lambda d: d.flip_body(1),
        frozenset({1}),
        told="message",
    ),
    Case(
        "N3 property flipped",
        False,
        lambda d: d.flip_property(0),
        frozenset({0}),
        told="log message",
    ),
    Case("A0 abort, undamaged", True, nothing),
    Case("A6 abort, no checkpoint since opening", True, nothing, checkpoint=False),
    Case("A10 abort, checkpoint lost", True, no_checkpoint, told="state"),
    Case("N5 index deleted", False, lambda d: d.remove("index"), told="index"),
    Case("N4 queues deleted", False, lambda d: d.remove("consumequeue"), told="queue"),
    Case("N10 queue tail zeroed", False, lambda d: d.zero_units("TopicA", 0, 3, 4), told="queue"),
    Case("A5 abort, queues deleted", True, lambda d: d.remove("consumequeue"), told="queue"),
    Case("N11 middle unit zeroed", False, lambda d: d.zero_units("TopicA", 0, 1, 2), told="queue"),
    Case(
        "N7 last file empty",
        True,
        lambda d: empty(d, 1, 0),
        frozenset({4, 5}),
        told="segment message",
    ),
    Case(
        "N8 last file short",
        True,
        lambda d: empty(d, 1, 500),
        frozenset({5}),
        told="segment message",
    ),
    Case(
        "N12 first file short",
        False,
        lambda d: empty(d, 0, 400),
        frozenset({2, 3}),
        told="segment log message",
    ),
    Case("N9 end of file broken", True, lambda d: d.change(943, b""), checkpoint=False, told="log"),
    Case(
        "N13 first file missing",
        False,
        lambda d: d.segment(0).unlink(),
        frozenset(range(4)),
        told="segment",
    ),
    Case("A7 checkpoint missing", True, no_checkpoint, told="state"),
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


def test_there_are_24() -> None:
    """With A11 and N6 below, and without the kill, which is no damage, there are 25."""
    assert len(CASES) == 24
    assert len({case.name.split()[0] for case in CASES}) == 24


def told_kinds(opened: OpenStore, caplog: pytest.LogCaptureFixture) -> set[str]:
    """Kinds that the store counts; it has warned of the same."""
    counted = set(opened.store.status().damages)
    warned = {
        record.getMessage().partition("(")[2].partition(")")[0]
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.getMessage().startswith("damage (")
    }
    assert warned == counted
    return counted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_damage_is_told_of(tmp_path: Path, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    damaged = make(tmp_path, killed=case.killed, checkpoint=case.checkpoint)
    case.damage(damaged)
    caplog.clear()
    opened = open_store(OsFiles(tmp_path), CONFIG)
    readable(opened)
    keys(opened)
    assert told_kinds(opened, caplog) == set(case.told.split())
    opened.store.close()


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


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("has_later_one", [False, True])
def test_a11_a_deleted_last_segment_is_refused(
    tmp_path: Path, killed: bool, checkpoint: bool, has_later_one: bool
) -> None:
    """RocketMQ gives the offsets of what was lost again. An empty segment behind hides nothing."""
    damaged = make(tmp_path, killed=killed, checkpoint=checkpoint)
    damaged.segment(1).unlink()
    if not has_later_one:
        damaged.segment(2).unlink(missing_ok=True)
    elif not damaged.segment(2).exists():
        damaged.segment(2).write_bytes(bytes(1024))
    with pytest.raises(StoreUnusable, match="segments are missing"):
        open_store(OsFiles(tmp_path), CONFIG)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_without_all_segments_in_use_an_empty_one_behind_is_no_log(
    tmp_path: Path, killed: bool, checkpoint: bool
) -> None:
    damaged = make(tmp_path, killed=killed, checkpoint=checkpoint)
    damaged.segment(0).unlink()
    damaged.segment(1).unlink()
    damaged.segment(2).write_bytes(bytes(1024))
    for _ in range(2):  # nothing is changed that would hide it from a second try
        with pytest.raises(StoreUnusable, match="segments are missing: the log begins at 2048"):
            open_store(OsFiles(tmp_path), CONFIG)
    found = verify(OsFiles(tmp_path))
    missing = [problem.file for problem in found.problems if problem.kind is Kind.SEGMENT]
    first = 0 if killed and not checkpoint else 1
    assert missing == [f"commitlog/{number * 1024:020d}" for number in range(first, 2)]
    repair(OsFiles(tmp_path), FakeClock(), ManualTurns(), dry_run=False)
    opened = open_store(OsFiles(tmp_path), CONFIG)
    bounds = opened.store.bounds("TopicA", 0)
    assert opened.send(b"next", topic="TopicA").first_queue_offset == bounds.max_offset
    opened.store.close()


def test_a_missing_segment_in_the_middle_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_store(OsFiles(tmp_path), CONFIG)
    for body in (b"a" * 700, b"b" * 700, b"c" * 700):
        opened.send(body)
    opened.store.close()
    (tmp_path / "commitlog" / f"{1024:020d}").unlink()
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert [body[:1] for body in opened.bodies()] == [b"a", b"G", b"c"]
    assert told_kinds(opened, caplog) == {"segment", "log", "message"}
    opened.store.close()


@pytest.mark.parametrize("is_known", [False, True])
def test_offsets_that_units_know_of_are_not_given_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    """Units get to the files before the checkpoint that says so; here the kill came in between."""
    opened = open_store(OsFiles(tmp_path), CONFIG)
    if is_known:
        opened.send(b"first")
        opened.store.begin_checkpoint().run()
    start = opened.store.status().written_end
    checkpoints = [tmp_path / "checkpoint.curlew", tmp_path / "checkpoint.curlew.copy"]
    before = [path.read_bytes() for path in checkpoints]
    opened.send(b"second")
    opened.send(b"third")
    opened.store.begin_checkpoint().run()
    opened.store.fail("killed")
    opened.store.close()
    for path, data in zip(checkpoints, before, strict=True):
        path.write_bytes(data)
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:start] + bytes(1024 - start))
    caplog.clear()
    for _ in range(2):
        opened = open_store(OsFiles(tmp_path), CONFIG)
        assert opened.store.bounds("orders", 0).max_offset == 2 + is_known
        assert opened.bodies()[-2:] == [b"GAP", b"GAP"]
        opened.store.close()
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert "are not given again" in caplog.text
    assert opened.send(b"next").first_queue_offset == 2 + is_known
    opened.store.close()


def test_strangers_are_told_of_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path, killed=False)
    strays = [
        "x",
        "y/z",
        "commitlog/x",
        f"commitlog/{5:020d}",
        f"commitlog/{9 * 1024:020d}/x",
        "consumequeue/y",
        "consumequeue/TopicA/x",
        "index/x",
        "index/20260101000000000/x",
        "timerlog/x",
        f"timerlog/{0:020d}/x",
    ]
    for name in strays:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"stray")
    caplog.clear()
    opened = open_store(OsFiles(tmp_path), CONFIG)
    opened.store.timer_log().load(0, 0)
    assert readable(opened) == expected(frozenset())
    assert opened.store.status().damages == {"stray_file": 11}
    assert len(caplog.records) == DAMAGE_WARNINGS_PER_KIND_MAX + 1
    assert caplog.records[-1].getMessage() == "damage (stray_file): 11 findings at opening"
    opened.store.close()
    left = [name for name in strays if (tmp_path / name).exists()]
    assert left == [name for name in strays if name != "timerlog/x"]


def test_a_timer_log_that_is_made_again_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert not opened.store.timer_log().load(0, 0)
    assert opened.store.status().damages == {}
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / "manifest").write_bytes(b"CRLW")
    assert not opened.store.timer_log().load(0, 0)
    assert not opened.store.timer_log().load(5, 7)
    assert opened.store.status().damages == {"timer_log": 2}
    assert told_kinds(opened, caplog) == {"timer_log"}
    opened.store.close()


def test_a_damaged_record_of_the_brokers_own_state_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_store(OsFiles(tmp_path), CONFIG)
    opened.send(b"state", topic=HALF_TOPIC)
    at = last_offset(opened, HALF_TOPIC, 0)
    opened.store.close()
    Damaged(tmp_path, [at], [100], 0).flip_body(0)
    opened = open_store(OsFiles(tmp_path), CONFIG)
    for _ in range(2):
        assert opened.bodies(HALF_TOPIC) == [b"GAP"]
    assert opened.store.status().damages == {"log": 1, "system_record": 1}
    assert told_kinds(opened, caplog) == {"log", "system_record"}
    opened.store.close()


def flip_file(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "at"),
    [("checkpoint.curlew", 20), ("checkpoint.curlew.copy", 20), ("meta", 20), ("meta.copy", 20)],
)
def test_a_damaged_state_file_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, at: int
) -> None:
    make(tmp_path, killed=False)
    flip_file(tmp_path / name, at)
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert readable(opened) == expected(frozenset())
    assert told_kinds(opened, caplog) == {"state"}
    opened.store.close()
    caplog.clear()
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert told_kinds(opened, caplog) == set()
    opened.store.close()


@pytest.mark.parametrize(
    ("name", "at", "told"),
    [
        ("index", 40 + 4 * 100 + 20 + 3, {"index"}),
        ("index", 41, {"index"}),
        ("consumequeue/TopicA/0", 7, {"queue"}),
        ("consumequeue/TopicA/0", 11, {"queue"}),
        ("consumequeue/TopicA/0", 19, {"queue"}),
    ],
    ids=["entry", "slot", "place", "size", "tag"],
)
def test_a_flipped_bit_of_what_is_derived_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, at: int, told: set[str]
) -> None:
    make(tmp_path, killed=False)
    flip_file(next((tmp_path / name).iterdir()), at)
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert readable(opened) == expected(frozenset())
    assert keys(opened) == expected_keys(frozenset())
    assert told_kinds(opened, caplog) == told
    opened.store.close()


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
