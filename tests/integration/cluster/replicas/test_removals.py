"""An operator takes a node out of the replicas of a shard, at any node."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from curlew_client import AsyncClient
from curlew_client.command.entry import main

from tests.support.cluster.three_nodes import ServedNode
from tests.support.cluster.three_replicas import (
    SHARD,
    TOPIC,
    Replicas,
    bodies,
    others,
    send,
    shard_of,
    three_replicas,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


def way(served: ServedNode, shard: str = SHARD) -> str:
    return f"/v1/shards/{shard}/replicas/{served.node.node_id}"


async def reason_of(at: ServedNode, removed: ServedNode) -> str:
    """Why it is refused."""
    answer = await at.client.delete(way(removed))
    said: dict[str, Any] = answer.json()
    assert (answer.status_code, said["code"]) == (409, "REPLICA_NEEDED"), answer.text
    return str(said["reason"])


async def a_message(replicas: Replicas) -> tuple[ServedNode, ServedNode, ServedNode]:
    """The leader and the others, all with one message."""
    leader = await replicas.led()
    await leader.client.put(TOPIC, json={"queues": 1})
    await send(leader, "one")
    await replicas.in_sync(3)
    one, other = others(replicas, leader)
    return leader, one, other


async def test_one_in_sync_is_out_keeps_nothing_and_another_takes_its_place(
    tmp_path: Path, url: str
) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        _, out, asked = await a_message(replicas)
        async with asyncio.timeout(60):
            while (await out.client.get("/readyz")).status_code != 200:
                """Until it has heard the leader."""
            while True:
                tried = await asked.client.delete(f"{way(out)}?dry_run=true")
                assert (tried.status_code, tried.json()["dry_run"]) == (200, True), tried.text
                if tried.json()["was_in_sync"]:
                    break  # one that has just joined may be out once more
        done = await asked.client.delete(way(out))
        assert done.status_code == 200, done.text
        assert done.json() == {**tried.json(), "dry_run": False}
        assert done.json()["was_in_sync"]
        left = {each.node.node_id for each in replicas.nodes.values() if each is not out}
        assert set(done.json()["left"]) == set(done.json()["in_sync"]) == left
        await until(lambda: shard_of(out)._replica is None)
        ready = await out.client.get("/readyz")
        assert ready.status_code == 503
        assert [each["code"] for each in ready.json()["reasons"]] == ["REPLICA_REMOVED"]
        assert not ready.json()["degraded"], "the database is no older copy"
        await replicas.in_sync(2)
        await send(await replicas.led(), "two")
        assert await bodies(out) == ["one", "two"], "it carries requests to the leader"
        new = await replicas.start("d")
        await replicas.in_sync(3)
        assert await bodies(new) == ["one", "two"]
        events = (await asked.client.get("/v1/cluster/events?page_size=100")).json()["events"]
        (event,) = (each for each in events if each["kind"] == "replica_removed")
        assert event["node_id"] == out.node.node_id
        assert event["detail"].endswith("; asked for by somebody without a key")
        entries = (await asked.client.get("/v1/audit?action=DELETE")).json()["entries"]
        assert [each for each in entries if each["resource"].startswith(f"shard:{SHARD}")]


async def test_one_that_the_shard_needs_stays(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, gone, kept = await a_message(replicas)
        assert await reason_of(kept, leader) == "leads"
        await replicas.kill(gone.name)
        await replicas.in_sync(2)
        assert await reason_of(kept, kept) == "too_few_in_sync"
        assert (await replicas.led()) is leader
        removed = await kept.client.delete(way(gone))
        assert removed.status_code == 200, removed.text
        assert not removed.json()["was_in_sync"]
        again = await kept.client.delete(way(gone))
        assert (again.status_code, again.json()["code"]) == (404, "REPLICA_NOT_FOUND")
        unknown = await kept.client.delete(way(gone, "nowhere"))
        assert (unknown.status_code, unknown.json()["code"]) == (404, "SHARD_NOT_FOUND")
        back = await replicas.start(gone.name)  # there is a place, and its data is left
        await replicas.in_sync(3)
        assert await bodies(back) == ["one"]


async def test_by_the_command_and_by_the_client(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURLEW_CONTEXTS", str(tmp_path / "contexts.json"))
    async with three_replicas(tmp_path, url) as replicas:
        _, gone, asked = await a_message(replicas)
        at = f"http://127.0.0.1:{asked.node.config.port}"
        node = gone.node.node_id

        async def remove(*words: str) -> tuple[int, str]:
            arguments = ["cluster", "remove-node", *words, "--url", at, "--timeout", "60s"]
            status = await asyncio.to_thread(main, arguments)
            printed = capsys.readouterr()
            return status, printed.out + printed.err

        await replicas.kill(gone.name)
        await replicas.in_sync(2)
        status, said = await remove("nobody")
        assert (status, "nodes with replicas: " in said) == (2, True), said
        status, said = await remove(node, "--dry-run")
        assert (status, "was_in_sync" in said) == (0, True), said
        status, said = await remove(node)
        assert (status, "Say --yes" in said) == (2, True), said
        async with AsyncClient(at, timeout=60) as curlew:
            tried = await curlew.admin.remove_replica(SHARD, node, dry_run=True)
        assert (tried["node_id"], len(tried["left"])) == (node, 2), "it is there still"
        status, said = await remove(node, "--shard", SHARD, "--yes")
        assert (status, f"{node} has no replica of the shard" in said) == (0, True), said
        status, said = await remove(asked.node.node_id, "--yes")
        assert (status, "bring another replica in sync first" in said) == (1, True), said
