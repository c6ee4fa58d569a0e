"""The row of a shard with replicas in PostgreSQL: each change is done as the rule says, once."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest

from app.cluster import ClusterConfig, Metadata
from app.cluster.metadata.database.database import Database
from app.cluster.metadata.nodes.shard_rows import ShardRows
from app.cluster.metadata.tables import versions
from app.cluster.replication.shard_row import (
    ChangeInSync,
    Elect,
    ElectAfterLoss,
    HandOver,
    Renew,
    RowChange,
    ShardRow,
    TellRegressed,
    WriteBack,
)
from app.cluster.replication.terms import Member, Term
from app.domain.errors import MetadataUnavailable
from tests.support.metadata.databases import PostgresDatabases
from tests.support.stores.clock import FakeClock

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

A, B, C = Member("a", 1), Member("b", 2), Member("c", 3)
MADE = """
INSERT INTO shards (name, shard_id, epoch, grant_id, leader, place, address, lease_until_ms,
  created_ms, leader_incarnation, in_sync, in_sync_version, settled_version, min_in_sync)
VALUES ('s', '\\x01020304', 4, '\\x0000000000000028', 'a', '', '', 0, 0, 1,
  '[["a", 1], ["b", 2], ["c", 3]]', 7, 7, 1)
"""
JOINED = """
INSERT INTO shard_replicas (shard, node_id, cluster_url, incarnation, joined_ms, seen_ms)
VALUES ('s', 'a', 'a:1', 1, 0, 0), ('s', 'b', 'b:1', 2, 0, 0), ('s', 'c', 'c:1', 3, 0, 0)
"""
SEEN = Term(4, 40)
LEASE_MS = 60_000


@pytest.fixture
def url(postgres_databases: PostgresDatabases) -> str:
    found = postgres_databases.migrated()
    with psycopg.connect(found) as connection:
        connection.execute(MADE)
        connection.execute(JOINED)
    return found


@pytest.fixture
async def databases(url: str) -> AsyncIterator[list[Database]]:
    opened = [Database(ClusterConfig(url)) for _ in range(2)]
    yield opened
    for database in opened:
        await database.close()


@pytest.fixture
def rows(databases: list[Database]) -> ShardRows:
    return ShardRows(databases[0], "s")


async def row_of(rows: ShardRows) -> ShardRow:
    seen = await rows.read()
    assert seen is not None
    return seen.row


async def test_the_row_is_read_as_it_is(rows: ShardRows) -> None:
    expected = ShardRow(SEEN, A, frozenset({A, B, C}), 7, 7)
    assert await row_of(rows) == expected


async def test_the_row_of_a_lone_node_is_compared_too(url: str, rows: ShardRows) -> None:
    """Its grant has 16 bytes, and there is one before its first epoch."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE shards SET epoch = 0, grant_id = decode(repeat('f0', 16), 'hex')"
        )
    term = (await row_of(rows)).term
    answer = await rows.change(Renew(term, LEASE_MS))
    assert answer is not None
    assert answer.is_done


async def test_a_shard_that_is_not_there(databases: list[Database]) -> None:
    rows = ShardRows(databases[0], "t")
    assert await rows.read() is None
    assert await rows.change(Renew(SEEN, LEASE_MS)) is None


async def test_of_two_that_stand_at_once_one_is_elected(databases: list[Database]) -> None:
    standing = [
        ShardRows(database, "s").change(Elect(SEEN, Term(5, 50 + number), member, LEASE_MS))
        for number, (database, member) in enumerate(zip(databases, (B, C), strict=True))
    ]
    answers = [answer for answer in await asyncio.gather(*standing) if answer is not None]
    (winner,) = [answer for answer in answers if answer.is_done]
    (loser,) = [answer for answer in answers if not answer.is_done]
    assert loser.seen.row == winner.seen.row, "who lost sees who won"
    assert 0 < loser.seen.lease_left_ms <= LEASE_MS


async def test_an_election_is_told_to_all(
    url: str, databases: list[Database], rows: ShardRows
) -> None:
    metadata = await Metadata.open(ClusterConfig(url), FakeClock())
    try:
        await rows.change(Elect(SEEN, Term(5, 50), B, LEASE_MS))
        await rows.change(Renew(Term(5, 50), LEASE_MS))
        assert await metadata.refresh(), "routes are read anew"
        assert metadata.snapshot.shards["s"].epoch == 5
        (event,) = await metadata.events.page(None, 10)
        told = event.kind, event.shard, event.node_id, event.epoch, event.detail
        assert told == ("shard_elected", "s", "b", 5, "in sync: b, c")
    finally:
        await metadata.close()


