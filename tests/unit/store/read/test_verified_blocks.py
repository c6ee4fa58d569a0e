"""Blocks that are known to be good: what spares the checks, and that nothing wrong is served by it.

Damage is done to the files of an open store, after its blocks were noted. The controls at the end
believe a block without looking, and must serve other bytes than were sent.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.message import Message
from app.store import paths
from app.store.formats.files.consume_queue import UNIT_BYTES
from app.store.formats.record.checksum import crc32
from app.store.formats.record.record import is_plain_record_of
from app.store.formats.record.record_block import intact
from app.store.lifecycle.retention_policy import RetentionPolicy
from app.store.read import frame_checksums as frame_sums
from app.store.read import queue_reads as reading
from app.store.read import record_checks as checking
from app.store.read import verified_blocks as known_blocks
from app.store.read.verified_blocks import (
    BLOCK_RECORDS,
    UNKNOWN,
    UNREADABLE,
    VerifiedBlocks,
    block_sums,
    whole_blocks,
)
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store

CONFIG = replace(SMALL, segment_bytes=16_384, queue_file_units=1_000)
COUNT = 40
"""Two whole blocks, which are a large one here, and half of one."""
SEGMENT = paths.segment(0)
QUEUE = f"{paths.queue_directory('orders', 0)}/{paths.file_name(0)}"


@pytest.fixture(autouse=True, params=[1, 1_000], ids="many from {}".format)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "VECTOR_RECORDS_MIN", request.param)
    monkeypatch.setattr(known_blocks, "LARGE_BLOCK_RECORDS", 2 * BLOCK_RECORDS)


def body_of(number: int, queue_id: int = 0) -> bytes:
    return b"message %d of queue %d" % (number, queue_id)


def send_frame(opened: OpenStore, bodies: Sequence[bytes], queue_id: int = 0) -> None:
    opened.append_frame([Message(body) for body in bodies], queue_id=queue_id)
    opened.settle()


def send_one_by_one(opened: OpenStore, bodies: Sequence[bytes], queue_id: int = 0) -> None:
    for body in bodies:
        opened.send(body, queue_id=queue_id)


def read_all(opened: OpenStore, queue_id: int = 0) -> list[bytes]:
    """Every body of a queue, as many at once as can be; GAP for what is damaged."""
    store = opened.store
    offset, end = store.bounds("orders", queue_id)
    bodies = dict.fromkeys(range(offset, end), b"")
    while offset < end:
        read = store.read(
            *("orders", queue_id, offset),
            max_messages=1_000,
            max_bytes=1 << 20,
            wait_for_disk=True,
        )
        for number, record in zip(read.queue_offsets, read.records, strict=True):
            try:
                bodies[number] = store.decode(record).body
            except (ValueError, struct.error):
                bodies[number] = b"a wrong record is served"
        for gap in read.gaps:
            bodies.update(dict.fromkeys(range(gap.from_offset, gap.to_offset), b"GAP"))
        assert read.next_offset > offset
        offset = read.next_offset
    assert b"" not in bodies.values()
    return list(bodies.values())


@pytest.fixture(params=[send_frame, send_one_by_one], ids=["sent as a frame", "learnt by reading"])
def opened(request: pytest.FixtureRequest) -> Iterator[OpenStore]:
    """Forty messages in queue 0, their units in a file, their whole blocks known."""
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    request.param(opened, [body_of(number) for number in range(COUNT)])
    opened.store.begin_checkpoint().run()
    if request.param is send_one_by_one:
        read_all(opened)
    yield opened
    opened.store.close()


def content(opened: OpenStore, path: str) -> bytearray:
    files = opened.files
    assert isinstance(files, SimulatedFiles)
    return files.names[path].seen


class Looks:
    """Counts the records that are checked by themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def look_at_one(*place: object) -> bool:
            self.count += 1
            return is_plain_record_of(*place)  # type: ignore[arg-type]

        def look_at_many(data: memoryview, starts: Sequence[int], *rest: object) -> object:
            self.count += len(starts)
            return intact(data, starts, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(checking, "is_plain_record_of", look_at_one)
        monkeypatch.setattr(checking, "intact", look_at_many)


def test_a_known_block_is_not_looked_at_record_by_record(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch)
    assert read_all(opened) == [body_of(number) for number in range(COUNT)]
    assert looks.count == COUNT % BLOCK_RECORDS
    looks.count = 0
    read = opened.store.read("orders", 0, 7, max_messages=30, max_bytes=1 << 20)
    assert [opened.store.decode(record).queue_offset for record in read.records] == [*range(7, 37)]
    assert looks.count == 30 - BLOCK_RECORDS
    known = opened.store._reader.source.known.small
    known.note(1, 0, [0, 0])
    opened.store._reader.source.known.large.note(1, 0, [0])
    looks.count = 0
    read_all(opened)
    assert looks.count == COUNT, "what is not as noted must be looked at"


def wrong_bodies(opened: OpenStore, *, zeroed: bool = False) -> Iterator[str]:
    """Damages of the log and the units, one after the other; which of them is served."""
    sent = [body_of(number) for number in range(COUNT)]
    log_end = opened.store.status().written_end
    for path, end, step in ((QUEUE, COUNT * UNIT_BYTES, 1), (SEGMENT, log_end, 7)):
        data = content(opened, path)
        for at in range(0, end, step):
            before = data[at]
            data[at] = 0 if zeroed else before ^ 1 << at // step % 8
            if data[at] == before:
                continue
            got = read_all(opened)
            gaps = got.count(b"GAP")
            if any(body not in (b"GAP", sent[n]) for n, body in enumerate(got)):
                yield f"{path}: byte {at} is served"
            if gaps != (path == SEGMENT):
                yield f"{path}: byte {at} costs {gaps} messages"
            data[at] = before
    assert read_all(opened) == sent


@pytest.mark.parametrize("zeroed", [False, True], ids=["flipped", "zeroed"])
def test_what_changes_after_a_block_was_noted_is_found_at_the_next_read(
    opened: OpenStore, zeroed: bool
) -> None:
    assert list(wrong_bodies(opened, zeroed=zeroed)) == []


def test_swapped_records_and_blocks_are_found(opened: OpenStore) -> None:
    sent = [body_of(number) for number in range(COUNT)]
    data = content(opened, SEGMENT)
    size = opened.store.status().written_end // COUNT
    for length in (64, size, 512):
        for start in range(0, 20 * size - length, 97):
            other = start + 2 * length
            mine, theirs = data[start : start + length], data[other : other + length]
            if mine == theirs:
                continue
            data[start : start + length], data[other : other + length] = theirs, mine
            got = read_all(opened)
            assert all(body in (b"GAP", sent[n]) for n, body in enumerate(got))
            assert b"GAP" in got
            data[start : start + length], data[other : other + length] = mine, theirs
    assert read_all(opened) == sent


def other_segment(count: int) -> bytes:
    """The first segment of another store, with messages of the same lengths."""
    files = SimulatedFiles()
    other = open_store(files, CONFIG, threads=False)
    send_frame(other, [body_of(number).replace(b"message", b"MESSAGE") for number in range(count)])
    return bytes(files.names[SEGMENT].seen)


def test_a_segment_that_was_made_again_does_not_meet_an_old_sum(opened: OpenStore) -> None:
    before = bytes(content(opened, SEGMENT))
    content(opened, SEGMENT)[:] = bytes(CONFIG.segment_bytes)
    assert read_all(opened) == [b"GAP"] * COUNT
    content(opened, SEGMENT)[:] = after = other_segment(COUNT)
    again = [body_of(number).replace(b"message", b"MESSAGE") for number in range(COUNT)]
    assert read_all(opened) == again
    assert read_all(opened) == again
    half = opened.store.status().written_end // 2
    content(opened, SEGMENT)[half:] = before[half:]
    got = read_all(opened)
    assert got[: COUNT // 2 - 1] == again[: COUNT // 2 - 1]
    assert got[COUNT // 2 + 1 :] == [body_of(number) for number in range(COUNT)][COUNT // 2 + 1 :]
    content(opened, SEGMENT)[:] = after
    content(opened, SEGMENT)[half] ^= 1
    assert read_all(opened).count(b"GAP") == 1


def test_the_units_of_another_queue_are_not_believed_whatever_is_known() -> None:
    """Its blocks are right by themselves."""
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for queue_id in (0, 1):
        bodies = [body_of(number, queue_id) for number in range(BLOCK_RECORDS)]
        send_frame(opened, bodies, queue_id)
    opened.store.begin_checkpoint().run()
    theirs = QUEUE.replace("/0/", "/1/")
    content(opened, QUEUE)[:] = content(opened, theirs)
    assert read_all(opened, 1) == [body_of(number, 1) for number in range(BLOCK_RECORDS)]
    assert read_all(opened, 0) == [body_of(number, 0) for number in range(BLOCK_RECORDS)]
    opened.store.close()


def test_what_was_not_stored_is_not_known() -> None:
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    bodies = [body_of(number) for number in range(BLOCK_RECORDS)]
    opened.append_frame([Message(body) for body in bodies])
    known = opened.store._reader.source.known.small
    opened.store.fail("because")
    assert opened.outcomes != [None]
    assert known.sums(1, 0, 1) == [UNKNOWN]
    opened.store.close()


def test_a_deleted_segment_is_expired_whatever_is_known() -> None:
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for _ in range(8):
        send_frame(opened, [body_of(number) for number in range(COUNT)])
    read_all(opened)
    opened.store.apply_retention(RetentionPolicy(log_bytes_max=CONFIG.segment_bytes))
    start = opened.store.bounds("orders", 0).min_offset
    assert start > COUNT
    read = opened.store.read("orders", 0, 0, max_messages=COUNT, max_bytes=1 << 20)
    assert [tuple(gap) for gap in read.gaps] == [(0, COUNT, reading.GAP_EXPIRED)]
    assert read_all(opened) == [body_of(n % COUNT) for n in range(start, 8 * COUNT)]
    opened.store.close()


def test_segments_are_crossed(opened: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(9):
        send_frame(opened, [body_of(number) for number in range(COUNT)])
    assert opened.store.status().segments > 2
    expected = [body_of(number % COUNT) for number in range(10 * COUNT)]
    assert read_all(opened) == expected
    looks = Looks(monkeypatch)
    assert read_all(opened) == expected
    assert looks.count < 5 * COUNT


def test_records_of_other_queues_lie_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the sum too: their damage costs a look, and no message of this queue."""
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for number in range(BLOCK_RECORDS):
        for queue_id in (0, 1):
            opened.send(body_of(number, queue_id), queue_id=queue_id)
    expected = [body_of(number) for number in range(BLOCK_RECORDS)]
    assert read_all(opened) == expected
    looks = Looks(monkeypatch)
    assert read_all(opened) == expected
    assert looks.count == 0
    second = opened.store.read("orders", 1, 0, max_messages=1, max_bytes=1).records[0]
    content(opened, SEGMENT)[opened.store.decode(second).physical_offset + 90] ^= 1
    looks.count = 0
    assert read_all(opened) == expected
    assert looks.count == BLOCK_RECORDS
    assert read_all(opened, 1)[0] == b"GAP"
    opened.store.close()


def test_a_block_in_two_pieces_of_the_log_is_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of two queues in turn, with more between those of one than is read along."""
    monkeypatch.setattr(reading, "VECTOR_RECORDS_MIN", 1)  # a read of few knows no such blocks
    config = replace(CONFIG, coalesce_gap_bytes=64)
    opened = open_store(SimulatedFiles(), config, threads=False)
    half = BLOCK_RECORDS + BLOCK_RECORDS // 2
    for first in (0, half):
        for queue_id in (0, 1):
            send_frame(opened, [body_of(first + n, queue_id) for n in range(half)], queue_id)
    expected = [body_of(number) for number in range(2 * half)]
    looks = Looks(monkeypatch)
    assert read_all(opened) == expected
    assert looks.count == 0
    opened.store._reader.source = opened.store._reader.source._replace(
        known=known_blocks.nothing_known()
    )
    assert read_all(opened) == expected
    assert looks.count == len(expected)
    looks.count = 0
    assert read_all(opened) == expected
    assert looks.count == 0
    for number in (half - 1, half):
        record = opened.store.read("orders", 0, number, max_messages=1, max_bytes=1).records[0]
        at = opened.store.decode(record).physical_offset + 90
        content(opened, SEGMENT)[at] ^= 1
        damaged = [b"GAP" if each == number else expected[each] for each in range(2 * half)]
        assert read_all(opened) == damaged
        content(opened, SEGMENT)[at] ^= 1
    opened.store.close()


def test_a_large_block_that_is_known_spares_the_small_ones(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its sum was made of those of a frame's small ones or of what was read."""
    monkeypatch.setattr(reading, "VECTOR_RECORDS_MIN", 1)
    read_all(opened)
    known = opened.store._reader.source.known
    count = known.large.records
    first, last = (
        opened.store.decode(
            opened.store.read("orders", 0, n, max_messages=1, max_bytes=1).records[0]
        )
        for n in (0, count)
    )
    data = memoryview(bytes(content(opened, SEGMENT)))
    whole = data[first.physical_offset : last.physical_offset]
    units = memoryview(bytes(content(opened, QUEUE)))
    made = block_sums(units, whole, range(0, 1, count), [0], [len(whole)])
    assert known.large.sums(1, 0, 1) == made
    looks = Looks(monkeypatch)
    known.small.note(1, 0, [0, 0])
    read_all(opened)
    assert looks.count == COUNT - count
    assert known.small.sums(1, 0, 2) == [0, 0]


@pytest.mark.parametrize("gap_bytes", [64, 16 * 1024])
@given(
    frames=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 70)), min_size=1, max_size=12),
    lone=st.sets(st.integers(0, 11), max_size=2),
)
@example(frames=[(0, 7), (0, 9), (1, 3), (0, 40), (0, 60)], lone=set())
@example(frames=[(0, 40), (1, 40), (0, 40), (1, 40), (0, 48), (1, 20)], lone=set())
@example(frames=[(0, 40), (0, 40)], lone={1})
def test_frames_note_what_a_reader_would_learn(
    gap_bytes: int, frames: list[tuple[int, int]], lone: set[int]
) -> None:
    """Blocks of one frame, and of several that follow each other; now and then a lone message."""
    config = replace(CONFIG, coalesce_gap_bytes=gap_bytes, segment_bytes=1 << 20)
    opened = open_store(SimulatedFiles(), config, threads=False)
    noted = opened.store._reader.source.known
    lone_ones = 0
    for number, (queue_id, count) in enumerate(frames):
        if number in lone:
            opened.send(b"alone", queue_id=queue_id)
            lone_ones += 1
        send_frame(opened, [body_of(n, queue_id) * (n % 3 + 1) for n in range(count)], queue_id)
    learnt = known_blocks.nothing_known()
    opened.store._reader.source = opened.store._reader.source._replace(known=learnt)
    missing = 0
    for queue_id in {queue_id for queue_id, _ in frames}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "VECTOR_RECORDS_MIN", 1)  # few are not joined over pieces
            read_all(opened, queue_id)
        queue = opened.store._queues.find("orders", queue_id)
        assert queue is not None
        for mine, theirs in zip(noted, learnt, strict=True):
            blocks = queue.max_offset // mine.records
            pairs = zip(
                mine.sums(queue.number, 0, blocks),
                theirs.sums(queue.number, 0, blocks),
                strict=True,
            )
            for made, read in pairs:
                assert made in (read, UNKNOWN)
                missing += made == UNKNOWN
    if not lone_ones and gap_bytes == 64:
        assert not missing
    opened.store.close()


def test_what_is_kept_of_frames_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_sums, "FRAME_RESTS_MAX", 3)
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    frame_checksums = opened.store._reader.frame_checksums
    assert frame_checksums is not None
    rests = frame_checksums._rests
    for queue_id in range(10):
        send_frame(opened, [b"x"] * 5, queue_id)
        assert 0 < len(rests) <= 3
    opened.store.close()


