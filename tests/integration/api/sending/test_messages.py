"""Sending and reading over real sockets: every form in, every form out."""

import base64
import json
from typing import Any

import httpx
import pytest

from app.api.formats.media import ENVELOPE, FRAMES, NDJSON
from app.domain.limits import Limits
from app.domain.message import Message
from app.store.formats.frame.batch_frame import parse_request
from tests.support.clients.frames import read_frame, request_frame

EVERY_BYTE = bytes(range(256)) * 3


def send(http: httpx.Client, topic: str, content: bytes, **options: Any) -> dict[str, Any]:
    answer = http.post(f"/v1/topics/{topic}/messages", content=content, **options)
    assert answer.status_code == 201, answer.text
    result: dict[str, Any] = answer.json()
    return result


def pull(http: httpx.Client, topic: str, queue: int = 0, **parameters: Any) -> dict[str, Any]:
    parameters.setdefault("offset", 0)
    answer = http.get(f"/v1/topics/{topic}/queues/{queue}/messages", params=parameters)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def body_of(message: dict[str, Any]) -> bytes:
    if "text" in message:
        return message["text"].encode()  # type: ignore[no-any-return]
    return base64.b64decode(message["body_base64"])


def test_a_message_comes_back_with_all_that_was_said_about_it(
    http: httpx.Client, topic: str
) -> None:
    sent = send(
        http,
        topic,
        b'{"total": 12345678901234567890.50}',
        headers={
            "Content-Type": "application/json",
            "MQ-Tag": "created",
            "MQ-Keys": "order-17 user-4",
            "MQ-Sharding-Key": "user-4",
            "MQ-Prop-Region": "eu%20west",
            "MQ-Properties": '{"orderId":"17"}',
            "MQ-Born-Time-Ms": "1700000000000",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        },
    )
    assert sent["status"] == "SEND_OK"
    answer = http.get(f"/v1/topics/{topic}/queues/{sent['queue_id']}/messages?offset=0")
    assert b'"body":{"total": 12345678901234567890.50}' in answer.content
    message = answer.json()["messages"][0]
    del message["body"]
    assert message == {
        "message_id": sent["message_id"],
        "topic": topic,
        "queue_id": sent["queue_id"],
        "queue_offset": 0,
        "tag": "created",
        "keys": ["order-17", "user-4"],
        "sharding_key": "user-4",
        "properties": {
            "region": "eu west",
            "orderId": "17",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        },
        "content_type": "application/json",
        "born_time_ms": 1_700_000_000_000,
        "store_time_ms": sent["store_time_ms"],
    }


def test_trace_context_alone_is_kept(http: httpx.Client, topic: str) -> None:
    sent = send(http, topic, b"x", headers={"traceparent": "00-1-2-01", "tracestate": "a=b"})
    message = pull(http, topic, sent["queue_id"])["messages"][0]
    assert message["properties"] == {"traceparent": "00-1-2-01", "tracestate": "a=b"}


def test_the_envelope_says_the_same(http: httpx.Client, topic: str) -> None:
    envelope = {
        "body": {"id": 17},
        "tag": "created",
        "keys": ["k"],
        "queue_id": 1,
        "properties": {"Case": "Kept"},
        "born_time_ms": 5,
    }
    headers = {"Content-Type": ENVELOPE, "MQ-Prop-Extra": "header"}
    sent = send(http, topic, json.dumps(envelope).encode(), headers=headers)
    assert sent["queue_id"] == 1
    message = pull(http, topic, 1)["messages"][0]
    assert message["body"] == {"id": 17}
    assert message["properties"] == {"Case": "Kept", "extra": "header"}
    assert (message["tag"], message["keys"], message["born_time_ms"]) == ("created", ["k"], 5)


def test_a_minimal_answer_has_headers_only(http: httpx.Client, topic: str) -> None:
    answer = http.post(
        f"/v1/topics/{topic}/messages?queue_id=1",
        content=b"x",
        headers={"Prefer": "return=minimal"},
    )
    assert (answer.status_code, answer.content) == (201, b"")
    assert (answer.headers["mq-queue-id"], answer.headers["mq-queue-offset"]) == ("1", "0")
    assert answer.headers["mq-message-id"]


def test_an_empty_body_is_a_message(http: httpx.Client, topic: str) -> None:
    send(http, topic, b"", params={"queue_id": 0})
    assert pull(http, topic)["messages"][0]["text"] == ""


