"""An operator has the replica of a node begin anew: its data is copied again from the leader."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from curlew_client import AsyncClient
from curlew_client.command.entry import main as command

from app.cli import main
from app.store import paths
from app.store.formats.files.replica_files import KeptPromise
from tests.support.cluster.three_nodes import ServedNode
from tests.support.cluster.three_replicas import (
    SHARD,
    TOPIC,
    Replicas,
    bodies,
    others,
    send,
    shard_of,
    status_of,
    three_replicas,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


def way(served: ServedNode) -> str:
    return f"/v1/shards/{SHARD}/replicas/{served.node.node_id}/reset"


def incarnation(served: ServedNode) -> int:
    return shard_of(served)._directory.incarnation.number


def promise_of(served: ServedNode) -> KeptPromise:
    kept = shard_of(served)._directory.replica_files.promise()
    assert kept is not None
    return kept


def store_of(served: ServedNode) -> Path:
    return Path(served.node.config.data_dir) / "store"


async def a_message(replicas: Replicas) -> tuple[ServedNode, ServedNode, ServedNode]:
    """The leader and the others, all with one message."""
    leader = await replicas.led()
    await leader.client.put(TOPIC, json={"queues": 1})
    await send(leader, "one")
    one, other = others(replicas, leader)
    return leader, one, other


async def in_sync_again(replicas: Replicas, served: ServedNode, former: int) -> None:
    """As another member, with all that the leader has."""
    await until(lambda: shard_of(served)._replica is not None and incarnation(served) != former)
    await replicas.in_sync(3)
    led = await replicas.led()
    await until(lambda: status_of(served).written == status_of(led).written)


async def refusal(at: ServedNode, of: ServedNode, **body: Any) -> tuple[int, str, str]:
    answer = await at.client.post(way(of), json=body)
    said = answer.json()
    return answer.status_code, said["code"], said.get("reason", "")


@pytest.mark.parametrize("keep_log", [False, True])
async def test_it_has_all_again_as_another_member(tmp_path: Path, url: str, keep_log: bool) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, anew, asked = await a_message(replicas)
        await until(lambda: status_of(anew).written == status_of(leader).written)
        former, promised = incarnation(anew), promise_of(anew)
        body = {"keep_log": keep_log}
        tried = await asked.client.post(f"{way(anew)}?dry_run=true", json=body)
        assert (tried.status_code, tried.json()["dry_run"]) == (200, True), tried.text
        assert shard_of(anew)._replica is not None
        begun = await asked.client.post(way(anew), json=body)
        assert begun.status_code == 202, begun.text
        assert begun.json() == {**tried.json(), "dry_run": False}
        assert begun.json()["was_in_sync"]
        assert len(begun.json()["in_sync"]) == 2
        await in_sync_again(replicas, anew, former)
        assert await bodies(anew) == ["one"]
        assert promise_of(anew).term == promised.term
        assert promise_of(anew).in_sync_version > promised.in_sync_version
        assert not (store_of(anew) / paths.REPLICA_RESET).exists()
        await send(leader, "two")
        assert await bodies(anew) == ["one", "two"]
        assert await replicas.led() is leader, "it cost no term"
        events = (await asked.client.get("/v1/cluster/events?page_size=100")).json()["events"]
        (event,) = (each for each in events if each["kind"] == "replica_reset")
        assert event["node_id"] == anew.node.node_id
        assert event["detail"].endswith("; asked for by somebody without a key")
        entries = (await asked.client.get("/v1/audit?action=UPDATE")).json()["entries"]
        assert [each for each in entries if each["resource"].startswith(f"shard:{SHARD}")]
        # and then it leads
        await replicas.in_sync(3)
        to = {"node": anew.node.node_id}
        answer = await asked.client.post(f"/v1/shards/{SHARD}/hand-over", json=to)
        assert answer.status_code == 202, answer.text
        await until(lambda: [each.name for each in replicas.leaders()] == [anew.name])
        assert await bodies(anew) == ["one", "two"]


async def test_one_that_the_shard_needs_keeps_its_data(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, gone, kept = await a_message(replicas)
        assert await refusal(kept, leader) == (409, "REPLICA_NEEDED", "leads")
        strange = await kept.client.post(f"/v1/shards/{SHARD}/replicas/nobody/reset")
        assert (strange.status_code, strange.json()["code"]) == (404, "REPLICA_NOT_FOUND")
        await replicas.kill(gone.name)
        await replicas.in_sync(2)
        former = incarnation(kept)
        assert await refusal(leader, kept) == (409, "REPLICA_NEEDED", "too_few_in_sync")
        away = await kept.client.post(way(gone))
        assert (away.status_code, away.json()["code"]) == (503, "SHARD_UNAVAILABLE")
        assert incarnation(kept) == former
        assert await bodies(kept) == ["one"]
        assert await replicas.led() is leader


async def test_a_stopped_one_begins_anew_by_a_command(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that does not start: its log is damaged."""
    async with three_replicas(tmp_path, url) as replicas:
        _, broken, _ = await a_message(replicas)
        directory, store = broken.node.config.data_dir, store_of(broken)
        former = incarnation(broken)
        file = tmp_path / "database.url"
        file.touch(0o600)
        file.write_text(url)

        async def reset(*words: str) -> tuple[int, str]:
            settings = ["--data-dir", str(directory), "--database-url-file", str(file)]
            status = await asyncio.to_thread(main, ["reset-replica", *settings, *words])
            printed = capsys.readouterr()
            return status, printed.out + printed.err

        status, said = await reset()
        assert (status, "in use" in said or "open" in said) == (2, True), said
        await replicas.kill(broken.name)
        await replicas.in_sync(2)
        for each in (paths.META, paths.META_COPY):
            (store / each).write_bytes(b"nothing")
        status, said = await reset()
        assert status == 0, said
        assert "begins anew when the node is started" in said
        assert not list((store / paths.COMMIT_LOG).iterdir())
        back = await replicas.start(broken.name)
        await in_sync_again(replicas, back, former)
        assert await bodies(back) == ["one"]
        directory = tmp_path / "nowhere"
        status, said = await reset()
        assert (status, "has no replica" in said) == (2, True), said


async def test_by_the_command_and_by_the_client(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURLEW_CONTEXTS", str(tmp_path / "contexts.json"))
    async with three_replicas(tmp_path, url) as replicas:
        leader, anew, asked = await a_message(replicas)
        at = f"http://127.0.0.1:{asked.node.config.port}"
        node, former = anew.node.node_id, incarnation(anew)

        async def reset(*words: str) -> tuple[int, str]:
            arguments = ["cluster", "reset-replica", *words, "--url", at, "--timeout", "60s"]
            status = await asyncio.to_thread(command, arguments)
            printed = capsys.readouterr()
            return status, printed.out + printed.err

        status, said = await reset(node, "--dry-run")
        assert (status, "was_in_sync" in said) == (0, True), said
        status, said = await reset(node)
        assert (status, "Say --yes" in said) == (2, True), said
        status, said = await reset(leader.node.node_id, "--yes")
        assert (status, "it leads" in said) == (1, True), said
        assert incarnation(anew) == former
        status, said = await reset(node, "--shard", SHARD, "--yes")
        assert (status, "begins anew" in said) == (0, True), said
        await in_sync_again(replicas, anew, former)
        async with AsyncClient(at, timeout=60) as curlew:
            former = incarnation(anew)
            done = await curlew.admin.reset_replica(SHARD, node, keep_log=True)
        assert (done["node_id"], done["keep_log"]) == (node, True)
        await in_sync_again(replicas, anew, former)
        assert await bodies(anew) == ["one"]
