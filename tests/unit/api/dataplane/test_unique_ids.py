"""The producer's own id and flag of a message: said in every way, given back in every way."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from app.broker.results import Nack
from app.broker.transactions.transaction_table import TransactionState
from app.domain.message import FLAG_MAX, FLAG_MIN, Message
from tests.support.clients.asgi import Answer, call
from tests.support.clients.frames import read_frame, request_frame
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.support.nodes.waiting import until
from tests.unit.api.dataplane.test_send_timeouts import BATCH, FRAMES, JSON, SINGLE, app_of, send

pytestmark = pytest.mark.anyio

ENVELOPE = (b"content-type", b"application/vnd.curlew+json")
NDJSON = (b"content-type", b"application/x-ndjson")
ID = (b"mq-unique-id", b"order-17-a")
FLAG = (b"mq-flag", b"-7")
ROCKETMQ_5 = "01A1B2C3D4018BCFE56800000000000000"
"""As long as ours, and as its clients make them."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        yield world


async def get(world: World, path: str, query: bytes = b"", accept: bytes = b"*/*") -> Answer:
    return await call(app_of(world), "GET", path, headers=((b"accept", accept),), query=query)


async def pulled(world: World) -> list[dict[str, Any]]:
    answer = await get(world, f"/v1/topics/{TOPIC}/queues/0/messages", b"offset=0")
    return list(answer.json()["messages"])


async def browsed(world: World, unique_id: str, more: bytes = b"") -> list[str]:
    query = b"unique_id=" + unique_id.encode() + more
    answer = await get(world, SINGLE, query)
    assert answer.status == 200, answer.body
    return [each["text"] for each in answer.json()["messages"]]


@pytest.mark.parametrize(
    ("body", "headers", "query"),
    [
        (b"a", [ID, FLAG], b""),
        (b"a", [], b"unique_id=order-17-a&flag=-7"),
        (b"a", [ID], b"unique_id=order-17-a&flag=-7"),
        (b'{"text": "a", "unique_id": "order-17-a", "flag": -7}', [ENVELOPE], b""),
        (b'{"text": "a"}', [ENVELOPE, ID, FLAG], b""),
    ],
)
async def test_a_send_says_it_and_everything_gives_it_back(
    world: World, body: bytes, headers: list[tuple[bytes, bytes]], query: bytes
) -> None:
    sent = (await send(world, body, *headers, query=query)).json()
    assert (sent["status"], sent["unique_id"]) == ("SEND_OK", "order-17-a")
    assert sent["message_id"] != "order-17-a"
    await until(lambda: world.broker.topic_ends.bounds(TOPIC)[0].max_offset == 1)
    [message] = await pulled(world)
    assert (message["unique_id"], message["flag"]) == ("order-17-a", -7)
    assert (message["message_id"], message["properties"]) == (sent["message_id"], {})
    frame = await get(world, f"{SINGLE[:-9]}/queues/0/messages", b"offset=0", FRAMES[1])
    [framed] = read_frame(frame.body)
    assert (framed.unique_id, framed.flag) == ("order-17-a", -7)
    [delivery] = await world.receive()
    assert (delivery.message.unique_id, delivery.message.flag) == ("order-17-a", -7)
    assert await browsed(world, "order-17-a") == ["a"]
    assert await browsed(world, "order-17-a", b"&direction=forward") == ["a"]
    assert await browsed(world, "order-17") == []


async def test_headers_only_have_it_too(world: World) -> None:
    answer = await send(world, b"a", ID, (b"prefer", b"return=minimal"))
    assert (answer.status, answer.headers[b"mq-unique-id"]) == (201, b"order-17-a")


async def test_a_message_without_has_neither(world: World) -> None:
    sent = (await send(world, b"a", (b"mq-tag", b"t"))).json()
    await send(world, b"b", (b"mq-flag", b"0"))
    await until(lambda: world.broker.topic_ends.bounds(TOPIC)[0].max_offset == 2)
    for message in (sent, *await pulled(world)):
        assert not {"unique_id", "flag"} & set(message)


