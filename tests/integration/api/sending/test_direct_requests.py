"""Requests that begin without a task, over raw sockets: nobody can tell but the clock."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.domain.limits import Limits
from tests.support.clients.wire import RawConnection, Served, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


def post(body: bytes, *, topic: bytes = b"orders", headers: bytes = b"") -> bytes:
    line = b"POST /v1/topics/%b/messages HTTP/1.1\r\n" % topic
    return line + HOST + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture
async def connection(server: Served) -> AsyncIterator[RawConnection]:
    connection = await server.connect()
    await connection.say(GET)
    assert (await connection.answer()).status == 200
    yield connection
    await connection.aclose()


class HeldWrites:
    """The turns of the store's writer, kept until they are let go: nothing is confirmed."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.held: list[Callable[[], object]] = []
        self.call_soon_threadsafe = self.loop.call_soon_threadsafe

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.held.append(callback)

    def let_go(self) -> None:
        self.call_soon = self.loop.call_soon  # type: ignore[method-assign, assignment]
        for callback in self.held:
            self.loop.call_soon(callback)


@pytest.fixture
async def writes(server: Served, monkeypatch: pytest.MonkeyPatch) -> HeldWrites:
    held = HeldWrites()
    monkeypatch.setattr(server.node.store._writer, "_turns", held)
    return held


@pytest.fixture
async def tasks() -> AsyncIterator[list[str]]:
    """What becomes a task of the server while the test runs."""
    loop = asyncio.get_running_loop()
    made: list[str] = []

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if coroutine.__qualname__ in {"RequestResponseCycle.run_asgi", "_rest"}:
            made.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(make)
    yield made
    loop.set_task_factory(None)


def log_end(server: Served) -> int:
    return server.node.broker.topic_ends.bounds("orders")[0].max_offset


