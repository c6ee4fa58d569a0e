"""The store's facade on real files: append, read, reopen, and what it does about trouble."""

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from app.domain.errors import DiskFull, StoreFailed
from app.domain.limits import STORE_TIME_LEAD_MS_MAX
from app.domain.message import Message, java_hash
from app.domain.positions import FlushMode
from app.store import OsFiles, StoreLocked, StoreUnusable, paths
from app.store.formats.files.consume_queue import UNIT
from app.store.formats.record.message_id import decode_message_id, encode_message_id
from app.store.formats.record.record import FIXED_BYTES, encode_record
from app.store.read import queue_reads as reading
from tests.support.stores.simulated_files import Fault, SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, lose_checkpoints, open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def opened(root: Path) -> Iterator[OpenStore]:
    opened = open_store(OsFiles(root))
    yield opened
    opened.store.close()


def test_syncs_are_timed_and_the_disk_is_asked(opened: OpenStore, root: Path) -> None:
    times = opened.store.sync_times
    before = sum(times.buckets)
    opened.send(b"a", flush=FlushMode.SYNC)
    assert sum(times.buckets) == before + 1
    assert times.seconds > 0
    opened.send(b"b", flush=FlushMode.ASYNC)
    assert sum(times.buckets) == before + 1, "what is not synced takes no time to sync"
    found = os.statvfs(root)
    assert 0 < opened.store.disk_usage().free <= opened.store.disk_usage().total
    assert opened.store.disk_usage().total <= found.f_blocks * found.f_frsize


def reopen(opened: OpenStore, root: Path) -> OpenStore:
    opened.store.close()
    return open_store(OsFiles(root))


@pytest.mark.parametrize("flush", list(FlushMode))
def test_what_was_sent_is_read_back_in_order(opened: OpenStore, flush: FlushMode) -> None:
    sent = [b"m%d" % index for index in range(100)]
    for body in sent:
        opened.append(body, flush=flush)
    opened.settle(100)
    assert opened.outcomes == [None] * 100
    assert opened.bodies() == sent
    assert opened.store.status().segments >= 3


def test_nothing_is_visible_before_it_is_confirmed(opened: OpenStore) -> None:
    opened.append(b"one")
    assert opened.store.bounds("orders", 0) == (0, 0)
    opened.settle()
    assert opened.store.bounds("orders", 0) == (0, 1)


def test_arrivals_are_told_after_the_message_is_readable(opened: OpenStore) -> None:
    seen: list[tuple[str, int, int]] = []
    opened.store.on_arrival = lambda topic, queue_id: seen.append(
        (topic, queue_id, opened.store.bounds(topic, queue_id).max_offset)
    )
    opened.send(b"x", queue_id=3)
    assert seen == [("orders", 3, 1)]


def test_async_behind_sync_becomes_visible_with_it(opened: OpenStore) -> None:
    opened.append(b"slow", flush=FlushMode.SYNC)
    opened.append(b"fast", flush=FlushMode.ASYNC)
    opened.settle(2)
    assert opened.bodies() == [b"slow", b"fast"]
    status = opened.store.status()
    assert status.flushed_end == status.written_end


def test_async_is_flushed_on_request(opened: OpenStore) -> None:
    opened.send(b"x", flush=FlushMode.ASYNC)
    assert opened.store.status().flushed_end == 0
    opened.store.flush(opened.outcomes.append)
    opened.settle()
    status = opened.store.status()
    assert status.flushed_end == status.written_end > 0


def test_store_time_never_runs_backwards(opened: OpenStore) -> None:
    first = opened.send(b"a").store_time_ms
    opened.clock.set_wall(first - 3_600_000)
    assert opened.send(b"b").store_time_ms == first


@pytest.mark.parametrize("queue_offset", [0, 2, 3, 1 << 40])
def test_a_record_within_a_body_is_no_message(opened: OpenStore, queue_offset: int) -> None:
    """Who knows where its next message will stand can put a record there, with another's origin."""
    first, second = (decode_message_id(opened.send(b"x").message_ids[0]) for _ in range(2))
    assert first is not None
    assert second is not None
    next_place = 2 * second.physical_offset - first.physical_offset
    at, time_ms = next_place + FIXED_BYTES, second.store_time_ms
    forged = encode_record(
        topic=b"orders",
        queue_id=0,
        queue_offset=queue_offset,
        physical_offset=at,
        body=b"forged",
        properties=b"RETRY_TOPIC\x01payments\x02",
        born_time_ms=time_ms,
        store_time_ms=time_ms,
        store_host=bytes(8),
    )
    sent = decode_message_id(opened.send(forged).message_ids[0])
    assert sent is not None
    assert sent.physical_offset == next_place
    message_id = encode_message_id(sent.store_id, time_ms, at)
    assert opened.store.read_message(message_id) is None
    assert opened.store.read_message(message_id, topic="orders") is None


