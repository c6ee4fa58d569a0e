"""Three nodes that have one shard in common: what is confirmed outlives each of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from tests.support.cluster.three_nodes import ServedNode
from tests.support.cluster.three_replicas import (
    SHARD,
    TOPIC,
    Replicas,
    bodies,
    others,
    send,
    status_of,
    three_replicas,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


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


async def test_who_has_it_in_sync_is_told(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put("/v1/topics/orders", json={"queues": 1})
        urls = {f"http://127.0.0.1:{each.node.config.port}" for each in replicas.nodes.values()}
        in_sync: set[str] = set()
        shard: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while in_sync != urls:  # one that joined a moment ago may be out of the set once more
                leader = await replicas.led()
                await leader.node.metadata.refresh()
                (shard,) = (await leader.client.get("/v1/cluster")).json()["shards"]
                in_sync = {each["url"] for each in shard["replicas"] if each["in_sync"]}
        assert (shard["target_replicas"], shard["min_in_sync"]) == (3, 2)
        assert shard["leader"] == leader.node.node_id
        route = (await leader.client.get(f"{TOPIC}/route")).json()["queues"][0]
        assert set(route["replicas"]) == urls
        assert route["leader"] == f"http://127.0.0.1:{leader.node.config.port}"
        readiness = (await others(replicas, leader)[0].client.get("/readyz")).json()
        assert readiness == {"status": "ready", "reasons": [], "degraded": []}


async def test_the_first_of_three_waits_for_the_second(tmp_path: Path, url: str) -> None:
    replicas = Replicas(tmp_path, url, {})
    first = await replicas.start("a")
    try:
        answer = await first.client.get("/readyz")
        assert answer.status_code == 503
        (reason,) = answer.json()["reasons"]
        assert reason["code"] == "NO_LEADER"
        assert reason["detail"] == "1 replicas of the shard 'orders' have joined, 2 are needed"
        refused = await first.client.post(f"{TOPIC}/messages", content=b"x")
        assert refused.status_code == 503
        assert refused.json()["outcome"] == "not_stored"
        await replicas.start("b")
        leader = await replicas.led()
        degraded = (await leader.client.get("/readyz")).json()["degraded"]
        assert [each["code"] for each in degraded] == ["REPLICAS_BEHIND"]
        assert "1 have not joined" in degraded[0]["detail"]
    finally:
        for name in list(replicas.nodes):
            await replicas.stop(name)


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


async def test_a_node_whose_disk_is_gone_is_replaced(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put("/v1/topics/orders", json={"queues": 1})
        await send(leader, "one")
        gone = others(replicas, leader)[0]

        async def remove(node: ServedNode) -> int:
            settings = ["--shard", SHARD, "--database-url-file", str(file)]
            arguments = ["remove-node", node.node.node_id, *settings]
            return await asyncio.to_thread(main, arguments)

        file = tmp_path / "database.url"
        file.touch(0o600)
        file.write_text(url)
        assert await remove(leader) == 2
        assert "it leads" in capsys.readouterr().err
        await replicas.kill(gone.name)
        await replicas.in_sync(2)
        assert await remove(gone) == 0, capsys.readouterr().err
        new = await replicas.start("d")
        await replicas.in_sync(3)
        assert await bodies(new) == ["one"]
        led = await replicas.led()  # which writes entries of its own at any time
        await until(lambda: status_of(new).written == status_of(led).written)


async def test_who_has_handed_over_carries_requests_to_the_next(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put("/v1/topics/orders", json={"queues": 1})
        path = f"{TOPIC}/groups/billing/messages:receive?wait=30"
        waiting = asyncio.ensure_future(leader.client.post(path))
        await until(lambda: leader.node.broker.waiting_count == 1)
        await leader.node.hand_over()
        assert leader.node.term is None
        assert (await waiting).json()["messages"] == []  # answered, and not cut off
        second = await replicas.led()
        assert second is not leader
        await send(leader, "one")
        assert await bodies(second) == await bodies(leader) == ["one"]
        assert second.node.broker.epochs.current > 1
