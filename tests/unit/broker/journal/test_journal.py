"""A journal on a store in memory: what is replayed is what was written down."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from app.broker.journal.journal import Journal
from app.domain.errors import DiskFull, TooManyRequests
from app.domain.message import PROPERTY_SNAPSHOT, Message
from app.domain.positions import FlushMode
from tests.support.stores.clock import FakeClock
from tests.support.stores.memory_store import MemoryStore

pytestmark = pytest.mark.anyio
TOPIC = "rmq_sys_progress"


class Words:
    """A state: words in order. A chunk holds two of them."""

    def __init__(self) -> None:
        self.words: list[bytes] = []

    def clear(self) -> None:
        self.words.clear()

    def load(self, chunk: bytes) -> None:
        self.words += chunk.split()

    def apply(self, entry: bytes) -> None:
        self.words.append(entry)

    def dump(self) -> Iterable[bytes]:
        for at in range(0, len(self.words), 2):
            yield b" ".join(self.words[at : at + 2])


@contextmanager
def journals(store: MemoryStore) -> Iterator[tuple[Journal, Words]]:
    with ThreadPoolExecutor(1) as readers:
        words = Words()
        yield Journal(store, TOPIC, words, readers), words


async def written(store: MemoryStore, *entries: bytes) -> None:
    with journals(store) as (journal, _):
        for entry in entries:
            await journal.write(entry)


async def replayed(store: MemoryStore) -> list[bytes]:
    with journals(store) as (journal, words):
        words.words = [b"stale"]
        await journal.replay()
        return words.words


async def test_entries_are_replayed_in_their_order() -> None:
    store = MemoryStore(FakeClock())
    assert await replayed(store) == []
    await written(store, b"a", b"b", b"c")
    assert await replayed(store) == [b"a", b"b", b"c"]


async def test_a_snapshot_replaces_what_lies_before_it() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c")
    with journals(store) as (journal, words):
        await journal.replay()
        words.apply(b"d")
        await journal.write_snapshot()
        words.apply(b"e")
        await journal.write(b"e")
    assert store.bounds(TOPIC, 0).min_offset == 3
    assert await replayed(store) == [b"a", b"b", b"c", b"d", b"e"]


async def test_an_untrimmed_snapshot_is_not_added_to_what_it_replaces() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b")
    with journals(store) as (journal, _):
        await journal.replay()
        await journal.write_snapshot()
    store.retain_from(TOPIC, 0, 0)  # as after a crash before the next checkpoint
    assert await replayed(store) == [b"a", b"b"]


def put(store: MemoryStore, body: bytes, mark: str) -> None:
    """A record of a snapshot."""
    chunk = Message(body, system={PROPERTY_SNAPSHOT: mark})
    store.append(TOPIC, 0, [chunk], FlushMode.ASYNC, lambda _error: None)


TORN = [["1"], ["a 0"], ["a 0", "a 1"], ["a 0", "a 1", "a 2"]]
"""Marks of what was written of a snapshot of three words, in the early form and in today's."""


@pytest.mark.parametrize("marks", TORN)
async def test_a_torn_snapshot_counts_for_nothing(marks: list[str]) -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a")
    for mark in marks:
        put(store, b"torn", mark)
    await written(store, b"b")
    assert await replayed(store) == [b"a", b"b"]


@pytest.mark.parametrize("marks", TORN)
async def test_a_torn_snapshot_right_before_another_counts_for_nothing(marks: list[str]) -> None:
    """The start after a crash writes one at once, when it was due. Nor does a smaller one go on
    with the chunks of the torn one."""
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c")
    for mark in marks:
        put(store, b"torn", mark)
    with journals(store) as (journal, words):
        await journal.replay()
        words.words = [b"d"]
        await journal.write_snapshot()
    assert await replayed(store) == [b"d"]
    store.retain_from(TOPIC, 0, 0)  # as after a crash before the next checkpoint
    assert await replayed(store) == [b"d"]


async def test_a_snapshot_of_early_versions_is_replayed() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a")
    for left, chunk in ((2, b"b c"), (1, b"d e"), (0, b"f")):
        put(store, chunk, str(left))
    await written(store, b"g")
    with journals(store) as (journal, words):
        await journal.replay()
        assert words.words == [b"b", b"c", b"d", b"e", b"f", b"g"]
        await journal.write_snapshot()
    assert await replayed(store) == [b"b", b"c", b"d", b"e", b"f", b"g"]