def test_a_message_is_found_by_its_id(opened: OpenStore, root: Path) -> None:
    message_id = opened.send(b"body", tag="t").message_ids[0]
    found = opened.store.read_message(message_id)
    assert found is not None
    assert (found.body, found.tag, found.message_id) == (b"body", "t", message_id)
    assert opened.store.read_message(message_id[:-1] + "1") is None
    assert opened.store.read_message("01" + "0" * 32) is None
    assert opened.store.read_message("nonsense") is None


def test_a_client_may_give_the_id(opened: OpenStore) -> None:
    appended = opened.append_all([Message(b"x", message_id="my-id")])
    opened.settle()
    assert list(appended.message_ids) == ["my-id"]


def test_reading_is_bounded_and_filtered(opened: OpenStore) -> None:
    for index in range(30):
        opened.send(b"%d" % index, tag="even" if index % 2 == 0 else "odd")
    read = opened.store.read
    result = read("orders", 0, 3, max_messages=4, max_bytes=10**6)
    assert (result.queue_offsets, result.next_offset, result.scanned) == ([3, 4, 5, 6], 7, 4)
    one = read("orders", 0, 3, max_messages=4, max_bytes=1)
    assert one.queue_offsets == [3]
    odd = read(
        "orders", 0, 0, max_messages=3, max_bytes=10**6, tag_hashes=frozenset({java_hash("odd")})
    )
    assert (odd.queue_offsets, odd.next_offset) == ([1, 3, 5], 7)
    none = read("orders", 0, 0, max_messages=3, max_bytes=10**6, tag_hashes=frozenset({1}))
    assert (none.queue_offsets, none.next_offset, none.scanned) == ([], 30, 30)
    ended = read("orders", 0, 28, max_messages=9, max_bytes=10**6, end_offset=29)
    assert ended.queue_offsets == [28]
    assert read("orders", 9, 0, max_messages=1, max_bytes=1).records == []


def test_a_frame_is_stored_like_single_messages(opened: OpenStore) -> None:
    batch = [Message(b"body %d" % index, tag="t", keys=("k",)) for index in range(60)]
    appended = opened.append_frame(batch, queue_id=1)
    opened.settle()
    assert opened.outcomes == [None]
    assert opened.bodies(queue_id=1) == [message.body for message in batch]
    found = opened.store.read_message(appended.message_ids[59])
    assert found is not None
    assert found.body == b"body 59"


def test_reopening_after_a_clean_stop_reads_nothing(opened: OpenStore, root: Path) -> None:
    for index in range(50):
        opened.send(b"%d" % index, queue_id=index % 3)
    again = reopen(opened, root)
    try:
        assert again.store.status().recovery.scanned_bytes == 0
        assert again.bodies(queue_id=1) == [b"%d" % index for index in range(50) if index % 3 == 1]
        assert again.send(b"more", queue_id=1).first_queue_offset == 17
        assert again.bodies(queue_id=1)[-1] == b"more"
    finally:
        again.store.close()


def test_a_second_process_is_refused_in_one_sentence(opened: OpenStore, root: Path) -> None:
    with pytest.raises(StoreLocked, match=f"in use by another node .process {os.getpid()}."):
        open_store(OsFiles(root))


def test_a_deleted_topic_stays_empty_and_its_offsets_go_on(opened: OpenStore, root: Path) -> None:
    message_id = opened.send(b"old").message_ids[0]
    opened.store.delete_topic("orders")
    assert opened.store.bounds("orders", 0) == (1, 1)
    assert opened.store.read_message(message_id) is None
    assert opened.send(b"new").first_queue_offset == 1
    again = reopen(opened, root)
    assert again.bodies() == [b"new"]
    again.store.close()


