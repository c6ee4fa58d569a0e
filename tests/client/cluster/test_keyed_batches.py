"""Batches of `send_async` with keys where the route is missing, old, or broken off."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from curlew_client import AsyncClient, CurlewError, SendResult
from curlew_client.aio.batching import AsyncBatcher
from curlew_client.aio.pool import AsyncPool
from curlew_client.aio.sending import AsyncSender
from curlew_client.options import Options
from curlew_client.producing.messages import Message as Plain
from curlew_client.producing.routes import java_hash
from curlew_client.session import Session

from tests.support.clients.scripted_node import answered, refused, scripted, stored


def route(*leaders: str) -> dict[str, Any]:
    """One queue in a shard of its own for each leader."""
    rows = [
        {"queue_id": number, "shard": f"s{number}", "perm": "rw", "leader": leader}
        for number, leader in enumerate(leaders)
    ]
    return {"topic": "orders", "valid_ms": 30_000, "queues": rows}


REFUSED = refused(421, "NOT_LEADER", outcome="not_stored", retryable=False)


def keys_of(shard: int, count: int) -> list[str]:
    """Keys of a shard of two."""
    keys = (f"k{number}" for number in range(100))
    return [key for key in keys if abs(java_hash(key)) % 2 == shard][:count]


def send_late(url: str, keys: list[str], *, first: int = 0) -> list[SendResult | CurlewError]:
    """After some that are sent one by one, a batch with these keys."""

    async def send() -> list[SendResult | CurlewError]:
        async with AsyncClient(url, batch_messages=len(keys), linger="1h") as curlew:
            for _ in range(first):
                await curlew.send("orders", b"x")
            futures = [await curlew.send_async("orders", key, sharding_key=key) for key in keys]
            for each in futures:
                with suppress(CurlewError):
                    await each
            return [each.exception(0) or each.result(0) for each in futures]

    return asyncio.run(send())


def test_a_keyed_batch_parts_though_routes_were_off() -> None:
    with scripted() as first, scripted() as second:
        first.route = answered(200, route(first.url))
        first.steps = [stored(), stored(), stored(), REFUSED]
        of_two = answered(200, route(first.url, second.url))

        def refuse(connection: Any) -> None:
            first.route = of_two
            REFUSED(connection)

        first.steps[3] = refuse
        results = send_late(first.url, keys_of(0, 1) + keys_of(1, 1), first=3)
        assert [each for each in results if isinstance(each, CurlewError)] == []
        assert len(first.routes_asked) == 2
        assert len(second.sends) == 1


def test_a_keyed_batch_goes_singly_when_no_route_is_to_be_had() -> None:
    one, other = keys_of(0, 1)[0], keys_of(1, 1)[0]
    with scripted(REFUSED, REFUSED) as node:
        node.route = refused(403, "FORBIDDEN")
        results = send_late(node.url, [one, one, other])
        assert [type(each) for each in results] == [SendResult] * 3
        assert [each.body.decode() for each in node.sends[2:]] == [one, one, other]


def test_a_key_stops_at_its_first_error_and_others_go_on() -> None:
    one, other = keys_of(0, 1)[0], keys_of(1, 1)[0]
    broken_one = refused(400, "INVALID_ARGUMENT", outcome="not_stored", retryable=False)
    with scripted(REFUSED, REFUSED, broken_one) as node:
        node.route = refused(403, "FORBIDDEN")
        results = send_late(node.url, [one, one, other])
        shown = [getattr(each, "outcome", None) for each in results]
        assert shown == ["not_stored", "not_stored", None]
        assert len(node.sends) == 4


async def cancelled(*_: Any) -> None:
    raise asyncio.CancelledError


async def broken_off(*_: Any) -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize("fault", [cancelled, broken_off])
def test_a_batch_that_is_broken_off_before_its_request_ends(
    fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncSender, "learn_route", fault)

    async def send() -> CurlewError | None:
        session = Session("http://127.0.0.1:1", options=Options(under_way_messages=1, linger=0))
        batcher = AsyncBatcher(session, AsyncSender(session, AsyncPool(None, 1.0)))
        future = await batcher.put("orders", Plain(b"x", sharding_key="k"))
        last = await batcher.put("orders", Plain(b"y", sharding_key="k"))  # there is room again
        assert future.done()
        await batcher.drain()
        assert last.done()
        return future.exception(0)

    assert isinstance(asyncio.run(send()), CurlewError)
