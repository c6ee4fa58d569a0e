"""The producer against a node: what is sent is what is read, blocking and with asyncio."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import curlew_client
import httpx
import pytest
from curlew_client import AsyncClient, Client, CurlewError, Message, SendFuture, SendResult
from curlew_client.errors import BY_CODE, TopicNotFound

from tests.support.nodes.node import RunningNode, run_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with run_node(tmp_path_factory.mktemp("client") / "node") as running:
        for topic in ("orders", "many", "keyed", "loop", "oneway", "packed"):
            httpx.put(f"{running.url}/v1/topics/{topic}", json={"queues": 2, "flush": "async"})
        yield running


def read(node: RunningNode, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic, queue by queue."""
    found: list[dict[str, Any]] = []
    for queue in range(2):
        answer = httpx.get(
            f"{node.url}/v1/topics/{topic}/queues/{queue}/messages",
            params={"offset": 0, "max_messages": 10_000, "max_bytes": 8_000_000},
        )
        found += answer.json()["messages"]
    return found


def test_ten_lines_from_memory(node: RunningNode) -> None:
    with Client(node.url) as curlew:
        result = curlew.send(
            "orders",
            {"id": 17, "wer": "Jörg"},
            tag="created",
            keys=["order-17", "ä b".replace(" ", "-")],
            properties={"Region": "eu, ü", "n": "50%"},
        )
        assert (result.topic, result.is_duplicate, result.is_safe) == ("orders", False, True)
        text = curlew.send("orders", "grüße", sharding_key="a b")
        curlew.send("orders", b"\x00\xff", content_type="image/png", queue_id=1)
    shown = {each["message_id"]: each for each in read(node, "orders")}
    first = shown[result.message_id or ""]
    assert (first["tag"], first["keys"]) == ("created", ["order-17", "ä-b"])
    assert first["properties"] == {"Region": "eu, ü", "n": "50%"}
    assert first["content_type"] == "application/json"
    assert shown[text.message_id or ""]["sharding_key"] == "a b"
    assert {each.get("content_type") for each in shown.values()} == {
        "application/json",
        None,
        "image/png",
    }


def test_large_bodies_are_packed_and_large_properties_go_in_an_envelope(node: RunningNode) -> None:
    body = json.dumps([{"n": number} for number in range(2_000)]).encode()
    with Client(node.url) as curlew:
        curlew.send("packed", body)
        curlew.send("packed", b"\x00\xff", properties={"big": "ü" * 4_000}, keys=["k"])
        curlew.send("packed", bytes(3_000_000))
    bodies = {each["properties"].get("big", ""): each for each in read(node, "packed")}
    assert "ü" * 4_000 in bodies
    assert len(read(node, "packed")) == 3


def test_batches_are_whole_and_in_order(node: RunningNode) -> None:
    with Client(node.url) as curlew:
        messages: list[Any] = ["a", Message(b"b", tag="t", properties={"p": "q"}), {"c": 1}]
        results = curlew.send_batch("many", messages, queue_id=1)
        keyed = curlew.send_batch("many", [Message(b"k", sharding_key=f"{n}") for n in range(9)])
    assert [each.queue_offset for each in results] == [0, 1, 2]
    assert {each.queue_id for each in results} == {1}
    assert {each.queue_id for each in keyed} == {0, 1}
    shown = [each for each in read(node, "many") if each["queue_id"] == 1][:3]
    assert [each.get("tag") for each in shown] == [None, "t", None]
    assert shown[2]["content_type"] == "application/json"


def test_messages_of_a_key_keep_their_order_through_batches(node: RunningNode) -> None:
    told: list[tuple[SendResult | None, CurlewError | None]] = []
    with Client(node.url, batch_messages=50) as curlew:
        futures = [
            curlew.send_async(
                "keyed",
                f"{number}",
                sharding_key=f"key{number % 3}",
                callback=lambda result, error: told.append((result, error)),
            )
            for number in range(600)
        ]
        assert all(isinstance(each.result(30), SendResult) for each in futures)
    assert len(told) == 600
    assert all(error is None for _, error in told)
    for key in ("key0", "key1", "key2"):
        offsets = [
            (each.result().queue_id, each.result().queue_offset)
            for number, each in enumerate(futures)
            if f"key{number % 3}" == key
        ]
        assert offsets == sorted(offsets, key=lambda place: place[1] or 0)
        assert len({queue for queue, _ in offsets}) == 1


def test_asyncio_has_the_same_calls(node: RunningNode) -> None:
    async def work() -> list[SendResult]:
        async with AsyncClient(node.url) as curlew:
            sent = await asyncio.gather(*(curlew.send("loop", f"{n}") for n in range(100)))
            futures: list[SendFuture] = [
                await curlew.send_async("loop", b"later") for _ in range(100)
            ]
            await curlew.send_oneway("loop", b"oneway")
            await curlew.send_batch("loop", ["x", "y"])
            return [*sent, *[await future for future in futures]]

    results = asyncio.run(work())
    assert len({(each.queue_id, each.queue_offset) for each in results}) == 200
    assert len(read(node, "loop")) == 203


def test_closing_sends_what_waits(node: RunningNode) -> None:
    with Client(node.url, linger="10s") as curlew:
        future = curlew.send_async("oneway", b"a")
        curlew.send_oneway("oneway", b"b")
        assert not future.done()
    assert future.result().queue_offset is not None
    assert len(read(node, "oneway")) == 2


def test_a_closed_client_is_forgotten(node: RunningNode) -> None:
    with Client(node.url) as curlew:
        curlew.send("orders", b"x")
        lane = f"{node.url}/v1/producers/{curlew.client_id}:1"
        assert httpx.get(lane).json()["epoch"] is not None
    shown = httpx.get(lane).json()
    assert (shown["epoch"], shown["sealed_epoch"] is not None) == (None, True)


def test_what_is_under_way_holds_the_caller_back(node: RunningNode) -> None:
    with Client(node.url, under_way_messages=10, batch_messages=3) as curlew:
        futures = [curlew.send_async("orders", b"x") for _ in range(200)]
        assert all(each.result(30) for each in futures)


def test_threads_share_a_client(node: RunningNode) -> None:
    with Client(node.url, connections=4) as curlew:
        threads = [
            threading.Thread(target=lambda: [curlew.send("orders", b"x") for _ in range(25)])
            for _ in range(8)
        ]
        before = len(read(node, "orders"))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read(node, "orders")) - before == 200


def test_a_refused_batch_refuses_each_future(node: RunningNode) -> None:
    httpx.put(f"{node.url}/v1/topics/typed", json={"queues": 1, "type": "fifo"})
    with Client(node.url) as curlew:
        future = curlew.send_async("typed", b"x")
        assert isinstance(future.exception(30), CurlewError)


def test_codes_with_a_class_are_codes_of_the_node(node: RunningNode) -> None:
    answer = httpx.get(f"{node.url}/v1/error-codes").json()
    known = {each["code"] for each in answer["error_codes"]}
    planned = {"REPLICATION_TIMEOUT"}
    assert set(BY_CODE) - planned <= known
    assert TopicNotFound in BY_CODE.values()
    assert issubclass(TopicNotFound, curlew_client.ServiceError)