# --- the table


def test_the_table_is_bounded_and_the_newest_stays() -> None:
    known = VerifiedBlocks(8)
    for block in range(1_000):
        known.note(3, block, [block + 7])
    assert known.sums(3, 992, 8) == [*range(999, 1007)]
    assert known.sums(3, 0, 992) == [UNKNOWN] * 992
    assert len(known._keys) == len(known._sums) == 8


def test_a_sum_is_that_of_one_queue_and_block() -> None:
    known = VerifiedBlocks(1)
    known.note(1, 5, [77])
    assert known.sums(1, 5, 1) == [77]
    assert known.sums(2, 5, 1) == [UNKNOWN]
    assert known.sums(1, 4, 3) == [UNKNOWN, 77, UNKNOWN]
    known.note(1, 5, [UNKNOWN])
    assert known.sums(1, 5, 1) == [77]
    for queue in (0, 1 << 24):  # in no table, or more queues than a key can tell apart
        known.note(queue, 5, [78])
        assert known.sums(queue, 5, 1) == [UNKNOWN]
    assert known.sums(1, 5, 1) == [77]


def test_what_is_noted_and_asked_at_once_wraps_around() -> None:
    known = VerifiedBlocks(8)
    for first in range(20):
        found = [first * 10 + n for n in range(5)]
        known.note(1, first, found)
        assert known.sums(1, first, 5) == found
        known.note(1, first, [UNREADABLE, 3, UNKNOWN, 4, 5])
        assert known.sums(1, first, 5) == [found[0], 3, found[2], 4, 5]
    assert known.sums(1, 0, 0) == []


