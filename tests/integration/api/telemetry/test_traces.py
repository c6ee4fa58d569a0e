"""Traces over HTTP: from the producer to the last delivery, found again also after a restart."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.message import Message
from tests.support.clients.frames import request_frame
from tests.support.nodes.node import run_node

SHOP = {
    "mq-client-id": "shop-3",
    "mq-producer-id": "lane-1",
    "mq-producer-epoch": "1",
    "mq-producer-seq": "0",
}


def receive(http: httpx.Client, topic: str, group: str, **query: Any) -> list[dict[str, Any]]:
    url = f"/v1/topics/{topic}/groups/{group}/messages:receive"
    answer = http.post(url, params={"max_messages": 16} | query)
    messages: list[dict[str, Any]] = answer.raise_for_status().json()["messages"]
    return messages


def trace_of(http: httpx.Client, topic: str, message_id: str) -> dict[str, Any]:
    answer = http.get(f"/v1/topics/{topic}/messages/{message_id}/trace").raise_for_status()
    trace: dict[str, Any] = answer.json()
    return trace


def sent_at_ms(http: httpx.Client, topic: str, message_id: str) -> int:
    stored: int = trace_of(http, topic, message_id)["store_time_ms"]
    return stored


def found(http: httpx.Client, topic: str, **query: Any) -> list[dict[str, Any]]:
    answer = http.get(f"/v1/topics/{topic}/trace", params=query).raise_for_status().json()
    events: list[dict[str, Any]] = answer["events"]
    return events


def test_a_trace_tells_who_sent_and_what_became_of_each_delivery(
    http: httpx.Client, topic: str
) -> None:
    base = f"/v1/topics/{topic}"
    once = {**SHOP, "mq-keys": "order-17"}
    sent = http.post(f"{base}/messages", content=b"paid", headers=once).raise_for_status().json()
    again = http.post(f"{base}/messages", content=b"paid", headers=once)
    assert again.status_code == 200
    http.put("/v1/groups/trace-g", json={"retry_policy": {"customized": ["0s"]}}).raise_for_status()
    [first] = receive(http, topic, "trace-g", client_id="worker-1")
    nacks = {"nacks": [{"receipt_handle": first["receipt_handle"], "reason": "no stock"}]}
    settle = f"{base}/groups/trace-g/messages:settle"
    http.post(settle, json=nacks).raise_for_status()
    [second] = receive(http, topic, "trace-g", client_id="worker-2", wait="5s")
    letters = {"dead_letters": [{"receipt_handle": second["receipt_handle"], "reason": "gone"}]}
    http.post(settle, json=letters).raise_for_status()

    trace = trace_of(http, topic, sent["message_id"])
    producer = trace["producer"]
    assert (producer["client_id"], producer["producer_group"]) == ("shop-3", None)
    assert (producer["address"], producer["tries"]) == ("127.0.0.1", 2)
    assert producer["duration_ms"] > 0
    assert producer["last_try_ms"] >= trace["store_time_ms"] >= trace["born_time_ms"]
    assert (trace["body_bytes"], trace["keys"], trace["is_complete"]) == (4, ["order-17"], True)
    deliveries = [
        (each["attempt"], each["client_id"], each["result"], each["dead_letter_offset"])
        for each in trace["deliveries"]
    ]
    assert deliveries == [(1, "worker-1", "nacked", None), (2, "worker-2", "dead_lettered", 0)]
    assert trace["deliveries"][1]["reason"] == "gone"
    assert all(each["duration_ms"] >= 0 for each in trace["deliveries"])
    [letter] = http.get("/v1/groups/trace-g/dlq/messages").json()["messages"]
    assert (letter["offset"], letter["message_id"]) == (0, sent["message_id"])

    kinds = ["sent", "sent_again", "delivered", "nacked", "delivered", "dead_lettered"]
    for query in ({}, {"key": "order-17"}):
        events = found(http, topic, **query)
        assert sorted(each["kind"] for each in events) == sorted(kinds)
        assert {each["message_id"] for each in events} == {sent["message_id"]}
    [delivered] = found(http, topic, client_id="worker-2", result="delivered")
    assert (delivered["group"], delivered["attempt"]) == ("trace-g", 2)
    everywhere = http.get("/v1/trace", params={"client_id": "shop-3"}).json()["events"]
    assert [each["kind"] for each in everywhere if each["topic"] == topic] == ["sent", "sent_again"]


def test_every_kind_of_send_is_traced(http: httpx.Client, topic: str) -> None:
    base = f"/v1/topics/{topic}/messages"
    entries: list[dict[str, Any]] = [
        {"text": "a"},
        {"text": "b"},
        {"text": "c", "queue_id": 99},
        {"text": "d"},
    ]
    http.post(f"{base}:batch?queue_id=0", json={"messages": entries[:2]}).raise_for_status()
    mixed = [{**each, "queue_id": each.get("queue_id", 0)} for each in entries]
    assert http.post(f"{base}:batch", json={"messages": mixed}).status_code == 207
    frame = request_frame([Message(b"x"), Message(b"y")], topic)
    framed = {"content-type": "application/vnd.curlew.batch"}
    http.post(f"{base}:batch?queue_id=0", content=frame, headers=framed).raise_for_status()
    http.post(f"{base}?queue_id=0", content=b"plain").raise_for_status()
    events = found(http, topic, result="sent")
    assert sum(each["count"] for each in events) == 2 + 3 + 2 + 1
    assert {each["address"] for each in events} == {"127.0.0.1"}
    for offset in range(8):
        page = http.get(f"/v1/topics/{topic}/queues/0/messages?offset={offset}&max_messages=1")
        [message] = page.json()["messages"]
        assert trace_of(http, topic, message["message_id"])["producer"]["tries"] == 1


def test_a_topic_says_what_is_traced(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    assert (http.get(path).json()["trace"], http.get(path).json()["trace_rate"]) == ("on", 0.01)
    changed = http.patch(path, json={"trace": "sampled", "trace_rate": 0.5}).raise_for_status()
    assert (changed.json()["trace"], changed.json()["trace_rate"]) == ("sampled", 0.5)
    for number in range(4):
        http.post(f"{path}/messages?queue_id=0", content=b"%d" % number).raise_for_status()
    assert [(each["queue_offset"], each["count"]) for each in found(http, topic)] == [(0, 2)]
    assert http.patch(path, json={"trace": False}).json()["trace"] == "off"
    http.post(f"{path}/messages?queue_id=0", content=b"5").raise_for_status()
    assert len(found(http, topic)) == 1
    for body in ({"trace": "much"}, {"trace_rate": 0}, {"trace_rate": 1.5}, {"trace_rate": "x"}):
        assert http.patch(path, json=body).status_code == 400, body


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"page_size": 201}, "ILLEGAL_PAGE"),
        ({"page_token": "x"}, "ILLEGAL_PAGE"),
        ({"since_ms": 5, "until_ms": 5}, "BAD_REQUEST"),
        ({"result": "vanished"}, "BAD_REQUEST"),
        ({"colour": "red"}, "BAD_REQUEST"),
    ],
)
def test_a_bad_search_is_refused(
    http: httpx.Client, topic: str, query: dict[str, Any], code: str
) -> None:
    answer = http.get(f"/v1/topics/{topic}/trace", params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_traces_are_there_after_a_restart(tmp_path: Path) -> None:
    with run_node(tmp_path) as node, httpx.Client(base_url=node.url, timeout=60) as http:
        sent = http.post("/v1/topics/orders/messages", content=b"paid", headers=SHOP).json()
        receive(http, "orders", "billing", client_id="worker-1")
        before = trace_of(http, "orders", sent["message_id"])
        assert before["producer"]["client_id"] == "shop-3"
    with run_node(tmp_path) as node, httpx.Client(base_url=node.url, timeout=60) as http:
        assert trace_of(http, "orders", sent["message_id"]) == before
        assert [each["kind"] for each in found(http, "orders")] == ["sent", "delivered"]


def test_the_producer_of_a_delayed_message_is_told(http: httpx.Client, topic: str) -> None:
    base = f"/v1/topics/{topic}/messages"
    named = {"mq-client-id": "shop-3", "mq-delay": "10ms", "mq-keys": "order-18"}
    sent = [
        http.post(base, content=b"later", headers=named).raise_for_status().json()["message_id"],
        http.post(f"{base}?delay=10ms", content=b"later").raise_for_status().json()["message_id"],
    ]
    entries = [{"text": "now"}, {"text": "later", "delay": "10ms"}]
    batch = http.post(f"{base}:batch", json={"messages": entries}, headers={"mq-client-id": "b"})
    sent += [each["message_id"] for each in batch.raise_for_status().json()["results"]]
    due_ms = sent_at_ms(http, topic, sent[-2]) + 10
    frame = request_frame([Message(b"x"), Message(b"y")], topic, [0, due_ms])
    framed = {"content-type": "application/vnd.curlew.batch", "mq-client-id": "f"}
    http.post(f"{base}:batch", content=frame, headers=framed).raise_for_status()
    given: set[str] = set()
    while len(given) < len(sent) + 2:
        given |= {m["message_id"] for m in receive(http, topic, "delayed-g", wait="5s")}
    sent += given - set(sent)
    producers = [trace_of(http, topic, each)["producer"] for each in sent]
    assert [each["client_id"] for each in producers] == ["shop-3", None, "b", "b", "f", "f"]
    assert {(each["address"], each["tries"]) for each in producers} == {("127.0.0.1", 1)}
    [event] = found(http, topic, key="order-18", result="sent")
    assert (event["client_id"], event["message_id"]) == ("shop-3", sent[0])
    [event] = found(http, topic, client_id="shop-3", result="sent")
    assert (event["topic"], event["queue_offset"], event["detail"]) == (topic, -1, None)


def test_the_producer_of_a_transaction_is_told(http: httpx.Client, topic: str) -> None:
    base = f"/v1/topics/{topic}/messages"
    headers = {"mq-client-id": "shop-3", "mq-producer-group": "shop", "mq-transaction": "prepare"}
    half = http.post(base, content=b"paid", headers=headers).raise_for_status().json()
    url = f"/v1/transactions/{half['transaction_id']}"
    http.post(f"{url}:commit").raise_for_status()
    producer = trace_of(http, topic, half["message_id"])["producer"]
    assert (producer["client_id"], producer["producer_group"]) == ("shop-3", "shop")
    assert (producer["address"], producer["tries"]) == ("127.0.0.1", 1)
    assert producer["duration_ms"] > 0
    [event] = found(http, topic, client_id="shop-3", result="sent")
    assert (event["message_id"], event["group"]) == (half["message_id"], "shop")
