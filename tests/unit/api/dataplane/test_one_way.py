"""One-way sends: answered before anybody knows what becomes of them, and counted when it is bad."""

from collections.abc import AsyncIterator

import pytest

from app.api.telemetry.metrics import Sources
from app.api.telemetry.request_metrics import RequestMetrics
from app.domain.errors import StoreFailed
from app.domain.message import Message
from tests.support.clients.frames import request_frame
from tests.support.exposition import render_metrics
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.nodes.waiting import until
from tests.unit.api.dataplane.test_send_timeouts import (
    BATCH,
    FRAMES,
    JSON,
    KEY,
    SINGLE,
    TWO,
    send,
)

pytestmark = pytest.mark.anyio

ONE_WAY = (b"mq-one-way", b"true")
GONE = StoreFailed("the disk is gone")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        yield world


def dropped(world: World) -> dict[str, int]:
    return world.broker.sender.one_way.dropped


async def test_the_answer_comes_before_the_medium_and_says_nothing(world: World) -> None:
    world.store.held = []
    answer = await send(world, b"gone", ONE_WAY)
    assert (answer.status, answer.body) == (202, b"")
    assert answer.headers[b"content-length"] == b"0"
    assert not [name for name in answer.headers if name.startswith(b"mq-queue")]
    assert world.store.held
    world.store.confirm()
    [delivery] = await world.receive()
    assert delivery.message.body == b"gone"
    assert dropped(world) == {}


@pytest.mark.parametrize("text", [b"true", b"1", b""])
async def test_the_query_says_it_too(world: World, text: bytes) -> None:
    world.store.held = []
    assert (await send(world, b"a", query=b"one_way=" + text)).status == 202


async def test_whoever_takes_it_back_waits(world: World) -> None:
    assert (await send(world, b"a", (b"mq-one-way", b"false"))).status == 201


async def test_what_fails_later_is_counted_by_its_reason(world: World) -> None:
    frame = request_frame([Message(b"a"), Message(b"b"), Message(b"c")], TOPIC)
    world.store.failure = GONE
    assert (await send(world, b"a", ONE_WAY)).status == 202
    assert (await send(world, b"a", ONE_WAY, (b"mq-delay", b"9s"))).status == 202
    assert (await send(world, frame, ONE_WAY, FRAMES, path=BATCH)).status == 202
    assert (await send(world, TWO, ONE_WAY, JSON, path=BATCH)).status == 202
    strict = (b"prefer", b"handling=strict")
    assert (await send(world, TWO, ONE_WAY, JSON, strict, path=BATCH)).status == 202
    assert (await send(world, b"a", ONE_WAY, KEY)).status == 202
    await until(lambda: dropped(world) == {"STORE_FAILED": 1 + 1 + 3 + 2 + 2 + 1})
    sources = Sources(world.broker, world.metadata, RequestMetrics(), None, 0)
    assert 'curlew_one_way_dropped_total{reason="STORE_FAILED"} 10' in render_metrics(sources)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (SINGLE, [(b"mq-queue-id", b"99")], 404),
        (SINGLE, [(b"mq-tag", b"a|b")], 400),
        (SINGLE, [(b"mq-transaction", b"prepare; group=pg1")], 400),
        (SINGLE.replace(TOPIC, "nowhere"), [], 404),
    ],
)
async def test_what_is_wrong_with_the_request_is_told(
    world: World, path: str, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    answer = await send(world, b"a", ONE_WAY, *headers, path=path)
    assert (answer.status, answer.json()["outcome"]) == (status, "not_stored")
    assert dropped(world) == {}


async def test_what_the_log_refuses_is_told(world: World) -> None:
    world.store.refusal = StoreFailed("the disk is gone")
    answer = await send(world, b"a", ONE_WAY)
    assert (answer.status, answer.json()["outcome"]) == (503, "not_stored")


async def test_a_batch_with_a_bad_entry_has_its_results(world: World) -> None:
    bad = b'{"messages": [{"text": "a"}, {"text": "b", "tag": "*"}]}'
    answer = await send(world, bad, ONE_WAY, JSON, path=BATCH)
    assert (answer.status, answer.json()["succeeded"]) == (207, 1)


async def test_a_word_that_is_no_flag_is_refused(world: World) -> None:
    answer = await send(world, b"a", (b"mq-one-way", b"yes"))
    assert (answer.status, answer.json()["parameter"]) == (400, "one_way")


async def test_a_repetition_may_ask_for_what_became_of_it(world: World) -> None:
    assert (await send(world, b"a", ONE_WAY, KEY)).status == 202
    await until(lambda: world.broker.topic_ends.bounds(TOPIC)[0].max_offset == 1)
    assert (await send(world, b"a", ONE_WAY, KEY)).status == 202
    again = await send(world, b"a", KEY, query=b"timeout=5s")
    assert (again.status, again.headers[b"mq-duplicate"]) == (200, b"true")
    assert (again.json()["queue_id"], again.json()["queue_offset"]) == (0, 0)


async def test_it_counts_as_sent_and_not_as_a_time(world: World) -> None:
    await send(world, b"four", ONE_WAY)
    figures = world.broker.statistics.topic(TOPIC)
    assert figures is not None
    assert (figures.in_count, figures.in_bytes, figures.latency_at(0.5)) == (1, 4, None)
