"""An operator has a node lead that is not in sync, when all that are have been lost."""

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
    status_of,
    three_replicas,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

WAY = f"/v1/shards/{SHARD}/elect"


async def asked(at: ServedNode, replica: ServedNode, **more: Any) -> Any:
    body = {"replica": replica.node.node_id, "unclean": True, **more}
    return await at.client.post(WAY, json=body)


async def events(served: ServedNode, kind: str) -> list[dict[str, Any]]:
    found = (await served.client.get("/v1/cluster/events")).json()["events"]
    return [each for each in found if each["kind"] == kind]


async def left_behind(replicas: Replicas) -> tuple[ServedNode, list[str]]:
    """One node that was away while the others took a message; they are gone. With their names."""
    leader = await replicas.led()
    await leader.client.put(TOPIC, json={"queues": 1})
    await send(leader, "one")
    behind = others(replicas, leader)[0].name
    await replicas.stop(behind)
    await replicas.in_sync(2)
    await send(leader, "two")
    gone = list(replicas.nodes)
    for name in gone:
        await replicas.kill(name)
    return await replicas.start(behind), gone


async def lease_over(served: ServedNode) -> Any:
    """What is answered when the lease holds no more."""
    async with asyncio.timeout(60):
        while True:
            answer = await asked(served, served, dry_run=True)
            if answer.json().get("reason") != "lease_holds":
                return answer


async def heard_of(back: ServedNode, replica: ServedNode) -> None:
    """Wait until the replica has heard of the node that is back: until then nobody answers it."""
    async with asyncio.timeout(60):
        while (await asked(back, replica, dry_run=True)).status_code != 409:
            pass


async def test_it_leads_what_was_lost_is_told_and_the_others_follow(
    tmp_path: Path, url: str
) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        served, gone = await left_behind(replicas)
        tried = await lease_over(served)
        assert tried.status_code == 200, tried.text
        said = tried.json()
        assert said["dry_run"]
        assert len(said["in_sync"]) == 2
        assert said["answered"] == []
        assert said["newest_ms"] > 0
        assert said["lost_from"] == status_of(served).written
        assert not replicas.leaders()
        unsaid = await asked(served, served, unclean=False)
        assert (unsaid.status_code, unsaid.json()["parameter"]) == (400, "unclean")
        begun = await asked(served, served)
        assert begun.status_code == 202, begun.text
        assert await replicas.led() is served
        assert await bodies(served) == ["one"]
        alone = await served.client.post(f"{TOPIC}/messages", content=b"alone")
        assert (alone.status_code, alone.json()["code"]) == (503, "NOT_ENOUGH_REPLICAS")
        (elected,) = await events(served, "shard_elected_unclean")
        assert elected["node_id"] == served.node.node_id
        assert elected["detail"].endswith("; asked for by somebody without a key")
        for name in gone:
            await replicas.start(name)
        await replicas.in_sync(3)
        await send(served, "three")
        for each in replicas.nodes.values():
            assert await bodies(each) == ["one", "three"]
        kept = [
            file
            for name in gone
            for file in (
                Path(replicas.nodes[name].node.config.data_dir) / "store" / "lost+found"
            ).iterdir()
        ]
        assert len(kept) == 2, "what each had more is kept"
        told: list[dict[str, Any]] = []
        async with asyncio.timeout(60):
            while len(told) < len(gone):  # each is told of beside the work of the replica
                told = await events(served, "replica_gave_up")
        back = {replicas.nodes[name].node.node_id: replicas.nodes[name] for name in gone}
        assert {event["node_id"] for event in told} == set(back)
        for event in told:
            size, _, rest = event["detail"].partition(" bytes from ")
            assert rest.startswith(f"{said['lost_from']} on; kept in lost+found/")
            here = f'{{shard="{SHARD}",replica="{event["node_id"]}"}}'
            figures = (await back[event["node_id"]].client.get("/metrics")).text
            assert f"curlew_replica_given_up_bytes_total{here} {size}\n" in figures
            assert int(size) > 0
        assert all(b"two" in file.read_bytes() for file in kept)
        entries = (await served.client.get("/v1/audit?action=UPDATE")).json()["entries"]
        assert [each for each in entries if each["resource"] == f"shard:{SHARD}"]


async def test_it_is_refused_while_one_in_sync_answers(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        served, gone = await left_behind(replicas)
        tried = await lease_over(served)
        assert tried.status_code == 200, tried.text
        back = await replicas.start(gone[0])
        await until(lambda: status_of(back).written > 0)
        await heard_of(back, served)
        answer = await asked(back, served)  # carried to the node of the replica
        assert answer.status_code == 409, answer.text
        assert answer.json()["reason"] in {
            "in_sync_member_answers",
            "leader_answers",
            "lease_holds",
        }
        strange = await back.client.post(WAY, json={"replica": "nobody", "unclean": True})
        assert (strange.status_code, strange.json()["reason"]) == (409, "not_a_member")
        assert await replicas.led() is back
        assert await bodies(back) == ["one", "two"]
        own = await asked(served, back)
        assert (own.status_code, own.json()["reason"]) == (409, "leads")


async def test_an_unknown_shard_is_not_found(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        unknown = await leader.client.post(
            "/v1/shards/nowhere/elect", json={"replica": "x", "unclean": True}
        )
        assert (unknown.status_code, unknown.json()["code"]) == (404, "SHARD_NOT_FOUND")


async def test_by_the_command_and_by_the_client(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURLEW_CONTEXTS", str(tmp_path / "contexts.json"))
    async with three_replicas(tmp_path, url) as replicas:
        served, _ = await left_behind(replicas)
        tried = await lease_over(served)
        assert tried.status_code == 200, tried.text
        node, at = served.node.node_id, f"http://127.0.0.1:{served.node.config.port}"

        async def elect(*words: str) -> tuple[int, str]:
            arguments = ["cluster", "elect", SHARD, "--replica", node, "--url", at]
            status = await asyncio.to_thread(main, [*arguments, "--timeout", "60s", *words])
            printed = capsys.readouterr()
            return status, printed.out + printed.err

        status, said = await elect("--yes")
        assert (status, "say --unclean" in said) == (2, True), said
        status, said = await elect("--unclean", "--dry-run")
        behind = f"lost: what was confirmed in the log behind {status_of(served).written}"
        assert (status, behind in said) == (0, True), said
        status, said = await elect("--unclean")
        assert (status, "Say --yes" in said) == (2, True), said
        async with AsyncClient(at, timeout=60) as curlew:
            loss = await curlew.admin.elect_replica(SHARD, replica=node, unclean=True, dry_run=True)
        assert loss["lost_from"] == status_of(served).written
        assert (loss["replica"], loss["dry_run"], len(loss["in_sync"])) == (node, True, 2)
        assert not replicas.leaders(), "nothing was done yet"
        status, said = await elect("--unclean", "--yes")
        assert (status, f"{node} leads the shard" in said) == (0, True), said
        assert await replicas.led() is served
        status, said = await elect("--unclean", "--yes")
        assert (status, "it leads the shard" in said) == (1, True), said
