"""Retention: what is decided, what is deleted, and that nobody reads anything wrong meanwhile."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import DiskFull
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import OsFiles, RetentionPolicy, StepPart
from app.store.formats.files.consume_queue import UNIT
from app.store.fs.file_cache import FileCache
from app.store.fs.files import DiskUsage
from app.store.lifecycle import retention_run
from app.store.lifecycle.retention_policy import LogState, decide
from app.store.queues.consume_queue import ConsumeQueue, Unit
from app.store.read.lookups import first_kept
from app.store.read.queue_reads import GAP_EXPIRED, Wanted, read_queue
from app.store.read.record_checks import Source
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store, read_at

HOUR = 3_600_000
KEEP_ALL = RetentionPolicy(default_ms=1000 * HOUR)


def state(
    *,
    segments: int = 10,
    needed: int = 0,
    total: int = 10_000,
    free: int = 9_000,
    pinned: int | None = None,
) -> LogState:
    """Segments of 100 bytes; the last of them is in use, half full."""
    bases = range(0, segments * 100, 100)
    return LogState(bases, 100, segments * 100 - 50, needed, total, free, pinned)


@pytest.mark.parametrize(
    ("policy", "given", "deleted"),
    [
        (RetentionPolicy(), state(), 0),
        (RetentionPolicy(), state(needed=299), 2),
        (RetentionPolicy(), state(needed=300), 3),
        (RetentionPolicy(), state(needed=950), 9),
        (RetentionPolicy(), state(segments=1, needed=50), 0),
        (RetentionPolicy(), state(segments=30, needed=2_950), 10),
        (RetentionPolicy(log_bytes_max=400), state(), 6),
        (RetentionPolicy(log_bytes_max=0), state(), 9),
        (RetentionPolicy(log_bytes_max=5_000), state(), 0),
        (RetentionPolicy(), state(free=1_600), 0),
        (RetentionPolicy(), state(free=1_450), 1),
        (RetentionPolicy(), state(free=1_300), 3),
        (RetentionPolicy(), state(free=0), 9),
    ],
)
def test_segments_go_by_age_size_and_disk(
    policy: RetentionPolicy, given: LogState, deleted: int
) -> None:
    assert decide(policy, given).delete == deleted


@pytest.mark.parametrize(
    ("free", "warn", "refuse"),
    [(2_501, False, False), (2_500, True, False), (150, True, False), (50, True, True)],
)
def test_warning_and_refusal_follow_the_disk(free: int, warn: bool, refuse: bool) -> None:
    verdict = decide(RetentionPolicy(), state(free=free))
    assert (verdict.warn, verdict.refuse_writes) == (warn, refuse)


@pytest.mark.parametrize(
    ("policy", "given", "deleted", "held_back"),
    [
        (RetentionPolicy(), state(needed=950, pinned=950), 9, 0),
        (RetentionPolicy(), state(needed=950, pinned=300), 3, 6),
        (RetentionPolicy(), state(needed=950, pinned=299), 2, 7),
        (RetentionPolicy(), state(needed=200, pinned=300), 2, 0),
        (RetentionPolicy(log_bytes_max=400), state(pinned=250), 2, 4),
        (RetentionPolicy(log_bytes_max=400), state(pinned=0), 0, 6),
        (RetentionPolicy(), state(free=0, pinned=100), 1, 8),
    ],
)
def test_what_is_pinned_stays(
    policy: RetentionPolicy, given: LogState, deleted: int, held_back: int
) -> None:
    verdict = decide(policy, given)
    assert (verdict.delete, verdict.held_back) == (deleted, held_back)


def test_a_disk_that_a_pin_keeps_full_refuses() -> None:
    full = state(free=100, total=10_000, segments=30)
    assert not decide(RetentionPolicy(), full).refuse_writes
    assert decide(RetentionPolicy(), full._replace(pinned=0)).refuse_writes


def test_ratios_must_rise() -> None:
    with pytest.raises(ValueError, match="must rise"):
        RetentionPolicy(warn_ratio=0.9, delete_ratio=0.8)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    opened = open_store(OsFiles(tmp_path))
    yield opened
    opened.store.close()


def fill(opened: OpenStore, count: int, topic: str = "orders") -> None:
    """Messages an hour apart, about four in a segment."""
    for number in range(count):
        opened.append(b"%03d" % number + bytes(800), topic=topic)
        opened.settle(len(opened.outcomes) + 1)
        opened.clock.advance(ms=HOUR)


def names(root: Path, directory: str) -> list[str]:
    return sorted(path.name for path in (root / directory).iterdir())


def test_old_messages_and_their_files_go(opened: OpenStore, tmp_path: Path) -> None:
    fill(opened, 40)
    opened.store.begin_checkpoint().run()
    report = opened.store.apply_retention(RetentionPolicy(default_ms=6 * HOUR))
    bounds = opened.store.bounds("orders", 0)
    assert bounds == (34, 40)
    assert report.expired_messages == 34
    assert len(report.deleted_segments) == 8
    assert report.deleted_queue_files == [f"consumequeue/orders/0/{n:020d}" for n in (0, 320)]
    assert names(tmp_path, "consumequeue/orders/0") == [f"{640:020d}"]
    assert opened.store.status().start == 8 * 4096
    assert [body[:3] for body in opened.bodies()] == [b"%03d" % n for n in range(34, 40)]
    opened.send(b"next")
    opened.store.close()
    again = open_store(OsFiles(tmp_path))
    assert again.store.bounds("orders", 0) == (34, 41)
    assert again.store.status().recovery.scanned_bytes == 0
    again.store.close()


def test_the_segment_in_use_stays(opened: OpenStore, tmp_path: Path) -> None:
    fill(opened, 10)
    opened.clock.advance(ms=1000 * HOUR)
    opened.store.apply_retention(RetentionPolicy(default_ms=HOUR))
    assert opened.store.bounds("orders", 0) == (10, 10)
    assert opened.send(b"next").first_queue_offset == 10
    assert opened.bodies() == [b"next"]


def test_each_topic_keeps_its_own_time(opened: OpenStore) -> None:
    for _ in range(10):
        fill(opened, 1, "short")
        fill(opened, 1, "long")
    policy = RetentionPolicy(by_topic_ms={"short": 5 * HOUR, "long": 100 * HOUR})
    report = opened.store.apply_retention(policy)
    assert opened.store.bounds("short", 0) == (8, 10)
    assert opened.store.bounds("long", 0) == (0, 10)
    assert report.deleted_segments == []  # the bytes stay: the other topic stands between
    opened.store.apply_retention(RetentionPolicy(default_ms=5 * HOUR))
    assert opened.store.bounds("long", 0).min_offset == 7
    assert opened.store.status().start > 0


def test_size_goes_before_age(opened: OpenStore) -> None:
    fill(opened, 40)
    opened.store.apply_retention(RetentionPolicy(default_ms=1000 * HOUR, log_bytes_max=20_000))
    assert opened.store.status().start == 6 * 4096
    first = opened.store.bounds("orders", 0).min_offset
    assert [body[:3] for body in opened.bodies()] == [b"%03d" % n for n in range(first, 40)]


def test_a_reader_in_the_middle_is_told(opened: OpenStore) -> None:
    fill(opened, 40)
    store = opened.store
    queue = store._queues.find("orders", 0)
    assert queue is not None
    for count in (5, 30):
        wanted = Wanted(0, count, count, 1 << 20)
        assert read_queue(store._reader.source, queue, wanted, wait_for_disk=True).gaps == []
    units = queue.unit_bytes(0, 40)
    store.apply_retention(RetentionPolicy(default_ms=6 * HOUR))
    queue._tail = (0, bytearray(units))  # as a reader sees it that had taken its units before
    for count in (5, 30):
        wanted = Wanted(0, count, count, 1 << 20)
        result = read_queue(store._reader.source, queue, wanted, wait_for_disk=True)
        assert [gap.reason for gap in result.gaps] == [GAP_EXPIRED]
    queue._tail = (40, bytearray())


def test_index_files_follow_the_log(tmp_path: Path) -> None:
    opened = open_store(OsFiles(tmp_path), replace(SMALL, index_slots=8, index_entries=6))
    for number in range(40):
        opened.append_all([Message(bytes(800), keys=(f"k{number}",))])
        opened.settle(number + 1)
        opened.clock.advance(ms=HOUR)
    opened.store.begin_checkpoint().run()
    before = names(tmp_path, "index")
    report = opened.store.apply_retention(RetentionPolicy(default_ms=6 * HOUR))
    left = names(tmp_path, "index")
    assert report.deleted_index_files == [f"index/{name}" for name in before if name not in left]
    assert 0 < len(left) < len(before)
    assert opened.store.find_by_key("orders", "k1", wait_for_disk=True) == []
    assert len(opened.store.find_by_key("orders", "k39", wait_for_disk=True)) == 1
    opened.store.close()


def test_a_background_service_keeps_what_it_needs(opened: OpenStore) -> None:
    for _ in range(20):
        fill(opened, 1, "timer")
        fill(opened, 1, "orders")
    needed = opened.store.decode(
        opened.store.read("timer", 0, 3, max_messages=1, max_bytes=1).records[0]
    ).physical_offset
    oldest: list[int | None] = [needed]
    opened.store.pins.add("delayed messages", lambda: oldest[0], {"timer"})
    opened.store.pins.add("nothing", lambda: None, {"orders"})
    policy = RetentionPolicy(default_ms=6 * HOUR, log_bytes_max=8_192)
    report = opened.store.apply_retention(policy)
    assert opened.store.bounds("timer", 0) == (3, 20)
    assert [body[:3] for body in opened.bodies("timer")] == [b"000"] * 17
    assert opened.store.bounds("orders", 0) == (17, 20)
    assert opened.store.status().start == needed - needed % 4096
    assert read_at(opened.store, needed) is not None
    assert report.held_by == "delayed messages"
    assert report.held_back_segments > 0
    oldest[0] = None
    report = opened.store.apply_retention(policy)
    assert (report.held_by, report.held_back_segments) == (None, 0)
    assert read_at(opened.store, needed) is None
    assert opened.store.bounds("timer", 0).min_offset > 3


def test_what_the_broker_keeps_for_itself_goes_when_it_is_trimmed(opened: OpenStore) -> None:
    for _ in range(20):
        fill(opened, 1, "rmq_sys_progress")
        fill(opened, 1, "orders")
    policy = RetentionPolicy(default_ms=6 * HOUR, log_bytes_max=8_192)
    report = opened.store.apply_retention(policy)
    assert report.held_by == "records of rmq_sys_progress"
    assert opened.store.status().start == 0
    assert opened.store.bounds("rmq_sys_progress", 0) == (0, 20)
    assert opened.store.bounds("orders", 0).min_offset == 17
    opened.store.trim("rmq_sys_progress", 0, 19)
    report = opened.store.apply_retention(policy)
    assert (report.held_by, report.held_back_segments) == (None, 0)
    assert opened.store.bounds("rmq_sys_progress", 0) == (19, 20)
    assert opened.store.status().start > 0


def test_a_nearly_full_disk_refuses_and_resumes_by_itself() -> None:
    files = SimulatedFiles()
    opened = open_store(files)
    opened.send(b"first")
    files.usage = DiskUsage(1_000_000, 50_000)
    report = opened.store.apply_retention(KEEP_ALL)
    assert report.refuse_writes
    with pytest.raises(DiskFull) as caught:
        opened.append(b"refused")
    assert caught.value.outcome == "not_stored"
    own = StepPart("rmq_sys_progress", 0, [Message(b"acks")])
    opened.store.append_step([own], FlushMode.SYNC, opened.outcomes.append)
    opened.settle(2)
    assert opened.outcomes[-1] is None, "consuming goes on"
    step = [StepPart("orders", 0, [Message(b"refused")])]
    with pytest.raises(DiskFull):
        opened.store.append_step(step, FlushMode.SYNC, opened.outcomes.append)
    with pytest.raises(DiskFull):
        opened.store.append_step([own, *step], FlushMode.SYNC, opened.outcomes.append, is_send=True)
    assert opened.bodies() == [b"first"]
    files.usage = DiskUsage(1_000_000, 500_000)
    assert not opened.store.apply_retention(KEEP_ALL).refuse_writes
    assert opened.send(b"second").first_queue_offset == 1
    opened.store.close()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_kill_after_retention_keeps_the_rest(checkpoint: bool) -> None:
    files = SimulatedFiles()
    opened = open_store(files)
    fill(opened, 40)
    opened.store.apply_retention(RetentionPolicy(default_ms=6 * HOUR))
    if checkpoint:
        opened.store.begin_checkpoint().run()
    files = files.kill()
    opened.store.fail("killed")
    opened.store.close()
    again = open_store(files)
    bounds = again.store.bounds("orders", 0)
    assert bounds.max_offset == 40
    assert bounds.min_offset == 34 if checkpoint else 30 < bounds.min_offset <= 34
    expected = [b"%03d" % n for n in range(bounds.min_offset, 40)]
    assert [body[:3] for body in again.bodies()] == expected
    again.store.close()


def test_a_topic_deleted_meanwhile_stays_deleted(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(opened, 40)
    real = ConsumeQueue.first_at_or_behind

    def late(queue: ConsumeQueue, physical_offset: int) -> int:
        found = real(queue, physical_offset)
        opened.store.delete_topic("orders")  # by the event loop, while a thread reads
        return found

    monkeypatch.setattr(ConsumeQueue, "first_at_or_behind", late)
    report = opened.store.apply_retention(replace(KEEP_ALL, log_bytes_max=20_000))
    assert opened.store.bounds("orders", 0) == (40, 40)
    assert (report.expired_messages, len(report.deleted_segments)) == (0, 6)


def test_a_segment_that_was_never_synced_may_go(opened: OpenStore) -> None:
    for _ in range(20):
        opened.send(bytes(800), flush=FlushMode.ASYNC)
    report = opened.store.apply_retention(replace(KEEP_ALL, log_bytes_max=4_096))
    assert len(report.deleted_segments) == 4
    opened.store.flush(opened.outcomes.append)
    opened.settle()
    assert opened.outcomes[-1] is None
    assert opened.store.status().flushed_end == opened.store.status().written_end


def test_a_queue_made_meanwhile_is_no_trouble(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(opened, 40)
    real = ConsumeQueue.drop_below_minimum

    def late(queue: ConsumeQueue) -> list[str]:
        opened.send(b"x", topic="new")  # by the event loop, while a thread removes files
        return real(queue)

    monkeypatch.setattr(ConsumeQueue, "drop_below_minimum", late)
    opened.store.begin_checkpoint().run()
    assert opened.store.apply_retention(RetentionPolicy(default_ms=6 * HOUR)).deleted_queue_files


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 42))
def test_the_first_message_behind_a_place_is_found_between_holes(
    written: list[bool], place: int
) -> None:
    """Damaged records leave units of zeros; bisection must not jump over what is before them."""
    queue = ConsumeQueue(FileCache(SimulatedFiles()), "orders", 0, 16)
    queue.append(b"".join(UNIT.pack(n, 1, 0) if w else bytes(20) for n, w in enumerate(written)))
    behind = [n for n, is_written in enumerate(written) if is_written and n >= place]
    assert queue.first_at_or_behind(place) == (behind[0] if behind else len(written))


def test_a_unit_that_is_put_right_while_it_is_read_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What retention's thread remembers decides which segments go."""
    queue = ConsumeQueue(FileCache(SimulatedFiles()), "orders", 0, 16)
    queue.append(UNIT.pack(100, 1, 0))
    real = ConsumeQueue.units

    def units(queue: ConsumeQueue, first: int, end: int, **more: bool) -> list[Unit]:
        found = real(queue, first, end, **more)
        queue.mend(0, UNIT.pack(40, 1, 0))
        return found

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ConsumeQueue, "units", units)
        assert queue.first_position() == 100
    assert queue.first_position() == 40
    queue.mend(0, UNIT.pack(20, 1, 0))
    assert queue.first_position() == 20