@pytest.mark.parametrize("flag", [FLAG_MIN, FLAG_MAX, 1, -1])
async def test_a_flag_has_32_bits(world: World, flag: int) -> None:
    assert (await send(world, b"a", query=b"flag=%d" % flag)).status == 201
    await until(lambda: world.broker.topic_ends.bounds(TOPIC)[0].max_offset == 1)
    assert [each["flag"] for each in await pulled(world)] == [flag]


@pytest.mark.parametrize("flag", [b"2147483648", b"-2147483649", b"1.5", b"x", b"", b"9" * 30])
async def test_what_is_no_flag_is_refused(world: World, flag: bytes) -> None:
    answer = await send(world, b"a", (b"mq-flag", flag))
    assert (answer.status, answer.json()["parameter"]) == (400, "flag")
    body = b'{"text": "a", "flag": 2147483648}'
    answer = await send(world, body, ENVELOPE)
    assert answer.json()["errors"][0]["pointer"] == "/flag"


@pytest.mark.parametrize("unique_id", ["", "a b", "ü", "a\x01b", "x" * 256, "a\n"])
async def test_what_is_no_id_is_refused(world: World, unique_id: str) -> None:
    body = msgspec.json.encode({"text": "a", "unique_id": unique_id})
    answer = await send(world, body, ENVELOPE)
    assert (answer.status, answer.json()["code"]) == (400, "ILLEGAL_MESSAGE_ID")
    assert answer.json()["errors"][0]["pointer"] == "/unique_id"
    assert answer.json()["outcome"] == "not_stored"


async def test_two_ids_of_one_message_are_refused(world: World) -> None:
    answer = await send(world, b"a", ID, query=b"unique_id=other")
    assert (answer.status, answer.json()["parameter"]) == (400, "unique_id")
    answer = await send(world, b'{"text": "a", "flag": 0}', ENVELOPE, FLAG)
    assert (answer.status, answer.json()["parameter"]) == (400, "flag")


async def test_an_id_is_given_once_in_a_batch(world: World) -> None:
    entries = [{"text": name, "unique_id": unique} for name, unique in ("ax", "by", "cx", "dx")]
    body = msgspec.json.encode({"messages": entries})
    answer = await send(world, body, JSON, path=BATCH)
    results = answer.json()["results"]
    assert (answer.status, [each["status"] for each in results]) == (207, [201, 201, 400, 400])
    assert [each["unique_id"] for each in results[:2]] == ["x", "y"]
    error = results[3]["error"]
    assert (error["code"], error["outcome"]) == ("ILLEGAL_MESSAGE_ID", "not_stored")
    assert error["errors"][0]["pointer"] == "/messages/3/unique_id"
    assert "entry 0" in error["detail"]
    lines = b"\n".join(msgspec.json.encode(each) for each in entries)
    answer = await send(world, lines, NDJSON, (b"prefer", b"handling=strict"), path=BATCH)
    assert (answer.status, answer.json()["failed"]) == (400, 4)


async def test_an_id_is_given_once_in_a_frame(world: World) -> None:
    for ids, record in ((("x", "y", "x"), 2), (("x", "x", "x"), 1)):
        frame = request_frame([Message(b"a", unique_id=each) for each in ids], TOPIC)
        problem = (await send(world, frame, FRAMES, path=BATCH)).json()
        assert (problem["code"], problem["index"]) == ("MALFORMED_FRAME", record)
        assert (problem["first_index"], problem["outcome"]) == (0, "not_stored")
    frame = request_frame([Message(b"a", unique_id=each) for each in "xyz"], TOPIC)
    assert (await send(world, frame, FRAMES, path=BATCH)).status == 200


