"""The replicas of a shard in PostgreSQL: who may join, what is told of it, and the first set."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest

from app.cli import main
from app.cluster import (
    Claim,
    ClusterConfig,
    ForeignStore,
    JoinRequest,
    Metadata,
    ReplicaMember,
    ReplicaRefused,
    ReplicaSet,
    ShardRows,
)
from app.cluster.metadata.database.database import Database
from app.cluster.replication.shard_row import ChangeInSync, Elect, Renew, ShardRow
from app.cluster.replication.terms import NO_TERM, Member, Term
from app.domain.errors import ReplicaNeeded, ReplicaNotFound
from app.domain.settings import TopicSettings
from tests.property.replication.simulated_parts import Schedule, SimDatabase
from tests.support.metadata.databases import PostgresDatabases, SqliteDatabases
from tests.support.stores.clock import FakeClock

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEGMENT = 64 << 20
LEASE_MS = 60_000
INCARNATIONS = {name: number for number, name in enumerate("abcdef", 1)}


@pytest.fixture
def url(postgres_databases: PostgresDatabases) -> str:
    return postgres_databases.migrated()


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[list[Metadata]]:
    opened = [await Metadata.open(ClusterConfig(url), FakeClock()) for _ in range(4)]
    yield opened
    for metadata in opened:
        await metadata.close()


@pytest.fixture
async def rows(url: str) -> AsyncIterator[ShardRows]:
    database = Database(ClusterConfig(url))
    yield ShardRows(database, "s")
    await database.close()


def asking(name: str, **given: object) -> JoinRequest:
    request = JoinRequest(
        "s", name, f"http://{name}:8711", f"http://{name}:8710", None, 3, SEGMENT,
        INCARNATIONS[name],
    )  # fmt: skip
    return request._replace(**given)  # type: ignore[arg-type]


def member(name: str) -> Member:
    return Member(name, INCARNATIONS[name])


async def row_of(rows: ShardRows) -> ShardRow:
    seen = await rows.read()
    assert seen is not None
    return seen.row


def names(found: ReplicaSet) -> list[str]:
    return [each.node_id for each in found.members]


class TestJoining:
    async def test_the_first_makes_the_shard_and_the_next_gets_what_it_is(
        self, nodes: list[Metadata]
    ) -> None:
        made = await nodes[0].replica_sets.join(asking("a", zone="east"))
        assert len(made.store_id) == 4
        assert (made.shard, made.segment_bytes) == ("s", SEGMENT)
        assert (made.target_replicas, made.min_in_sync) == (3, 2)
        first = ReplicaMember("a", "http://a:8711", "http://a:8710", "east")
        assert made.members == (first,)
        further = await nodes[1].replica_sets.join(
            asking("b", replicas=1, segment_bytes=1, advertise_url=None)
        )
        second = ReplicaMember("b", "http://b:8711", None, None)
        joined_ms = further.joined_ms
        assert further == made._replace(members=(first, second), joined_ms=joined_ms)
        assert joined_ms.keys() == {"a", "b"}
        assert await nodes[2].replica_sets.read("s") == further
        assert nodes[1].shard == "s"

    async def test_of_two_founders_at_once_one_makes_the_shard(self, nodes: list[Metadata]) -> None:
        joined = await asyncio.gather(
            *(
                node.replica_sets.join(asking(name, segment_bytes=SEGMENT * number))
                for number, (name, node) in enumerate(zip("abc", nodes[:3], strict=True), 1)
            )
        )
        whole = max(joined, key=lambda each: len(each.members))
        assert sorted(names(whole)) == ["a", "b", "c"]
        assert {each.store_id for each in joined} == {whole.store_id}
        assert {each.segment_bytes for each in joined} == {whole.segment_bytes}

    async def test_of_two_that_want_the_last_place_one_gets_it(self, nodes: list[Metadata]) -> None:
        for name, node in zip("ab", nodes[:2], strict=True):
            await node.replica_sets.join(asking(name))
        asked = [
            node.replica_sets.join(asking(name)) for name, node in zip("cd", nodes[2:], strict=True)
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        (found,) = [each for each in answers if isinstance(each, ReplicaSet)]
        (refused,) = [each for each in answers if isinstance(each, ReplicaRefused)]
        assert names(found)[:2] == ["a", "b"]
        assert "has all its 3 replicas" in refused.detail
        assert names(found)[2] in refused.detail
        assert "remove-node" in str(refused.hint)
        assert await nodes[0].replica_sets.read("s") == found

    async def test_all_hear_of_a_member(self, nodes: list[Metadata]) -> None:
        await nodes[0].replica_sets.join(asking("a"))
        await nodes[1].replica_sets.join(asking("b"))
        assert await nodes[0].refresh(), "the version is raised"
        events = await nodes[0].events.page(None, 10)
        told = [(event.kind, event.node_id, event.detail) for event in reversed(events)]
        assert told == [
            ("shard_made", "a", "for 3 replicas"),
            ("replica_joined", "a", "http://a:8711"),
            ("replica_joined", "b", "http://b:8711"),
            ("in_sync_changed", "b", "in sync: a, b"),
        ]

    async def test_a_new_shard_has_the_queues_that_were_there_before(
        self, nodes: list[Metadata]
    ) -> None:
        await nodes[0].put_topic("orders", TopicSettings(queues=2))
        await nodes[0].replica_sets.join(asking("a"))
        assert list(nodes[0].snapshot.topics["orders"].writable_here) == [0, 1]


class TestFirstSet:
    async def test_it_is_told_once_there_are_as_many_as_it_may_not_fall_below(
        self, nodes: list[Metadata], rows: ShardRows
    ) -> None:
        await nodes[0].replica_sets.join(asking("a"))
        assert await row_of(rows) == ShardRow(min_in_sync=2, target_replicas=3)
        await nodes[1].replica_sets.join(asking("b"))
        founded = ShardRow(
            in_sync=frozenset({member("a"), member("b")}),
            in_sync_version=1,
            settled_version=1,
            min_in_sync=2,
            target_replicas=3,
        )
        assert await row_of(rows) == founded
        await nodes[2].replica_sets.join(asking("c"))
        assert await row_of(rows) == founded, "the leader takes in who comes later"

    async def test_of_two_wanted_one_founds_the_shard(
        self, nodes: list[Metadata], rows: ShardRows
    ) -> None:
        await nodes[0].replica_sets.join(asking("a", replicas=2))
        assert (await row_of(rows)).in_sync == {member("a")}

    async def test_who_comes_in_another_incarnation_takes_its_place_until_the_first_election(
        self, nodes: list[Metadata], rows: ShardRows
    ) -> None:
        for name, node in zip("abc", nodes[:3], strict=True):
            await node.replica_sets.join(asking(name))
        await nodes[0].replica_sets.join(asking("a", incarnation=70))
        await nodes[2].replica_sets.join(asking("c", incarnation=90))
        row = await row_of(rows)
        assert row.in_sync == {Member("a", 70), member("b")}
        assert (row.in_sync_version, row.settled_version) == (2, 2)
        elected = await rows.change(Elect(NO_TERM, Term(1, 5), Member("a", 70), 60_000))
        assert elected is not None
        assert elected.is_done
        await nodes[1].replica_sets.join(asking("b", incarnation=80))
        assert await row_of(rows) == elected.seen.row, "what was confirmed may be there alone"


@pytest.mark.parametrize("replicas", [2, 3])
async def test_histories_of_joins_are_those_that_are_simulated(
    nodes: list[Metadata], rows: ShardRows, replicas: int
) -> None:
    """Or the simulator would prove something else."""
    chance = random.Random(replicas)
    minimum = 1 if replicas == 2 else 2
    made = ShardRow(min_in_sync=minimum, target_replicas=replicas)
    simulated = SimDatabase(Schedule(), random.Random(1), made)
    for step in range(30):
        coming = Member(chance.choice("abc"[:replicas]), chance.randrange(1, 4))
        request = asking(coming.node, replicas=replicas, incarnation=coming.incarnation)
        await nodes[0].replica_sets.join(request)
        simulated.join(coming)
        if step == 20:
            elect = Elect(NO_TERM, Term(1, 5), min(simulated.row.in_sync), LEASE_MS)
            elected = elect.apply(simulated.row, 0)
            answer = await rows.change(elect)
            assert elected is not None
            assert answer is not None
            assert answer.is_done
            simulated.row = elected
        found = await row_of(rows)
        assert replace(found, lease_until_ms=simulated.row.lease_until_ms) == simulated.row
    assert simulated.row.in_sync_version > 3, "some came in another incarnation"


class TestRefusals:
    async def refused(self, metadata: Metadata, request: JoinRequest, match: str) -> None:
        before = await metadata.replica_sets.read(request.shard)
        with pytest.raises(ReplicaRefused, match=match) as refused:
            await metadata.replica_sets.join(request)
        assert refused.value.hint
        assert await metadata.replica_sets.read(request.shard) == before

    async def test_a_lone_nodes_shard(self, nodes: list[Metadata]) -> None:
        await nodes[0].claim_shard(Claim(b"\1" * 4, "s", "01010101", "x:1", "", b"g"))
        await self.refused(nodes[1], asking("a"), "is a lone node's, last started at x:1")

    async def test_the_directory_of_another_shard(self, nodes: list[Metadata]) -> None:
        made = await nodes[0].replica_sets.join(asking("a"))
        await self.refused(nodes[1], asking("b", store_id=b"else"), made.store_id.hex())
        joined = await nodes[1].replica_sets.join(asking("b", store_id=made.store_id))
        assert names(joined) == ["a", "b"]

    async def test_a_directory_that_a_database_of_before_knows_nothing_of(
        self, nodes: list[Metadata]
    ) -> None:
        """Restored to before the shard was made: it must not be made once more."""
        await self.refused(nodes[0], asking("a", store_id=b"mine"), "has no shard 's'")

    async def test_a_node_at_the_url_of_another(self, nodes: list[Metadata]) -> None:
        """An empty disk in the place of one that is gone."""
        await nodes[0].replica_sets.join(asking("a"))
        taken = asking("b", cluster_url="http://a:8711")
        await self.refused(nodes[1], taken, "the node a, whose data directory this is not")

    async def test_two_nodes_of_one_id_at_once(self, nodes: list[Metadata], url: str) -> None:
        await nodes[0].replica_sets.join(asking("a"))
        moved = asking("a", cluster_url="http://b:8711", incarnation=70)
        await self.refused(nodes[1], moved, "the node a is at work at http://a:8711")
        await nodes[0].replica_sets.stopped("s", "a")
        joined = await nodes[1].replica_sets.join(moved)
        assert [each.cluster_url for each in joined.members] == ["http://b:8711"]
        with psycopg.connect(url) as connection:  # as time does
            connection.execute("UPDATE shard_replicas SET seen_ms = seen_ms - 30001")
        again = await nodes[0].replica_sets.join(asking("a"))
        assert [each.cluster_url for each in again.members] == ["http://a:8711"]

    async def test_a_new_one_where_the_row_has_forgotten(
        self, nodes: list[Metadata], url: str
    ) -> None:
        """Those that were there are needed to restore it, also one whose join is forgotten."""
        made = await nodes[0].replica_sets.join(asking("a"))
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE shards SET is_regressed = true")
        await self.refused(nodes[1], asking("b"), "has forgotten what the shard 's' is")
        await nodes[0].replica_sets.join(asking("a"))
        joined = await nodes[1].replica_sets.join(asking("b", store_id=made.store_id))
        assert names(joined) == ["a", "b"]

    @pytest.mark.parametrize("replicas", [0, 33])
    async def test_a_number_of_replicas_that_nobody_has(
        self, nodes: list[Metadata], replicas: int
    ) -> None:
        await self.refused(nodes[0], asking("a", replicas=replicas), f"and not {replicas}")


class TestLeaving:
    async def test_one_that_is_not_needed_makes_room(
        self, nodes: list[Metadata], rows: ShardRows
    ) -> None:
        for name, node in zip("ab", nodes[:2], strict=True):
            await node.replica_sets.join(asking(name))
        joined_ms = (await nodes[2].replica_sets.join(asking("c"))).joined_ms["c"]
        sets = nodes[0].replica_sets
        await nodes[1].refresh()
        tried = await sets.leave("s", "c", is_dry_run=True)
        assert not await nodes[1].refresh(), "nothing was done"
        assert not await sets.was_removed("s", "c", joined_ms)
        assert await sets.leave("s", "c") == tried
        assert (tried.was_in_sync, tried.in_sync, tried.left) == (False, ("a", "b"), ("a", "b"))
        assert await nodes[1].refresh(), "the version is raised"
        assert await sets.was_removed("s", "c", joined_ms)
        assert not await sets.was_removed("s", "d", joined_ms)
        joined = await nodes[3].replica_sets.join(asking("d"))
        assert names(joined) == ["a", "b", "d"]

    async def test_a_copy_from_between_two_memberships_ends_none(
        self, nodes: list[Metadata], rows: ShardRows, url: str
    ) -> None:
        """A database that was restored knows that the node was taken out, and not that it has
        joined again since."""
        for name, node in zip("abc", nodes[:3], strict=True):
            await node.replica_sets.join(asking(name))
        sets = nodes[0].replica_sets
        await sets.leave("s", "c")
        again = await nodes[2].replica_sets.join(asking("c"))
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM shard_replicas WHERE node_id = 'c'")
            connection.execute(
                "DELETE FROM cluster_events WHERE seq = (SELECT max(seq) FROM cluster_events)"
            )
        assert not await sets.was_removed("s", "c", again.joined_ms["c"])

    async def test_one_that_the_shard_needs_stays(
        self, nodes: list[Metadata], rows: ShardRows, url: str
    ) -> None:
        for name, node in zip("abc", nodes[:3], strict=True):
            await node.replica_sets.join(asking(name))
        await rows.change(Elect(NO_TERM, Term(1, 5), member("a"), 60_000))
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE shards SET handed_to = 'c'")
        reasons = {"a": "leads", "b": "too_few_in_sync", "c": "handed_over"}
        for name, reason in reasons.items():
            with pytest.raises(ReplicaNeeded) as needed:
                await nodes[3].replica_sets.leave("s", name)
            assert needed.value.fields["reason"] == reason
        with pytest.raises(ReplicaNotFound, match="has no replica"):
            await nodes[3].replica_sets.leave("s", "d")
        found = await nodes[3].replica_sets.read("s")
        assert found is not None
        assert names(found) == ["a", "b", "c"]

    async def test_one_of_three_in_sync_leaves_the_set_with_its_place(
        self, nodes: list[Metadata], rows: ShardRows
    ) -> None:
        await led_by_a(nodes, rows)
        term = (await row_of(rows)).term
        all_three = frozenset(map(member, "abc"))
        version = (await row_of(rows)).in_sync_version
        grown = ChangeInSync(term, version, all_three, is_proven=True)
        answer = await rows.change(grown)
        assert answer is not None
        assert answer.is_done
        before = await row_of(rows)
        found = await nodes[3].replica_sets.leave("s", "c", "ada")
        assert (found.was_in_sync, found.in_sync, found.left) == (True, ("a", "b"), ("a", "b"))
        row = await row_of(rows)
        assert row.in_sync == {member("a"), member("b")}
        assert row.in_sync_version == before.in_sync_version + 1
        again = ChangeInSync(term, row.in_sync_version, all_three, is_proven=True)
        answer = await rows.change(again)
        assert answer is not None
        assert not answer.is_done, "its leader has not heard of it yet"
        (event,) = await nodes[3].events.page(None, 1)
        assert event.kind == "replica_removed"
        assert event.detail == "in sync: a, b; asked for by ada"
        with pytest.raises(ReplicaNeeded, match="only a would be; 2 have to be"):
            await nodes[3].replica_sets.leave("s", "b")

    @pytest.mark.parametrize("shard", [(), ("--shard", "s")])
    async def test_an_operator_does_it_by_a_command(
        self,
        nodes: list[Metadata],
        rows: ShardRows,
        url: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        shard: tuple[str, ...],
    ) -> None:
        monkeypatch.setenv("CURLEW_DATABASE_URL", url)

        async def remove(node: str) -> tuple[int, str]:
            status = await asyncio.to_thread(main, ["remove-node", node, *shard])
            printed = capsys.readouterr()
            return status, printed.out + printed.err

        for name, node in zip("abc", nodes[:3], strict=True):
            await node.replica_sets.join(asking(name))
        await rows.change(Elect(NO_TERM, Term(1, 5), member("a"), 60_000))
        assert await remove("c") == (
            0,
            "The node c has no replica of the shard s any more. Left: a, b. Another node may join"
            " in its place; its own data directory joins again when it is started with it.\n",
        )
        for name, reason, hint in (
            ("a", "it leads", "curlew hand-over s"),
            ("b", "is in sync", "bring another replica in sync first"),
            ("c", "replica", "have: a, b" if shard else "nodes with replicas: a, b"),
        ):
            status, said = await remove(name)
            assert (status, said.count("\n")) == (2, 1)
            assert reason in said
            assert hint in said


async def test_what_is_no_shard_of_replicas(nodes: list[Metadata]) -> None:
    await nodes[0].claim_shard(Claim(b"\1" * 4, "s", "01010101", "x:1", "", b"g"))
    assert await nodes[0].replica_sets.read("s") is None
    assert await nodes[0].replica_sets.read("t") is None


async def test_replicas_need_postgresql(sqlite_databases: SqliteDatabases) -> None:
    metadata = await Metadata.open(ClusterConfig(sqlite_databases.migrated()), FakeClock())
    try:
        with pytest.raises(ReplicaRefused, match="in PostgreSQL, and this is SQLite"):
            await metadata.replica_sets.join(asking("a"))
        assert await metadata.replica_sets.read("s") is None
    finally:
        await metadata.close()


class TestLoneNodes:
    """What nodes write of shards without replicas never touches one that has some."""

    async def test_none_takes_the_shard(self, nodes: list[Metadata], rows: ShardRows) -> None:
        made = await led_by_a(nodes, rows)
        before = await row_of(rows)
        for name in ("s", ""):
            asked = Claim(made.store_id, name, "x", "x:1", "here", b"g" * 16)
            with pytest.raises(ForeignStore, match="has several replicas"):
                await nodes[3].claim_shard(asked)
        with pytest.raises(ForeignStore, match="the shard 's' is the store"):
            await nodes[3].claim_shard(Claim(b"else", "s", "x", "x:1", "here", b"g" * 16))
        assert await row_of(rows) == before

    async def test_nothing_but_its_replica_writes_leader_term_and_lease(
        self, nodes: list[Metadata], rows: ShardRows
    ) -> None:
        await led_by_a(nodes, rows)
        before = await row_of(rows)
        grant_id = before.term.grant.to_bytes(8)
        nodes[0].grant_id = grant_id  # as nothing gives it to a replica's node
        await nodes[0].beat("a")
        await nodes[0].lead_shard(grant_id, 9)
        await nodes[0].leave_shard(grant_id)
        assert await row_of(rows) == before

    async def test_a_shard_is_not_released_while_a_replica_is_at_work(
        self, nodes: list[Metadata], rows: ShardRows
    ) -> None:
        await led_by_a(nodes, rows)
        for name in "ab":
            await nodes[3].replica_sets.stopped("s", name)
        with pytest.raises(ForeignStore, match="at work at http://c:8711"):
            await nodes[3].release_shard("s")
        await nodes[3].replica_sets.stopped("s", "c")
        released = await nodes[3].release_shard("s")
        assert released is not None
        assert released[0] == "s"
        assert await nodes[3].replica_sets.read("s") is None


class TestBeats:
    async def test_a_sign_of_life_is_one_of_the_replica(
        self, nodes: list[Metadata], url: str
    ) -> None:
        await nodes[0].replica_sets.join(asking("a"))
        await nodes[0].replica_sets.stopped("s", "a")
        assert (await nodes[0].beat("a")).is_replica
        with psycopg.connect(url) as connection:
            seen = connection.execute(
                "SELECT extract(epoch FROM clock_timestamp()) * 1000 - seen_ms FROM shard_replicas"
            ).fetchone()
        assert seen is not None
        assert 0 <= seen[0] < 30_000
        assert not (await nodes[0].beat("b")).is_replica

    async def test_a_question_about_the_row_brings_the_beat(
        self, nodes: list[Metadata], rows: ShardRows, url: str
    ) -> None:
        await led_by_a(nodes, rows)
        node = nodes[0]
        of_replica = node.shard_rows("a")
        renewal = Renew((await row_of(rows)).term, LEASE_MS)
        await of_replica.read()
        answer = await of_replica.change(renewal)
        assert answer is not None
        assert answer.is_done
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE metadata_version SET version = version + 1")
        carried = await node.beat("a", renews=False)
        asked = await node.beat("a", renews=False)
        assert asked == carried._replace(version=carried.version + 1, clock_ms=asked.clock_ms)
        assert carried.epoch == 1
        assert carried.is_replica

    async def test_one_from_before_a_refresh_is_none(self, nodes: list[Metadata]) -> None:
        """It would tell of a database that is older than what the node knows."""
        node = nodes[0]
        await node.replica_sets.join(asking("a"))
        await node.shard_rows("a").read()
        await nodes[1].replica_sets.join(asking("b"))
        await node.refresh()
        beat = await node.beat("a", renews=False)
        assert beat.version == node.snapshot.version

    async def test_an_old_answer_is_none(self, nodes: list[Metadata], url: str) -> None:
        clock = FakeClock()
        metadata = await Metadata.open(ClusterConfig(url), clock)
        try:
            await metadata.replica_sets.join(asking("a"))
            await metadata.shard_rows("a").read()
            await nodes[1].replica_sets.join(asking("b"))
            clock.advance(ms=1_001)
            beat = await metadata.beat("a", renews=False)
            assert beat.version > metadata.snapshot.version
        finally:
            await metadata.close()


async def test_the_snapshot_has_the_replicas_and_who_is_in_sync(
    nodes: list[Metadata], rows: ShardRows
) -> None:
    made = await led_by_a(nodes, rows)
    await nodes[3].refresh()
    shard = nodes[3].snapshot.shards["s"]
    assert shard.members == made.members
    assert (shard.leader, shard.in_sync) == ("a", ("a", "b"))
    assert (shard.advertise_url, shard.cluster_url) == ("http://a:8710", "http://a:8711")
    assert (shard.target_replicas, shard.min_in_sync) == (3, 2)


async def led_by_a(nodes: list[Metadata], rows: ShardRows) -> ReplicaSet:
    joined = [
        await node.replica_sets.join(asking(name))
        for name, node in zip("abc", nodes[:3], strict=True)
    ]
    answer = await rows.change(Elect(NO_TERM, Term(1, 5), member("a"), LEASE_MS))
    assert answer is not None
    assert answer.is_done
    return joined[-1]


class TestRaces:
    async def test_who_joins_beside_an_election_undoes_neither(
        self, nodes: list[Metadata], rows: ShardRows
    ) -> None:
        for name, node in zip("ab", nodes[:2], strict=True):
            await node.replica_sets.join(asking(name))
        elected, *_ = await asyncio.gather(
            rows.change(Elect(NO_TERM, Term(1, 5), member("a"), LEASE_MS)),
            nodes[2].replica_sets.join(asking("c")),
            nodes[1].replica_sets.join(asking("b", incarnation=80)),
        )
        assert elected is not None
        assert elected.is_done
        row = await row_of(rows)
        assert row.term == Term(1, 5)
        assert {each.node for each in row.in_sync} == {"a", "b"}
        is_later = Member("b", 80) in row.in_sync
        assert row.in_sync_version == (3 if is_later else 2), "each change of the set counts"
        found = await nodes[3].replica_sets.read("s")
        assert found is not None
        assert sorted(names(found)) == ["a", "b", "c"]

    async def test_a_database_from_before_a_join_takes_the_replica_again(
        self, nodes: list[Metadata], rows: ShardRows, url: str
    ) -> None:
        made = await led_by_a(nodes, rows)
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM shard_replicas WHERE node_id = 'c'")
            connection.execute("UPDATE metadata_version SET version = version - 1")
        before = await row_of(rows)
        assert not (await nodes[2].beat("c")).is_replica, "it hears of that"
        again = await nodes[2].replica_sets.join(asking("c", store_id=made.store_id))
        assert again._replace(joined_ms=made.joined_ms) == made
        assert again.joined_ms["c"] > made.joined_ms["c"]
        assert await row_of(rows) == before

    async def test_a_database_from_before_the_first_election_has_no_other_founders(
        self, nodes: list[Metadata], rows: ShardRows, url: str
    ) -> None:
        made = await led_by_a(nodes, rows)
        founded = ShardRow(
            in_sync=frozenset({member("a"), member("b")}),
            in_sync_version=1,
            settled_version=1,
            min_in_sync=2,
            target_replicas=3,
        )
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM shard_replicas WHERE node_id IN ('b', 'c')")
            connection.execute(
                "UPDATE shards SET epoch = 0, grant_id = NULL, leader = NULL,"
                " leader_incarnation = 0, in_sync_version = 1, lease_until_ms = 0"
            )
        for name in "cb":
            await nodes[3].replica_sets.join(asking(name, store_id=made.store_id))
        assert await row_of(rows) == founded
