"""Reading in numbers, by time, by place and backwards; wrong units are put right while reading."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from app.domain.errors import ShardUnavailable
from app.domain.message import Message, java_hash
from app.domain.positions import FlushMode
from app.store import ColdRead, OsFiles
from app.store.formats.files.consume_queue import UNIT, UNIT_BYTES
from app.store.read import queue_reads as reading
from app.store.read import record_checks as checking
from app.store.read.queue_reads import ReadResult
from app.store.read.read_repair import OtherReplicas
from tests.support.stores.fast_paths import ALL, LESS, Taken
from tests.support.stores.stores import OpenStore, open_store, read_at

SIZES = [3, 40, 200, 900, 11, 350]
COUNT = 90


WAYS = {
    **{f"many from {least}": (least, ALL) for least in (1, 12, 1_000)},
    **{
        name: (12, LESS[name]) for name in ("no verified_blocks", "no record_views", "no fast path")
    },
}
"""From how many records on they are read all at once, and the fast paths; others than these make no
difference here, as nothing comes in frames or is left in place, and 1,000 means no array reads."""


@pytest.fixture(autouse=True, params=list(WAYS.values()), ids=list(WAYS))
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records and many are read in two ways; each has to give the same."""
    least, fast_paths = request.param
    monkeypatch.setattr(reading, "VECTOR_RECORDS_MIN", least)
    monkeypatch.setattr(checking, "VECTOR_RECORDS_MIN", least)
    monkeypatch.setattr(Taken, "now", fast_paths)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    """90 messages by turns in three queues of two topics, two seconds apart, in many segments."""
    opened = open_store(OsFiles(tmp_path), threads=False)
    for number in range(COUNT):
        topic, queue_id = [("orders", 0), ("orders", 1), ("invoices", 0)][number % 3]
        body = b"%d " % number + bytes(SIZES[number % len(SIZES)])
        tag = ["a", "b", None][number // 3 % 3]
        opened.append_all(
            [Message(body, tag=tag)], topic=topic, queue_id=queue_id, flush=FlushMode.ASYNC
        )
        opened.settle(number + 1)
        opened.clock.advance(ms=2000)
    opened.store.flush(opened.outcomes.append)
    opened.settle(COUNT + 1)
    yield opened
    opened.store.close()


def numbers(opened: OpenStore, records: Sequence[memoryview]) -> list[int]:
    return [int(opened.store.decode(record).body.split()[0]) for record in records]


@pytest.mark.parametrize("max_messages", [1, 11, 12, 30])
@pytest.mark.parametrize("max_bytes", [1, 5_000, 1 << 20])
@pytest.mark.parametrize("tags", [None, {"a", "b"}, {"none"}])
@pytest.mark.parametrize("flushed", [False, True])
def test_few_and_many_are_read_alike(
    opened: OpenStore, max_messages: int, max_bytes: int, tags: set[str] | None, flushed: bool
) -> None:
    """What each way should give."""
    if flushed:
        opened.store.begin_checkpoint().run()
    hashes = None if tags is None else frozenset(java_hash(tag) for tag in tags)
    got: list[int] = []
    offset = 0
    while offset < 30:
        result = opened.store.read(
            "orders", 1, offset, max_messages=max_messages, max_bytes=max_bytes, tag_hashes=hashes
        )
        total = sum(map(len, result.records))
        assert len(result.records) <= max_messages
        assert total <= max_bytes or len(result.records) == 1
        assert result.scanned == result.next_offset - offset
        assert result.next_offset > offset
        assert [opened.store.decode(r).queue_offset for r in result.records] == list(
            result.queue_offsets
        )
        assert result.gaps == []
        got += numbers(opened, result.records)
        offset = result.next_offset
    wanted = [3 * n + 1 for n in range(30) if tags is None or [*"ab", ""][n % 3] in tags]
    assert got == wanted


def test_by_store_time(opened: OpenStore) -> None:
    first = opened.store.read("orders", 0, 0, max_messages=1, max_bytes=1).records[0]
    start = opened.store.decode(first).store_time_ms
    find = opened.store.offset_for_time
    assert find("orders", 0, 0) == 0
    assert find("orders", 0, start) == 0
    assert find("orders", 0, start + 1) == 1
    assert find("orders", 0, start + 60_000) == 10
    assert find("orders", 0, start + 60_001) == 11
    assert find("orders", 0, start + 10**9) == 30
    assert find("nothing", 0, start) == 0


def test_by_physical_offset(opened: OpenStore) -> None:
    record = opened.store.read("invoices", 0, 7, max_messages=1, max_bytes=1).records[0]
    at = opened.store.decode(record).physical_offset
    assert read_at(opened.store, at) == record
    assert read_at(opened.store, at + 1) is None
    assert read_at(opened.store, opened.store.status().written_end) is None
    assert read_at(opened.store, -5) is None


def units_path(root: Path, offset: int, queue_id: int = 0) -> tuple[Path, int]:
    """The file of a unit (16 to a file) and its place there."""
    base = offset // 16 * 16 * UNIT_BYTES
    directory = root / "consumequeue" / "orders" / str(queue_id)
    return directory / f"{base:020d}", offset % 16 * UNIT_BYTES


def overwrite(root: Path, offset: int, unit: bytes) -> None:
    path, at = units_path(root, offset)
    content = bytearray(path.read_bytes())
    content[at : at + UNIT_BYTES] = unit
    path.write_bytes(content)


@pytest.mark.parametrize("offsets", [[13], [0, 1, 2, 29], list(range(30))])
@pytest.mark.parametrize("how", ["zero", "beyond", "neighbour", "negative", "huge"])
@pytest.mark.parametrize("at_once", [1, 30])
def test_wrong_units_are_mended(
    opened: OpenStore, tmp_path: Path, offsets: list[int], how: str, at_once: int
) -> None:
    expected = opened.bodies()
    opened.store.begin_checkpoint().run()
    (right,) = UNIT.iter_unpack(
        units_path(tmp_path, 7)[0].read_bytes()[7 * UNIT_BYTES : 8 * UNIT_BYTES]
    )
    wrong = {
        "zero": (0, 0, 0),
        "beyond": (1 << 40, 100, 0),
        "neighbour": right,
        "negative": (-1, -1, -1),
        "huge": (right[0], 0x7FFFFFFF, 0),
    }[how]
    for offset in offsets:
        if offset != 7:
            overwrite(tmp_path, offset, UNIT.pack(*wrong))
    if how == "zero":
        with pytest.raises(ColdRead):
            opened.store.read("orders", 0, 0, max_messages=30, max_bytes=1 << 20)
    assert opened.bodies(at_once=at_once) == expected
    read = opened.store.read("orders", 0, 0, max_messages=30, max_bytes=1 << 20)
    assert read.gaps == []  # it is in the file now


def test_a_damaged_record_is_looked_for_once(opened: OpenStore, tmp_path: Path) -> None:
    opened.store.begin_checkpoint().run()
    record = opened.store.read("orders", 0, 20, max_messages=1, max_bytes=1).records[0]
    at = opened.store.decode(record).physical_offset
    path = tmp_path / "commitlog" / f"{at - at % 4096:020d}"
    content = bytearray(path.read_bytes())
    content[at % 4096 + 89] ^= 1
    path.write_bytes(content)
    with pytest.raises(ColdRead):
        opened.store.read("orders", 0, 20, max_messages=1, max_bytes=1)
    for at_once in (1, 30):
        bodies = opened.bodies(at_once=at_once)
        assert bodies[20] == b"GAP"
        assert bodies.count(b"GAP") == 1
    result = opened.store.read("orders", 0, 20, max_messages=1, max_bytes=1)
    assert [tuple(gap) for gap in result.gaps] == [(20, 21, "CORRUPT")]
    assert opened.store.offset_for_time("orders", 0, 0) == 0


def test_a_read_ends_before_what_another_replica_may_have(
    opened: OpenStore, tmp_path: Path
) -> None:
    """And goes on behind what none has. Where it is the first there is nothing to give."""
    opened.store.begin_checkpoint().run()
    places: list[int] = []
    for offset in (10, 20):
        record = opened.store.read("orders", 0, offset, max_messages=1, max_bytes=1).records[0]
        at = opened.store.decode(record).physical_offset
        path = tmp_path / "commitlog" / f"{at - at % 4096:020d}"
        content = bytearray(path.read_bytes())
        content[at % 4096 + 89] ^= 1
        path.write_bytes(content)
        places.append(at)
    opened.store._reader.source.repair.others = Others(may_have={places[1]})

    def read(offset: int) -> ReadResult:
        return opened.store.read(
            "orders", 0, offset, max_messages=30, max_bytes=1 << 20, wait_for_disk=True
        )

    result = read(0)
    assert [*result.queue_offsets] == [*range(10), *range(11, 20)]
    assert numbers(opened, result.records) == [3 * each for each in result.queue_offsets]
    assert [tuple(gap) for gap in result.gaps] == [(10, 11, "CORRUPT")]
    assert (result.next_offset, result.scanned) == (20, 20)
    with pytest.raises(ShardUnavailable):
        read(20)
    assert [*read(21).queue_offsets] == [*range(21, 30)]


class Others(OtherReplicas):
    """One does not answer."""

    def __init__(self, may_have: set[int]) -> None:
        self._may_have = may_have

    @override
    def is_worth_asking(self, physical_offset: int) -> bool:
        return False

    @override
    def fetch(self, physical_offset: int) -> bool:
        raise AssertionError("nobody is asked")

    @override
    def refuse_unasked(self, physical_offset: int) -> None:
        if physical_offset in self._may_have:
            raise ShardUnavailable("it may be whole elsewhere")