class TestTrouble:
    """A simulated disk that fails on demand."""

    def test_a_failed_sync_is_sticky_and_reads_go_on(self) -> None:
        files = SimulatedFiles()
        opened = open_store(files)
        opened.send(b"safe")
        files.fault = Fault("sync", 1)
        opened.append(b"lost")
        opened.settle(2)
        error = opened.outcomes[-1]
        assert isinstance(error, StoreFailed)
        assert error.outcome == "unknown"
        files.fault = None
        with pytest.raises(StoreFailed) as caught:
            opened.append(b"later")
        assert caught.value.outcome == "not_stored"
        assert opened.bodies() == [b"safe"]
        assert opened.store.status().failed is not None
        opened.store.close()

    def test_what_waits_behind_a_failed_write_is_not_stored(self) -> None:
        files = SimulatedFiles()
        opened = open_store(files)
        opened.send(b"safe")
        files.fault = Fault("write", 1)
        opened.append(b"a", flush=FlushMode.ASYNC)
        opened.settle(2)
        assert isinstance(opened.outcomes[1], StoreFailed)
        opened.store.close()

    def test_a_full_disk_refuses_and_recovers_by_itself(self) -> None:
        files = SimulatedFiles()
        opened = open_store(files)
        opened.send(b"first")
        files.fault = Fault("allocate", 1, errno.ENOSPC, lasting=True)
        stored = [b"first"]
        while True:
            opened.append(bytes(900))
            opened.settle(len(opened.outcomes) + 1)
            if opened.outcomes[-1] is not None:
                break
            stored.append(bytes(900))
        error = opened.outcomes[-1]
        assert isinstance(error, DiskFull)
        assert error.outcome == "not_stored"
        assert opened.store.status().refusal == error.detail
        assert opened.bodies() == stored
        files.fault = None
        offset = opened.send(b"after").first_queue_offset
        assert offset == len(stored)
        assert opened.bodies() == [*stored, b"after"]
        assert opened.store.status().failed is None
        assert opened.store.status().refusal is None
        opened.store.close()

    def test_everything_that_waits_for_a_full_disk_is_refused(self) -> None:
        files = SimulatedFiles()
        opened = open_store(files)
        opened.send(b"first")
        files.fault = Fault("allocate", 1, errno.ENOSPC, lasting=True)
        for _ in range(40):
            opened.append(bytes(900))
        opened.settle(41)
        assert all(isinstance(outcome, DiskFull) for outcome in opened.outcomes[1:])
        files.fault = None
        assert opened.send(b"after").first_queue_offset == 1
        assert opened.bodies() == [b"first", b"after"]
        opened.store.close()


