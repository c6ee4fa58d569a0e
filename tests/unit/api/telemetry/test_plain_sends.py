"""A send without options is noted in one function: as one with options is."""

from typing import NamedTuple

import pytest

from app.api.dataplane.routes import build_router
from app.api.formats.prefer_header import PREFER
from app.api.gateway import Gateway
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker.figures.counters import Sums
from tests.support.clients.asgi import call
from tests.support.nodes.brokers import TOPIC, World, running

pytestmark = pytest.mark.anyio

PLAIN: dict[bytes, bytes] = {}
WITH_OPTIONS = {PREFER: b"return=representation"}
"""It says what happens anyway."""
ADDRESS = "127.0.0.1"


class Noted(NamedTuple):
    """What is known after two sends, but how long they took."""

    sums: Sums
    sizes: list[int]
    times: int
    clients: dict[tuple[str, str], tuple[int, str | None]]
    served: tuple[int, int]
    producers: list[tuple[str | None, str | None, str | None]]


async def noted(world: World, headers: dict[bytes, bytes]) -> Noted:
    """After 3 and 5,000 bytes."""
    metrics = RequestMetrics()
    router = build_router(world.broker, world.limits, metrics)
    app = Gateway(router, nothing, header_block_bytes_max=9_999, local_only=True, traffic=metrics)
    producers = []
    for body in (b"abc", b"x" * 5_000):
        answer = await call(app, "POST", f"/v1/topics/{TOPIC}/messages", body, headers=headers)
        assert answer.status == 201
        stored = answer.json()
        place = stored["queue_id"], stored["queue_offset"]
        trace = await world.broker.message_trace.trail(TOPIC, *place)
        assert trace.sent is not None
        producers.append(trace.sent.producer)
    figures = world.broker.statistics.topic(TOPIC)
    assert figures is not None
    figures.count_puts()
    rows = world.broker.clients.producers.rows(TOPIC)
    return Noted(
        figures.sums(),
        figures.sizes,
        sum(figures.latency),
        {key: (row.count, row.address) for key, row in rows.items()},
        (metrics.messages_in, metrics.bytes_in),
        producers,
    )


async def nothing(*_: object) -> None:
    raise AssertionError("no path of the control plane")


async def test_a_plain_send_and_one_with_options_are_noted_alike() -> None:
    async with running() as one, running() as other:
        plain = await noted(one, PLAIN)
        assert plain == await noted(other, WITH_OPTIONS)
    assert (plain.sums.in_count, plain.sums.in_bytes) == (2, 5_003)
    assert (sum(plain.sizes), plain.times, plain.served) == (2, 2, (2, 5_003))
    assert plain.clients == {("", ADDRESS): (2, ADDRESS)}
    assert plain.producers == [(None, None, ADDRESS)] * 2
