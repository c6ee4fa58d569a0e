"""Words between two replicas that get lost in one direction, while the connection stands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.cluster.replication.messages import Blocks, GivenBlocks, PeerMessage
from tests.support.cluster.three_nodes import ServedNode
from tests.support.cluster.three_replicas import (
    TOPIC,
    bodies,
    others,
    send,
    shard_of,
    status_of,
    three_replicas,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


def silence(one: ServedNode, *others: ServedNode) -> Callable[[], None]:
    """What one replica says to others is lost, until the returned function is called."""
    replica = shard_of(one)._replica
    assert replica is not None
    links = replica._runner._parts.connections
    nodes = {each.node.node_id for each in others}
    say, say_blocks = links.send, links.send_blocks

    def lose(node: str, message: PeerMessage) -> None:
        if node not in nodes:
            say(node, message)

    def lose_blocks(node: str, message: Blocks | GivenBlocks, data: bytes | memoryview) -> None:
        if node not in nodes:
            say_blocks(node, message, data)

    links.send, links.send_blocks = lose, lose_blocks  # type: ignore[method-assign]

    def heal() -> None:
        nodes.clear()

    return heal


@pytest.mark.parametrize("is_leader_lost", [True, False], ids=["to a follower", "to the leader"])
async def test_a_follower_that_is_not_heard_leaves_the_set_and_comes_back(
    tmp_path: Path, url: str, is_leader_lost: bool
) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put(TOPIC, json={"queues": 1})
        follower, third = others(replicas, leader)
        heal = silence(leader, follower) if is_leader_lost else silence(follower, leader)
        await send(third, "one")  # when the other one is out of the set
        await until(lambda: follower.node.node_id not in status_of(leader).in_sync)
        heal()
        await replicas.in_sync(3)
        await send(follower, "two")
        assert await replicas.led() is leader
        for each in replicas.nodes.values():
            assert await bodies(each) == ["one", "two"]


async def test_a_leader_that_nobody_hears_confirms_nothing(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put(TOPIC, json={"queues": 1})
        await send(leader, "one")
        heal = silence(leader, *others(replicas, leader))
        path = f"{TOPIC}/messages?queue_id=0"
        lost = await leader.client.post(path, content=b"two")
        assert lost.json()["outcome"] in {"unknown", "not_stored"}
        heal()
        await until(lambda: len(replicas.leaders()) == 1)
        await replicas.in_sync(3)
        await send(await replicas.led(), "three")
        found = [await bodies(each) for each in replicas.nodes.values()]
        assert found[0] == found[1] == found[2]
        expected = {"one", "three"} | ({"two"} & set(found[0]))
        assert sorted(found[0]) == sorted(expected)
        if lost.json()["outcome"] == "not_stored":
            assert "two" not in found[0]


async def test_a_leader_that_nobody_hears_is_replaced_meanwhile(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put(TOPIC, json={"queues": 1})
        await send(leader, "one")
        left = others(replicas, leader)
        heal = silence(leader, *left)
        await until(lambda: any(each in left for each in replicas.leaders()))
        (second,) = (each for each in replicas.leaders() if each in left)
        await send(second, "two")
        heal()
        await replicas.in_sync(3)
        await until(lambda: replicas.leaders() == [second])
        for each in replicas.nodes.values():
            assert await bodies(each) == ["one", "two"]
