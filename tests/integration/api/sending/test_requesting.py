"""Request and reply over real sockets: workers, requesters that leave, nobody there."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.nodes.node import RunningNode
from tests.support.nodes.waiting import wait_until

EVERY_BYTE = bytes(range(256))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def receive_one(http: httpx.Client, topic: str) -> dict[str, Any]:
    """The next message of the topic, acknowledged."""
    url = f"/v1/topics/{topic}/groups/workers/messages:receive"
    answer = http.post(url, params={"wait": 10, "max_messages": 1})
    (message,) = answer.json()["messages"]
    http.delete(f"/v1/receipts/{message['receipt_handle']}").raise_for_status()
    found: dict[str, Any] = message
    return found


def test_a_reply_comes_back_byte_for_byte(
    http: httpx.Client, topic: str, threads: ThreadPoolExecutor
) -> None:
    asked = threads.submit(
        http.post,
        f"/v1/topics/{topic}/messages:request?wait=10&format=raw&tag=sum",
        content=EVERY_BYTE,
    )
    request = receive_one(http, topic)
    assert request["tag"] == "sum"
    assert request["reply_until_ms"] > request["store_time_ms"]
    answer = http.post(
        f"/v1/replies/{request['correlation_id']}",
        content=EVERY_BYTE[::-1],
        headers={"Content-Type": "image/png", "MQ-Prop-Took": "3ms", "MQ-Tag": "done"},
    )
    assert answer.json() == {"status": "DELIVERED", "correlation_id": request["correlation_id"]}
    reply = asked.result()
    assert (reply.status_code, reply.content) == (200, EVERY_BYTE[::-1])
    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["mq-prop-took"] == "3ms"
    assert reply.headers["mq-tag"] == "done"
    assert reply.headers["mq-message-id"] == request["message_id"]
    assert reply.headers["mq-correlation-id"] == request["correlation_id"]


def test_an_envelope_each_way(http: httpx.Client, topic: str, threads: ThreadPoolExecutor) -> None:
    envelope = {"Content-Type": "application/vnd.curlew+json"}
    asked = threads.submit(
        http.post,
        f"/v1/topics/{topic}/messages:request",
        json={"body": {"a": 1}, "keys": ["k"]},
        headers={**envelope, "Prefer": "wait=10"},
    )
    request = receive_one(http, topic)
    assert (request["body"], request["keys"]) == ({"a": 1}, ["k"])
    url = f"/v1/replies/{request['correlation_id']}"
    refused = http.post(url, json={"text": "x", "queue_id": 1}, headers=envelope)
    assert refused.status_code == 400
    http.post(url, json={"body": [2]}, headers=envelope).raise_for_status()
    answer = asked.result().json()
    assert answer["reply"]["body"] == [2]
    assert answer["message_id"] == request["message_id"]


def test_many_at_once_get_their_own(
    http: httpx.Client, topic: str, threads: ThreadPoolExecutor
) -> None:
    url = f"/v1/topics/{topic}/messages:request?wait=20&format=raw"
    asked = [threads.submit(http.post, url, content=b"%d" % number) for number in range(10)]
    for _ in asked:
        request = receive_one(http, topic)
        reply = f"re: {request['text']}".encode()
        http.post(f"/v1/replies/{request['correlation_id']}", content=reply).raise_for_status()
    assert [each.result().content for each in asked] == [b"re: %d" % n for n in range(10)]


def test_no_reply_is_504_and_a_late_one_410(http: httpx.Client, topic: str) -> None:
    answer = http.post(f"/v1/topics/{topic}/messages:request?wait=50ms", content=b"x")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (504, "REPLY_TIMEOUT")
    assert (problem["outcome"], problem["retryable"]) == ("stored", False)
    request = receive_one(http, topic)
    assert request["message_id"] == problem["message_id"]
    late = http.post(f"/v1/replies/{problem['correlation_id']}", content=b"late")
    assert (late.status_code, late.json()["code"]) == (410, "REQUEST_EXPIRED")
    unknown = http.post("/v1/replies/nobody", content=b"x")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "REQUEST_NOT_FOUND")


def waiting(http: httpx.Client) -> int:
    """Requests that wait on the node, as its metrics have it."""
    (line,) = [
        line
        for line in http.get("/metrics").text.splitlines()
        if line.startswith("curlew_waiting_requests ")
    ]
    return int(float(line.split()[1]))


def test_a_requester_that_is_killed_is_forgotten(
    node: RunningNode, http: httpx.Client, topic: str
) -> None:
    head = (
        f"POST /v1/topics/{topic}/messages:request?wait=30 HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{node.port}\r\nContent-Length: 4\r\n\r\nping"
    )
    with socket.create_connection(("127.0.0.1", node.port)) as requester:
        requester.sendall(head.encode())
        request = receive_one(http, topic)
        assert request["text"] == "ping"
        assert waiting(http) == 1
        reset_when_closed = b"\1\0\0\0\0\0\0\0"
        requester.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_when_closed)
    wait_until(lambda: waiting(http) == 0)
    answer = http.post(f"/v1/replies/{request['correlation_id']}", content=b"pong")
    assert (answer.status_code, answer.json()["code"]) == (410, "REQUEST_EXPIRED")


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("wait=0", {}),
        ("wait=61", {}),
        ("wait=1&delay=1s", {}),
        ("wait=1&producer_id=p", {}),
        ("wait=1&idempotency_key=p", {}),
        ("wait=1", {"Idempotency-Key": "k"}),
        ("wait=1", {"MQ-Producer-Id": "p"}),
        ("wait=1", {"MQ-Delay": "1s"}),
        ("wait=1", {"MQ-Tagg": "x"}),
        ("wait=1&wait=2", {}),
    ],
)
def test_what_means_nothing_here_is_refused(
    http: httpx.Client, topic: str, query: str, headers: dict[str, str]
) -> None:
    url = f"/v1/topics/{topic}/messages:request?{query}"
    answer = http.post(url, content=b"x", headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["outcome"] == "not_stored"
    assert http.get(f"/v1/topics/{topic}/messages").json()["messages"] == []


def test_a_reply_that_no_header_carries_is_told_of(
    http: httpx.Client, topic: str, threads: ThreadPoolExecutor
) -> None:
    path = f"/v1/topics/{topic}/messages:request?wait=10&format=raw"
    asked = threads.submit(http.post, path, content=b"1 + 1")
    request = receive_one(http, topic)
    reply = {"text": "2", "properties": {"wide": "\u0003" * 12_000}}
    answer = http.post(
        f"/v1/replies/{request['correlation_id']}",
        json=reply,
        headers={"Content-Type": "application/vnd.curlew+json"},
    )
    assert answer.status_code == 200
    problem = asked.result().json()
    assert (problem["status"], problem["outcome"]) == (406, "stored")
