"""A send without options is noted in one function: as one with options is."""

from typing import NamedTuple

import pytest

from app.api.admission import Admission
from app.api.dataplane.routes import build_router
from app.api.formats.prefer_header import PREFER
from app.api.gateway import Gateway
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import RequestContext
from app.api.telemetry.callers import NO_NAMES, note_sent
from app.api.telemetry.plain_sends import PlainSends
from app.api.telemetry.request_metrics import RequestMetrics
from app.api.telemetry.slow_puts import SlowPuts
from app.broker.figures.counters import Sums
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.settings import TopicSettings, TraceMode
from tests.support.clients.asgi import call, events_of, http_scope
from tests.support.nodes.brokers import TOPIC, World, put_topic, running

pytestmark = pytest.mark.anyio

PLAIN: dict[bytes, bytes] = {}
WITH_OPTIONS = {PREFER: b"return=representation"}
"""It says what happens anyway."""
OF_THE_MESSAGE = {b"mq-tag": b"created", b"mq-keys": b"order-17"}
ADDRESS = "127.0.0.1"
BODIES = (b"abc", b"x" * 5_000, b"")
"""The first sender is not known yet, the others are."""


class Noted(NamedTuple):
    """What is known after some sends, but how long they took."""

    sums: Sums
    sizes: list[int]
    times: int
    clients: dict[tuple[str, str], tuple[int, str | None]]
    served: tuple[int, int]
    producers: list[tuple[str | None, str | None, str | None]]


async def noted(world: World, headers: dict[bytes, bytes]) -> Noted:
    """After `BODIES`."""
    metrics = RequestMetrics()
    router = build_router(world.broker, world.limits, metrics)
    app = Gateway(
        router, nothing, Admission(header_block_bytes_max=9_999, local_only=True), traffic=metrics
    )
    producers = []
    for body in BODIES:
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


@pytest.mark.parametrize("headers", [PLAIN, OF_THE_MESSAGE])
async def test_a_plain_send_and_one_with_options_are_noted_alike(
    headers: dict[bytes, bytes],
) -> None:
    async with running() as one, running() as other:
        plain = await noted(one, headers)
        assert plain == await noted(other, headers | WITH_OPTIONS)
    assert (plain.sums.in_count, plain.sums.in_bytes) == (3, 5_003)
    assert (sum(plain.sizes), plain.times, plain.served) == (3, 3, (3, 5_003))
    assert plain.clients == {("", ADDRESS): (3, ADDRESS)}
    assert plain.producers == [(None, None, ADDRESS)] * 3


async def sent_and_known(world: World, plain: PlainSends, count: int) -> list[bool]:
    """Whether the sender was known at each of so many sends."""
    seen = []
    for _ in range(count):
        exchange = exchange_of(ADDRESS)
        known = plain.find(exchange, TOPIC)
        seen.append(known is not None)
        result = await world.broker.sender.send(TOPIC, Message(b"a"))
        if known is None:
            note_sent(world.broker.clients, exchange, TOPIC, 1, NO_NAMES)
            plain.learn(exchange, TOPIC)
        else:
            plain.note(exchange, known, 1, 0.0, 0.0, result)
    return seen


def exchange_of(address: str) -> RequestContext:
    scope = http_scope("POST", f"/v1/topics/{TOPIC}/messages", [], b"")
    scope["client"] = (address, 1)
    return RequestContext(scope, events_of(), nothing, b"id", MemoryBudget(Limits()))


def plain_sends(world: World) -> PlainSends:
    return PlainSends(world.broker, world.limits, RequestMetrics(), SlowPuts())


async def test_a_sender_is_known_until_the_clients_take_a_turn_or_the_topic_changes() -> None:
    async with running() as world:
        plain = plain_sends(world)
        assert await sent_and_known(world, plain, 3) == [False, True, True]
        await world.broker.clients.turn()
        assert await sent_and_known(world, plain, 2) == [False, True]
        await put_topic(world.broker, TOPIC, TopicSettings(queues=2, trace=TraceMode.OFF))
        assert await sent_and_known(world, plain, 2) == [False, True]
        result = await world.broker.sender.send(TOPIC, Message(b"a"))
        trace = world.broker.message_trace
        history = await trace.trail(TOPIC, result.queue_id, result.queue_offset - 1)
        assert history.sent is None, "of a topic that is not traced"
        rows = world.broker.clients.producers.rows(TOPIC)
        assert [row.count for row in rows.values()] == [7]


async def test_a_sender_whose_row_made_room_or_whose_figures_went_is_not_known() -> None:
    async with running(limits=Limits(clients_max=1)) as world:
        plain = plain_sends(world)
        assert await sent_and_known(world, plain, 2) == [False, True]
        note_sent(world.broker.clients, exchange_of("10.0.0.9"), TOPIC, 1, NO_NAMES)
        assert await sent_and_known(world, plain, 2) == [False, True]
        del world.broker.statistics.topics[TOPIC]
        assert await sent_and_known(world, plain, 2) == [False, True]
        figures = world.broker.statistics.topic(TOPIC)
        assert figures is not None
        assert figures.in_count == 1


async def test_no_more_is_traced_than_may_wait() -> None:
    async with running(limits=Limits(trace_notes_pending_max=2)) as world:
        plain = plain_sends(world)
        assert await sent_and_known(world, plain, 5) == [False, True, True, True, True]
        trace = world.broker.message_trace
        assert (len(trace.singles), trace.dropped) == (2, 2)