class TestDamage:
    """Files changed behind the store's back."""

    @pytest.fixture(autouse=True, params=[1, 1_000], ids="many from {}".format)
    def _way(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "VECTOR_RECORDS_MIN", request.param)

    def segment(self, root: Path, number: int = 0) -> Path:
        return sorted((root / "commitlog").iterdir())[number]

    def flip(self, path: Path, offset: int) -> None:
        data = bytearray(path.read_bytes())
        data[offset] ^= 0x40
        path.write_bytes(data)

    def test_a_damaged_record_is_a_gap_and_nothing_else_is_lost(
        self, opened: OpenStore, root: Path
    ) -> None:
        for index in range(20):
            opened.send(b"message %d" % index)
        self.flip(self.segment(root), 300)
        bodies = opened.bodies()
        assert bodies.count(b"GAP") == 1
        assert [b for b in bodies if b != b"GAP"] == [
            b"message %d" % i for i in range(20) if bodies[i] != b"GAP"
        ]

    @pytest.mark.parametrize("unit", [bytes(20), UNIT.pack(0, 95, 0)], ids=["zero", "short"])
    def test_a_wrong_unit_among_many_is_mended_or_a_gap(
        self, opened: OpenStore, root: Path, unit: bytes
    ) -> None:
        """It came out as an `IndexError` where many records are checked at once."""
        topic = "t" * 127
        sent = [b"message %d" % index for index in range(14)]
        for body in sent:
            opened.send(body, topic=topic)
        opened.store.begin_checkpoint().run()
        (path,) = (root / "consumequeue" / topic / "0").iterdir()
        data = bytearray(path.read_bytes())
        data[100:120] = unit
        path.write_bytes(data)
        result = opened.store.read(
            topic, 0, 0, max_messages=100, max_bytes=1 << 20, wait_for_disk=True
        )
        found = [opened.store.decode(record).body for record in result.records]
        assert found == sent or (found == sent[:5] + sent[6:] and len(result.gaps) == 1)

    @pytest.mark.parametrize("size", [0, 1, 4095])
    def test_a_segment_that_was_being_made_is_finished_when_it_is_needed(
        self, opened: OpenStore, root: Path, size: int
    ) -> None:
        """A kill between the open and the fallocate leaves such a file."""
        opened.send(b"first")
        opened.store.fail("killed")
        opened.store.close()
        with (root / "commitlog" / f"{4096:020d}").open("wb") as file:
            file.truncate(size)
        again = open_store(OsFiles(root))
        assert again.bodies() == [b"first"]
        while again.store.status().written_end < 5000:
            again.send(bytes(500))
        assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {4096}
        again.store.close()

    def test_a_lost_checkpoint_means_reading_the_log(self, opened: OpenStore, root: Path) -> None:
        sent = [b"message %d" % index for index in range(60)]
        for body in sent:
            opened.send(body)
        opened.store.close()
        lose_checkpoints(root)
        again = open_store(OsFiles(root))
        assert again.store.status().recovery.scanned_records == 60
        assert again.bodies() == sent
        again.store.close()

    @pytest.mark.parametrize("how", ["delete", "zero"])
    def test_lost_queues_are_rebuilt(self, opened: OpenStore, root: Path, how: str) -> None:
        sent = [b"message %d" % index for index in range(40)]
        for body in sent:
            opened.send(body)
        opened.store.close()
        for path in (root / "consumequeue" / "orders" / "0").iterdir():
            if how == "delete":
                path.unlink()
            else:
                path.write_bytes(bytes(path.stat().st_size))
        again = open_store(OsFiles(root))
        assert again.bodies() == sent
        assert again.send(b"next").first_queue_offset == 40
        again.store.close()

    @pytest.mark.parametrize("byte", range(12))
    def test_a_damaged_last_unit_never_frees_its_offset(
        self, opened: OpenStore, root: Path, byte: int
    ) -> None:
        sent = [b"message %d" % index for index in range(5)]
        for body in sent:
            opened.send(body)
        opened.store.close()
        (path,) = (root / "consumequeue" / "orders" / "0").iterdir()
        self.flip(path, 4 * 20 + byte)
        again = open_store(OsFiles(root))
        assert again.send(b"next").first_queue_offset == 5
        again.store.close()
        healed = open_store(OsFiles(root))
        assert healed.bodies()[-1] == b"next"
        healed.store.close()

    def test_damage_in_the_middle_is_stepped_over_at_opening(
        self, opened: OpenStore, root: Path
    ) -> None:
        sent = [b"message %02d" % index for index in range(60)]
        for body in sent:
            opened.send(body)
        opened.store.close()
        lose_checkpoints(root)
        self.flip(self.segment(root), 4)  # the magic of the very first record
        self.flip(self.segment(root, 1), 200)
        again = open_store(OsFiles(root))
        recovery = again.store.status().recovery
        assert len(recovery.damages) == 2
        assert recovery.cut_bytes == 0
        bodies = again.bodies()
        assert len(bodies) + again.store.bounds("orders", 0).min_offset == 60
        assert sum(body != b"GAP" for body in bodies) == 58
        again.store.close()

    def test_a_torn_tail_is_cut_and_kept(self, opened: OpenStore, root: Path) -> None:
        for index in range(3):
            opened.send(b"message %d" % index)
        end = opened.store.status().written_end
        opened.store.close()
        lose_checkpoints(root)
        path = self.segment(root)
        data = bytearray(path.read_bytes())
        data[end : end + 9] = b"half a re"
        path.write_bytes(data)
        again = open_store(OsFiles(root))
        assert again.store.status().recovery.cut_bytes == 9
        assert (root / "lost+found" / f"commitlog-{end:020d}").read_bytes() == b"half a re"
        assert again.bodies() == [b"message 0", b"message 1", b"message 2"]
        again.send(b"message 3")
        again.store.close()

    def test_missing_segments_are_refused(self, opened: OpenStore, root: Path) -> None:
        for _ in range(30):
            opened.send(bytes(500))
        opened.store.close()
        for path in sorted((root / "commitlog").iterdir())[2:]:
            path.unlink()
        with pytest.raises(StoreUnusable, match="segments are missing"):
            open_store(OsFiles(root))

    @pytest.mark.parametrize("name", ["meta", "meta.copy"])
    def test_a_damaged_meta_file_is_mended_from_its_copy(
        self, opened: OpenStore, root: Path, name: str
    ) -> None:
        opened.send(b"kept")
        opened.store.close()
        good = (root / name).read_bytes()
        (root / name).write_bytes(good[:-1])
        again = open_store(OsFiles(root))
        assert again.bodies() == [b"kept"]
        assert (root / name).read_bytes() == good
        again.store.close()

    @pytest.mark.parametrize("data", [b"", b"CRLM", bytes(100)])
    def test_a_damaged_meta_file_is_refused(
        self, opened: OpenStore, root: Path, data: bytes
    ) -> None:
        opened.store.close()
        for name in ("meta", "meta.copy"):
            (root / name).write_bytes(data)
        with pytest.raises(StoreUnusable, match="meta file"):
            open_store(OsFiles(root))
        for name in ("meta", "meta.copy"):
            (root / name).unlink()
        (root / "commitlog" / "00000000000000000000").touch()
        with pytest.raises(StoreUnusable, match="no meta file"):
            open_store(OsFiles(root))


