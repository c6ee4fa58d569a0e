"""What other nodes delete while a broker starts is carried out before it serves."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.domain.identity import Deletion, Kind
from tests.support.nodes.brokers import TOPIC, World, bodies, running

pytestmark = pytest.mark.anyio


def generation(world: World) -> int:
    return world.metadata.snapshot.topics[TOPIC].generation


async def readable(world: World) -> list[bytes]:
    low, high = world.store.bounds(TOPIC, 0)
    assert low <= high
    read = world.store.read(TOPIC, 0, low, max_messages=100, max_bytes=1 << 20)
    return [world.store.decode(record).body for record in read.records]


class OtherNode:
    """Deletes a topic, and may make it again, when this node has come to a point of its start."""

    def __init__(self, world: World, *, is_made_again: bool) -> None:
        self._world = world
        self._is_made_again = is_made_again
        self.deleted: list[Deletion] = []

    def act(self) -> None:
        """Now, in one turn, as this node hears of it."""
        if self.deleted:
            return
        metadata = self._world.metadata
        before = metadata.snapshot.topics[TOPIC]
        self.deleted.append(Deletion(Kind.TOPIC, TOPIC, before.generation))
        metadata.pending += self.deleted
        version = metadata.snapshot.version + 1
        metadata.snapshot = metadata.snapshot.without_topic(TOPIC, version)
        if self._is_made_again:
            again = replace(before, generation=before.generation + 1, version=version + 1)
            metadata.snapshot = metadata.snapshot.with_topic(again)
        metadata.on_deletions(self.deleted)


def acting_behind(other: OtherNode, call: Callable[..., Awaitable[object]]) -> Any:
    async def wrapped(*args: Any, **named: Any) -> object:
        found = await call(*args, **named)
        other.act()
        return found

    return wrapped


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("behind", ["deletions", "refresh", "load_offsets", "schedules"])
async def test_a_deletion_while_a_node_starts_is_carried_out_and_harms_no_successor(
    behind: str, monkeypatch: pytest.MonkeyPatch, *, is_made_again: bool
) -> None:
    async with running() as world:
        await world.send(b"old", b"older")
        await world.ack(*await world.receive(1))
        await world.broker.stop()
        other = OtherNode(world, is_made_again=is_made_again)
        world.metadata.on_deletions = lambda _: None  # as in a new process
        world.broker = world.new_broker()
        place = world.broker.schedules if behind == "schedules" else world.metadata
        name = "start" if behind == "schedules" else behind
        monkeypatch.setattr(place, name, acting_behind(other, getattr(place, name)))
        await world.broker.start()
        [deletion] = other.deleted
        assert world.store.is_gone(TOPIC, deletion.generation)
        assert await readable(world) == []
        assert world.committed() == {}
        if is_made_again:
            assert generation(world) == deletion.generation + 1
            await world.send(b"new")
            await world.broker.lifecycle.carry_out_deletions()
            assert await readable(world) == [b"new"]
            assert bodies(await world.receive()) == [b"new"]
        else:
            assert TOPIC not in world.metadata.snapshot.topics


async def test_a_generation_that_another_node_has_given_meanwhile_is_left_alone() -> None:
    """This node knows the topic by another generation than the database does, and would give it
    that one."""
    async with running() as world:
        await world.send(b"old")
        await world.broker.stop()
        topic = world.metadata.snapshot.topics[TOPIC]
        stale = replace(topic, generation=topic.generation + 1)
        world.metadata.snapshot = world.metadata.snapshot.with_topic(stale)
        set_generation = world.metadata.set_generation
        tried: list[int] = []

        async def meanwhile(kind: Kind, name: str, number: int, was: int) -> bool:
            if not tried:
                again = replace(topic, generation=topic.generation + 2)
                world.metadata.snapshot = world.metadata.snapshot.with_topic(again)
                world.store.delete_topic(TOPIC, topic.generation)
            tried.append(was)
            return await set_generation(kind, name, number, was)

        world.metadata.set_generation = meanwhile  # type: ignore[assignment, method-assign]
        world.broker = world.new_broker()
        await world.broker.start()
        assert tried == [topic.generation + 1]
        assert generation(world) == topic.generation + 2
        await world.send(b"new")
        assert await readable(world) == [b"new"]