@pytest.mark.parametrize("form", ["raw", "envelope", "json batch", "ndjson batch", "frame"])
def test_every_byte_survives(http: httpx.Client, topic: str, form: str) -> None:
    encoded = base64.b64encode(EVERY_BYTE).decode()
    url = f"/v1/topics/{topic}/messages"
    entry = json.dumps({"body_base64": encoded, "queue_id": 0})
    batch = json.dumps({"messages": [json.loads(entry)]})
    contents = {
        "raw": (url + "?queue_id=0", "image/png", EVERY_BYTE),
        "envelope": (url, ENVELOPE, entry.encode()),
        "json batch": (url + ":batch", "application/json", batch.encode()),
        "ndjson batch": (url + ":batch", NDJSON, entry.encode() + b"\n"),
        "frame": (
            url + ":batch?queue_id=0",
            FRAMES,
            request_frame([Message(EVERY_BYTE, tag="t")], topic),
        ),
    }
    address, content_type, content = contents[form]
    answer = http.post(address, content=content, headers={"Content-Type": content_type})
    assert answer.status_code in {200, 201}, answer.text

    read = f"/v1/topics/{topic}/queues/0/messages"
    message = pull(http, topic)["messages"][0]
    assert body_of(message) == EVERY_BYTE
    lines = http.get(read, params={"offset": 0}, headers={"Accept": NDJSON})
    assert [body_of(json.loads(line)) for line in lines.text.splitlines()] == [EVERY_BYTE]
    frame = http.get(read, params={"offset": 0}, headers={"Accept": FRAMES})
    assert [each.body for each in read_frame(frame.content)] == [EVERY_BYTE]
    one = http.get(f"{url}/{message['message_id']}?format=raw")
    assert one.content == EVERY_BYTE
    group = f"/v1/topics/{topic}/groups/{topic}/messages:receive"
    raw = http.post(group, params={"format": "raw"})
    assert raw.content == EVERY_BYTE
    assert raw.headers["mq-message-id"] == message["message_id"]


def test_our_own_frames_are_acceptable() -> None:
    frame = request_frame([Message(b"a"), Message(b"b", keys=("k",))], "t")
    assert parse_request(frame, topic="t", limits=Limits()).count == 2


def test_a_batch_answers_in_order_and_shows_what_failed(http: httpx.Client, topic: str) -> None:
    answer = http.post(
        f"/v1/topics/{topic}/messages:batch",
        json={
            "messages": [
                {"id": "a", "text": "1"},
                {"id": "b", "text": "2", "queue_id": 99},
                {"tex": "3"},
                {"text": "4", "tag": "a|b"},
                {"id": "e", "text": "5"},
            ]
        },
    )
    document = answer.json()
    assert answer.status_code == 207
    assert (document["succeeded"], document["failed"]) == (2, 3)
    results = document["results"]
    assert [result["index"] for result in results] == [0, 1, 2, 3, 4]
    assert [result["status"] for result in results] == [201, 404, 400, 400, 201]
    assert [result.get("id") for result in results] == ["a", "b", None, None, "e"]
    errors = [result["error"] for result in results if "error" in result]
    assert [error["code"] for error in errors] == [
        "QUEUE_NOT_FOUND",
        "MALFORMED_BODY",
        "ILLEGAL_MESSAGE_TAG",
    ]
    assert {error["outcome"] for error in errors} == {"not_stored"}
    assert errors[1]["hint"] == "did you mean 'text'?"
    assert results[4]["queue_offset"] == results[0]["queue_offset"] + 1


def test_a_batch_that_wholly_succeeds_is_200(http: httpx.Client, topic: str) -> None:
    answer = http.post(f"/v1/topics/{topic}/messages:batch", json={"messages": [{"text": "1"}]})
    assert answer.status_code == 200


def test_a_batch_that_wholly_fails_is_a_problem_with_results(
    http: httpx.Client, topic: str
) -> None:
    entry = {"text": "1", "queue_id": 9}
    answer = http.post(f"/v1/topics/{topic}/messages:batch", json={"messages": [entry, entry]})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["code"], problem["failed"]) == ("QUEUE_NOT_FOUND", 2)
    assert [result["index"] for result in problem["results"]] == [0, 1]


