"""What is told when another node does not answer, is none of the cluster, or leaves within."""

import asyncio
from pathlib import Path

import pytest

from tests.support.cluster.three_nodes import secret_file, start_node
from tests.support.nodes.free_ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEND = "/v1/topics/orders/messages?queue_id=1"


async def test_a_wrong_secret_is_refused_with_a_sentence(tmp_path: Path, url: str) -> None:
    first = await start_node(tmp_path, url, "a")
    second = await start_node(
        tmp_path, url, "b", cluster_secret_file=secret_file(tmp_path, b"1" * 64)
    )
    try:
        await first.client.put("/v1/topics/orders", json={"queues": 2})
        refused = await first.client.post(SEND, content=b"x")
        assert refused.status_code == 503
        assert "another cluster secret" in refused.json()["detail"]
        assert refused.json()["outcome"] == "not_stored"
    finally:
        await second.stop()
        await first.stop()


async def test_a_connection_that_is_cut_behind_a_send_leaves_its_outcome_open(
    tmp_path: Path, url: str
) -> None:
    """Between the nodes stands one that passes on what the first says, and cuts the answer."""
    port, behind = free_port(), free_port()
    sends = 0

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sends
        there, back = await asyncio.open_connection("127.0.0.1", behind)
        back.write(await reader.readline())
        writer.write(await there.readline())
        back.write(await reader.readline())
        back.write(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(1))
        await there.readuntil(b"\r\n\r\n")  # it is stored by now
        sends += 1
        writer.close()
        back.close()

    between = await asyncio.start_server(cut, "127.0.0.1", port)
    first = await start_node(tmp_path, url, "a")
    second = await start_node(
        tmp_path,
        url,
        "b",
        cluster_listen=f"127.0.0.1:{behind}",
        cluster_url=f"http://127.0.0.1:{port}",
    )
    try:
        await first.client.put("/v1/topics/orders", json={"queues": 2})
        answer = await first.client.post(SEND, content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (502, "RELAY_INTERRUPTED")
        assert answer.json()["outcome"] == "unknown"
        assert sends == 1
        path = "/v1/topics/orders/queues/1/messages?offset=0"
        assert len((await second.client.get(path)).json()["messages"]) == 1
    finally:
        between.close()
        await second.stop()
        await first.stop()
