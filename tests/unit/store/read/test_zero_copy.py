"""Records that are left where they are: what is said of them is what an ordinary read finds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from app.domain.limits import Limits
from app.domain.message import Message, java_hash
from app.store import ReadResult, RecordsInPlace, paths
from app.store.formats.files.consume_queue import UNIT_BYTES
from app.store.formats.record.checksum import crc32
from app.store.lifecycle.retention_policy import RetentionPolicy
from app.store.read import verified_blocks as known_blocks
from app.store.read import zero_copy as in_place
from app.store.read.verified_blocks import BLOCK_RECORDS
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store

CONFIG = replace(SMALL, segment_bytes=65_536, queue_file_units=1_000, coalesce_gap_bytes=4_096)
LARGE = 2 * BLOCK_RECORDS
COUNT = 5 * LARGE + BLOCK_RECORDS + 3
"""Large blocks, a small one, and a part of one."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_blocks, "LARGE_BLOCK_RECORDS", LARGE)
    monkeypatch.setattr(in_place, "IN_PLACE_BYTES_MIN", 1)
    monkeypatch.setattr(in_place, "PART_BYTES_MIN", 1)


@pytest.fixture
def opened() -> Iterator[OpenStore]:
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    send_frame(opened, range(COUNT))
    yield opened
    opened.store.close()


def send_frame(opened: OpenStore, numbers: Sequence[int], queue_id: int = 0) -> None:
    """Messages of different sizes, with and without a tag."""
    messages = [
        Message(b"%d of %d " % (n, queue_id) + bytes(n * 7 % 90), tag="abc"[n % 3 : n % 3 + 1])
        for n in numbers
    ]
    opened.append_frame(messages, queue_id=queue_id)
    opened.settle()


def read(
    opened: OpenStore, offset: int, max_messages: int = 1_000, max_bytes: int = 1 << 20, **more: int
) -> ReadResult:
    """With `in_place`, ready to wait for the disk."""
    return opened.store.read(
        *("orders", more.get("queue_id", 0), offset),
        max_messages=max_messages,
        max_bytes=max_bytes,
        end_offset=more.get("end_offset"),
        in_place=True,
        wait_for_disk=True,
    )


def left_in_place(found: ReadResult) -> RecordsInPlace:
    assert isinstance(found.records, RecordsInPlace)
    return found.records


def assert_as_read(opened: OpenStore, found: ReadResult) -> None:
    """All that is said is what a read of as many messages says."""
    records = left_in_place(found)
    first = found.queue_offsets[0]
    ordinary = opened.store.read(
        "orders", 0, first, max_messages=len(records), max_bytes=1 << 20, wait_for_disk=True
    )
    assert list(records) == list(ordinary.records)
    whole = b"".join(ordinary.records)
    assert b"".join(part.read() for part in records.parts) == whole
    assert records.checksum == crc32(whole)
    assert records.total_bytes == len(whole)
    assert records.sizes.tolist() == list(map(len, ordinary.records))
    assert records[1] == ordinary.records[1]
    assert found._replace(records=[], queue_offsets=[], tag_hashes=[]) == ordinary._replace(
        records=[], queue_offsets=[], tag_hashes=[]
    )
    assert list(found.queue_offsets) == list(ordinary.queue_offsets)
    assert list(found.tag_hashes) == list(ordinary.tag_hashes)


@pytest.mark.parametrize("offset", [0, BLOCK_RECORDS, LARGE, 3 * LARGE])
def test_whole_blocks_are_left_where_they_are(opened: OpenStore, offset: int) -> None:
    """From a multiple of the large block's size those, from one of the small block's these."""
    found = read(opened, offset)
    assert_as_read(opened, found)
    step = LARGE if offset % LARGE == 0 else BLOCK_RECORDS
    assert found.next_offset == COUNT - COUNT % step


@pytest.mark.parametrize(
    ("limit", "end"),
    [
        ({"max_messages": 3 * LARGE + 5}, 3 * LARGE),
        ({"end_offset": 2 * LARGE + 1}, 2 * LARGE),
        ({"end_offset": LARGE + BLOCK_RECORDS - 1}, LARGE),
        ({"end_offset": LARGE - 1}, BLOCK_RECORDS),
    ],
    ids=str,
)
def test_limits_hold(opened: OpenStore, limit: dict[str, int], end: int) -> None:
    found = read(opened, 0, **limit)
    assert_as_read(opened, found)
    assert found.next_offset == end


def test_there_are_no_more_bytes_than_were_asked_for(opened: OpenStore) -> None:
    sizes = left_in_place(read(opened, 0)).sizes
    most = int(sizes[: 2 * LARGE].sum())
    assert read(opened, 0, max_bytes=most).next_offset == 2 * LARGE
    assert read(opened, 0, max_bytes=most - 1).next_offset == LARGE


def test_parts_end_with_their_segments() -> None:
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for _ in range(8):
        send_frame(opened, range(3 * LARGE))
    assert opened.store.status().segments > 2
    assert is_read(opened)  # a frame that ends in another segment than it begins in is not known
    found = read(opened, 0)
    assert len(left_in_place(found).parts) == 3
    assert found.next_offset == 24 * LARGE
    assert_as_read(opened, found)
    opened.store.close()


def test_blocks_in_several_pieces_of_the_log_are_left_too() -> None:
    """Frames of two queues in turn, too far apart to be read in one piece."""
    config = replace(CONFIG, coalesce_gap_bytes=64)
    opened = open_store(SimulatedFiles(), config, threads=False)
    for number in range(4):
        for queue_id in (0, 1):
            send_frame(opened, range(number * 40, number * 40 + 40), queue_id)
    found = read(opened, 0)
    assert len(left_in_place(found).parts) == 4
    assert found.next_offset == 160 - 160 % LARGE
    assert_as_read(opened, found)
    opened.store.close()


