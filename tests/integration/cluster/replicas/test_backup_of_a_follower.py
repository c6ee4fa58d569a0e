"""A copy of a follower's store, made while it works, has all that was confirmed before."""

import asyncio
from pathlib import Path

import httpx
import pytest

from app.cli import main
from tests.integration.cluster.replicas.test_reads_from_followers import made
from tests.support.cluster.three_replicas import TOPIC, send, three_replicas
from tests.support.nodes.node import run_node

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


async def goes_on(client: httpx.AsyncClient, confirmed: list[str]) -> None:
    """The node has all that was confirmed, in order, and takes more."""
    answer = await client.put(TOPIC, json={"queues": 1})
    assert answer.status_code == 201, answer.text
    found: list[str] = []
    while len(found) < len(confirmed):
        query = f"offset={len(found)}&max_messages=32"
        pulled = await client.get(f"{TOPIC}/queues/0/messages?{query}")
        assert pulled.status_code == 200, pulled.text
        texts = [each["text"] for each in pulled.json()["messages"]]
        assert texts, "the copy lacks what was confirmed before it was begun"
        found += texts
    assert found[: len(confirmed)] == confirmed
    more = await client.post(f"{TOPIC}/messages?queue_id=0", content=b"more")
    assert more.status_code == 201, more.text
    assert (await client.get("/readyz")).json()["degraded"] == []


async def test_a_lone_node_goes_on_from_a_copy_of_a_follower_under_load(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    sent = ["0", "1", "2"]
    async with three_replicas(tmp_path, url) as replicas:
        leader, follower, _ = await made(replicas, 3)

        async def load() -> None:
            for number in range(3, 10_000):
                await send(leader, f"{number}")
                sent.append(f"{number}")

        loading = asyncio.ensure_future(load())
        async with asyncio.timeout(60):
            while len(sent) < 50:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        confirmed = list(sent)
        arguments = ["store", "backup", "--data-dir", str(tmp_path / follower.name), str(copy)]
        status = await asyncio.to_thread(main, arguments)
        printed = capsys.readouterr()
        assert status == 0, printed.out + printed.err
        assert len(sent) > len(confirmed), "the node has worked meanwhile"
        loading.cancel()
        assert await asyncio.to_thread(main, arguments) == 2, "the copy is not written over"
        assert "there is a store in" in capsys.readouterr().err
    with run_node(copy) as node:
        async with httpx.AsyncClient(base_url=node.url, timeout=60) as client:
            await goes_on(client, confirmed)
