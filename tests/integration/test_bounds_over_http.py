"""Texts beyond their bounds in frames, headers and events: refused by name, and nothing is left.

JSON is walked by `contract/test_bounds.py`.

What one such request did to a node once: it left a hole in the log, shifted the queue behind it,
made all groups forget acks, and stopped redelivery.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from app.domain.limits import (
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


REFUSED_FIELDS: list[dict[str, object]] = [
    {"tag": "a||b"},
    {"tag": "*"},
    {"tag": " a "},
    {"tag": "a\n"},
    {"tag": "a\u0007b"},
    {"tag": "t" * 129},
    {"unique_id": "i i"},
    {"unique_id": "i" * (MESSAGE_ID_BYTES_MAX + 1)},
    {"sharding_key": "s" * 1_025},
    {"content_type": "c" * 256},
    {"keys": ["k", "a\tb"]},
    {"keys": ["k", "l" * 256]},
    {"keys": ["k", ""]},
    {"keys": ["k"] * 33},
]


@pytest.mark.parametrize("refused", REFUSED_FIELDS, ids=str)
def test_a_frame_is_refused_with_the_words_of_json(
    http: httpx.Client, refused: dict[str, object]
) -> None:
    before = http.get(f"{TOPIC}/stats").json()["depth"]
    envelope = {"Content-Type": "application/vnd.curlew+json"}
    of_json = http.post(f"{TOPIC}/messages", json={"text": "x", **refused}, headers=envelope)
    assert of_json.status_code == 400, of_json.text
    message = msgspec.convert({"body": b"", **refused}, Message)
    content = request_frame([Message(b"good", keys=("k" * 255,)), message], "orders")
    answer = http.post(f"{TOPIC}/messages:batch", content=content, headers={"Content-Type": FRAME})
    assert (answer.status_code, answer.json()["code"]) == (400, "MALFORMED_FRAME"), answer.text
    assert answer.json()["detail"] == f"record 1: {of_json.json()['detail']}"
    assert answer.json()["index"] == 1
    assert http.get(f"{TOPIC}/stats").json()["depth"] == before


@pytest.mark.parametrize("field", ["tag", "sharding_key", "content_type", "unique_id"])
def test_no_field_is_empty_on_either_road(http: httpx.Client, field: str) -> None:
    before = http.get(f"{TOPIC}/stats").json()["depth"]
    envelope = {"Content-Type": "application/vnd.curlew+json"}
    of_json = http.post(f"{TOPIC}/messages", json={"text": "x", field: ""}, headers=envelope)
    content = request_frame([Message(b"x", **{field: ""})], "orders")  # type: ignore[arg-type]
    answer = http.post(f"{TOPIC}/messages:batch", content=content, headers={"Content-Type": FRAME})
    assert (of_json.status_code, answer.status_code) == (400, 400), (of_json.text, answer.text)
    assert http.get(f"{TOPIC}/stats").json()["depth"] == before


def test_frames_are_held_to_the_bytes_of_all_properties(http: httpx.Client) -> None:
    content = request_frame([Message(b"x", properties={"n": "v" * 16_400})], "orders")
    answer = http.post(f"{TOPIC}/messages:batch", content=content, headers={"Content-Type": FRAME})
    assert answer.status_code == 400, answer.text
    assert "properties have more than 16384 bytes" in answer.json()["detail"]


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