@given(
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=16, max_size=40),
)
@example(5, [(4, 2)] * 20)
@example(0, [(4, 0)] * 19 + [(5, 0)])
@example(0, [(4, 1)] * 18 + [(4, 2), (4, 1)])
def test_sums_of_many_blocks_are_those_of_each(first: int, places: list[tuple[int, int]]) -> None:
    """Whether or not they stand evenly."""
    count = len(places) * BLOCK_RECORDS + 20
    units = memoryview(bytes(at % 251 for at in range(count * UNIT_BYTES)))
    starts, ends, at = [], [], 3
    for length, gap in places:
        starts.append(at)
        ends.append(at + length)
        at += length + gap
    data = memoryview(bytes(each * 7 % 256 for each in range(at)))
    blocks = whole_blocks(first, count)[: len(places)]
    size = BLOCK_RECORDS * UNIT_BYTES
    assert block_sums(units, data, blocks, starts, ends) == [
        crc32(units[n * UNIT_BYTES : n * UNIT_BYTES + size]) << 32 | crc32(data[start:end])
        for n, start, end in zip(blocks, starts, ends, strict=True)
    ]


@pytest.mark.parametrize("first", [0, 1, 15, 16, 17, 1_000])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 31, 32, 47, 1_000])
def test_whole_blocks(first: int, count: int) -> None:
    offsets = range(first, first + count)
    wanted = [
        at - first
        for at in offsets
        if at % BLOCK_RECORDS == 0 and at + BLOCK_RECORDS <= first + count
    ]
    assert list(whole_blocks(first, count)) == wanted


