"""Bounds of how many topics, queues, groups, schedules and nodes there are, over SQLite and
PostgreSQL alike: counted with the change, so that of two that make the last one, one is refused."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.cluster import Metadata, NodeView
from app.domain.changes.conditions import Terms
from app.domain.errors import StateConflict
from app.domain.limits import NODES_KEPT_MAX, Limits
from app.domain.schedules import ScheduleSettings
from app.domain.settings import TopicSettings
from tests.support.metadata.metadata import OpenNode, make
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

BOUND = 3
FEW = Limits(
    topics_max=BOUND, groups_max=BOUND, schedules_max=BOUND, queues_per_topic_max=8, queues_max=10
)


async def _put_topic(metadata: Metadata, name: str) -> None:
    await metadata.put_topic(name, TopicSettings(queues=1))


async def _change_topic(metadata: Metadata, name: str) -> None:
    await metadata.change_topic(name, {"queues": 1})


async def _ensure_topic(metadata: Metadata, name: str) -> None:
    await metadata.ensure_topic(name)


async def _change_group(metadata: Metadata, name: str) -> None:
    await metadata.change_group(name, {})


async def _ensure_group(metadata: Metadata, name: str) -> None:
    await metadata.ensure_group(name)


async def _put_schedule(metadata: Metadata, name: str) -> None:
    await metadata.schedules.put(name, ScheduleSettings("* * * * *", "orders", b""), 5)


Maker = Callable[[Metadata, str], Awaitable[None]]
MAKERS: list[tuple[Maker, str]] = [
    (_put_topic, "topics_max"),
    (_change_topic, "topics_max"),
    (_change_group, "groups_max"),
    (_ensure_group, "groups_max"),
    (_put_schedule, "schedules_max"),
]


@pytest.mark.parametrize(("maker", "bound"), MAKERS)
async def test_one_more_than_the_bound_is_refused(
    maker: Maker, bound: str, open_node: OpenNode
) -> None:
    async with open_node(FEW) as metadata:
        for number in range(BOUND):
            await maker(metadata, f"n{number}")
        for number in range(BOUND, 10 * BOUND):
            with pytest.raises(StateConflict, match="more than 3 are not kept") as caught:
                await maker(metadata, f"n{number}")
            assert caught.value.fields == {"limit": BOUND, "bound": bound}
            assert caught.value.hint
        await maker(metadata, "n0")  # what is there is there
    async with open_node() as reopened:
        kept = [*reopened.snapshot.topics, *reopened.snapshot.groups]
        kept += [each.name for each in (await reopened.schedules.load("", 100))[0]]
        assert sorted(kept) == ["n0", "n1", "n2"]


@pytest.mark.parametrize(("maker", "bound"), MAKERS)
async def test_of_two_that_make_the_last_one_at_once_one_wins(
    maker: Maker, bound: str, open_node: OpenNode
) -> None:
    async with open_node(FEW) as one, open_node(FEW) as other:
        for number in range(BOUND - 1):
            await maker(one, f"n{number}")
        results = await asyncio.gather(
            *(maker(node, name) for node, name in ((one, "a"), (other, "b"), (one, "c"))),
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == [
            "NoneType",
            "StateConflict",
            "StateConflict",
        ]


async def test_a_deleted_one_makes_room(open_node: OpenNode) -> None:
    async with open_node(FEW) as metadata:
        await make(metadata, groups="a b c")
        await metadata.delete_group("b")
        await metadata.ensure_group("d")
        assert sorted(metadata.snapshot.groups) == ["a", "c", "d"]


async def test_the_queues_of_all_topics_have_a_bound(open_node: OpenNode) -> None:
    async with open_node(FEW) as metadata:
        await metadata.put_topic("a", TopicSettings(queues=4))
        await metadata.put_topic("b", TopicSettings(queues=4))
        with pytest.raises(StateConflict, match="have 8 queues together; 3 more") as caught:
            await metadata.put_topic("c", TopicSettings(queues=3))
        assert caught.value.fields == {"limit": 10, "bound": "queues_max"}
        with pytest.raises(StateConflict, match="queues together"):
            await metadata.change_topic("a", {"queues": 7})
        with pytest.raises(StateConflict, match="queues together"):
            await metadata.ensure_topic("made-by-a-send")
        await metadata.change_topic("a", {"queues": 6})
        with pytest.raises(StateConflict):
            await metadata.put_topic("c", TopicSettings(queues=1))
        assert sorted(metadata.snapshot.topics) == ["a", "b"]


async def test_of_two_that_take_the_last_queues_one_wins(open_node: OpenNode) -> None:
    async with open_node(FEW) as one, open_node(FEW) as other:
        await make(one, topics="a b")
        results = await asyncio.gather(
            *(
                node.change_topic(name, {"queues": 6})
                for node, name in ((one, "a"), (other, "b"), (other, "a"), (one, "b"))
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(result, StateConflict) for result in results) == 2
        await one.refresh()
        assert sum(topic.queues for topic in one.snapshot.topics.values()) == 10


async def test_a_trial_meets_the_bound_too(open_node: OpenNode) -> None:
    async with open_node(FEW) as metadata:
        await make(metadata, groups="a b c")
        with pytest.raises(StateConflict, match="there are 3 groups"):
            await metadata.change_group("d", {}, Terms(is_dry_run=True))


async def test_what_is_over_the_bound_already_stays_and_works(open_node: OpenNode) -> None:
    async with open_node() as roomy:
        await make(roomy, topics="a b c d e", groups="a b c d e")
    async with open_node(FEW) as metadata:
        assert len(metadata.snapshot.topics) == len(metadata.snapshot.groups) == 5
        await metadata.change_topic("e", {"retention_ms": 3_600_000})
        await metadata.change_group("e", {"max_attempts": 3})
        await make(metadata, topics="a", groups="a")
        for making in (metadata.ensure_topic("f"), metadata.ensure_group("f")):
            with pytest.raises(StateConflict, match="there are 5"):
                await making
        with pytest.raises(StateConflict, match="have 20 queues"):
            await metadata.change_topic("a", {"queues": 5})
        await metadata.delete_topic("a")
        with pytest.raises(StateConflict, match="there are 4"):
            await metadata.ensure_topic("f")


async def test_deletions_that_no_store_carries_out_have_a_bound(open_node: OpenNode) -> None:
    """The same name again and again while the store cannot write."""
    async with open_node(Limits(deleted_names_max=BOUND)) as metadata:
        for _ in range(BOUND):
            await metadata.ensure_topic("orders")
            await metadata.delete_topic("orders")
        for maker in (_put_topic, _ensure_topic, _change_group, _ensure_group):
            with pytest.raises(StateConflict, match="3 topics and groups were deleted") as caught:
                await maker(metadata, "orders")
            assert caught.value.fields == {"limit": BOUND, "bound": "deleted_names_max"}
        left = await metadata.deletions()
        assert len(left) == BOUND
        await metadata.carried_out(left[0])
        await metadata.ensure_topic("orders")


async def test_of_the_nodes_that_registered_the_last_seen_are_kept(
    metadata: Metadata, clock: FakeClock
) -> None:
    def node(name: str) -> NodeView:
        return NodeView(name, "127.0.0.1:1", b"\0" * 16, clock.now_ms(), clock.now_ms())

    await metadata.register_node(node("first"))
    for number in range(NODES_KEPT_MAX + 20):
        clock.advance(ms=1)
        assert (await metadata.beat("first")).is_registered
        await metadata.register_node(node(f"n{number:03}"))
    kept = [node.node_id for node in await metadata.list_nodes()]
    assert len(kept) == NODES_KEPT_MAX
    assert kept[:2] == ["first", "n021"]
    assert not (await metadata.beat("n020")).is_registered
    await metadata.register_node(node("n020"))
    assert (await metadata.beat("n020")).is_registered