def open_segments(root: Path) -> int:
    """Descriptors of this process that are segments of a store."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += link.readlink().is_relative_to(root / "commitlog")
        except FileNotFoundError:
            continue
    return found


def test_the_number_of_open_segments_is_bounded(tmp_path: Path) -> None:
    with mock.patch("app.store.log.commit_log.OPEN_SEGMENTS_MAX", 4):
        opened = open_store(OsFiles(tmp_path))
        for number in range(60):
            opened.send(b"%02d" % number + bytes(1500))
        assert len(list((tmp_path / "commitlog").iterdir())) > 25
        for _ in range(2):
            assert [body[:2] for body in opened.bodies()] == [b"%02d" % n for n in range(60)]
            assert 0 < open_segments(tmp_path) <= 4 + 2
            opened.store.close()
            assert open_segments(tmp_path) == 0
            opened = open_store(OsFiles(tmp_path))
        opened.store.close()


def test_a_lower_bound_on_sizes_hides_no_stored_message(tmp_path: Path) -> None:
    opened = open_store(OsFiles(tmp_path))
    appended = opened.append_all([Message(bytes(1_500), keys=("k",))])
    opened.settle(1)
    opened.store.close()
    again = open_store(OsFiles(tmp_path), replace(SMALL, record_bytes_max=1_000))
    found = again.store.read_message(appended.message_ids[0], wait_for_disk=True)
    assert found is not None
    assert found.body == bytes(1_500)
    assert len(again.store.find_by_key("orders", "k", wait_for_disk=True)) == 1
    again.store.close()


def test_a_topic_is_deleted_though_the_disk_has_no_room() -> None:
    files = SimulatedFiles()
    opened = open_store(files)
    opened.send(b"x")
    files.fault = Fault("open", 1, errno.ENOSPC, lasting=True)
    opened.store.delete_topic("orders")
    assert opened.store.bounds("orders", 0) == (1, 1)
    assert opened.store.status().failed is None
    files.fault = None
    opened.store.fail("broken")
    with pytest.raises(StoreFailed):
        opened.store.delete_topic("orders")
    assert opened.store.bounds("orders", 0) == (1, 1)
    opened.store.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_the_offset_of_a_damaged_last_record_is_not_used_again(is_clean: bool) -> None:
    files = SimulatedFiles()
    opened = open_store(files)
    for number in range(5):
        opened.send(b"%d" % number)
    opened.store.begin_checkpoint().run()
    last = opened.store.read("orders", 0, 4, max_messages=1, max_bytes=1).records[0]
    at = opened.store.decode(last).physical_offset
    if not is_clean:
        files = files.kill()
        opened.store.fail("killed")
    opened.store.close()
    for name in files.list("consumequeue/orders/0"):
        files.remove(f"consumequeue/orders/0/{name}")
    files.open(paths.segment(0)).pwritev([b"\xff"], at + 60)
    again = open_store(files)
    assert again.bodies() == [b"0", b"1", b"2", b"3", b"GAP"]
    assert again.send(b"new").first_queue_offset == 5
    again.store.close()


def test_a_clock_that_was_set_back_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_store(OsFiles(tmp_path))
    before = opened.clock.now_ms()
    opened.clock.set_wall(before + 3_600_000)
    assert opened.send(b"from the future").store_time_ms == before + 3_600_000
    opened.clock.set_wall(before + 3_600_000 - STORE_TIME_LEAD_MS_MAX)
    assert opened.store.status().clock_lead_ms == 0
    opened.clock.set_wall(before)
    assert opened.store.status().clock_lead_ms == 3_600_000
    for _ in range(2):
        assert opened.send(b"now").store_time_ms == before + 3_600_000
    assert caplog.text.count("the clock is 3600 s behind the newest message") == 1
    opened.clock.set_wall(before + 3_600_001)
    assert opened.store.status().clock_lead_ms == 0
    opened.store.close()
