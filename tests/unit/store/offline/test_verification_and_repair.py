"""Every kind of damage is found where it is, repaired when it can be, and nothing is lost."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.store import OsFiles, StoreLocked, StoreUnusable, Timer, TimerLog
from app.store.formats.files.state_file import decode_checkpoint
from app.store.formats.files.timer_run import decode_manifest, encode_manifest
from app.store.formats.record.record import decode_fields
from app.store.offline.directory import Kind, Problem, locked, open_directory
from app.store.offline.dump import Selection, dump
from app.store.offline.repair import Repair, repair
from app.store.offline.verification import Verification, verify
from tests.support.stores.clock import FakeClock
from tests.support.stores.stores import lose_checkpoints, open_store
from tests.support.stores.turns import ManualTurns
from tests.unit.store.offline.conftest import MESSAGES, SMALL

QUEUE_0 = f"consumequeue/orders/0/{0:020d}"
SEGMENT_0 = f"commitlog/{0:020d}"
Damage = Callable[[Path], None]


def check(root: Path) -> Verification:
    return verify(OsFiles(root))


def mend(root: Path, *, dry_run: bool = False) -> Repair:
    return repair(OsFiles(root), FakeClock(), ManualTurns(), dry_run=dry_run)


def bodies(root: Path) -> list[bytes]:
    """All messages by way of an ordinary opening, in the order that they were sent."""
    opened = open_store(OsFiles(root), SMALL)
    even, odd = (opened.bodies("orders", queue_id) for queue_id in (0, 1))
    opened.store.close()
    return [body for pair in zip(even, odd, strict=True) for body in pair]


def expected_bodies() -> list[bytes]:
    return [f"body {number:03}".encode().ljust(60, b".") for number in range(MESSAGES)]


def patch(root: Path, path: str, position: int, data: bytes) -> None:
    with (root / path).open("r+b") as file:
        file.seek(position)
        file.write(data)


def index_path(root: Path) -> Path:
    (path,) = (root / "index").iterdir()
    return path


def log_end(root: Path) -> int:
    return decode_checkpoint((root / "checkpoint.curlew").read_bytes()).dispatched_end


def test_a_healthy_store_is_clean(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    found = check(root)
    assert (found.records, found.queues, found.problems, found.notes) == (MESSAGES, 2, [], [])
    assert found.segments > 2
    assert found.log_end == log_end(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert mend(root).actions == []


def zero_a_unit(root: Path) -> None:
    patch(root, QUEUE_0, 40, bytes(20))


def flip_a_unit(root: Path) -> None:
    patch(root, QUEUE_0, 47, b"\x01")


def flip_a_tag_hash(root: Path) -> None:
    patch(root, QUEUE_0, 59, b"\x01")


def zero_the_last_unit(root: Path) -> None:
    last = MESSAGES // 2 - 1
    path = f"consumequeue/orders/0/{last // 16 * 16 * 20:020d}"
    patch(root, path, last % 16 * 20, bytes(20))


def delete_a_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "0")


def delete_a_queue_file(root: Path) -> None:
    (root / QUEUE_0).unlink()


def shorten_a_queue_file(root: Path) -> None:
    with (root / QUEUE_0).open("r+b") as file:
        file.truncate(100)


def delete_all_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def add_a_stranger_to_the_queues(root: Path) -> None:
    (root / "consumequeue" / "gone" / "3").mkdir(parents=True)
    (root / "consumequeue" / "gone" / "3" / "notes").write_text("mine")


def flip_an_index_entry(root: Path) -> None:
    path = index_path(root)
    patch(root, f"index/{path.name}", 40 + 4 * 100 + 20 * 5 + 3, b"\xff")


def zero_the_index_slots(root: Path) -> None:
    path = index_path(root)
    patch(root, f"index/{path.name}", 40, bytes(4 * 100))


def delete_the_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def tear_a_tail(root: Path) -> None:
    end = log_end(root)
    data = (root / SEGMENT_0).read_bytes()
    record = data[: int.from_bytes(data[:4])]
    base = end - end % 4096
    patch(root, f"commitlog/{base:020d}", end - base, record[:60])


def flip_meta(root: Path) -> None:
    patch(root, "meta", 30, b"\xff")


def delete_the_meta_copy(root: Path) -> None:
    (root / "meta.copy").unlink()


def flip_the_checkpoint(root: Path) -> None:
    patch(root, "checkpoint.curlew", 30, b"\xff")


def delete_the_checkpoint(root: Path) -> None:
    (root / "checkpoint.curlew").unlink()


def flip_the_index_header(root: Path) -> None:
    patch(root, f"index/{index_path(root).name}", 31, b"\xff")


def shorten_rocketmqs_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(bytes(24))


def add_a_stranger_to_the_log(root: Path) -> None:
    (root / "commitlog" / "notes").write_text("mine")


DAMAGES: list[tuple[Damage, Kind, str, int]] = [
    (zero_a_unit, Kind.QUEUE, QUEUE_0, 40),
    (flip_a_unit, Kind.QUEUE, QUEUE_0, 40),
    (flip_a_tag_hash, Kind.QUEUE, QUEUE_0, 40),
    (zero_the_last_unit, Kind.QUEUE, f"consumequeue/orders/0/{320:020d}", 260),
    (delete_a_queue, Kind.QUEUE, QUEUE_0, 0),
    (delete_a_queue_file, Kind.QUEUE, QUEUE_0, 0),
    (shorten_a_queue_file, Kind.QUEUE, QUEUE_0, 0),
    (delete_all_queues, Kind.QUEUE, QUEUE_0, 0),
    (add_a_stranger_to_the_queues, Kind.QUEUE, "consumequeue/gone/3", 0),
    (flip_an_index_entry, Kind.INDEX, "index/", 40 + 4 * 100 + 20),
    (zero_the_index_slots, Kind.INDEX, "index/", 40),
    (delete_the_index, Kind.INDEX, "index/", 0),
    (tear_a_tail, Kind.TAIL, "commitlog/", -1),
    (flip_meta, Kind.STATE, "meta", 0),
    (delete_the_meta_copy, Kind.STATE, "meta.copy", 0),
    (flip_the_checkpoint, Kind.STATE, "checkpoint.curlew", 0),
    (delete_the_checkpoint, Kind.STATE, "checkpoint.curlew", 0),
    (flip_the_index_header, Kind.INDEX, "index/", 0),
    (shorten_rocketmqs_checkpoint, Kind.STATE, "checkpoint", 0),
    (add_a_stranger_to_the_log, Kind.SEGMENT, "commitlog/notes", 0),
]


@pytest.mark.parametrize(
    ("damage", "kind", "file", "position"), DAMAGES, ids=[row[0].__name__ for row in DAMAGES]
)
def test_damage_is_found_and_repaired(
    root: Path, damage: Damage, kind: Kind, file: str, position: int
) -> None:
    damage(root)
    hurt = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    found = check(root)
    assert any(
        problem.kind is kind
        and problem.file.startswith(file)
        and position in {problem.position, -1}
        for problem in found.problems
    ), found.problems
    planned = mend(root, dry_run=True)
    assert planned.actions
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == hurt
    done = mend(root)
    assert len(done.actions) == len(planned.actions)
    assert done.after is not None
    assert done.after.problems == []
    assert check(root).problems == []
    assert bodies(root) == expected_bodies()


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (zero_a_unit, QUEUE_0),
        (shorten_a_queue_file, QUEUE_0),
        (add_a_stranger_to_the_queues, "consumequeue/gone/3/notes"),
        (add_a_stranger_to_the_log, "commitlog/notes"),
        (flip_meta, "meta"),
        (flip_the_checkpoint, "checkpoint.curlew"),
    ],
)
def test_what_is_replaced_is_kept(root: Path, damage: Damage, name: str) -> None:
    damage(root)
    hurt = (root / name).read_bytes()
    mend(root)
    (kept,) = (root / "lost+found").glob("repair-*")
    assert (kept / name).read_bytes() == hurt


def test_an_index_that_is_replaced_is_kept(root: Path) -> None:
    flip_an_index_entry(root)
    hurt = index_path(root)
    data = hurt.read_bytes()
    mend(root)
    (kept,) = (root / "lost+found").glob("repair-*")
    assert (kept / "index" / hurt.name).read_bytes() == data


def test_the_torn_tail_is_kept(root: Path) -> None:
    end = log_end(root)
    tear_a_tail(root)
    mend(root)
    kept = (root / "lost+found" / f"commitlog-{end:020d}").read_bytes()
    assert len(kept) >= 40


def test_an_unreadable_record_is_named_and_its_offset_stays_taken(root: Path) -> None:
    data = (root / SEGMENT_0).read_bytes()
    size = int.from_bytes(data[:4])
    patch(root, SEGMENT_0, size + 90, b"\xff")
    found = check(root)
    what = "unreadable record: checksum"
    problem = Problem(Kind.RECORD, SEGMENT_0, size, what, "orders", 1, 0, 1)
    assert found.problems == [problem]
    assert mend(root).actions == []
    flip_the_checkpoint(root)
    zero_a_unit(root)
    delete_the_index(root)
    done = mend(root)
    assert done.after is not None
    assert {p.kind for p in done.after.problems} == {Kind.RECORD}
    opened = open_store(OsFiles(root), SMALL)
    wanted = expected_bodies()
    assert opened.bodies("orders", 0) == wanted[::2]
    assert opened.bodies("orders", 1)[-29:] == wanted[3::2]
    assert opened.send(b"next", queue_id=0).first_queue_offset == MESSAGES // 2
    opened.store.close()


def test_the_last_record_damaged_keeps_its_offset_through_a_repair(root: Path) -> None:
    last = 0
    for path in sorted((root / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while int.from_bytes(data[at + 4 : at + 8]) == 0xDAA320A7:
            last = int(path.name) + at
            at += int.from_bytes(data[at : at + 4])
    base = last - last % 4096
    patch(root, f"commitlog/{base:020d}", last - base + 92, b"\xff")
    zero_a_unit(root)
    (problem,) = check(root).of_kind(Kind.RECORD)
    assert (problem.topic, problem.queue_id, problem.queue_offset) == ("orders", 1, 29)
    done = mend(root)
    assert done.after is not None
    assert done.after.problems == [problem]
    opened = open_store(OsFiles(root), SMALL)
    assert opened.bodies("orders", 0) == expected_bodies()[::2]
    assert opened.bodies("orders", 1)[:29] == expected_bodies()[1:-1:2]
    assert opened.send(b"next", queue_id=1).first_queue_offset == 30
    opened.store.close()


def test_damage_without_a_unit_is_named_by_its_own_head(root: Path) -> None:
    patch(root, SEGMENT_0, 92, b"\xff")
    delete_all_queues(root)
    lose_checkpoints(root)
    (problem,) = check(root).of_kind(Kind.RECORD)
    assert (problem.file, problem.position) == (SEGMENT_0, 0)
    assert (problem.topic, problem.queue_id, problem.queue_offset) == ("orders", 0, 0)
    assert problem.what.endswith("checksum; by its own head")


def test_a_missing_segment_is_told_by_the_messages_that_were_in_it(root: Path) -> None:
    data = (root / f"commitlog/{4096:020d}").read_bytes()
    first = decode_fields(data[: int.from_bytes(data[:4])])
    (root / f"commitlog/{4096:020d}").unlink()
    found = check(root)
    lost = [(p.queue_id, p.queue_offset) for p in found.of_kind(Kind.RECORD)]
    assert (first.queue_id, first.queue_offset) in lost
    assert len(lost) == MESSAGES - found.records
    (missing,) = found.of_kind(Kind.SEGMENT)
    assert (missing.file, missing.what) == (f"commitlog/{4096:020d}", "is missing")
    done = mend(root)
    assert any("put an empty segment in the place of" in action for action in done.actions)
    assert done.after is not None
    assert done.after.of_kind(Kind.SEGMENT) == []
    assert [body for body in bodies(root) if body != b"GAP"] == [
        body
        for number, body in enumerate(expected_bodies())
        if (number % 2, number // 2) not in lost
    ]


def test_a_missing_last_segment_is_refused_until_it_is_repaired(root: Path) -> None:
    last = max(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()))
    for path in (root / "commitlog").iterdir():
        if path >= last:
            path.unlink()
    with pytest.raises(StoreUnusable, match="curlew store repair"):
        open_store(OsFiles(root), SMALL)
    (missing,) = check(root).of_kind(Kind.SEGMENT)
    assert missing.file == f"commitlog/{last.name}"
    mend(root)
    opened = open_store(OsFiles(root), SMALL)
    assert opened.bodies("orders", 0)[-1] == b"GAP"
    assert opened.store.bounds("orders", 0) == (0, MESSAGES // 2)
    opened.store.close()


def test_a_missing_first_segment_is_told_after_a_clean_stop(root: Path) -> None:
    (root / SEGMENT_0).unlink()
    found = check(root)
    (problem,) = found.problems
    assert (problem.kind, problem.file) == (Kind.RECORD, SEGMENT_0)
    assert problem.what.startswith("is missing: the log begins at 4096; ")
    assert f" {MESSAGES - found.records} messages" in problem.what
    open_store(OsFiles(root), SMALL).store.close()
    assert check(root).problems == []


def test_a_missing_first_segment_may_be_retentions_work_after_a_kill(root: Path) -> None:
    opened = open_store(OsFiles(root), SMALL)
    opened.store.fail("killed")
    opened.store.close()
    (root / SEGMENT_0).unlink()
    found = check(root)
    assert found.problems == []
    assert any("a segment is missing" in note for note in found.notes)


STRAYS = [
    "x",
    "y/z",
    "commitlog/x",
    f"commitlog/{5:020d}",
    f"commitlog/{1 << 30:020d}/x",
    "consumequeue/y",
    "consumequeue/orders/7",
    "consumequeue/orders/x",
    "consumequeue/orders/0/x",
    f"consumequeue/orders/0/{1 << 30:020d}/x",
    "index/x",
    "index/20260101000000000/x",
    "timerlog/x",
]


@pytest.mark.parametrize("name", STRAYS)
def test_a_stray_file_is_told_of_and_moved_aside(root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(b"stray")
    problems = check(root).problems
    assert any(name.startswith(problem.file) for problem in problems)
    directory = open_directory(OsFiles(root))
    dumped = list(dump(directory, Selection()))
    directory.close()
    assert len(dumped) == MESSAGES
    done = mend(root)
    assert done.after is not None
    assert done.after.problems == []
    assert bodies(root) == expected_bodies()
    (kept,) = (root / "lost+found").iterdir()
    assert (kept / name).read_bytes() == b"stray"


def timers(root: Path, count: int) -> TimerLog:
    log = TimerLog(OsFiles(root))
    log.load(0, count)
    for offset in range(count):
        log.add(Timer(1_000_000 + offset, offset), "orders")
    log.position = count
    flushing = log.begin_flush()
    assert flushing is not None
    flushing.run()
    return log


@pytest.mark.parametrize("at", [3, 4096 * 16 + 5, 5000 * 16 + 3, -5])
def test_a_flipped_bit_of_the_timer_log_is_found(root: Path, at: int) -> None:
    """In the first block, the second one, the rows of the blocks, the trailer's checksum."""
    timers(root, 5000)
    assert check(root).problems == []
    path = root / "timerlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    (problem,) = check(root).problems
    assert (problem.kind, problem.file) == (Kind.TIMER_LOG, f"timerlog/{0:020d}")
    done = mend(root)
    assert done.after is not None
    assert done.after.problems == []
    assert list((root / "timerlog").iterdir()) == []


