"""Who asks too much, or shows wrong keys, is not read for a while; others do not notice."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.api import gateway
from app.api.quotas.failures import Failures
from app.domain.limits import Limits
from tests.support.clients.wire import RawConnection, Served, parse, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

LONG_S = 3_600.0
HELD_S = 3.0
"""Longer than ten answers take on a machine that does much else."""
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
WRONG = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@contextlib.asynccontextmanager
async def connected(server: Served) -> AsyncIterator[RawConnection]:
    async with contextlib.aclosing(await server.connect()) as connection:
        yield connection


def mute(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(Failures, "note", lambda *_: seconds)


async def test_after_a_wrong_key_nothing_is_read_of_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute(monkeypatch, LONG_S)
    async with served_node(tmp_path, Limits(), auth="required") as server:
        server.node.metadata.principals.close_here()
        async with connected(server) as loud, connected(server) as quiet:
            await loud.say(WRONG)
            answer = await loud.answer()
            assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
            await loud.say(HEALTH)
            for _ in range(20):
                await quiet.say(HEALTH)
                assert (await quiet.answer()).status == 200
            assert not loud.reader._buffer, "it was read"  # type: ignore[attr-defined]


async def test_it_is_read_again_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute(monkeypatch, 0.05)
    async with served_node(tmp_path, Limits(), auth="required") as server:
        server.node.metadata.principals.close_here()
        async with connected(server) as loud:
            await loud.say(WRONG + HEALTH + WRONG)
            assert [(await loud.answer()).status for _ in range(3)] == [401, 200, 401]
            await loud.say(HEALTH)
            assert (await loud.answer()).status == 200
        async with connected(server) as gone:
            await gone.say(WRONG)
            assert (await gone.answer()).status == 401


async def test_a_right_key_is_never_slowed_and_a_wrong_one_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "BEGINNING_SECONDS_MAX", HELD_S)
    async with served_node(tmp_path, Limits()) as server:
        principals = server.node.metadata.principals
        key = (await principals.make_first()).text
        await principals.refresh()
        right = WRONG.replace(b"wrong", key.encode())
        failures = server.connections.failures
        while failures.note("127.0.0.1") < HELD_S:
            pass
        async with connected(server) as wrong, connected(server) as before:
            await wrong.say(WRONG)
            for _ in range(5):
                await before.say(right)
                assert (await before.answer()).status == 200
                async with connected(server) as new:
                    await new.say(right)
                    assert (await new.answer()).status == 200
            assert not wrong.reader._buffer, "it was answered"  # type: ignore[attr-defined]
            assert (await wrong.answer()).status == 401


async def test_a_quota_is_told_and_then_held(tmp_path: Path) -> None:
    async with served_node(tmp_path, Limits(), quota_topic_requests_per_second=2) as server:
        send = b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\n"
        send += b"Content-Length: 1\r\n\r\nx"
        async with connected(server) as loud, connected(server) as quiet:
            statuses = []
            refused = None
            for _ in range(6):
                await loud.say(send)
                answer = await loud.answer()
                statuses.append(answer.status)
                if answer.status == 429:
                    refused = answer
                    break
            assert refused is not None, statuses
            assert refused.code == "TOO_MANY_REQUESTS"
            assert b'"outcome":"not_stored"' in refused.body
            assert refused.headers["retry-after"] == "1"
            assert refused.headers["ratelimit-policy"] == '"topic-requests";q=2;qu="requests";w=1'
            assert refused.headers["ratelimit"] == '"topic-requests";r=0;t=1'
            await loud.say(HEALTH)
            await quiet.say(HEALTH)
            assert (await quiet.answer()).status == 200
            assert (await loud.answer()).status == 200, "a debt is paid"


async def test_one_connection_too_many_of_a_principal_is_closed(tmp_path: Path) -> None:
    async with served_node(tmp_path, Limits(), quota_connections=1) as server:
        key = (await server.node.metadata.principals.make_first()).text
        await server.node.metadata.principals.refresh()
        ask = f"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        first, second = await server.connect(), await server.connect()
        for _ in range(2):
            await first.say(ask)
            assert (await first.answer()).status == 200
        await second.say(ask)
        refused = parse(await second.rest())
        assert (refused.status, refused.code) == (503, "TOO_MANY_CONNECTIONS")
        await first.aclose()
        await until(lambda: server.connections.open_count == 0)
        third = await server.connect()
        await third.say(ask)
        assert (await third.answer()).status == 200
        await third.aclose()