async def test_a_change_that_crosses_another_is_judged_anew(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (ShardRows(database, "s") for database in databases)
    read = first.read
    handed = False

    async def read_and_be_late() -> object:
        nonlocal handed
        seen = await read()
        if not handed:
            handed = True
            await second.change(HandOver(SEEN, "b"))
        return seen

    monkeypatch.setattr(first, "read", read_and_be_late)
    answer = await first.change(Renew(SEEN, LEASE_MS))
    assert answer is not None
    assert not answer.is_done, "the shard was handed over between"
    assert answer.seen.row.handed_to == "b"


async def test_a_lease_is_renewed_by_one_statement_once_the_row_was_seen(
    rows: ShardRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_again() -> None:
        pytest.fail("it asks twice")

    await rows.read()
    with monkeypatch.context() as once:
        once.setattr(rows, "read", read_again)
        row = None
        for lease_ms in (LEASE_MS, 2 * LEASE_MS):
            answer = await rows.change(Renew(SEEN, lease_ms))
            assert answer is not None
            assert answer.is_done
            assert answer.seen.lease_left_ms == lease_ms
            row = answer.seen.row
    assert await row_of(rows) == row


async def test_a_row_that_is_another_than_was_seen_is_judged_anew(
    databases: list[Database], rows: ShardRows
) -> None:
    await rows.read()
    await ShardRows(databases[1], "s").change(HandOver(SEEN, "b"))
    answer = await rows.change(Renew(SEEN, LEASE_MS))
    assert answer is not None
    assert not answer.is_done
    assert answer.seen.row.handed_to == "b"
    assert answer.seen.lease_left_ms <= 0


async def test_one_that_was_taken_out_is_not_taken_into_the_set(url: str, rows: ShardRows) -> None:
    """Its leader has not heard of it yet."""
    grown = ChangeInSync(SEEN, 8, frozenset({A, B, C}), True)
    assert await rows.change(ChangeInSync(SEEN, 7, frozenset({A, B}), True))
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM shard_replicas WHERE node_id = 'c'")
    answer = await rows.change(grown)
    assert answer is not None
    assert not answer.is_done
    assert (await row_of(rows)).in_sync == {A, B}
    with psycopg.connect(url) as connection:
        connection.execute(JOINED.partition("VALUES")[0] + "VALUES ('s', 'c', 'c:1', 3, 0, 0)")
    answer = await rows.change(grown)
    assert answer is not None
    assert answer.is_done


async def test_one_that_freezes_within_a_change_keeps_nobody_out(
    url: str, databases: list[Database], rows: ShardRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cluster.metadata.nodes.shard_rows.FROZEN_MS", 50)
    frozen = ShardRows(databases[1], "s")
    reached, thawed = asyncio.Event(), asyncio.Event()

    async def freeze(*_: object) -> None:
        reached.set()
        await thawed.wait()

    async def fail() -> None:
        with pytest.raises(MetadataUnavailable):
            await frozen.change(ChangeInSync(SEEN, 7, frozenset({A, B}), True))

    async with asyncio.TaskGroup() as group:
        with monkeypatch.context() as freezing:
            freezing.setattr("app.cluster.metadata.nodes.shard_rows.note", freeze)
            group.create_task(fail())
            await reached.wait()
        answer = await rows.change(Elect(SEEN, Term(5, 50), B, LEASE_MS))
        thawed.set()
    assert answer is not None
    assert answer.is_done
    assert (await row_of(rows)).term == Term(5, 50)


async def test_one_that_freezes_within_any_transaction_keeps_nobody_out(
    url: str, rows: ShardRows
) -> None:
    frozen = Database(ClusterConfig(url, idle_ms_max=50))
    elected: list[bool] = []

    async def freeze() -> None:
        async with frozen.transaction() as connection:
            await versions.lock(connection)
            answer = await rows.change(Elect(SEEN, Term(5, 50), B, LEASE_MS))
            elected.append(answer is not None and answer.is_done)
            await versions.lock(connection)

    try:
        with pytest.raises(MetadataUnavailable):
            await freeze()
    finally:
        await frozen.close()
    assert elected == [True]


def some_change(chance: random.Random, row: ShardRow) -> RowChange:
    """One that fits the row, or nearly does."""
    members = [A, B, C, Member("b", 9)]
    term = chance.choice([row.term, row.term, row.term, Term(row.term.epoch, 99)])
    version = row.in_sync_version - chance.choice([0, 0, 0, 1])
    new = Term(row.term.epoch + 1, chance.randrange(1, 1 << 63))
    lease_ms = chance.choice([0, LEASE_MS])
    some = frozenset(chance.sample(members, chance.randrange(1, 4)))
    changes: list[RowChange] = [
        Elect(term, new, chance.choice(members), lease_ms),
        ElectAfterLoss(term, version, new, chance.choice(members), lease_ms),
        Renew(term, lease_ms),
        ChangeInSync(term, version, some, chance.random() < 0.5),
        ChangeInSync(term, version, some, chance.random() < 0.5),
        HandOver(term, chance.choice("abc")),
        TellRegressed(term),
        WriteBack(row, replace(row, term=new, is_regressed=False, in_sync=some), lease_ms),
    ]
    return chance.choice(changes)


async def test_histories_of_changes_are_those_of_the_rule(rows: ShardRows) -> None:
    chance = random.Random(7)
    done = 0
    for _ in range(300):
        before = await row_of(rows)
        change = some_change(chance, before)
        answer = await rows.change(change)
        assert answer is not None
        after = await row_of(rows)
        expected = change.apply(before, answer.seen.now_ms)
        assert answer.is_done == (expected is not None)
        assert after == answer.seen.row == (expected or before)
        done += answer.is_done
    assert done > 100
