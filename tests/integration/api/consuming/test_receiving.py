"""Leases over HTTP: receive, settle, receipts, long polls, and clients that hang up."""

import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.support.nodes.node import RunningNode
from tests.support.nodes.waiting import wait_until


def send(http: httpx.Client, topic: str, *bodies: str, **options: Any) -> None:
    messages = [{"text": body, **options} for body in bodies]
    answer = http.post(f"/v1/topics/{topic}/messages:batch", json={"messages": messages})
    assert answer.status_code == 200, answer.text


def receive(http: httpx.Client, topic: str, **parameters: Any) -> list[dict[str, Any]]:
    url = f"/v1/topics/{topic}/groups/g-{topic}/messages:receive"
    answer = http.post(url, json=parameters)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


def settle(http: httpx.Client, topic: str, verb: str, **body: Any) -> httpx.Response:
    return http.post(f"/v1/topics/{topic}/groups/g-{topic}/messages:{verb}", json=body)


def test_a_message_is_leased_and_acked(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a", "b", tag="t")
    answer = http.post(
        f"/v1/topics/{topic}/groups/g-{topic}/messages:receive", json={"max_messages": 10}
    ).json()
    first, second = answer["messages"]
    assert (first["text"], first["tag"], first["delivery_attempt"]) == ("a", "t", 1)
    assert first["max_attempts"] == 16
    assert first["invisible_until_ms"] > first["store_time_ms"]
    assert answer["backlog"] == 0
    assert receive(http, topic) == []
    handles = [first["receipt_handle"], second["receipt_handle"]]
    for _ in range(2):  # acking twice is fine
        acked = settle(http, topic, "ack", receipt_handles=handles)
        assert (acked.status_code, acked.json()["succeeded"]) == (200, 2)
    committed = http.get(f"/v1/groups/g-{topic}/offsets/{topic}").json()["offsets"]
    assert sum(each["offset"] for each in committed) == 2


def test_what_was_not_begun_is_released_untouched(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a", "b", "c")
    first = receive(http, topic, max_messages=10)
    handles = [each["receipt_handle"] for each in first]
    body = {"acks": handles[:1], "releases": [handles[1], handles[1]]}
    answer = settle(http, topic, "settle", **body)
    told = [(each["action"], each["status"]) for each in answer.json()["results"]]
    assert (answer.status_code, told) == (
        207,
        [("ack", 200), ("release", 200), ("release", 410)],
    )
    released = http.patch(f"/v1/receipts/{handles[2]}", json={"action": "release"})
    assert released.json() == {"receipt_handle": handles[2], "action": "release"}
    again = receive(http, topic, max_messages=10)
    assert sorted(each["text"] for each in again) == sorted(each["text"] for each in first[1:])
    assert [each["delivery_attempt"] for each in again] == [1, 1]
    assert http.patch(f"/v1/receipts/{handles[2]}?action=release").status_code == 410


def test_query_and_body_together_are_all_that_is_said(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a", "b", "c")
    url = f"/v1/topics/{topic}/groups/g-{topic}/messages:receive?max_messages=2"
    assert len(http.post(url, json={"max_messages": 2, "wait": 0}).json()["messages"]) == 2
    assert len(http.post(url.partition("?")[0]).json()["messages"]) == 1


def test_curl_without_a_content_type_is_understood(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a", "b")
    answer = http.post(
        f"/v1/topics/{topic}/groups/g-{topic}/messages:receive",
        content=b'{"max_messages":2}',
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert len(answer.json()["messages"]) == 2


def test_the_same_attempt_gets_the_same_messages(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a", "b")
    first = receive(http, topic, attempt_id="c1-1")
    again = receive(http, topic, attempt_id="c1-1")
    # The lease runs on the monotonic clock; its wall time is computed for each answer.
    until = [messages[0].pop("invisible_until_ms") for messages in (first, again)]
    assert abs(until[0] - until[1]) <= 5
    assert again == first
    assert receive(http, topic, attempt_id="c1-2")[0]["text"] == "b"


def test_nack_extend_and_ack_in_one_call(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a", "b", "c")
    a, b, c = (each["receipt_handle"] for each in receive(http, topic, max_messages=3))
    answer = settle(
        http,
        topic,
        "settle",
        acks=[a],
        nacks=[{"receipt_handle": b, "delay": "0s", "reason": "busy"}],
        extends=[{"receipt_handle": c, "invisible": "60s"}],
    )
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [each["action"] for each in results] == ["ack", "nack", "extend"]
    assert results[2]["new_receipt_handle"] != c
    again = receive(http, topic, max_messages=3)
    assert [(each["text"], each["delivery_attempt"]) for each in again] == [("b", 2)]


def test_partial_failure_shows_in_the_status(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a")
    handle = receive(http, topic)[0]["receipt_handle"]
    answer = settle(http, topic, "ack", receipt_handles=[handle, "forged"])
    assert answer.status_code == 207
    document = answer.json()
    assert [each["status"] for each in document["results"]] == [200, 400]
    assert document["results"][1]["error"]["code"] == "INVALID_RECEIPT_HANDLE"
    answer = settle(http, topic, "nack", receipt_handles=["forged", "forged too"])
    assert (answer.status_code, answer.json()["failed"]) == (400, 2)


def test_single_purpose_forms(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a")
    handle = receive(http, topic)[0]["receipt_handle"]
    extended = settle(http, topic, "extend", receipt_handles=[handle], invisible_ms=60_000)
    handle = extended.json()["results"][0]["new_receipt_handle"]
    assert settle(http, topic, "nack", receipt_handles=[handle], delay_ms=0).status_code == 200
    assert receive(http, topic)[0]["delivery_attempt"] == 2


def test_two_curl_lines_make_a_worker(http: httpx.Client, topic: str) -> None:
    http.post(
        f"/v1/topics/{topic}/messages",
        content=b"\xff\x00",
        headers={
            "Content-Type": "image/png",
            "MQ-Tag": "Gr%C3%BCn",
            "MQ-Keys": "a b",
            "MQ-Prop-Region": "e%22u",
            "MQ-Properties": '{"Case":"Kept"}',
            "traceparent": "00-1-2-01",
        },
    )
    url = f"/v1/topics/{topic}/groups/g-{topic}/messages:receive?format=raw"
    answer = http.post(url)
    assert (answer.status_code, answer.content) == (200, b"\xff\x00")
    headers = answer.headers
    assert headers["content-type"] == "image/png"
    assert (headers["mq-tag"], headers["mq-keys"]) == ("Gr%C3%BCn", "a b")
    assert (headers["mq-prop-region"], headers["traceparent"]) == ("e%22u", "00-1-2-01")
    assert headers["mq-properties"] == "{%22Case%22:%22Kept%22}"
    assert headers["mq-delivery-attempt"] == "1"
    assert http.post(url).status_code == 204
    receipt = f"/v1/receipts/{headers['mq-receipt-handle']}"
    extended = http.patch(receipt + "?action=extend&invisible=60s").json()
    assert extended["action"] == "extend"
    receipt = f"/v1/receipts/{extended['receipt_handle']}"
    nacked = http.patch(receipt, json={"action": "nack", "delay_ms": 0})
    assert nacked.json()["action"] == "nack"
    again = http.post(url)
    assert again.headers["mq-delivery-attempt"] == "2"
    gone = http.delete(f"/v1/receipts/{again.headers['mq-receipt-handle']}")
    assert (gone.status_code, gone.content) == (204, b"")
    late = http.patch(receipt + "?action=extend&invisible=60s")
    assert (late.status_code, late.json()["code"]) == (410, "RECEIPT_HANDLE_EXPIRED")


class HalfRequest:
    """A request on a socket of its own, whose answer is read later or never."""

    def __init__(self, node: RunningNode, method: str, path: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.port), timeout=60)
        request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        self.socket.sendall(request.encode())

    def answer(self) -> dict[str, Any]:
        with self.socket, self.socket.makefile("rb") as stream:
            assert b" 200 " in stream.readline()
            length = 0
            while (line := stream.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            document: dict[str, Any] = json.loads(stream.read(length))
            return document

    def close(self) -> None:
        self.socket.close()


def waiting(http: httpx.Client, topic: str, group: str) -> bool:
    """Whether the group has been made, which a receive does before it parks."""
    return http.get(f"/v1/groups/{group}/offsets/{topic}").status_code == 200


def test_a_parked_receive_is_answered_by_a_send(
    http: httpx.Client, node: RunningNode, topic: str
) -> None:
    path = f"/v1/topics/{topic}/groups/g-{topic}/messages:receive?wait=20"
    with contextlib.closing(HalfRequest(node, "POST", path)) as parked:
        wait_until(lambda: waiting(http, topic, f"g-{topic}"))
        started = time.monotonic()
        send(http, topic, "late")
        assert [each["text"] for each in parked.answer()["messages"]] == ["late"]
        assert time.monotonic() - started < 10


def test_a_parked_pull_is_answered_by_a_send(
    http: httpx.Client, node: RunningNode, topic: str
) -> None:
    path = f"/v1/topics/{topic}/queues/0/messages?offset=0&wait=20&min_messages=2"
    send(http, topic, "one", queue_id=0)
    with contextlib.closing(HalfRequest(node, "GET", path)) as parked:
        send(http, topic, "two", queue_id=0)
        assert [each["text"] for each in parked.answer()["messages"]] == ["one", "two"]


def test_an_empty_wait_is_success(http: httpx.Client, topic: str) -> None:
    assert receive(http, topic, wait="10ms") == []
    answer = http.get(f"/v1/topics/{topic}/queues/0/messages?offset=0&wait=0.01").json()
    assert (answer["status"], answer["messages"]) == ("NO_NEW_MSG", [])


def test_a_client_that_hangs_up_leaves_no_lease(
    http: httpx.Client, node: RunningNode, topic: str
) -> None:
    path = f"/v1/topics/{topic}/groups/g-{topic}/messages:receive?wait=20&invisible=12h"
    with contextlib.closing(HalfRequest(node, "POST", path)):
        wait_until(lambda: waiting(http, topic, f"g-{topic}"))
    send(http, topic, "for the living")
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 15
    while not found and time.monotonic() < deadline:
        found = receive(http, topic, wait=5)
    assert [each["text"] for each in found] == ["for the living"]


def test_a_receive_waits_for_so_many(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a")
    began_s = time.monotonic()
    assert len(receive(http, topic, min_messages=2, wait="300ms")) == 1
    assert time.monotonic() - began_s >= 0.3
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(receive, http, topic, min_messages=2, wait=20)
        for body in ("b", "c"):
            send(http, topic, body)
        assert {message["text"] for message in asked.result(20)} == {"b", "c"}
    url = f"/v1/topics/{topic}/groups/g-{topic}/messages:receive"
    send(http, topic, "d", "e")
    answer = http.post(f"{url}?min_messages=2&wait=20")
    assert len(answer.json()["messages"]) == 2
    refused = http.post(f"{url}?min_messages=2&filter=a")
    assert (refused.status_code, refused.json()["code"]) == (400, "BAD_REQUEST")
    assert http.post(f"{url}?min_messages=0").status_code == 400


def test_a_trail_says_who_received(http: httpx.Client, topic: str) -> None:
    send(http, topic, "a")
    [message] = receive(http, topic, client_id="worker-1")
    trail = http.get(f"/v1/topics/{topic}/messages/{message['message_id']}/trace").json()
    delivered = [event for event in trail["events"] if event["kind"] == "delivered"]
    assert [event["client_id"] for event in delivered] == ["worker-1"]
