"""Metrics of a real node, and what an answer says about its own time."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.domain.message import Message
from tests.support.clients.frames import request_frame
from tests.support.nodes.node import run_node
from tests.support.nodes.waiting import wait_until


def metrics(http: httpx.Client) -> dict[str, float]:
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def node_sum(values: dict[str, float], name: str) -> float:
    """What is told once for the node, whatever its labels."""
    return sum(value for key, value in values.items() if key.partition("{")[0] == name)


def answers(operation: str, status: int) -> str:
    return f'curlew_http_answers_total{{operation="{operation}",status="{status}"}}'


def test_what_goes_in_and_out_is_counted(http: httpx.Client, topic: str) -> None:
    before = metrics(http)
    base = f"/v1/topics/{topic}"
    http.post(f"{base}/messages", params={"queue_id": 0}, content=b"12345")
    entries = [{"text": "ab"}, {"text": "c", "queue_id": 99}]
    http.post(f"{base}/messages:batch?queue_id=0", json={"messages": entries})
    frame = request_frame([Message(b"x"), Message(b"y")], topic)
    framed = {"content-type": "application/vnd.curlew.batch"}
    http.post(f"{base}/messages:batch?queue_id=0", content=frame, headers=framed)
    http.get(f"{base}/queues/0/messages?offset=0")
    http.post(f"{base}/groups/g/messages:receive?max_messages=2")
    http.get(f"{base}/queues/7/messages?offset=0")
    http.get("/nowhere")
    http.post("/v1/topics/nowhere/messages:request", content=b"refused")
    http.post(f"{base}/messages:request?wait=10ms&queue_id=1", content=b"123")
    after = metrics(http)

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    def of_topic(name: str) -> float:
        found = [value for key, value in after.items() if key.startswith(f"{name}{{")]
        assert len(found) > 1
        return sum(v for k, v in after.items() if k.startswith(name) and f'topic="{topic}"' in k)

    assert of_topic("rocketmq_messages_in_total") == 1 + 1 + 2 + 1
    assert of_topic("rocketmq_throughput_in_total") == 5 + 2 + len(frame) + 3
    assert of_topic("rocketmq_messages_out_total") == 4 + 2
    assert of_topic("rocketmq_consumer_inflight_messages") == 2
    assert more("curlew_http_messages_in_total") == 1 + 1 + 2 + 1
    assert more("curlew_http_bytes_in_total") == 5 + 2 + len(frame) + 3
    assert more("curlew_http_messages_out_total") == 4 + 2
    assert more("curlew_http_bytes_out_total") == 5 + 2 + 1 + 1 + 5 + 2
    assert more(answers("send_message", 201)) == 1
    assert more(answers("send_batch", 207)) == 1
    assert more(answers("pull_messages", 404)) == 1
    assert more(answers("get_metrics", 200)) == 1
    assert more(answers("other", 404)) == 1
    assert node_sum(after, "rocketmq_storage_size") > node_sum(before, "rocketmq_storage_size")
    assert after["curlew_ready"] == 1
    assert after["curlew_http_connections"] >= 1


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[httpx.Client]:
    """A node of its own: what other tests leave waiting on theirs ends at some time."""
    with run_node(tmp_path / "data") as node, httpx.Client(base_url=node.url, timeout=60) as client:
        yield client


def test_what_waits_and_what_is_dead_is_counted(alone: httpx.Client) -> None:
    base = "/v1/topics/orders"
    alone.post(f"{base}/messages", content=b"x", headers={"mq-delay": "1h"}).raise_for_status()
    transaction = {"mq-transaction": "prepare; group=pg; check-after=1h"}
    alone.post(f"{base}/messages", content=b"x", headers=transaction).raise_for_status()
    names = ("rocketmq_timing_messages", "rocketmq_half_messages", "curlew_dead_letters")
    wait_until(lambda: [node_sum(metrics(alone), name) for name in names] == [1, 1, 0])
    alone.post(f"{base}/messages", content=b"x").raise_for_status()
    received = alone.post(f"{base}/groups/billing/messages:receive").json()
    handle = received["messages"][0]["receipt_handle"]
    alone.patch(f"/v1/receipts/{handle}?action=dead_letter").raise_for_status()
    wait_until(lambda: [node_sum(metrics(alone), name) for name in names] == [1, 1, 1])


def test_a_send_says_how_long_the_store_took(http: httpx.Client, topic: str) -> None:
    base = f"/v1/topics/{topic}/messages"
    sends = [
        http.post(base, content=b"x"),
        http.post(base, content=b"x", headers={"prefer": "return=minimal"}),
        http.post(f"{base}:batch", json={"messages": [{"text": "x"}]}),
    ]
    for answer in sends:
        assert re.fullmatch(r"store;dur=\d+\.\d\d", answer.headers["server-timing"])


def test_statistics_tell_what_went_through_a_topic_and_a_group(alone: httpx.Client) -> None:
    base = "/v1/topics/orders"
    for _ in range(3):
        alone.post(f"{base}/messages", content=b"12345").raise_for_status()
    refused = alone.post(f"{base}/messages?queue_id=99", content=b"x")
    bad = [{"text": "x", "queue_id": 99}, {"text": "y"}]
    alone.post(f"{base}/messages:batch", json={"messages": bad}).raise_for_status()
    frames = [alone.get(f"{base}/queues/{queue}/messages?offset=0").json() for queue in range(4)]
    pulled = sum(len(each["messages"]) for each in frames)
    received = alone.post(f"{base}/groups/billing/messages:receive?max_messages=4").json()
    handles = [each["receipt_handle"] for each in received["messages"]]
    acks = {"receipt_handles": handles[:1]}
    alone.post(f"{base}/groups/billing/messages:ack", json=acks).raise_for_status()
    alone.delete(f"/v1/receipts/{handles[1]}").raise_for_status()
    nack = {"nacks": [{"receipt_handle": handles[2]}], "dead_letters": []}
    nack["dead_letters"] = [{"receipt_handle": handles[3]}]
    alone.post(f"{base}/groups/billing/messages:settle", json=nack).raise_for_status()

    stats = alone.get(f"{base}/stats?range=1m&step=10s").json()
    expected = {
        "in": 4, "in_bytes": 16, "out": pulled + 4, "out_bytes": 32,
        "acks_ok": 2, "acks_failed": 0, "retries": 1, "dead_letters": 1,
    }  # fmt: skip
    assert pulled == 4
    assert stats["depth"] == 4
    assert stats["counters"] == expected
    assert stats["sums"]["today"] == stats["sums"]["10s"] == expected
    assert stats["rates"]["10s"]["in"] > 0
    assert len(stats["series"]["in"]) == 6
    assert stats["series"]["step_ms"] == 10_000
    assert stats["failures"] == {refused.json()["code"]: 2}
    assert stats["put_latency_ms"]["buckets"]["+Inf"] == 4
    assert stats["put_latency_ms"]["p50"] <= stats["put_latency_ms"]["max"]

    group = alone.get("/v1/groups/billing/stats").json()
    assert group["counters"] == expected | {"in": 0, "in_bytes": 0, "out": 4, "out_bytes": 16}
    assert [each["topic"] for each in group["topics"]] == ["orders"]
    assert alone.get("/v1/groups/billing/stats?topic=orders").json()["counters"]["acks_ok"] == 2
    unused = alone.get("/v1/topics/other/stats")
    assert (unused.status_code, unused.json()["code"]) == (404, "TOPIC_NOT_FOUND")

    alone.delete(base).raise_for_status()
    alone.put(base, json={}).raise_for_status()
    successor = alone.get(f"{base}/stats").json()
    assert successor["counters"] == dict.fromkeys(expected, 0)
    assert successor["since_ms"] is None


@pytest.mark.parametrize(
    "query", ["range=16m", "range=1m&step=7s", "step=0s", "range=x", "range=5s&step=10s"]
)
def test_a_series_of_another_scale_is_refused(http: httpx.Client, topic: str, query: str) -> None:
    answer = http.get(f"/v1/topics/{topic}/stats?{query}")
    assert answer.status_code == 400
    assert "5s" in answer.json()["detail"] + answer.json()["hint"]


def test_the_settings_of_the_node_are_told(http: httpx.Client) -> None:
    settings = {each["name"]: each for each in http.get("/v1/config").json()["settings"]}
    found = settings["auto_create_topics"]
    assert (found["value"], found["default"], found["source"]) == (False, False, "flag")
    assert settings["limit_body_bytes_max"]["unit"] == "bytes"
    assert settings["limit_member_lease_ms"]["unit"] == "ms"
    assert settings["limit_topics_max"]["unit"] is None
    assert settings["trace_hours"]["unit"] == "h"
    assert settings["log_level"]["changeable"]
    assert not settings["log_level"]["restart"]
    assert settings["segment_mib"]["restart"]
