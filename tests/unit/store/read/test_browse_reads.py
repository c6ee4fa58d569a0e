"""What a browse asks of the store: units, places behind a position, keyed records before one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.message import Message
from app.store import KeyedRecords, OsFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store, read_at

WANTED = ("orders", "k", 0, 2**62)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    opened = open_store(OsFiles(tmp_path), SMALL)
    yield opened
    opened.store.close()


def fill(opened: OpenStore, count: int = 30) -> list[int]:
    """Messages of two queues by turns, every third with the key; their places in the log."""
    for number in range(count):
        keys = ("k",) if number % 3 == 0 else ()
        message = Message(b"%d" % number, keys=keys)
        opened.append_all([message], queue_id=number % 2)
        opened.settle(len(opened.outcomes) + 1)
        opened.clock.advance(ms=5)
    units = [
        each for queue_id in (0, 1) for each in opened.store.units("orders", queue_id, 0, count)
    ]
    return sorted(position for position, _, _ in units)


def bodies(opened: OpenStore, found: KeyedRecords) -> list[bytes]:
    return [opened.store.decode(record).body for record in found.records]


def test_units_say_where_messages_are(opened: OpenStore) -> None:
    places = fill(opened)
    assert len(places) == 30
    store = opened.store
    for queue_id in (0, 1):
        for offset, (position, size, tag_hash) in enumerate(store.units("orders", queue_id, 0, 99)):
            record = read_at(store, position, wait_for_disk=True)
            assert record is not None
            assert len(record) == size
            message = store.decode(record)
            assert (message.queue_id, message.queue_offset, tag_hash) == (queue_id, offset, 0)
    assert store.units("orders", 0, 5, 8) == store.units("orders", 0, 0, 99)[5:8]
    assert store.units("orders", 0, 15, 99) == []
    assert store.units("none", 0, 0, 5) == []


def test_places_behind_a_position(opened: OpenStore) -> None:
    places = fill(opened)
    for queue_id in (0, 1):
        units = opened.store.units("orders", queue_id, 0, 99)
        for place in (0, *places, *(each + 1 for each in places), 2**62):
            wanted = sum(position < place for position, _, _ in units)
            assert opened.store.offset_behind("orders", queue_id, place) == wanted
    assert opened.store.offset_behind("none", 0, 5) == 0


def test_keyed_records_before_a_place(opened: OpenStore) -> None:
    places = fill(opened)
    store = opened.store
    everything = store.find_by_key_before(
        WANTED, None, max_messages=99, max_bytes=10**6, wait_for_disk=True
    )
    assert everything.is_complete
    assert bodies(opened, everything) == [b"%d" % number for number in range(0, 30, 3)]
    some = store.find_by_key_before(
        WANTED, places[18], max_messages=4, max_bytes=10**6, wait_for_disk=True
    )
    assert not some.is_complete
    assert bodies(opened, some) == [b"6", b"9", b"12", b"15"]
    one = store.find_by_key_before(WANTED, None, max_messages=9, max_bytes=1, wait_for_disk=True)
    assert (bodies(opened, one), one.is_complete) == ([b"27"], False)
    last = store.find_by_key_before(
        WANTED, places[1], max_messages=1, max_bytes=10**6, wait_for_disk=True
    )
    assert (bodies(opened, last), last.is_complete) == ([b"0"], True)


def test_a_search_that_is_cut_short_says_so(tmp_path: Path) -> None:
    opened = open_store(OsFiles(tmp_path), replace(SMALL, key_probes_max=3))
    try:
        fill(opened)
        found = opened.store.find_by_key_before(
            WANTED, None, max_messages=99, max_bytes=10**6, wait_for_disk=True
        )
        assert not found.is_complete
        assert len(found.records) <= 3
    finally:
        opened.store.close()


def test_what_is_deleted_is_not_there(opened: OpenStore) -> None:
    fill(opened)
    opened.store.delete_topic("orders")
    found = opened.store.find_by_key_before(
        WANTED, None, max_messages=9, max_bytes=10**6, wait_for_disk=True
    )
    assert found == KeyedRecords([], True)
    bounds = opened.store.bounds("orders", 0)
    assert opened.store.offset_behind("orders", 0, 0) == bounds.max_offset