async def test_what_is_sent_with_acks_has_ids_of_its_own(world: World) -> None:
    await world.send(b"work")
    [delivery] = await world.receive()
    sends = [{"topic": TOPIC, "text": "x", "unique_id": "x"}] * 2
    body = msgspec.json.encode({"acks": [delivery.receipt_handle], "sends": sends})
    path = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages:settle"
    answer = await call(app_of(world), "POST", path, body, headers=(JSON,))
    assert answer.status == 400
    error = answer.json()["sends"][1]["error"]
    assert (error["code"], error["errors"][0]["pointer"]) == (
        "ILLEGAL_MESSAGE_ID",
        "/sends/1/unique_id",
    )


async def test_it_stays_through_delay_retry_and_dead_letter(world: World) -> None:
    await world.retry_at_once()
    sent = (await send(world, b"late", ID, FLAG, (b"mq-delay", b"5s"))).json()
    assert (sent["unique_id"], "recall_handle" in sent) == ("order-17-a", True)
    await world.lapse(s=6)
    [first] = await world.receive()
    await world.nack(first)
    await world.lapse(ms=1)
    [delivery] = await world.receive()
    for each, attempt in ((first, 1), (delivery, 2)):
        assert (each.attempt, each.message.message_id) == (attempt, sent["message_id"])
        assert (each.message.unique_id, each.message.flag) == ("order-17-a", -7)
    settled = await world.broker.settler.settle(
        TOPIC, GROUP, dead_letters=[Nack(delivery.receipt_handle, None, "spoiled")]
    )
    assert settled[0].error is None
    message = await world.broker.browser.message(TOPIC, sent["message_id"])
    assert (message.unique_id, message.body) == ("order-17-a", b"late")
    assert await browsed(world, "order-17-a") == ["late"]


async def test_a_transaction_keeps_it(world: World) -> None:
    prepare = (b"mq-transaction", b"prepare; group=shop")
    answer = await send(world, b"paid", ID, prepare)
    assert (answer.status, answer.json()["unique_id"]) == (202, "order-17-a")
    transaction_id = answer.json()["transaction_id"]
    await world.broker.transactions.decide(transaction_id, TransactionState.COMMITTED)
    [delivery] = await world.receive()
    assert (delivery.message.unique_id, delivery.message.message_id) == (
        "order-17-a",
        transaction_id,
    )


@pytest.mark.parametrize("own", [ROCKETMQ_5, "schedule:nightly:5"])
async def test_an_id_that_looks_like_ours_is_the_producers(world: World, own: str) -> None:
    sent = (await send(world, b"a", (b"mq-unique-id", own.encode()))).json()
    twin = (await send(world, b"b", (b"mq-unique-id", sent["message_id"].encode()))).json()
    assert sent["message_id"] != own
    await until(lambda: world.broker.topic_ends.bounds(TOPIC)[0].max_offset == 2)
    first, second = await pulled(world)
    assert (first["unique_id"], first["message_id"]) == (own, sent["message_id"])
    assert (second["unique_id"], second["message_id"]) == (sent["message_id"], twin["message_id"])
    assert await browsed(world, own) == ["a"]
    assert await browsed(world, sent["message_id"]) == ["b"]
    found = await world.broker.browser.message(TOPIC, sent["message_id"])
    assert found.body == b"a"


async def test_a_request_has_them_and_a_reply_has_not(world: World) -> None:
    body = b'{"text": "yes", "unique_id": "r"}'
    path = "/v1/replies/nobody"
    answer = await call(app_of(world), "POST", path, body, headers=(ENVELOPE,))
    assert answer.status == 400
    assert "unique_id" in answer.json()["hint"]


async def test_a_receive_as_raw_has_them_in_headers(world: World) -> None:
    await send(world, b"a", ID, FLAG)
    path = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages:receive"
    answer = await call(app_of(world), "POST", path, b"", query=b"format=raw&wait=1")
    assert (answer.headers[b"mq-unique-id"], answer.headers[b"mq-flag"]) == (b"order-17-a", b"-7")