async def test_of_a_damaged_snapshot_the_rest_counts_when_nothing_else_is_left() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c")
    with journals(store) as (journal, _):
        await journal.replay()
        await journal.write_snapshot()
        await journal.write(b"d")
    store.queues[TOPIC, 0].records[4] = None  # the first of its chunks
    assert await replayed(store) == [b"c", b"d"]
    store.retain_from(TOPIC, 0, 0)
    assert await replayed(store) == [b"a", b"b", b"c", b"d"]


async def test_what_waits_to_be_written_is_waited_for() -> None:
    """A snapshot needs room for one chunk only, and it comes when there is none."""
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c", b"d", b"e")
    longest = 0
    with journals(store) as (journal, _):
        await journal.replay()
        store.refusal = TooManyRequests("too many bytes wait to be written")
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(journal.write_snapshot())
            await asyncio.sleep(0)
            assert store.next_offset(TOPIC, 0) == 5
            store.refusal = None
            while not writing.done():
                before = store.next_offset(TOPIC, 0)
                await asyncio.sleep(0)
                longest = max(longest, store.next_offset(TOPIC, 0) - before)
    assert store.next_offset(TOPIC, 0) == 10
    assert longest == 1, "chunks wait for one another"
    assert await replayed(store) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("how", ["refusal", "failure"])
async def test_a_snapshot_that_could_not_be_written_is_due_still(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.broker.journal.journal.ENTRIES_MAX", 2)
    store = MemoryStore(FakeClock())
    with journals(store) as (journal, words):
        for entry in (b"a", b"b"):
            words.apply(entry)
            await journal.write(entry)
        setattr(store, how, DiskFull("no room"))
        with pytest.raises(DiskFull):
            await journal.turn()
        setattr(store, how, None)
        assert journal.is_snapshot_due()
        await journal.turn()
        assert not journal.is_snapshot_due()
    assert store.bounds(TOPIC, 0).min_offset == 2


async def test_a_snapshot_is_due_after_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.broker.journal.journal.ENTRIES_MAX", 3)
    store = MemoryStore(FakeClock())
    with journals(store) as (journal, words):
        for entry in (b"a", b"b"):
            words.apply(entry)
            await journal.write(entry)
        assert not journal.is_snapshot_due()
        words.apply(b"c")
        await journal.write(b"c")
        assert journal.is_snapshot_due()
        await journal.turn()
        assert not journal.is_snapshot_due()
    assert await replayed(store) == [b"a", b"b", b"c"]


async def test_a_snapshot_is_due_when_the_last_one_lies_far_back() -> None:
    store = MemoryStore(FakeClock())
    with journals(store) as (journal, _):
        store.state.written_end = 2 << 30
        assert not journal.is_snapshot_due()  # nothing was ever written down
        await journal.write_snapshot()
        store.state.written_end += 1 << 29
        assert not journal.is_snapshot_due()
        store.state.written_end += 1 << 29
        assert journal.is_snapshot_due()


async def test_a_snapshot_is_written_on_a_nearly_full_disk() -> None:
    """Without one the old entries hold the segments that retention wants to delete."""
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c")
    store.is_nearly_full = True
    with journals(store) as (journal, _):
        await journal.replay()
        await journal.write_snapshot()
    assert store.bounds(TOPIC, 0) == (3, 7)  # begin, two chunks, end
    assert await replayed(store) == [b"a", b"b", b"c"]


async def test_a_snapshot_whose_end_is_damaged_counts_when_nothing_else_is_left() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c")
    with journals(store) as (journal, _):
        await journal.replay()
        await journal.write_snapshot()
        end = len(store.queues[TOPIC, 0].records) - 1
        await journal.write(b"d")
    store.queues[TOPIC, 0].records[end] = None
    assert await replayed(store) == [b"a", b"b", b"c", b"d"]
    put(store, b"torn", "x 0")  # the one that is due after that start, and a crash
    await written(store, b"e")
    assert await replayed(store) == [b"a", b"b", b"c", b"d", b"e"]
    store.retain_from(TOPIC, 0, 0)
    assert await replayed(store) == [b"a", b"b", b"c", b"d", b"e"]


async def test_an_early_snapshot_whose_end_is_damaged_counts_when_nothing_else_is_left() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"old")
    put(store, b"a b", "1")
    put(store, b"c", "0")
    store.queues[TOPIC, 0].records[-1] = None
    await written(store, b"d")
    store.trim(TOPIC, 0, 1)
    assert await replayed(store) == [b"a", b"b", b"d"]


async def test_two_that_write_a_snapshot_at_once_do_not_tear_each_others() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c")
    with journals(store) as (journal, _):
        await journal.replay()
        await asyncio.gather(journal.write_snapshot(), journal.write_snapshot())
    assert await replayed(store) == [b"a", b"b", b"c"]
