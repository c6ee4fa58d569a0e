"""Three nodes that have one shard in common: what is confirmed outlives each of them."""

from pathlib import Path

import pytest

from tests.support.cluster.three_nodes import ServedNode
from tests.support.cluster.three_replicas import Replicas, three_replicas

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

TOPIC = "/v1/topics/orders"


async def send(served: ServedNode, body: str) -> None:
    answer = await served.client.post(f"{TOPIC}/messages?queue_id=0", content=body.encode())
    assert answer.status_code == 201, answer.text


async def bodies(served: ServedNode) -> list[str]:
    answer = await served.client.get(f"{TOPIC}/queues/0/messages?offset=0&max_messages=32")
    assert answer.status_code == 200, answer.text
    return [each["text"] for each in answer.json()["messages"]]


def others(replicas: Replicas, leader: ServedNode) -> list[ServedNode]:
    return [each for each in replicas.nodes.values() if each is not leader]


async def test_the_next_leader_has_what_was_confirmed(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        follower = others(replicas, leader)[0]
        made = await follower.client.put("/v1/topics/orders", json={"queues": 1})
        assert made.status_code == 201, made.text
        await send(leader, "one")
        await send(follower, "two")
        assert await bodies(follower) == ["one", "two"]
        await replicas.kill(leader.name)
        second = await replicas.led()
        assert await bodies(second) == ["one", "two"]
        await send(second, "three")
        await replicas.start(leader.name)  # what it alone had, if anything, is cut
        await replicas.in_sync(3)


async def test_a_rolling_restart_loses_nothing(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        made = await leader.client.put("/v1/topics/orders", json={"queues": 1})
        assert made.status_code == 201, made.text
        expected = []
        for name in "abc":
            await replicas.stop(name)
            leader = await replicas.led()
            await send(leader, f"without {name}")
            expected.append(f"without {name}")
            await replicas.start(name)
            await replicas.in_sync(3)
        for each in replicas.nodes.values():
            assert await bodies(each) == expected


async def test_what_is_leased_is_settled_at_the_next_leader(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put("/v1/topics/orders", json={"queues": 1})
        await send(leader, "leased")
        group = f"{TOPIC}/groups/billing"
        got = await leader.client.post(f"{group}/messages:receive?wait=5")
        (message,) = got.json()["messages"]
        await replicas.stop(leader.name)
        second = await replicas.led()
        handles = {"receipt_handles": [message["receipt_handle"]]}
        settled = await second.client.post(f"{group}/messages:ack", json=handles)
        assert settled.status_code == 200, settled.text
        again = await second.client.post(f"{group}/messages:receive")
        assert again.json()["messages"] == []