def test_a_quiet_queue_is_not_read_by_each_pass(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 topics each pass read two units and a record, and listed their directories."""
    fill(opened, 40)
    opened.store.begin_checkpoint().run()
    policy = RetentionPolicy(default_ms=41 * HOUR)
    opened.store.apply_retention(policy)
    reads: list[int] = []
    lists: list[str] = []
    real_read, real_list = ConsumeQueue.unit_bytes, OsFiles.list

    def read(queue: ConsumeQueue, first: int, end: int, **more: bool) -> bytes:
        reads.append(first)
        return real_read(queue, first, end, **more)

    def listed(files: OsFiles, directory: str) -> list[str]:
        lists.append(directory)
        return real_list(files, directory)

    monkeypatch.setattr(ConsumeQueue, "unit_bytes", read)
    monkeypatch.setattr(OsFiles, "list", listed)
    for _ in range(3):
        opened.clock.advance(s=60)
        assert opened.store.apply_retention(policy).expired_messages == 0
    assert reads == []
    assert not [directory for directory in lists if "orders" in directory]
    opened.clock.advance(ms=10 * HOUR)
    report = opened.store.apply_retention(policy)
    assert (report.expired_messages, len(report.deleted_queue_files)) == (10, 0)
    assert reads
    opened.clock.advance(ms=25 * HOUR)
    report = opened.store.apply_retention(policy)
    assert (report.expired_messages, len(report.deleted_queue_files)) == (25, 2)
    assert len(report.deleted_segments) > 3


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 5)),
            st.tuples(st.just("pass"), st.integers(0, 30)),
            st.tuples(st.just("checkpoint"), st.just(0)),
        ),
        max_size=30,
    )
)
def test_what_is_kept_of_the_oldest_message_changes_no_pass(steps: list[tuple[str, int]]) -> None:
    opened = open_store(SimulatedFiles())
    policy = RetentionPolicy(default_ms=20 * HOUR)
    real = first_kept

    def checked(source: Source, queue: ConsumeQueue, oldest_ms: int, newest_ms: int) -> int:
        known, queue.oldest = queue.oldest, None
        wanted = real(source, queue, oldest_ms, newest_ms)
        queue.oldest = known
        assert real(source, queue, oldest_ms, newest_ms) == wanted
        return wanted

    with mock.patch.object(retention_run, "first_kept", checked):
        for step, number in steps:
            if step == "send":
                fill(opened, number)
            elif step == "pass":
                opened.clock.advance(ms=number * HOUR)
                opened.store.apply_retention(policy)
            else:
                opened.store.begin_checkpoint().run()
    opened.store.close()
