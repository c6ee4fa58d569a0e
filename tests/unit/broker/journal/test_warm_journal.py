"""A journal's state that a follower keeps up is the one that is replayed, and a broker goes on."""

import copy
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.broker.journal import warm_journal
from app.broker.journal.journal import Journal
from app.broker.journal.warm_journal import WarmJournal
from tests.support.stores.clock import FakeClock
from tests.support.stores.memory_store import MemoryStore
from tests.unit.broker.journal.test_journal import TOPIC, Words, journals, put, replayed, written

pytestmark = pytest.mark.anyio


def warm(store: MemoryStore) -> WarmJournal[Words]:
    return WarmJournal(store, TOPIC, Words)


def advanced(followed: WarmJournal[Words]) -> list[bytes]:
    while followed.advance():
        pass
    assert followed.is_usable
    return followed.state.words


async def begun(store: MemoryStore, followed: WarmJournal[Words]) -> tuple[list[bytes], Journal]:
    """What a broker has that begins with what was kept up."""
    with ThreadPoolExecutor(1) as readers:
        journal = Journal(store, TOPIC, followed.state, readers, followed)
        await journal.replay()
    return followed.state.words, journal


async def test_entries_are_taken_as_they_come_and_once() -> None:
    store = MemoryStore(FakeClock())
    followed = warm(store)
    assert advanced(followed) == []
    await written(store, b"a", b"b")
    assert advanced(followed) == [b"a", b"b"]
    await written(store, b"c")
    assert advanced(followed) == [b"a", b"b", b"c"]


async def test_a_broker_reads_what_came_last_and_nothing_else() -> None:
    store = MemoryStore(FakeClock())
    followed = warm(store)
    await written(store, *[b"a"] * 5_000)
    advanced(followed)
    await written(store, b"b")
    reads = store.reads
    words, journal = await begun(store, followed)
    assert words == [*[b"a"] * 5_000, b"b"]
    assert (store.reads - reads, journal._entries) == (1, 5_001)


@pytest.mark.parametrize("seed", range(20))
async def test_it_is_what_is_replayed_whatever_lies_between_two_looks(seed: int) -> None:
    chance = random.Random(seed)
    store = MemoryStore(FakeClock())
    followed = warm(store)
    with journals(store) as (journal, words):
        await journal.replay()
        for number in range(60):
            word = b"%d" % number
            if chance.random() < 0.15:
                await journal.write_snapshot()
            elif chance.random() < 0.1:
                words.apply(word)  # which the log has refused: a snapshot alone has it
                await journal.write_snapshot()
            else:
                words.apply(word)
                await journal.write(word)
            if chance.random() < 0.3:
                assert advanced(followed) == words.words
    assert (await begun(store, followed))[0] == words.words == await replayed(store)


async def test_a_snapshot_that_is_not_finished_replaces_nothing() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b")
    followed = warm(store)
    for body, mark in ((b"", "x 0"), (b"a b", "x 1")):
        put(store, body, mark)
    await written(store, b"c")
    assert advanced(followed) == [b"a", b"b", b"c"]
    assert (await begun(store, followed))[0] == [b"a", b"b", b"c"]


async def test_one_that_ends_where_nothing_is_kept_up_any_more_is_passed_over() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b")
    followed = warm(store)
    put(store, b"", "x 0")
    advanced(followed)
    put(store, b"a b", "x 1")
    put(store, b"", "x 2 end")
    await written(store, b"c")
    assert (await begun(store, followed))[0] == [b"a", b"b", b"c"]


async def test_a_follower_that_has_seen_no_beginning_leaves_it_to_the_broker() -> None:
    store = MemoryStore(FakeClock())
    await written(store, b"a", b"b", b"c")
    store.retain_from(TOPIC, 0, 1)
    followed = warm(store)
    while followed.advance():
        pass
    assert not followed.is_usable
    words, _ = await begun(store, followed)
    assert words == await replayed(store)


async def test_what_was_trimmed_before_it_was_read_is_missing_until_the_snapshot_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A take-over may come at any moment."""
    monkeypatch.setattr(warm_journal, "_READ_MESSAGES", 1)
    store = MemoryStore(FakeClock())
    followed = warm(store)
    await written(store, b"a")
    advanced(followed)
    with journals(store) as (journal, words):
        await journal.replay()
        for word in (b"b", b"c", b"d"):
            words.apply(word)
            await journal.write(word)
        await journal.write_snapshot()
        while followed.advance():
            other = await begun(store, copy.deepcopy(followed, {id(store): store}))
            assert other[0] == words.words
        assert followed.is_usable
    assert followed.state.words == [b"a", b"b", b"c", b"d"]


async def test_one_that_begins_behind_the_first_entry_has_no_beginning() -> None:
    """A replica whose log was empty, and begins where the leader's does."""
    store = MemoryStore(FakeClock())
    followed = warm(store)
    await written(store, b"a", b"b", b"c")
    store.retain_from(TOPIC, 0, 1)
    while followed.advance():
        pass
    assert not followed.is_usable
