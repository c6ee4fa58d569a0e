"""A journal on a store in memory: what is replayed is what was written down."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from app.broker.journal import Journal
from app.domain.errors import DiskFull
from app.domain.message import PROPERTY_SNAPSHOT, Message
from app.domain.positions import FlushMode
from tests.support.clock import FakeClock
from tests.support.memory_store import MemoryStore

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


async def test_a_torn_snapshot_counts_for_nothing() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a")
    chunk = Message(b"torn", system={PROPERTY_SNAPSHOT: "1"})
    store.append(TOPIC, 0, [chunk], FlushMode.ASYNC, lambda _error: None)
    await written(store, b"b")
    assert await replayed(store) == [b"a", b"b"]


async def test_a_torn_snapshot_right_before_another_counts_for_nothing() -> None:
    """The start after a crash writes one at once, when it was due."""
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c")
    chunk = Message(b"torn", system={PROPERTY_SNAPSHOT: "1"})
    store.append(TOPIC, 0, [chunk], FlushMode.ASYNC, lambda _error: None)
    with journals(store) as (journal, _):
        await journal.replay()
        await journal.write_snapshot()  # two chunks, as the torn one
    assert await replayed(store) == [b"a", b"b", b"c"]
    store.retain_from(TOPIC, 0, 0)  # as after a crash before the next checkpoint
    assert await replayed(store) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("how", ["refusal", "failure"])
async def test_a_snapshot_that_could_not_be_written_is_due_still(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.broker.journal.ENTRIES_MAX", 2)
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
    monkeypatch.setattr("app.broker.journal.ENTRIES_MAX", 3)
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
    assert store.bounds(TOPIC, 0) == (3, 5)
    assert await replayed(store) == [b"a", b"b", b"c"]
