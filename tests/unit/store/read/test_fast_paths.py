"""With and without each fast path a store writes the same files and reads the same from them."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from app.domain.message import Message, java_hash
from app.store import RecordsInPlace, as_buffers, packed_bytes, paths, total_bytes
from app.store.config import FastPaths
from app.store.formats.frame import batch_frame
from app.store.formats.record.checksum import crc32
from app.store.log.commit_log import CommitLog
from app.store.read import queue_reader, queue_reads, verified_blocks, zero_copy
from app.store.read.frame_checksums import FrameChecksums
from app.store.read.record_views import LogPiece, RecordViews
from app.store.read.verified_blocks import BLOCK_RECORDS, VerifiedBlocks
from app.store.write.appender import Appender
from tests.support.stores.fast_paths import ALL, LESS, WAYS
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store

CONFIG = replace(SMALL, segment_bytes=65_536, queue_file_units=500, coalesce_gap_bytes=512)
LARGE = 2 * BLOCK_RECORDS
QUEUES = (0, 1)
ROOT = Path(__file__).parents[4]
RESTS_ON = {
    "verified_blocks": {"frame_checksums", "zero_copy", "known_reads"},
    "array_reads": {"record_views"},
}
"""What is not taken either when one of these is not."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small stores have all that large ones have; and all have one id."""
    monkeypatch.setattr(verified_blocks, "LARGE_BLOCK_RECORDS", LARGE)
    monkeypatch.setattr(zero_copy, "IN_PLACE_BYTES_MIN", 1)
    monkeypatch.setattr(zero_copy, "PART_BYTES_MIN", 1)
    monkeypatch.setattr(secrets, "token_hex", lambda size: "5a" * size)


def filled(fast_paths: FastPaths) -> OpenStore:
    """Frames of records that are alike and of others, batches and lone messages; five segments."""
    opened = open_store(SimulatedFiles(), replace(CONFIG, fast_paths=fast_paths), threads=False)
    tags = ("a", "b", None)
    alike = [Message(b"%03d" % n + bytes(197), tag="a", keys=("k",)) for n in range(3 * LARGE)]
    unlike = [
        Message(b"%d" % n * (n % 90), tag=tags[n % 3], keys=() if n % 5 else (f"key-{n}",))
        for n in range(2 * LARGE + 5)
    ]
    for round_ in range(3):
        for queue_id in QUEUES:
            opened.append_frame(alike, queue_id=queue_id)
            opened.settle()
        opened.append_frame(unlike)
        opened.settle()
        opened.append_frame(unlike)
        opened.settle()
        opened.append_all(unlike[:40], queue_id=1)
        opened.settle()
        for number in range(4):
            opened.send(b"alone %d" % number, queue_id=number % 2, tag=tags[number % 3])
        opened.clock.advance(ms=1_000)
        if round_ == 1:
            opened.store.begin_checkpoint().run()
    assert opened.outcomes == [None] * len(opened.outcomes)
    assert opened.store.status().segments >= 4
    return opened


class Page(NamedTuple):
    """All that a read says."""

    records: list[bytes]
    queue_offsets: list[int]
    tag_hashes: list[int]
    next_offset: int
    scanned: int
    gaps: list[tuple[int, int, str]]


def page_of(
    opened: OpenStore,
    queue_id: int,
    offset: int,
    max_messages: int,
    max_bytes: int,
    *,
    tags: frozenset[int] | None = None,
    in_place: bool = False,
) -> Page:
    found = opened.store.read(
        *("orders", queue_id, offset),
        max_messages=max_messages,
        max_bytes=max_bytes,
        tag_hashes=tags,
        in_place=in_place,
        wait_for_disk=True,
    )
    records = found.records
    if isinstance(records, RecordsInPlace):
        assert in_place
        assert b"".join(part.read() for part in records.parts) == b"".join(records)
        assert crc32(b"".join(records)) == records.checksum
        assert records.sizes.tolist() == list(map(len, records))
    return Page(
        [bytes(record) for record in records],
        list(found.queue_offsets),
        list(found.tag_hashes),
        found.next_offset,
        found.scanned,
        [(gap.from_offset, gap.to_offset, gap.reason) for gap in found.gaps],
    )