def test_a_timer_log_of_another_store_is_found(root: Path) -> None:
    log = timers(root, 3)
    manifest = decode_manifest((root / "timerlog" / "manifest").read_bytes())
    wrong = encode_manifest(replace(manifest, blocks=((0, 7),)))
    (root / "timerlog" / "manifest").write_bytes(wrong)
    assert log.count == 3
    (problem,) = check(root).problems
    assert problem.what == "3 delayed messages are in the runs instead of 7"
    (root / "timerlog" / "manifest").write_bytes(wrong[:-1])
    (problem,) = check(root).problems
    assert (problem.kind, problem.file) == (Kind.TIMER_LOG, "timerlog/manifest")


def test_after_a_kill_nothing_is_called_damage(root: Path) -> None:
    opened = open_store(OsFiles(root), SMALL)
    for number in range(5):
        opened.send(f"late {number}".encode())
    found = check(root)
    assert found.problems == []
    assert any("not stopped in order" in note for note in found.notes)
    assert any("5 messages" in note for note in found.notes)
    opened.store.fail("given up")
    opened.store.close()


def test_an_unusable_directory_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreUnusable, match="there is no store"):
        check(tmp_path / "empty")
    patch(root, "meta", 30, b"\xff")
    patch(root, "meta.copy", 30, b"\xff")
    with pytest.raises(StoreUnusable, match="restore one of them"):
        check(root)


def test_a_running_node_keeps_repair_out(root: Path) -> None:
    with locked(OsFiles(root)), pytest.raises(StoreLocked):
        mend(root)
