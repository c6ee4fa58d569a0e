"""Texts beyond their bounds over HTTP, by every way in: refused by name, and nothing is left.

What one such request did to a node once: it left a hole in the log, shifted the queue behind it,
made all groups forget acks, and stopped redelivery.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.domain.limits import (
    CONTENT_TYPE_BYTES_MAX,
    KEY_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    SHARDING_KEY_BYTES_MAX,
)
from app.domain.message import Message
from tests.support.clients.frames import request_frame
from tests.support.nodes.node import RunningNode, run_node

FRAME = "application/vnd.curlew.batch"
TOPIC = "/v1/topics/orders"
JSON = {"Content-Type": "application/json"}


@contextmanager
def node(data_dir: Path) -> Iterator[tuple[RunningNode, httpx.Client]]:
    with run_node(data_dir) as running, httpx.Client(base_url=running.url, timeout=30) as http:
        yield running, http


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with node(tmp_path_factory.mktemp("bounds") / "data") as (_, client):
        client.put(TOPIC, json={"queues": 1}).raise_for_status()
        yield client


class Text(NamedTuple):
    """A text of an envelope: its member, its bound, and a value with so many bytes in it."""

    member: str
    limit: int
    value: Callable[[str], Any]


TEXTS = [
    Text("tag", 128, lambda text: text),
    Text("keys", KEY_BYTES_MAX, lambda text: ["k", text]),
    Text("sharding_key", SHARDING_KEY_BYTES_MAX, lambda text: text),
    Text("content_type", CONTENT_TYPE_BYTES_MAX, lambda text: text),
    Text("properties", 16 * 1024 - 3, lambda text: {"n": text}),
]

Way = Callable[[httpx.Client, Text, str], httpx.Response]


def envelope(http: httpx.Client, text: Text, value: str) -> httpx.Response:
    body = {"text": "x", text.member: text.value(value)}
    headers = {"Content-Type": "application/vnd.curlew+json"}
    return http.post(f"{TOPIC}/messages", json=body, headers=headers)


def batch(http: httpx.Client, text: Text, value: str) -> httpx.Response:
    body = {"messages": [{"text": "x", text.member: text.value(value)}]}
    headers = {"Prefer": "handling=strict"}
    return http.post(f"{TOPIC}/messages:batch", json=body, headers=headers)


def lines(http: httpx.Client, text: Text, value: str) -> httpx.Response:
    line = json.dumps({"text": "x", text.member: text.value(value)})
    headers = {"Content-Type": "application/x-ndjson", "Prefer": "handling=strict"}
    return http.post(f"{TOPIC}/messages:batch", content=line, headers=headers)


def idempotent(http: httpx.Client, text: Text, value: str) -> httpx.Response:
    body = {"text": "x", text.member: text.value(value)}
    headers = {
        "Content-Type": "application/vnd.curlew+json",
        "Idempotency-Key": f"{text.member}-{len(value)}",
    }
    return http.post(f"{TOPIC}/messages", json=body, headers=headers)


def transaction(http: httpx.Client, text: Text, value: str) -> httpx.Response:
    body = {"text": "x", text.member: text.value(value)}
    headers = {
        "Content-Type": "application/vnd.curlew+json",
        "MQ-Transaction": "prepare; group=pg",
    }
    return http.post(f"{TOPIC}/messages", json=body, headers=headers)


def delayed(http: httpx.Client, text: Text, value: str) -> httpx.Response:
    body = {"text": "x", "delay": "30d", text.member: text.value(value)}
    headers = {"Content-Type": "application/vnd.curlew+json"}
    return http.post(f"{TOPIC}/messages", json=body, headers=headers)


def schedule(http: httpx.Client, text: Text, value: str) -> httpx.Response:
    message = {"text": "x", text.member: text.value(value)}
    body = {"cron": "0 0 1 1 *", "topic": "orders", "message": message, "paused": True}
    return http.put("/v1/schedules/yearly", json=body)


def sent_with_acks(http: httpx.Client, text: Text, value: str) -> httpx.Response:
    send = {"topic": "orders", "text": "x", text.member: text.value(value)}
    http.post(f"{TOPIC}/messages", content="input").raise_for_status()
    (message,) = http.post(f"{TOPIC}/groups/g/messages:receive", json={}).json()["messages"]
    body = {"acks": [message["receipt_handle"]], "sends": [send]}
    answer = http.post(f"{TOPIC}/groups/g/messages:settle", json=body)
    if answer.status_code != 200:
        again = http.post(
            f"{TOPIC}/groups/g/messages:settle", json={"acks": [message["receipt_handle"]]}
        )
        assert again.json()["succeeded"] == 1, "the ack was not taken with the refused send"
    return answer


WAYS: list[Way] = [
    *(envelope, batch, lines, idempotent, transaction, delayed, schedule, sent_with_acks)
]


@pytest.mark.parametrize("text", TEXTS, ids=[text.member for text in TEXTS])
@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_a_text_is_taken_at_its_bound_and_refused_above(
    http: httpx.Client, way: Way, text: Text
) -> None:
    letter = "a" if text.member != "content_type" else "/"
    for value in (letter * (text.limit - 1), letter * text.limit):
        answer = way(http, text, value)
        assert answer.status_code < 300, answer.text
    for value in (letter * (text.limit + 1), letter * (10 * text.limit)):
        before = http.get(f"{TOPIC}/stats").json()["depth"]
        answer = way(http, text, value)
        assert answer.status_code in (400, 413, 431), answer.text
        assert text.member in answer.text
        assert str(text.limit if text.member != "properties" else 16 * 1024) in answer.text
        assert len(answer.text) < 4_000
        added = 1 if way is sent_with_acks else 0
        assert http.get(f"{TOPIC}/stats").json()["depth"] == before + added


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Message(b"x", tag="t" * 129), "TAGS has more than 128 bytes"),
        (Message(b"x", message_id="i" * (MESSAGE_ID_BYTES_MAX + 1)), "UNIQ_KEY has more than 255"),
        (Message(b"x", sharding_key="s" * 1_025), "__SHARDINGKEY has more than 1024 bytes"),
        (Message(b"x", content_type="c" * 256), "MQ_CONTENT_TYPE has more than 255 bytes"),
        (Message(b"x", keys=("k", "l" * 256)), "a key has more than 255 bytes"),
        (Message(b"x", keys=("k",) * 33), "it has more than 32 keys"),
        (Message(b"x", properties={"n": "v" * 16_400}), "properties have more than 16384 bytes"),
    ],
)
def test_frames_are_held_to_the_same_bounds(
    http: httpx.Client, message: Message, said: str
) -> None:
    before = http.get(f"{TOPIC}/stats").json()["depth"]
    content = request_frame([Message(b"good", keys=("k" * 255,)), message], "orders")
    headers = {"Content-Type": FRAME}
    answer = http.post(f"{TOPIC}/messages:batch", content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "MALFORMED_FRAME"), answer.text
    assert f"record 1: {said}" in answer.json()["detail"] or said in answer.json()["detail"]
    assert http.get(f"{TOPIC}/stats").json()["depth"] == before


def test_requests_events_and_headers_are_held_to_the_same_bounds(http: httpx.Client) -> None:
    before = http.get(f"{TOPIC}/stats").json()["depth"]
    long = "s" * (SHARDING_KEY_BYTES_MAX + 1)
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "partitionkey": long}
    answers = [
        http.post(f"{TOPIC}/messages", content="x", headers={"MQ-Sharding-Key": long}),
        http.post(f"{TOPIC}/messages", content="x", params={"sharding_key": long}),
        http.post(f"{TOPIC}/messages", content="x", headers={"Content-Type": "a/" + "b" * 254}),
        http.post(f"{TOPIC}/messages", content="x", headers={"MQ-Keys": "a " + "k" * 256}),
        http.post(
            f"{TOPIC}/messages:request",
            params={"wait": "1"},
            json={"text": "x", "sharding_key": "k" * 65_430},
            headers={"Content-Type": "application/vnd.curlew+json"},
        ),
        http.post(
            f"{TOPIC}/messages",
            json=event,
            headers={"Content-Type": "application/cloudevents+json"},
        ),
        http.post(
            f"{TOPIC}/messages:batch",
            json=[event],
            headers={
                "Content-Type": "application/cloudevents-batch+json",
                "Prefer": "handling=strict",
            },
        ),
    ]
    for answer in answers:
        assert answer.status_code in (400, 413, 431), answer.text
        assert "at most" in answer.text, answer.text
    assert http.get(f"{TOPIC}/stats").json()["depth"] == before


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_nothing_is_shifted_or_forgotten_behind_a_refused_request(
    tmp_path: Path, is_killed: bool
) -> None:
    overlong = "k" * 70_000
    with node(tmp_path / "data") as (running, http):
        http.put(TOPIC, json={"queues": 1}).raise_for_status()
        envelope_type = {"Content-Type": "application/vnd.curlew+json"}
        sent: list[int] = []
        for number in range(5):
            for size in (65_458, 70_000):
                answer = http.post(
                    f"{TOPIC}/messages",
                    json={"text": "x", "queue_id": 0, "sharding_key": "k" * size},
                    headers=envelope_type,
                )
                assert answer.status_code == 400
            answer = http.post(f"{TOPIC}/messages", content=f"m{number}")
            sent.append(answer.raise_for_status().json()["queue_offset"])
        assert sent == [0, 1, 2, 3, 4]
        received = http.post(f"{TOPIC}/groups/g/messages:receive", json={"max_messages": 3}).json()[
            "messages"
        ]
        handles = [message["receipt_handle"] for message in received]
        refused = http.post(
            f"{TOPIC}/groups/g/messages:settle",
            json={
                "acks": handles,
                "sends": [{"topic": "orders", "text": "x", "sharding_key": overlong}],
            },
        )
        assert refused.status_code == 400
        acked = http.post(f"{TOPIC}/groups/g/messages:settle", json={"acks": handles})
        assert acked.json()["succeeded"] == 3
        if is_killed:
            running.kill()
        else:
            assert running.stop() == 0
    with node(tmp_path / "data") as (_, http):
        pulled = http.get(f"{TOPIC}/queues/0/messages", params={"offset": 0}).json()
        assert [message["text"] for message in pulled["messages"]] == [f"m{n}" for n in range(5)]
        assert "gaps" not in pulled
        again = http.post(f"{TOPIC}/groups/g/messages:receive", json={"max_messages": 9}).json()[
            "messages"
        ]
        assert [message["text"] for message in again] == ["m3", "m4"]
        answer = http.post(f"{TOPIC}/messages", content="m5")
        assert answer.json()["queue_offset"] == 5
        assert http.get("/readyz").json()["degraded"] == []
