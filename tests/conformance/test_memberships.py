"""Members of groups in SQL, over SQLite and a real PostgreSQL, from two nodes at once."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select

from app.cluster import Metadata
from app.cluster.metadata.consumers.member_numbers import FLOOR
from app.cluster.metadata.schema.tables import group_generations
from app.domain.consumers import rebalancing
from app.domain.consumers.member_shares import Surroundings, assignment_of
from app.domain.consumers.membership import (
    Membership,
    Profile,
    QueueName,
    RebalanceReason,
    Strategy,
    StrategyName,
    TopicSubscription,
)
from app.domain.errors import (
    GroupNotFound,
    QueueNotOwned,
    StaleGeneration,
    StateConflict,
    TopicNotFound,
)
from app.domain.limits import Limits
from tests.support.metadata.memory_metadata import MemoryMetadata
from tests.support.metadata.metadata import make, offset
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

ORDERS = Profile((TopicSubscription("orders"),))
ODD = Profile(
    (TopicSubscription("bills", "sql: a > 'ü'"), TopicSubscription("orders", "x || y")),
    Strategy(
        StrategyName.MACHINE_ROOM_NEARBY,
        7,
        ("hz", "sh"),
        (("bills", ("hz@a",)), ("orders", ("hz@a", "sh@b"))),
        StrategyName.CONSISTENT_HASH,
    ),
    "hz",
    (QueueName("orders", 3),),
)
AROUND = Surroundings({"orders": 4, "bills": 1}, now_ms=7)
Step = Callable[[Membership], Membership]


def beat(client_id: str, generation: int | None = None, profile: Profile = ORDERS) -> Step:
    return lambda now: rebalancing.heartbeat(now, client_id, profile, generation, AROUND)


def leave(client_id: str) -> Step:
    return lambda now: rebalancing.leave(now, client_id, AROUND)


def lock(client_id: str, *queue_ids: int) -> Step:
    names = [QueueName("orders", queue_id) for queue_id in queue_ids]
    return lambda now: (
        rebalancing.lock_queues(now, client_id, now.generation, names, ()).membership
        if client_id in now.members
        else now
    )


def drop_all_locks(now: Membership) -> Membership:
    locks = {(name, queue.lock) for name, queue in now.queues.items() if queue.lock}
    return rebalancing.drop_locks(now, locks)


def plain(membership: Membership) -> object:
    return (
        membership.generation,
        membership.counter,
        membership.changed,
        dict(membership.members),
        dict(membership.queues),
    )


class TestMembers:
    async def test_a_group_without_members_is_empty(self, metadata: Metadata) -> None:
        assert await metadata.members.read("billing") == Membership("billing")
        assert await metadata.members.pulses() == []
        assert await metadata.members.history("billing") == []

    async def test_what_is_stored_comes_back_on_the_other_node(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        await make(metadata, topics="orders bills", groups="billing")
        made = await metadata.members.change("billing", beat("a@1#2", profile=ODD))
        read = await other.members.read("billing")
        assert plain(read) == plain(made)
        assert read.members["a@1#2"].profile == ODD
        [entry] = await other.members.history("billing")
        assert (entry, entry.reason) == (made.new_history[0], RebalanceReason.JOINED)
        [pulse] = await other.members.pulses()
        assert pulse == ("billing", made.counter, made.changed)

    async def test_a_member_stays_whose_it_was_first(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        await make(metadata, topics="orders bills", groups="billing")
        for node, who in ((metadata, "ann"), (other, "eve")):
            for profile in (ODD, ORDERS):
                said = replace(profile, principal=who)
                await node.members.change("billing", beat("a", profile=said))
            read = await other.members.read("billing")
            assert read.members["a"].profile.principal == "ann"

    async def test_nodes_take_turns(self, metadata: Metadata, other: Metadata) -> None:
        """Twenty joins at once over two nodes: none is lost, each is a generation of its own."""
        await make(metadata, topics="orders", groups="billing")
        await asyncio.gather(
            *(
                node.members.change("billing", beat(f"{name}-{number}"))
                for number in range(10)
                for name, node in (("one", metadata), ("two", other))
            )
        )
        membership = await other.members.read("billing")
        assert membership.generation == 20 == len(membership.members)
        owners = [state.owner for state in membership.queues.values()]
        assert len(owners) == 4
        assert all(owners)
        generations = [entry.generation for entry in await metadata.members.history("billing")]
        assert generations == list(range(20, 0, -1))

    @pytest.mark.parametrize("seed", range(3))
    async def test_random_steps_give_what_memory_gives(
        self, metadata: Metadata, other: Metadata, clock: FakeClock, seed: int
    ) -> None:
        await make(metadata, topics="orders", groups="billing")
        fake = MemoryMetadata(clock)
        chosen = random.Random(seed)
        for _ in range(40):
            client_id = chosen.choice("abc")
            step = chosen.choice(
                [
                    beat(client_id),
                    beat(client_id, 0),
                    beat(client_id, profile=ODD),
                    leave(client_id),
                    lock(client_id, 0, 1, 2, 3),
                    lambda now: rebalancing.drop_locks(
                        now,
                        {(name, queue.lock) for name, queue in now.queues.items() if queue.lock},
                    ),
                    lambda now: rebalancing.reset(now, [QueueName("orders", 1)], AROUND),
                ]
            )
            node = chosen.choice([metadata, other])
            assert plain(await node.members.change("billing", step)) == plain(
                await fake.members.change("billing", step)
            )
            assert plain(await other.members.read("billing")) == plain(
                await fake.members.read("billing")
            )
        limited = (await fake.members.history("billing"))[: Limits().rebalance_history_max]
        assert await metadata.members.history("billing") == limited

    async def test_generations_outlive_the_group(self, metadata: Metadata, other: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        for client_id in "ab":
            await metadata.members.change("billing", beat(client_id))
        last = await metadata.members.change("billing", beat("c"))
        await metadata.delete_group("billing")
        emptied = await other.members.read("billing")
        assert (dict(emptied.members), dict(emptied.queues)) == ({}, {})
        assert await other.members.history("billing") == []
        with pytest.raises(GroupNotFound):
            await metadata.members.change("billing", beat("a"))
        await make(metadata, groups="billing")
        again = await metadata.members.change("billing", beat("a"))
        assert again.generation == last.generation + 1
        assert again.counter > last.counter
        with pytest.raises(StaleGeneration):
            await metadata.members.change("billing", beat("b", last.generation))

    async def test_no_row_outlives_its_group_but_one(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        await make(metadata, topics="orders")
        highest = 0
        for number in range(12):
            await make(metadata, groups=f"g{number} h{number}")
            lowest = highest
            for client_id in "abc"[: number % 3 + 1]:
                last = await other.members.change(f"g{number}", beat(client_id))
                assert last.generation > lowest
                highest = max(highest, last.generation)
            await metadata.delete_group(f"g{number}")
            await other.delete_group(f"h{number}")  # which never had members
            async with metadata._database.reading() as connection:
                rows = (await connection.execute(select(group_generations.c.consumer_group))).all()
            assert [name for (name,) in rows] == [FLOOR]
            assert await metadata.members.pulses() == []
        await make(metadata, groups="kept gone")
        kept = await metadata.members.change("kept", beat("a"))
        await metadata.members.change("gone", beat("a"))
        await metadata.delete_group("gone")
        assert (await metadata.members.read("kept")).generation == kept.generation
        assert [pulse.group for pulse in await other.members.pulses()] == ["kept"]

    async def test_the_history_is_bounded(self, metadata: Metadata) -> None:
        most = Limits().rebalance_history_max
        await make(metadata, topics="orders", groups="billing")
        for number in range(most + 5):
            await metadata.members.change("billing", beat("a", 0 if number else None))
        history = await metadata.members.history("billing")
        assert [entry.generation for entry in history] == list(range(most + 5, 5, -1))


class TestFencedCommits:
    async def test_the_check_and_the_commit_are_one(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        await make(metadata, topics="orders", groups="billing")
        await metadata.members.change("billing", beat("a"))

        def checked(generation: int, client_id: str = "a") -> Step:
            def step(now: Membership) -> Membership:
                rebalancing.check_owner(now, client_id, generation, [QueueName("orders", 0)])
                return now

            return step

        rows = [offset("billing", "orders", 0, 5)]
        await other.members.change("billing", checked(1), offsets_after=rows)
        assert await metadata.load_offsets("billing") == rows
        await other.members.change("billing", beat("b"))
        later = [offset("billing", "orders", 0, 9)]
        for step, error in ((checked(1), StaleGeneration), (checked(2, "b"), QueueNotOwned)):
            with pytest.raises(error):
                await metadata.members.change("billing", step, offsets_after=later)
        assert await metadata.load_offsets("billing") == rows

    async def test_a_commit_races_a_rebalance(self, metadata: Metadata, other: Metadata) -> None:
        """Whatever comes first, no offset of an older generation is stored after a newer began."""
        await make(metadata, topics="orders", groups="billing")
        await metadata.members.change("billing", beat("a"))
        for round_ in range(1, 11):
            generation = (await metadata.members.read("billing")).generation

            def step(now: Membership, generation: int = generation) -> Membership:
                rebalancing.check_owner(now, "a", generation, [QueueName("orders", 0)])
                return now

            async def commit(step: Step = step, round_: int = round_) -> bool:
                rows = [offset("billing", "orders", 0, round_)]
                try:
                    await metadata.members.change("billing", step, offsets_after=rows)
                except StaleGeneration:
                    return False
                return True

            reset = other.members.change(
                "billing",
                lambda now: rebalancing.reset(now, [QueueName("orders", 0)], AROUND),
                offsets_after=[offset("billing", "orders", 0, 0)],
                force=True,
            )
            came_first, _ = await asyncio.gather(commit(), reset)
            assert came_first in {True, False}
            assert await metadata.load_offsets() == [offset("billing", "orders", 0, 0)]

    async def test_a_missing_topic_undoes_everything(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        rows = [offset("billing", "orders", 0, 5), offset("billing", "gone", 0, 5)]
        with pytest.raises(TopicNotFound, match="gone"):
            await metadata.members.change("billing", beat("a"), offsets_after=rows)
        assert (await metadata.members.read("billing")).generation == 0
        assert await metadata.load_offsets() == []


class TestSnapshots:
    async def test_they_live(self, metadata: Metadata, other: Metadata, clock: FakeClock) -> None:
        await make(metadata, topics="orders", groups="billing audit")
        rows = [offset("billing", "orders", queue_id, 2**62) for queue_id in range(3)]
        made = await metadata.offset_snapshots.create("billing", "before", rows)
        assert (made.created_ms, made.offsets) == (clock.now_ms(), tuple(rows))
        await other.offset_snapshots.create("billing", "after", [])
        loaded = await other.offset_snapshots.load("billing")
        assert [each.name for each in loaded] == ["after", "before"]
        assert loaded[1] == made
        assert await metadata.offset_snapshots.load("audit") == []
        with pytest.raises(StateConflict, match="already"):
            await other.offset_snapshots.create("billing", "before", [])
        assert await other.offset_snapshots.delete("billing", "after")
        assert not await other.offset_snapshots.delete("billing", "after")
        await metadata.delete_group("billing")
        assert await metadata.offset_snapshots.load("billing") == []
        with pytest.raises(GroupNotFound):
            await metadata.offset_snapshots.create("billing", "before", rows)

    async def test_their_number_is_bounded(self, metadata: Metadata, other: Metadata) -> None:
        most = Limits().offset_snapshots_per_group_max
        await make(metadata, groups="billing")
        results = await asyncio.gather(
            *(
                (metadata, other)[number % 2].offset_snapshots.create("billing", f"s{number}", [])
                for number in range(most + 3)
            ),
            return_exceptions=True,
        )
        refused = [each for each in results if isinstance(each, BaseException)]
        assert [type(each) for each in refused] == [StateConflict] * 3
        assert len(await metadata.offset_snapshots.load("billing")) == most


async def test_assignments_are_the_same_for_all_nodes(metadata: Metadata, other: Metadata) -> None:
    await make(metadata, topics="orders", groups="billing")
    await metadata.members.change("billing", beat("a"))
    made = await metadata.members.change("billing", beat("b"))
    read = await other.members.read("billing")
    for client_id in "ab":
        assert assignment_of(read, client_id, AROUND) == assignment_of(made, client_id, AROUND)
