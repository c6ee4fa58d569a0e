"""Nodes that show certificates to each other on the cluster port."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.support.clients.tls import TlsPlace
from tests.support.cluster.three_nodes import ServedNode, start_node

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEND = "/v1/topics/orders/messages?queue_id=1"
"""To the second node's queue."""

Start = Callable[..., Awaitable[ServedNode]]


def shown(place: TlsPlace, authority: Path | None = None) -> dict[str, Path]:
    """The settings of a node with the certificate of a place, which trusts an authority."""
    return {
        "cluster_tls_cert_file": place.cert_file,
        "cluster_tls_key_file": place.key_file,
        "cluster_tls_ca_file": authority or place.authority_file,
    }


@pytest.fixture
async def start(tmp_path: Path, url: str) -> AsyncIterator[Start]:
    """Starts nodes of the shards a and b, and stops them at the end."""
    names = iter("ab")
    async with AsyncExitStack() as stack:

        async def started(**settings: Any) -> ServedNode:
            node = await start_node(tmp_path, url, next(names), **settings)
            stack.push_async_callback(node.stop)
            return node

        yield started


async def send_through(first: ServedNode) -> tuple[int, str]:
    await first.client.put("/v1/topics/orders", json={"queues": 2})
    answer = await first.client.post(SEND, content=b"x")
    return answer.status_code, answer.json().get("detail", "")


def port_of(node: ServedNode) -> int:
    return int(node.node.config.cluster_listen.rpartition(":")[2])


async def test_nodes_of_one_authority_carry_requests(tmp_path: Path, start: Start) -> None:
    place = TlsPlace(tmp_path / "tls")
    first = await start(**shown(place))
    second = await start(**shown(place))
    assert (await send_through(first))[0] == 201
    path = "/v1/topics/orders/queues/1/messages?offset=0"
    for each in (first, second):
        assert len((await each.client.get(path)).json()["messages"]) == 1


async def test_frames_come_whole_through_another_node(tmp_path: Path, start: Start) -> None:
    place = TlsPlace(tmp_path / "tls")
    first = await start(**shown(place))
    await start(**shown(place))
    await first.client.put("/v1/topics/orders", json={"queues": 2})
    body = bytes(range(256)) * 4_000
    for _ in range(3):
        assert (await first.client.post(SEND, content=body)).status_code == 201
    headers = {"Accept": "application/vnd.curlew.batch"}
    path = "/v1/topics/orders/queues/1/messages?offset=0&max_bytes=8000000"
    frame = await first.client.get(path, headers=headers)
    assert frame.status_code == 200, frame.text
    assert frame.content.count(body) == 3


async def test_a_node_of_another_authority_is_refused(tmp_path: Path, start: Start) -> None:
    place, other = TlsPlace(tmp_path / "tls"), TlsPlace(tmp_path / "other")
    first = await start(**shown(place))
    await start(**shown(other))
    status, detail = await send_through(first)
    assert status == 503
    assert "certificate is refused" in detail


async def test_a_certificate_that_the_other_node_does_not_trust(
    tmp_path: Path, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that asks is content with what it is shown, and the other is not."""
    place, other = TlsPlace(tmp_path / "tls"), TlsPlace(tmp_path / "other")
    first = await start(**shown(other, authority=place.authority_file))
    await start(**shown(place))
    status, detail = await send_through(first)
    assert status == 503
    assert "if it refuses the certificate of this node, its log says so" in detail
    assert "no TLS with 127.0.0.1" in caplog.text


async def test_a_certificate_of_another_host_is_refused(tmp_path: Path, start: Start) -> None:
    place, elsewhere = TlsPlace(tmp_path / "tls"), TlsPlace(tmp_path / "elsewhere")
    elsewhere.authority = place.authority
    elsewhere.issue("node-b.example")
    first = await start(**shown(place))
    await start(**shown(elsewhere))
    status, detail = await send_through(first)
    assert status == 503
    assert "certificate is refused" in detail


@pytest.mark.parametrize("is_first", [True, False])
async def test_nothing_is_asked_of_a_node_that_speaks_as_the_other_does_not(
    tmp_path: Path, start: Start, is_first: bool
) -> None:
    place = TlsPlace(tmp_path / "tls")
    settings = [shown(place), {}]
    first = await start(**settings[not is_first])
    await start(**settings[is_first])
    status, detail = await send_through(first)
    assert status == 503
    assert ("it speaks no TLS" if is_first else "it speaks TLS") in detail


async def test_a_connection_without_a_certificate_is_ended(tmp_path: Path, start: Start) -> None:
    place = TlsPlace(tmp_path / "tls")
    node = await start(**shown(place))
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node))
    writer.write(b"curlew-cluster 1 0123\n")
    assert b"0123" not in await reader.read(), "nothing of the handshake in clear"
    writer.close()
    context = ssl.create_default_context(cafile=place.authority_file)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node), ssl=context)
    writer.write(b"curlew-cluster 1 0123\n")
    with suppress(ssl.SSLError, ConnectionError):
        assert not await reader.read()
    writer.transport.abort()


async def test_a_new_certificate_and_authority_are_used_without_a_restart(
    tmp_path: Path, start: Start
) -> None:
    place = TlsPlace(tmp_path / "tls")
    first = await start(**shown(place))
    second = await start(**shown(place))
    assert (await send_through(first))[0] == 201
    place.authority = trustme.CA()
    place.issue()
    for each in (first, second):
        assert each.node.cluster_tls is not None
        assert each.node.cluster_tls.refresh()
        each.server.relay.close()  # the connections that are kept
    assert (await send_through(first))[0] == 201