async def metrics(connection: RawConnection) -> bytes:
    await connection.say(b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n")
    return (await connection.answer()).body


ENVELOPE = b"Content-Type: application/vnd.curlew+json\r\n"
DIRECT = {
    "plain": post(b"a"),
    "a tag and keys": post(b"a", headers=b"MQ-Tag: b\r\nMQ-Keys: c d\r\n"),
    "an envelope": post(b'{"text":"a","tag":"b"}', headers=ENVELOPE),
    "a key": post(b"a", headers=b"Idempotency-Key: b\r\n"),
    "numbers": post(
        b"a", headers=b"MQ-Producer-Id: b\r\nMQ-Producer-Epoch: 0\r\nMQ-Producer-Seq: 0\r\n"
    ),
}


@pytest.mark.parametrize("name", DIRECT)
async def test_a_send_that_waits_for_the_store_alone_makes_no_task(
    connection: RawConnection, tasks: list[str], name: str
) -> None:
    await connection.say(DIRECT[name])
    answer = await connection.answer()
    assert answer.status == 201
    assert answer.headers["server-timing"].startswith("store;dur=")
    assert answer.headers["mq-request-id"]
    assert tasks == []


OTHERS = {
    "the control plane": (GET, 200),
    "a send that is timed": (post(b"a", headers=b"MQ-Timeout: 5s\r\n"), 201),
    "a send for later": (post(b"a", headers=b"MQ-Delay: 1h\r\n"), 201),
    "an envelope for later": (post(b'{"text":"a","delay":"1h"}', headers=ENVELOPE), 201),
    "a send that nobody waits for": (post(b"a", headers=b"MQ-One-Way: true\r\n"), 202),
    "a half message": (
        post(b"a", headers=b"MQ-Transaction: prepare\r\nMQ-Producer-Group: b\r\n"),
        202,
    ),
    "a send to a topic that is made for it": (post(b"a", topic=b"made-now"), 201),
    "a long poll": (
        b"GET /v1/topics/orders/queues/0/messages?offset=0&wait=0.01 HTTP/1.1\r\n" + HOST + b"\r\n",
        200,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_other_requests_go_on_as_a_task(
    connection: RawConnection, tasks: list[str], name: str
) -> None:
    request, status = OTHERS[name]
    await connection.say(request)
    assert (await connection.answer()).status == status
    assert tasks == ["_rest"]


async def test_a_body_that_comes_later_is_a_task_from_the_start(
    connection: RawConnection, server: Served, tasks: list[str]
) -> None:
    whole = post(b"abcdef")
    await connection.say(whole[:-3])
    await until(lambda: tasks == ["RequestResponseCycle.run_asgi"])
    await connection.say(whole[-3:])
    assert (await connection.answer()).status == 201
    assert log_end(server) == 1


async def test_pipelined_sends_are_answered_in_order_and_stored_once_each(
    connection: RawConnection, server: Served, writes: HeldWrites
) -> None:
    bodies = [b"%d" % number for number in range(500)]
    await connection.say(b"".join(map(post, bodies[:300])) + GET)
    await until(lambda: bool(writes.held))
    await connection.say(b"".join(map(post, bodies[300:])))
    writes.let_go()
    offsets = []
    for number in range(501):
        answer = await connection.answer()
        if number == 300:
            assert answer.status == 200
            continue
        assert answer.status == 201
        offsets.append(msgspec.json.decode(answer.body)["queue_offset"])
    assert offsets == list(range(500))
    assert log_end(server) == 500


async def test_many_refusals_in_one_read_are_no_deep_recursion(connection: RawConnection) -> None:
    refused = post(b"", headers=b"Origin: http://evil\r\n")
    await connection.say(refused * 2_000 + GET)
    for _ in range(2_000):
        assert (await connection.answer()).status == 403
    assert (await connection.answer()).status == 200


async def test_a_client_that_leaves_while_its_send_is_confirmed(
    connection: RawConnection,
    server: Served,
    writes: HeldWrites,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The message is stored, the answer goes nowhere, and nobody stumbles."""
    leaving = await server.connect()
    await leaving.say(post(b"a") + post(b"b"))
    await until(lambda: bool(writes.held))
    await leaving.aclose()
    await until(lambda: server.connections.open_count == 1)
    with caplog.at_level(logging.WARNING):
        writes.let_go()
        await until(lambda: log_end(server) >= 1)
        await connection.say(post(b"c"))
        assert (await connection.answer()).status == 201
    assert not caplog.records
    assert b'curlew_http_answers_total{operation="send_message",status="201"}' in (
        await metrics(connection)
    )


async def test_a_send_on_its_way_is_answered_when_the_node_drains(
    server: Served, writes: HeldWrites
) -> None:
    connection = await server.connect()
    await connection.say(post(b"a") + post(b"b"))
    await until(lambda: bool(writes.held))
    draining = asyncio.ensure_future(server.node.drain())
    await until(lambda: bool(server.node.broker.health.obstacles()))
    writes.let_go()
    first, second = await connection.answer(), await connection.answer()
    assert first.status == 201
    assert (second.status, second.code) == (503, "SHUTTING_DOWN")
    assert second.headers["connection"] == "close"
    assert await connection.rest() == b""
    assert log_end(server) == 1
    await draining
    await connection.aclose()


async def test_a_send_whose_write_fails_says_that_its_outcome_is_unknown(
    connection: RawConnection, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(server.node.store._log, "write", broken)
    await connection.say(post(b"a"))
    answer = await connection.answer()
    assert (answer.status, answer.code) == (503, "STORE_FAILED")
    assert msgspec.json.decode(answer.body)["outcome"] == "unknown"


async def test_the_client_that_a_trusted_proxy_names_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"access_log": True, "trusted_proxies": ("127.0.0.1",)}
    async with served_node(tmp_path, Limits(), **settings) as server:
        connection = await server.connect()
        with caplog.at_level(logging.INFO, "app.api.telemetry.access_log"):
            for headers in (b"X-Forwarded-For: 203.0.113.7\r\n", b""):
                await connection.say(post(b"a", headers=headers))
                assert (await connection.answer()).status == 201
        lines = [each for each in caplog.records if each.name == "app.api.telemetry.access_log"]
        clients = [msgspec.json.decode(line.getMessage())["client"] for line in lines]
        assert clients == ["203.0.113.7", "127.0.0.1"]
        await connection.aclose()