def test_what_was_read_once_is_left_the_next_time() -> None:
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for number in range(2 * LARGE):
        opened.send(b"message %d" % number)
    assert not isinstance(read(opened, 0).records, RecordsInPlace)
    assert_as_read(opened, read(opened, 0))
    opened.store.close()


def is_read(opened: OpenStore, offset: int = 0, **limits: int) -> bool:
    return not isinstance(read(opened, offset, **limits).records, RecordsInPlace)


@pytest.mark.parametrize(
    ("offset", "limits"),
    [
        (1, {}),
        (LARGE + BLOCK_RECORDS - 1, {}),
        (0, {"end_offset": BLOCK_RECORDS - 1}),
        (0, {"max_messages": 1}),
        (0, {"max_bytes": 1}),
        (COUNT, {}),
    ],
    ids=str,
)
def test_all_else_is_read(opened: OpenStore, offset: int, limits: dict[str, int]) -> None:
    assert is_read(opened, offset, **limits)


def test_a_filtered_read_leaves_nothing() -> None:
    """What it wants may stand together, but in no block from the offset on."""
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    messages = [Message(b"%d" % n, tag="ab"[n // LARGE]) for n in range(2 * LARGE)]
    opened.append_frame(messages)
    opened.settle()
    found = opened.store.read(
        *("orders", 0, 0),
        max_messages=1_000,
        max_bytes=1 << 20,
        tag_hashes=frozenset({java_hash("b")}),
        in_place=True,
        wait_for_disk=True,
    )
    assert not isinstance(found.records, RecordsInPlace)
    assert list(found.queue_offsets) == list(range(LARGE, 2 * LARGE))
    opened.store.close()


def test_a_block_that_is_not_known_is_read_and_known_then(opened: OpenStore) -> None:
    for known in opened.store._reader.source.known:
        known.note(1, 1, [0])
    assert is_read(opened)
    assert_as_read(opened, read(opened, 0))


def test_nothing_is_known_after_an_opening(opened: OpenStore) -> None:
    files = opened.files
    opened.store.close()
    again = open_store(files, CONFIG, threads=False)
    assert is_read(again)
    again.store.close()


def test_other_units_are_not_believed(opened: OpenStore) -> None:
    opened.store.begin_checkpoint().run()
    assert isinstance(opened.files, SimulatedFiles)
    queue = f"{paths.queue_directory('orders', 0)}/{paths.file_name(0)}"
    units = opened.files.names[queue].seen
    assert_as_read(opened, read(opened, 0))
    units[LARGE * UNIT_BYTES + 10] ^= 1
    assert is_read(opened)


def test_records_with_others_between_them_are_read() -> None:
    """They are in the sum of their block as well."""
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for number in range(LARGE):
        for queue_id in (0, 1):
            opened.send(b"message %d" % number, queue_id=queue_id)
    assert is_read(opened)
    assert is_read(opened)
    assert opened.store._reader.source.known.small.sums(1, 0, 1) != [known_blocks.UNKNOWN]
    opened.store.close()


def test_little_and_scattered_records_are_read(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = left_in_place(read(opened, 0, end_offset=LARGE)).total_bytes
    for name in ("IN_PLACE_BYTES_MIN", "PART_BYTES_MIN"):
        monkeypatch.setattr(in_place, name, total)
        assert not is_read(opened, end_offset=LARGE)
        monkeypatch.setattr(in_place, name, total + 1)
        assert is_read(opened, end_offset=LARGE)
        monkeypatch.setattr(in_place, name, 1)


def test_a_segment_that_goes_meanwhile_can_still_be_sent() -> None:
    """It is open; and what is asked for later has expired."""
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for _ in range(8):
        send_frame(opened, range(3 * LARGE))
    found = left_in_place(read(opened, 0, max_messages=LARGE))
    before = b"".join(part.read() for part in found.parts)
    opened.store.apply_retention(RetentionPolicy(log_bytes_max=CONFIG.segment_bytes))
    assert opened.store.bounds("orders", 0).min_offset > LARGE
    assert b"".join(part.read() for part in found.parts) == before
    assert is_read(opened, max_messages=LARGE)
    opened.store.close()


def test_damage_is_left_to_the_checksum(opened: OpenStore) -> None:
    """And what does not fit is found by the ordinary read that comes next."""
    found = left_in_place(read(opened, 0, max_messages=LARGE))
    assert isinstance(opened.files, SimulatedFiles)
    opened.files.names[paths.segment(0)].seen[found.parts[0].offset + 100] ^= 1
    again = left_in_place(read(opened, 0, max_messages=LARGE))
    assert again.checksum == found.checksum
    assert crc32(b"".join(part.read() for part in again.parts)) != again.checksum
    ordinary = opened.store.read(
        "orders", 0, 0, max_messages=LARGE, max_bytes=1 << 20, wait_for_disk=True
    )
    assert [tuple(gap)[:2] for gap in ordinary.gaps] == [(0, 1)]


def test_what_has_to_be_read_has_the_limits_of_a_read() -> None:
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    opened.store._limits = Limits(pull_messages_max=10, pull_bytes_max=1_000)
    for number in range(2 * LARGE):
        opened.send(b"message %d" % number)
    found = read(opened, 0)
    assert 0 < len(found.records) <= 10
    assert sum(map(len, found.records)) <= 1_000
    opened.store.close()
