"""What a principal and a topic may take, and what 100,000 wrong keys leave behind."""

from typing import Any

import pytest

from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import (
    CONNECTION,
    MUTE,
    OUR_EXTENSIONS,
    WHOLE_ANSWER,
    WHOLE_BODY,
    WRITTEN_ANSWER,
    ConnectionMemory,
    RequestContext,
    body_too_large,
)
from app.api.quotas.failures import FAILURES_PER_SECOND, Failures
from app.api.quotas.quotas import OverQuota, Quotas, QuotaSettings, TooManyOfOne
from app.domain.limits import FAILING_ADDRESSES_MAX, Limits
from app.domain.quotas.bucket_table import DEBT_SECONDS_MAX
from tests.support.clients.asgi import events_of, http_scope
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio


class World:
    def __init__(self, **settings: int) -> None:
        self.clock = FakeClock()
        self.quotas = Quotas(QuotaSettings(**settings), self.clock.monotonic_s)
        self.sent: list[Any] = []

    def request(self, size: int = 0, chunks: list[bytes] | None = None) -> RequestContext:
        async def send(event: Any) -> None:
            self.sent.append(event)

        length = [(b"content-length", b"%d" % size)] if size else []
        if chunks is not None:
            length = [(b"transfer-encoding", b"chunked")]
        scope = http_scope("POST", "/v1/topics/orders/messages", length, b"")
        scope["extensions"] = OUR_EXTENSIONS
        return RequestContext(scope, events_of(*(chunks or ())), send, b"1", MemoryBudget(Limits()))

    def admit(
        self, who: str | None = "ann", topic: str | None = None, size: int = 0
    ) -> RequestContext:
        exchange = self.request(size)
        self.quotas.admit(exchange, who, topic)
        return exchange


def test_connections_are_of_whoever_asked_last_on_them() -> None:
    world = World(connections=2)

    def ask(who: str, memory: ConnectionMemory) -> None:
        exchange = world.request()
        exchange.scope[CONNECTION] = memory
        world.quotas.admit(exchange, who, None)

    first, second, third = ConnectionMemory(), ConnectionMemory(), ConnectionMemory()
    for memory in (first, second, first, second):
        ask("ann", memory)
    with pytest.raises(TooManyOfOne, match="2 connections"):
        ask("ann", third)
    ask("bob", third)
    third.lost()
    ask("bob", second)
    ask("ann", ConnectionMemory())
    with pytest.raises(TooManyOfOne):
        ask("ann", second)
    first.lost()
    ask("ann", second)
    second.lost()
    assert world.quotas._connected == {"ann": 1}


def test_requests_a_second_are_of_each_principal() -> None:
    world = World(requests_per_second=3)
    for _ in range(3):
        world.admit()
    with pytest.raises(OverQuota) as caught:
        world.admit()
    assert caught.value.quota is not None
    assert caught.value.quota[:4] == ("principal-requests", 3, "requests", 0)
    assert (caught.value.quota.window_s, caught.value.retry_after_s) == (1, 1)
    world.admit("bob")
    world.admit(None)


def test_who_asks_on_waits_longer_but_not_for_ever() -> None:
    world = World(requests_per_second=2)
    waits = []
    for _ in range(100):
        try:
            world.admit()
        except OverQuota as error:
            waits.append(error.mute_s)
    assert waits == sorted(waits)
    assert waits[-1] == DEBT_SECONDS_MAX
    world.clock.advance(s=DEBT_SECONDS_MAX + 0.6)
    world.admit()


def test_bytes_in_are_taken_as_announced() -> None:
    world = World(bytes_in_per_second=1_000)
    world.admit(size=3_000)
    with pytest.raises(OverQuota) as caught:
        world.admit(size=1)
    assert caught.value.mute_s == 2
    world.clock.advance(s=2.1)
    world.admit(size=1)