def pages(opened: OpenStore) -> Iterator[Page]:
    """Reads of many shapes, each twice: what the first one learns spares the second one work."""
    for queue_id in QUEUES:
        end = opened.store.bounds("orders", queue_id).max_offset
        for offset in (0, 1, LARGE, 3 * LARGE - 7, end // 2, end - 50, end):
            for max_messages in (1, 20, 47, 48, 5_000):
                for max_bytes in (1, 9_000, 1 << 20):
                    for tags in (None, frozenset({java_hash("a")})):
                        place = (queue_id, offset, max_messages, max_bytes)
                        yield page_of(opened, *place, tags=tags)
                        yield page_of(opened, *place, tags=tags)


def joined(opened: OpenStore, queue_id: int, *, in_place: bool) -> Page:
    """A whole queue, page after page, as one; where pages end may differ when they are in place."""
    end = opened.store.bounds("orders", queue_id).max_offset
    whole = Page([], [], [], 0, 0, [])
    while whole.next_offset < end:
        page = page_of(opened, queue_id, whole.next_offset, 64, 1 << 20, in_place=in_place)
        whole = Page(
            whole.records + page.records,
            whole.queue_offsets + page.queue_offsets,
            whole.tag_hashes + page.tag_hashes,
            page.next_offset,
            whole.scanned + page.scanned,
            whole.gaps + page.gaps,
        )
    return whole


def files_of(opened: OpenStore) -> dict[str, bytes]:
    assert isinstance(opened.files, SimulatedFiles)
    return {path: bytes(inode.seen) for path, inode in opened.files.names.items()}


def flip(opened: OpenStore, path: str, at: int, bits: int = 4) -> None:
    assert isinstance(opened.files, SimulatedFiles)
    opened.files.names[path].seen[at] ^= bits


@pytest.fixture(params=list(LESS.values()), ids=list(LESS))
def both(request: pytest.FixtureRequest) -> Iterator[tuple[OpenStore, OpenStore]]:
    """A store with all fast paths and one with less, that were told the same."""
    every, less = filled(ALL), filled(request.param)
    yield every, less
    every.store.close()
    less.store.close()


def test_the_files_are_the_same(both: tuple[OpenStore, OpenStore]) -> None:
    every, less = both
    assert files_of(every) == files_of(less)
    every.store.close()
    less.store.close()
    assert files_of(every) == files_of(less)


def test_reads_of_every_shape_say_the_same(both: tuple[OpenStore, OpenStore]) -> None:
    every, less = both
    for mine, theirs in zip(pages(every), pages(less), strict=True):
        assert mine == theirs


@pytest.mark.parametrize("in_place", [False, True])
def test_whole_queues_are_the_same_and_so_is_damage(
    both: tuple[OpenStore, OpenStore], in_place: bool
) -> None:
    """Damaged units are found in both ways; damaged records in place are left to the client."""
    every, less = both
    for queue_id in QUEUES:
        before = joined(every, queue_id, in_place=in_place)
        assert before == joined(less, queue_id, in_place=in_place)
        assert before.queue_offsets == list(range(len(before.records)))
        assert not before.gaps
    gaps: list[tuple[int, int, str]] = []
    units = f"{paths.queue_directory('orders', 0)}/{paths.file_name(0)}"
    for path, at in ((units, 43), (units, 2_001), (paths.segment(0), 9_000)):
        for opened in both:
            flip(opened, path, at)
        is_log = path != units
        for queue_id in QUEUES:
            damaged = joined(every, queue_id, in_place=in_place and not is_log)
            assert damaged == joined(less, queue_id, in_place=in_place and not is_log)
            gaps += damaged.gaps
    assert gaps
    assert every.store.status() == less.store.status()


STRETCHES = ((0, LARGE), (BLOCK_RECORDS, LARGE), (5, 3 * LARGE - 7), (3 * LARGE, 5 * LARGE))


def together(opened: OpenStore) -> dict[tuple[int, int, int], list[bytes]]:
    """What is known of some stretches of all queues; each as `read` has it."""
    found: dict[tuple[int, int, int], list[bytes]] = {}
    for first, end in STRETCHES:
        asked = [("orders", queue_id, first, end) for queue_id in QUEUES]
        for queue_id, known in enumerate(opened.store.read_known(asked, 1 << 20, 1 << 20)):
            if known is None:
                continue
            page = page_of(opened, queue_id, first, end - first, 1 << 20)
            records = [bytes(record) for record in known.records]
            sizes, buffers = as_buffers(known.records)
            assert b"".join(buffers) == b"".join(records)
            assert sizes.tolist() == list(map(len, records))
            assert total_bytes(known.records) == len(b"".join(records))
            assert packed_bytes(known.records) == 0
            assert page == Page(
                records,
                list(known.queue_offsets),
                list(known.tag_hashes),
                *(known.next_offset, known.scanned, []),
            )
            found[queue_id, first, end] = records
    return found


def test_a_little_of_many_queues_is_what_each_has() -> None:
    opened = filled(ALL)
    for queue_id in QUEUES:
        joined(opened, queue_id, in_place=False)
    found = together(opened)
    assert {queue_id for queue_id, _, _ in found} == set(QUEUES)
    assert {places[1:] for places in found} >= {(0, LARGE), (5, 3 * LARGE - 7)}
    asked = [("orders", queue_id, 0, LARGE) for queue_id in QUEUES]
    size = sum(map(len, found[0, 0, LARGE]))
    assert opened.store.read_known(asked, size - 1, 1 << 20) == [None, None], "over the bytes"
    assert opened.store.read_known([("orders", 7, 0, 16), asked[0]], 1 << 20, 1 << 20) == [
        None,
        None,
    ]
    both = opened.store.read_known(asked, 1 << 20, 2 * size)
    assert [known is None for known in both] == [False, False]
    first = opened.store.read_known(asked, 1 << 20, 2 * size - 1)
    assert [known is None for known in first] == [False, True], "over the bytes of all"
    opened.store.close()


def test_nothing_is_read_in_which_no_block_can_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    read_pieces = CommitLog.read_pieces

    def noted(log: CommitLog, buffer: memoryview, pieces: Sequence[LogPiece]) -> list[bool]:
        lengths.extend(end - start for _, start, end, _ in pieces)
        return read_pieces(log, buffer, pieces)

    monkeypatch.setattr(CommitLog, "read_pieces", noted)
    opened = filled(ALL)
    for queue_id in QUEUES:
        joined(opened, queue_id, in_place=False)
    few = [("orders", 0, 1, BLOCK_RECORDS + 15), ("orders", 1, 0, BLOCK_RECORDS - 1)]
    assert opened.store.read_known(few, 1 << 20, 1 << 20) == [None, None]
    assert lengths == []
    _, known = opened.store.read_known([few[0], ("orders", 1, 0, LARGE)], 1 << 20, 1 << 20)
    assert known is not None
    assert lengths == [0, total_bytes(known.records)]
    opened.store.close()


@pytest.mark.parametrize("is_unit", [False, True])
def test_damage_of_one_queue_is_not_given_and_the_others_are(is_unit: bool) -> None:
    """Each bit is looked at: of the records and of the units, within blocks and beside them."""
    opened = filled(ALL)
    for queue_id in QUEUES:
        joined(opened, queue_id, in_place=False)
    good = together(opened)
    units = f"{paths.queue_directory('orders', 0)}/{paths.file_name(0)}"
    for number in (3, 20):  # beside the blocks of (5, …), and in one
        at = number * 20 + 3 if is_unit else number * 300 + 150
        flip(opened, units if is_unit else paths.segment(0), at)
        after = together(opened)
        assert all(places[0] or places[1] > number for places in after), "given although damaged"
        assert after == {places: good[places] for places in after}
        assert any(places[0] for places in after)
        flip(opened, units if is_unit else paths.segment(0), at)
    opened.store.close()


def test_a_unit_that_says_what_no_place_can_be_damages_no_other_queue() -> None:
    opened = filled(ALL)
    for queue_id in QUEUES:
        joined(opened, queue_id, in_place=False)
    good = together(opened)
    flip(opened, f"{paths.queue_directory('orders', 0)}/{paths.file_name(0)}", 0, 0x80)
    after = together(opened)
    assert (1, 0, LARGE) in after
    assert after == {places: good[places] for places in after}
    opened.store.close()


@pytest.mark.parametrize(
    ("at_once", "between", "is_read"), [(1, 10, True), (BLOCK_RECORDS, 1_000, False)]
)
def test_what_lies_in_one_piece_is_read_together(at_once: int, between: int, is_read: bool) -> None:
    """Over what is in between, as far as it is little at a time, however much it is in all."""
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for _ in range(LARGE // at_once):
        opened.append_frame([Message(b"some")] * at_once, queue_id=0)
        opened.append_frame([Message(bytes(between))], queue_id=1)
    opened.settle()
    joined(opened, 0, in_place=False)
    [found] = opened.store.read_known([("orders", 0, 0, LARGE)], 1 << 20, 1 << 20)
    assert (found is not None) == is_read
    opened.store.close()


class Taken:
    """Notes which fast paths are taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        places = {
            "verified_blocks": (VerifiedBlocks, "sums"),
            "frame_checksums": (FrameChecksums, "of"),
            "zero_copy": (RecordsInPlace, "__init__"),
            "array_reads": (queue_reads, "_read_many"),
            "record_views": (RecordViews, "__init__"),
            "known_reads": (queue_reader, "read_known"),
            "crc_batch": (batch_frame, "add_columns"),
            "single_append": (Appender, "_append_one"),
        }
        assert places.keys() == {field.name for field in fields(FastPaths)}
        for name, (owner, function) in places.items():
            self._watch(monkeypatch, name, owner, function)

    def _watch(
        self, monkeypatch: pytest.MonkeyPatch, name: str, owner: object, function: str
    ) -> None:
        real = getattr(owner, function)

        def noting(*args: object, **more: object) -> object:
            self.names.add(name)
            return real(*args, **more)

        monkeypatch.setattr(owner, function, noting)


@pytest.mark.parametrize("fast_paths", WAYS.values(), ids=WAYS)
def test_each_is_taken_unless_it_is_off(
    fast_paths: FastPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Taken(monkeypatch)
    opened = filled(fast_paths)
    for in_place in (False, True):
        joined(opened, 0, in_place=in_place)
    opened.store.read_known(
        [("orders", queue_id, 0, LARGE) for queue_id in QUEUES], 1 << 20, 1 << 20
    )
    off = {field.name for field in fields(FastPaths) if not getattr(fast_paths, field.name)}
    for name in off & RESTS_ON.keys():
        off |= RESTS_ON[name]
    assert taken.names == {field.name for field in fields(FastPaths)} - off
    opened.store.close()


def test_the_page_names_each() -> None:
    rows = (ROOT / "docs" / "performance" / "fast-paths.md").read_text().splitlines()
    named = [row.split("`")[1] for row in rows if row.startswith("| `")]
    names = [field.name for field in fields(FastPaths)]
    assert named[: len(names)] == names