@pytest.mark.parametrize("bad", [{"tex": "b"}, {"text": "b", "tag": "|"}, {"body": 1, "text": "b"}])
def test_strict_is_all_or_nothing(http: httpx.Client, topic: str, bad: dict[str, Any]) -> None:
    url = f"/v1/topics/{topic}/messages:batch"
    headers = {"Prefer": "handling=strict"}
    answer = http.post(url, json={"messages": [{"text": "a"}, bad]}, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["outcome"] == "not_stored"
    assert [pull(http, topic, queue)["messages"] for queue in (0, 1)] == [[], []]
    answer = http.post(url, json={"messages": [{"text": "a"}]}, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "handling=strict"


def test_a_batch_goes_to_one_queue_unless_it_is_spread(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages:batch"
    batch = {"messages": [{"text": str(number)} for number in range(6)]}
    together = http.post(url, json=batch).json()["results"]
    spread = http.post(url + "?spread=true", json=batch).json()["results"]
    assert len({result["queue_id"] for result in together}) == 1
    assert len({result["queue_id"] for result in spread}) == 2
    named = http.post(url + "?queue_id=1", json=batch).json()["results"]
    assert {result["queue_id"] for result in named} == {1}


def test_a_frame_is_stored_in_one_piece(http: httpx.Client, topic: str) -> None:
    frame = request_frame([Message(b"%d" % number, tag="t") for number in range(5)], topic)
    headers = {"Content-Type": FRAMES, "Prefer": "return=representation"}
    answer = http.post(
        f"/v1/topics/{topic}/messages:batch?queue_id=1", content=frame, headers=headers
    )
    document = answer.json()
    assert (answer.status_code, document["count"], document["first_queue_offset"]) == (200, 5, 0)
    messages = pull(http, topic, 1)["messages"]
    assert [message["message_id"] for message in messages] == document["message_ids"]
    assert [message["text"] for message in messages] == ["0", "1", "2", "3", "4"]


def test_pull_walks_a_queue(http: httpx.Client, topic: str) -> None:
    for number in range(5):
        send(
            http,
            topic,
            b"%d" % number,
            params={"queue_id": 0, "tag": "even" if number % 2 == 0 else "odd"},
        )
    first = pull(http, topic, max_messages=2)
    assert [m["text"] for m in first["messages"]] == ["0", "1"]
    assert (first["status"], first["next_offset"], first["up_to_date"]) == ("FOUND", 2, False)
    assert (first["min_offset"], first["max_offset"]) == (0, 5)
    assert [m["text"] for m in pull(http, topic, offset=2, until_offset=4)["messages"]] == [
        "2",
        "3",
    ]
    odd = pull(http, topic, filter="odd")
    assert [m["text"] for m in odd["messages"]] == ["1", "3"]
    assert odd["next_offset"] == 5
    tail = http.get(f"/v1/topics/{topic}/queues/0/messages?tail=1").json()
    assert [m["text"] for m in tail["messages"]] == ["4"]
    store_time = first["messages"][0]["store_time_ms"]
    since = http.get(f"/v1/topics/{topic}/queues/0/messages?timestamp_ms={store_time}").json()
    assert since["messages"][0]["text"] == "0"
    end = pull(http, topic, offset=5)
    assert (end["status"], end["messages"], end["up_to_date"]) == ("NO_NEW_MSG", [], True)
    assert pull(http, topic, filter="none")["status"] == "NO_MATCHED_MSG"


def test_clamp_moves_and_says_so(http: httpx.Client, topic: str) -> None:
    send(http, topic, b"x", params={"queue_id": 0})
    document = pull(http, topic, offset=99, clamp="true")
    assert (document["clamped"], document["next_offset"]) == (True, 1)
    waited = pull(http, topic, offset=99, clamp="true", wait="50ms")
    assert (waited["clamped"], waited["next_offset"]) == (True, 1)
    answer = http.get(
        f"/v1/topics/{topic}/queues/0/messages?offset=99&clamp", headers={"Accept": FRAMES}
    )
    assert answer.headers["mq-clamped"] == "true"
    assert answer.headers["mq-next-offset"] == "1"


def test_base64_can_be_asked_for_on_every_read(http: httpx.Client, topic: str) -> None:
    sent = send(http, topic, b"text", params={"queue_id": 0})
    wanted = base64.b64encode(b"text").decode()
    assert pull(http, topic, body="base64")["messages"][0]["body_base64"] == wanted
    one = http.get(f"/v1/topics/{topic}/messages/{sent['message_id']}?body=base64")
    assert one.json()["body_base64"] == wanted
    leased = http.post(f"/v1/topics/{topic}/groups/{topic}/messages:receive?body=base64")
    assert leased.json()["messages"][0]["body_base64"] == wanted


def test_the_head_of_a_queue_says_where_it_begins_and_ends(http: httpx.Client, topic: str) -> None:
    for _ in range(3):
        send(http, topic, b"x", params={"queue_id": 1})
    answer = http.head(f"/v1/topics/{topic}/queues/1")
    assert (answer.status_code, answer.content) == (200, b"")
    assert (answer.headers["mq-min-offset"], answer.headers["mq-max-offset"]) == ("0", "3")
    assert answer.headers["cache-control"] == "no-store"
    for path, status in (("2", 404), ("x", 400), ("-1", 400)):
        answer = http.head(f"/v1/topics/{topic}/queues/{path}")
        assert (answer.status_code, answer.content) == (status, b"")
    assert http.head(f"/v1/topics/none-{topic}/queues/0").status_code == 404
    answer = http.get(f"/v1/topics/{topic}/queues/1")
    assert (answer.status_code, answer.headers["allow"]) == (405, "HEAD")
