"""Sends that wait for the medium only so long: the wait ends, the write does not."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from app.api.admission import Admission
from app.api.dataplane.routes import build_router
from app.api.gateway import Gateway
from app.api.http.request_context import AsgiApp
from app.domain.errors import StoreFailed
from app.domain.limits import SEND_TIMEOUT_S_MAX
from app.domain.message import Message
from tests.support.clients.asgi import Answer, call
from tests.support.clients.frames import request_frame
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

SINGLE = f"/v1/topics/{TOPIC}/messages"
BATCH = SINGLE + ":batch"
JSON = (b"content-type", b"application/json")
FRAMES = (b"content-type", b"application/vnd.curlew.batch")
SHORT = (b"mq-timeout", b"20ms")
KEY = (b"idempotency-key", b'"order-17"')
TWO = msgspec.json.encode({"messages": [{"text": "a", "id": "x"}, {"text": "b", "delay": "9s"}]})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        yield world


async def send(
    world: World,
    body: bytes,
    *headers: tuple[bytes, bytes],
    path: str = SINGLE,
    query: bytes = b"",
) -> Answer:
    return await call(app_of(world), "POST", path, body, headers=headers, query=query)


def app_of(world: World) -> AsgiApp:
    async def nothing(*_: object) -> None:
        raise AssertionError("no path of the control plane")

    router = build_router(world.broker, world.limits)
    return Gateway(router, nothing, Admission(header_block_bytes_max=9_999, local_only=True))


async def test_a_sync_that_takes_longer_is_unknown_and_says_where(world: World) -> None:
    world.store.held = []
    answer = await send(world, b"late", SHORT)
    problem = answer.json()
    assert (answer.status, problem["code"]) == (504, "FLUSH_DISK_TIMEOUT")
    assert (problem["outcome"], problem["retryable"]) == ("unknown", True)
    assert problem["send_status"] == "FLUSH_DISK_TIMEOUT"
    assert (problem["topic"], problem["queue_id"], problem["queue_offset"]) == (TOPIC, 0, 0)
    assert problem["store_time_ms"] == world.clock.now_ms()
    world.store.confirm()
    [delivery] = await world.receive()
    assert delivery.message.body == b"late"
    assert delivery.message.message_id == problem["message_id"]


async def test_a_sync_in_time_is_a_success(world: World) -> None:
    answer = await send(world, b"a", (b"mq-timeout", b"1m"))
    assert (answer.status, answer.json()["status"]) == (201, "SEND_OK")
    assert (await send(world, b"b", query=b"timeout=30")).status == 201


async def test_a_failure_within_the_time_stays_one(world: World) -> None:
    world.store.failure = StoreFailed("the disk is gone")
    answer = await send(world, b"a", (b"mq-timeout", b"1m"))
    assert (answer.status, answer.json()["code"]) == (503, "STORE_FAILED")


async def test_each_entry_of_a_batch_says_where_it_is(world: World) -> None:
    world.store.held = []
    answer = await send(world, TWO, JSON, SHORT, path=BATCH)
    now, later = answer.json()["results"]
    assert (answer.status, answer.json()["failed"]) == (504, 2)
    assert (now["status"], now["id"], now["queue_offset"]) == (504, "x", 0)
    assert (now["error"]["code"], now["error"]["outcome"]) == ("FLUSH_DISK_TIMEOUT", "unknown")
    assert (later["status"], later["error"]["code"]) == (504, "FLUSH_DISK_TIMEOUT")
    assert "queue_offset" not in later
    assert later["recall_handle"]
    world.store.confirm()
    [delivery] = await world.receive()
    assert delivery.message.message_id == now["message_id"]


async def test_a_strict_batch_is_told_the_same(world: World) -> None:
    world.store.held = []
    answer = await send(world, TWO, JSON, SHORT, (b"prefer", b"handling=strict"), path=BATCH)
    codes = [result["error"]["code"] for result in answer.json()["results"]]
    assert (answer.status, codes) == (504, ["FLUSH_DISK_TIMEOUT"] * 2)
    assert answer.json()["results"][0]["message_id"]


async def test_a_frame_says_where_it_begins(world: World) -> None:
    frame = request_frame([Message(b"a"), Message(b"b")], TOPIC)
    world.store.held = []
    answer = await send(world, frame, FRAMES, SHORT, path=BATCH)
    problem = answer.json()
    assert (answer.status, problem["code"]) == (504, "FLUSH_DISK_TIMEOUT")
    assert (problem["queue_offset"], problem["count"]) == (0, 2)
    assert problem["message_id"]


async def test_a_delayed_message_can_be_recalled(world: World) -> None:
    world.store.held = []
    answer = await send(world, b"a", SHORT, (b"mq-delay", b"9s"))
    problem = answer.json()
    assert (answer.status, problem["code"]) == (504, "FLUSH_DISK_TIMEOUT")
    assert problem["recall_handle"]
    assert "queue_offset" not in problem


@pytest.mark.parametrize("again", [SHORT, (b"mq-timeout", b"1m"), JSON])
async def test_the_repetition_of_a_key_may_wait_longer(
    world: World, again: tuple[bytes, bytes]
) -> None:
    world.store.held = []
    first = await send(world, b"{}", SHORT, KEY, JSON)
    assert (first.status, first.json()["code"]) == (504, "FLUSH_DISK_TIMEOUT")
    at_work = await send(world, b"{}", again, KEY, *[JSON] * (again != JSON))
    assert (at_work.status, at_work.json()["code"]) == (409, "REQUEST_IN_PROGRESS")
    assert world.store.held
    world.store.confirm()
    await until(lambda: world.broker.topic_ends.bounds(TOPIC)[0].max_offset == 1)
    second = await send(world, b"{}", again, KEY, *[JSON] * (again != JSON))
    assert (second.status, second.headers[b"mq-duplicate"]) == (200, b"true")
    assert second.json()["message_id"] == first.json()["message_id"]


async def test_the_time_in_a_query_is_no_part_of_the_request(world: World) -> None:
    first = await send(world, b"a", KEY, query=b"tag=t&timeout=1s")
    second = await send(world, b"a", KEY, query=b"timeout=2s&tag=t")
    third = await send(world, b"a", KEY, query=b"tag=u&timeout=2s")
    assert (first.status, second.status, third.status) == (201, 200, 422)


@pytest.mark.parametrize(
    "text", [b"0", b"-1", b"nan", b"inf", b"soon", b"5 s", b"%d" % (SEND_TIMEOUT_S_MAX + 1), b""]
)
@pytest.mark.parametrize("path", [SINGLE, BATCH])
async def test_a_time_that_is_none_is_refused(world: World, text: bytes, path: str) -> None:
    answer = await send(world, TWO, JSON, (b"mq-timeout", text), path=path)
    problem = answer.json()
    assert (answer.status, problem["parameter"]) == (400, "timeout")
    assert problem["outcome"] == "not_stored"


async def test_half_messages_have_no_time(world: World) -> None:
    prepare = (b"mq-transaction", b"prepare; group=pg1")
    answer = await send(world, b"a", SHORT, prepare)
    assert (answer.status, answer.json()["code"]) == (400, "UNSUPPORTED")


async def test_who_asks_for_less_is_told_so(world: World) -> None:
    assert (await send(world, b"a", (b"mq-durability", b"memory"))).status == 202
    assert (await send(world, b"a", (b"mq-durability", b"flushed"))).status == 201