# --- controls


def test_control_a_block_that_is_believed_without_its_bytes(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sums_of_units(
        units: memoryview, data: memoryview, blocks: range, *places: Sequence[int]
    ) -> list[int]:
        return block_sums(units, data[:0], blocks, *places)

    monkeypatch.setattr(checking, "block_sums", sums_of_units)
    known = opened.store._reader.source.known.small
    units = memoryview(bytes(content(opened, QUEUE)))
    known.note(1, 0, sums_of_units(units, units, range(0, 32, 16), [0, 0], [0, 0]))
    assert any("is served" in each for each in wrong_bodies(opened))


def test_control_a_large_block_that_is_believed_without_its_bytes(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large_sums_of_units(
        units: memoryview, data: memoryview, blocks: range, *places: Sequence[int]
    ) -> list[int]:
        kept = data if blocks.step == BLOCK_RECORDS else data[:0]
        return block_sums(units, kept, blocks, *places)

    monkeypatch.setattr(reading, "VECTOR_RECORDS_MIN", 1)
    monkeypatch.setattr(checking, "block_sums", large_sums_of_units)
    read_all(opened)
    assert any("is served" in each for each in wrong_bodies(opened))


def test_control_a_block_that_is_believed_without_its_units(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sums_of_bytes(
        units: memoryview, data: memoryview, blocks: range, *places: Sequence[int]
    ) -> list[int]:
        return block_sums(bytes(len(units)), data, blocks, *places)

    monkeypatch.setattr(checking, "block_sums", sums_of_bytes)
    read_all(opened)
    assert list(wrong_bodies(opened)) != []


@pytest.mark.parametrize("places", [1_024, 131_072, 524_288])
def test_queues_that_grow_alike_do_not_meet_before_the_table_is_well_filled(places: int) -> None:
    known = VerifiedBlocks(places, records=BLOCK_RECORDS)
    each = places // 13
    for queue in range(1, 9):
        known.note(queue, 0, [queue] * each)
    for queue in range(1, 9):
        assert known.sums(queue, 0, each) == [queue] * each