async def test_a_body_in_chunks_is_taken_as_it_comes() -> None:
    world = World(bytes_in_per_second=1_000, topic_bytes_in_per_second=10_000)
    exchange = world.request(chunks=[b"x" * 1_500, b"y" * 1_500])
    world.quotas.admit(exchange, "ann", "orders")
    body = await exchange.read_body(10_000, body_too_large)
    assert len(body) == 3_000
    with pytest.raises(OverQuota) as caught:
        world.admit(size=1)
    assert caught.value.mute_s == 2
    world.admit(None, "orders", size=7_000)
    with pytest.raises(OverQuota, match="topic 'orders'"):
        world.admit(None, "orders")


async def test_a_body_in_chunks_that_came_with_its_head_is_taken_once() -> None:
    world = World(bytes_in_per_second=1_000)
    exchange = world.request(chunks=[])
    exchange.scope[WHOLE_BODY] = b"x" * 3_000
    world.quotas.admit(exchange, "ann", None)
    assert len(await exchange.read_body(10_000, body_too_large)) == 3_000
    with pytest.raises(OverQuota) as caught:
        world.admit()
    assert caught.value.mute_s == 2


async def test_bytes_out_are_taken_when_they_are_sent() -> None:
    world = World(bytes_out_per_second=1_000)
    exchange = world.admit()
    await exchange.answer(200, [], b"x" * 2_000)
    assert world.sent[-1]["type"] == WHOLE_ANSWER
    with pytest.raises(OverQuota) as caught:
        world.admit()
    assert caught.value.quota is not None
    assert caught.value.quota.name == "principal-bytes-out"
    world.admit("bob")


async def test_bytes_out_are_taken_of_an_answer_that_another_node_wrote() -> None:
    world = World(bytes_out_per_second=1_000)
    head = b"HTTP/1.1 200 OK\r\nx: %b\r\ncontent-length: 2000\r\n\r\n" % (b"a" * 5_000)
    await world.admit().pass_on_written(200, head + b"\r\n\r\n" + b"x" * 1_996)
    assert world.sent[-1]["type"] == WRITTEN_ANSWER
    with pytest.raises(OverQuota) as caught:
        world.admit()
    assert caught.value.quota is not None
    assert caught.value.quota.name == "principal-bytes-out"
    assert caught.value.mute_s == pytest.approx(1.0)


def test_a_topic_has_quotas_whoever_asks() -> None:
    world = World(topic_requests_per_second=1)
    world.admit("ann", "orders")
    for who in ("bob", None):
        with pytest.raises(OverQuota, match="topic 'orders'"):
            world.admit(who, "orders")
    world.admit("bob", "payments")
    world.admit("bob")


def test_requests_at_a_time_count_until_they_end() -> None:
    world = World(concurrent_requests=2)
    first, _ = world.admit(), world.admit()
    with pytest.raises(OverQuota) as caught:
        world.admit()
    assert caught.value.quota is not None
    assert caught.value.quota.unit == "concurrent-requests"
    world.admit("bob")
    assert first.admission is not None
    first.admission.end()
    world.admit()


def test_what_is_refused_holds_nothing() -> None:
    world = World(concurrent_requests=1, requests_per_second=1)
    exchange = world.admit()
    assert exchange.admission is not None
    exchange.admission.end()
    for _ in range(5):
        with pytest.raises(OverQuota):
            world.admit()
    world.clock.advance(s=60)
    world.admit()


def test_a_hundred_thousand_wrong_keys_grow_no_table() -> None:
    clock = FakeClock()
    failures = Failures(clock.monotonic_s)
    for number in range(100_000):
        failures.note(f"2001:db8::{number:x}")
    assert len(failures) == FAILING_ADDRESSES_MAX
    waits = [failures.note("192.0.2.1") for _ in range(10 * FAILURES_PER_SECOND)]
    assert waits[: FAILURES_PER_SECOND - 1] == [0] * (FAILURES_PER_SECOND - 1)
    assert waits[-1] == DEBT_SECONDS_MAX
    assert len(failures) == FAILING_ADDRESSES_MAX


async def test_a_connection_is_muted_where_the_server_can() -> None:
    world = World()
    exchange = world.request()
    await exchange.mute(2.5)
    await exchange.mute(0)
    assert world.sent == [{"type": MUTE, "seconds": 2.5}]
    exchange.scope["extensions"] = {}
    await exchange.mute(2.5)
    assert len(world.sent) == 1
