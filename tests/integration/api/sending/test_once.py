"""Sends that are stored once, over real sockets: Idempotency-Key and producer sequences."""

import itertools

import httpx
import pytest

from app.domain.message import Message
from tests.support.clients.frames import request_frame

JSON = {"Content-Type": "application/json"}
FRAMES = {"Content-Type": "application/vnd.curlew.batch"}
NUMBERS = itertools.count(1)


def depth(http: httpx.Client, topic: str) -> int:
    found: int = http.get(f"/v1/topics/{topic}/stats").json()["depth"]
    return found


def sequence(seq: int, epoch: int = 0, producer: str = "job:0") -> dict[str, str]:
    return {
        "MQ-Producer-Id": producer,
        "MQ-Producer-Epoch": str(epoch),
        "MQ-Producer-Seq": str(seq),
    }


@pytest.fixture
def producer() -> str:
    """A producer of its own for each test."""
    return f"job-{next(NUMBERS)}:0"


def test_a_repeated_send_gets_the_first_result(http: httpx.Client, topic: str) -> None:
    path, key = f"/v1/topics/{topic}/messages", {"Idempotency-Key": '"8e03978e-40d5"'}
    first = http.post(path, content=b"once", headers=key)
    assert (first.status_code, "mq-duplicate" in first.headers) == (201, False)
    again = http.post(path, content=b"once", headers=key)
    assert (again.status_code, again.headers["mq-duplicate"]) == (200, "true")
    assert again.json() == first.json()
    bare = http.post(f"{path}?idempotency_key=8e03978e-40d5", content=b"once")
    assert bare.status_code == 422, "the query is part of the request"
    minimal = http.post(path, content=b"once", headers={**key, "Prefer": "return=minimal"})
    assert minimal.headers["mq-message-id"] == first.json()["message_id"]
    other = http.post(path, content=b"twice", headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert other.json()["outcome"] == "not_stored"
    assert depth(http, topic) == 1


def test_a_repeated_batch_gets_the_first_results(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages:batch?spread=true"
    batch = {"messages": [{"id": str(number), "text": "x"} for number in range(5)]}
    key = {"Idempotency-Key": "batch-1"}
    first, again = (http.post(path, json=batch, headers=key) for _ in range(2))
    assert first.json()["succeeded"] == 5
    assert again.json() == first.json()
    assert again.headers["mq-duplicate"] == "true"
    lines = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "batch-2"}
    for _ in range(2):
        answer = http.post(path, content=b'{"text":"a"}\n{"text":"b"}', headers=lines)
        assert answer.json()["succeeded"] == 2
    assert depth(http, topic) == 7
    bad = {"messages": [{"text": "a"}, {"text": "b", "tag": "|"}]}
    refused = http.post(path, json=bad, headers={"Idempotency-Key": "batch-3"})
    assert (refused.status_code, refused.json()["code"]) == (400, "ILLEGAL_MESSAGE_TAG")
    assert depth(http, topic) == 7


def test_a_sequence_over_http(http: httpx.Client, topic: str, producer: str) -> None:
    path = f"/v1/topics/{topic}/messages?queue_id=0"

    def send(seq: int, epoch: int = 0) -> httpx.Response:
        return http.post(path, content=b"x", headers=sequence(seq, epoch, producer))

    unknown = http.get(f"/v1/producers/{producer}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "PRODUCER_NOT_FOUND")
    assert [send(seq).status_code for seq in (0, 1, 1, 0)] == [201, 201, 200, 200]
    gap = send(3)
    assert (gap.status_code, gap.json()["code"]) == (409, "SEQUENCE_OUT_OF_ORDER")
    assert gap.json()["expected_seq"] == 2
    assert send(0, epoch=1).status_code == 201
    fenced = send(2)
    assert (fenced.status_code, fenced.json()["code"]) == (403, "PRODUCER_FENCED")
    known = http.get(f"/v1/producers/{producer}").json()
    assert known == {
        "namespace": "",
        "producer": producer,
        "epoch": 1,
        "sealed_epoch": None,
        "sequences": [{"topic": topic, "queue_id": 0, "next_seq": 1}],
    }


def test_frames_in_sequence_and_a_seal(http: httpx.Client, topic: str, producer: str) -> None:
    path = f"/v1/topics/{topic}/messages:batch?queue_id=1"
    frame = request_frame([Message(b"a"), Message(b"b", keys=("k",))], topic)

    def send(seq: int, epoch: int = 7) -> httpx.Response:
        headers = {**FRAMES, **sequence(seq, epoch, producer), "Prefer": "return=representation"}
        return http.post(path, content=frame, headers=headers)

    first = send(0)
    assert first.status_code == 200
    assert "mq-duplicate" not in first.headers
    again = send(0)
    assert again.headers["mq-duplicate"] == "true"
    assert again.json() == first.json()
    assert send(2).json()["first_queue_offset"] == 2
    family = producer.rpartition(":")[0]

    def seal(producer: str, epoch: int) -> httpx.Response:
        return http.post("/v1/producers:seal", json={"producer": producer, "epoch": epoch})

    body = {"producer": family, "epoch": 7, "messages": 5}
    lacking = http.post("/v1/producers:seal", json=body)
    assert (lacking.status_code, lacking.json()["code"]) == (409, "SEQUENCE_OUT_OF_ORDER")
    assert lacking.json()["stored"] == 4
    sealed = {"producer": family, "sealed_epoch": 7, "dry_run": False}
    assert seal(family, 7).json() == sealed
    assert seal(family, 3).json()["sealed_epoch"] == 7
    late = send(4)
    assert (late.status_code, late.json()["code"]) == (409, "PRODUCER_SEALED")
    assert send(0, epoch=8).status_code == 200
    assert depth(http, topic) == 6
    assert seal(family, -1).status_code == 400
    assert seal("a b", 1).status_code == 400


def test_an_epoch_keeps_its_number_of_queues(http: httpx.Client, topic: str, producer: str) -> None:
    family = producer.rpartition(":")[0]
    queues = http.get(f"/v1/topics/{topic}").json()["queues"]

    def plan(epoch: int, topic: str = topic) -> httpx.Response:
        body = {"producer": family, "epoch": epoch, "topic": topic}
        return http.post("/v1/producers:plan", json=body)

    expected = {
        "producer": family,
        "epoch": 3,
        "topic": topic,
        "queues": queues,
        "queue_ids": None,
        "write_queues": None,
        "key_queue_ids": None,
        "messages_per_turn": None,
        "dry_run": False,
    }
    assert plan(3).json() == expected
    http.put(f"/v1/topics/{topic}", json={"queues": queues + 2}).raise_for_status()
    assert plan(3).json() == expected
    fourth = {"producer": family, "epoch": 4, "topic": topic}
    for wanted in (5, 8):
        body = {**fourth, "messages_per_turn": wanted}
        assert http.post("/v1/producers:plan", json=body).json()["messages_per_turn"] == 5
    body = {**fourth, "messages_per_turn": 0}
    assert http.post("/v1/producers:plan", json=body).status_code == 400
    assert plan(4).json()["queues"] == queues + 2
    assert (plan(3).status_code, plan(3).json()["code"]) == (403, "PRODUCER_FENCED")
    assert plan(4, "nothing-there").json()["code"] == "TOPIC_NOT_FOUND"
    assert plan(-1).status_code == 400
    http.post("/v1/producers:seal", json={"producer": family, "epoch": 4}).raise_for_status()
    assert (plan(4).status_code, plan(4).json()["code"]) == (409, "PRODUCER_SEALED")
