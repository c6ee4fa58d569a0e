"""Every way to write a message is readable in every way, over a real node."""

import base64
import gzip
from typing import Any

import httpx
import pytest
import zstandard

EVENT = "application/cloudevents+json"
EVENTS = "application/cloudevents-batch+json"
LEAST: dict[str, Any] = {"specversion": "1.0", "id": "A234", "source": "/a b", "type": "com.é"}
CE = {"ce-specversion": "1.0", "ce-id": "A234", "ce-source": "/a%20b", "ce-type": "com.%C3%A9"}
ALL_BYTES = bytes(range(256))


def pulled(http: httpx.Client, topic: str, queue: int = 0) -> Any:
    url = f"/v1/topics/{topic}/queues/{queue}/messages?offset=0"
    answer = http.get(url, headers={"accept": EVENTS})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == EVENTS
    assert answer.headers["mq-next-offset"]
    return answer.json()


def test_an_event_in_binary_mode(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages?queue_id=0"
    sent = http.post(url, content=ALL_BYTES, headers={**CE, "content-type": "image/png"})
    assert sent.status_code == 201, sent.text
    [event] = pulled(http, topic)
    assert event.pop("data_base64")
    assert event == {**LEAST, "datacontenttype": "image/png"}
    raw = http.post(f"/v1/topics/{topic}/groups/g/messages:receive?format=raw")
    assert raw.content == ALL_BYTES
    assert {name: raw.headers[name] for name in CE} == CE
    again = http.post(url, content=raw.content, headers={n: raw.headers[n] for n in CE})
    assert again.status_code == 201


def test_an_event_in_structured_mode(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages?queue_id=0&tag=t"
    event = {**LEAST, "data": {"a": 1}, "datacontenttype": "application/json", "partitionkey": "k"}
    assert http.post(url, json=event, headers={"content-type": EVENT}).status_code == 201
    assert pulled(http, topic) == [event]
    page = http.get(f"/v1/topics/{topic}/queues/0/messages?offset=0").json()
    [message] = page["messages"]
    assert (message["body"], message["tag"], message["sharding_key"]) == ({"a": 1}, "t", "k")


def test_events_in_a_batch(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages:batch?queue_id=0"
    events = [{**LEAST, "id": "1"}, {**LEAST, "id": ""}, {**LEAST, "id": "3"}]
    answer = http.post(url, json=events, headers={"content-type": EVENTS})
    assert answer.status_code == 207
    assert [(r["status"], r.get("id")) for r in answer.json()["results"]] == [
        (201, "1"),
        (400, None),
        (201, "3"),
    ]
    assert [event["id"] for event in pulled(http, topic)] == ["1", "3"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("messages", {"content-type": EVENT}, 400),
        ("messages", {"content-type": EVENTS}, 415),
        ("messages", {"content-type": "application/cloudevents+xml"}, 415),
        ("messages", {"ce-specversion": "1.0"}, 400),
        ("messages:batch", CE, 400),
    ],
)
def test_what_is_no_event_is_refused(
    http: httpx.Client, topic: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = http.post(f"/v1/topics/{topic}/{path}", content=b"{}", headers=headers)
    assert answer.status_code == status
    assert answer.json()["outcome"] == "not_stored"


def test_lines(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages:batch?split=lines&queue_id=0"
    answer = http.post(url, content=b"a\r\n\n\xff\x00\nlast", headers={"content-type": "text/csv"})
    assert (answer.status_code, answer.json()["succeeded"]) == (200, 3)
    messages = http.get(f"/v1/topics/{topic}/queues/0/messages?offset=0&body=base64").json()
    assert [m["body_base64"] for m in messages["messages"]] == ["YQ0=", "/wA=", "bGFzdA=="]
    assert {m["content_type"] for m in messages["messages"]} == {"text/csv"}
    assert http.post(url, content=b"\n\n").status_code == 400
    assert http.post(url.replace("lines", "words"), content=b"a").status_code == 400


def test_lines_have_no_content_type_unless_one_is_said(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages:batch?split=lines&queue_id=0"
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert http.post(url, content=b"a", headers=form).status_code == 200
    [message] = http.get(f"/v1/topics/{topic}/queues/0/messages?offset=0").json()["messages"]
    assert "content_type" not in message


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_a_gzip_body_is_stored_unpacked(http: httpx.Client, topic: str, size: int) -> None:
    body = (ALL_BYTES * (size // 256 + 1))[:size]
    packed = gzip.compress(body[: size // 2]) + gzip.compress(body[size // 2 :])
    url = f"/v1/topics/{topic}/messages?queue_id=0"
    sent = http.post(url, content=packed, headers={"content-encoding": "gzip"})
    assert sent.status_code == 201, sent.text
    raw = http.post(f"/v1/topics/{topic}/groups/g/messages:receive?format=raw")
    assert raw.content == body
    assert "content-encoding" not in raw.headers


def test_a_gzip_batch(http: httpx.Client, topic: str) -> None:
    headers = {"content-encoding": "gzip", "content-type": "application/x-ndjson"}
    body = gzip.compress(b'{"text":"a"}\n{"text":"b"}')
    answer = http.post(f"/v1/topics/{topic}/messages:batch", content=body, headers=headers)
    assert (answer.status_code, answer.json()["succeeded"]) == (200, 2)


def test_respond_async_is_answered_before_the_medium_has_it(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages"
    for prefer, applied in (
        ("respond-async", "respond-async"),
        ("respond-async, return=minimal", "return=minimal, respond-async"),
    ):
        answer = http.post(url, content=b"x", headers={"prefer": prefer})
        assert answer.status_code == 202
        assert answer.headers["preference-applied"] == applied
    batch = http.post(
        url + ":batch", json={"messages": [{"text": "a"}]}, headers={"prefer": prefer}
    )
    assert batch.headers["preference-applied"] == "respond-async"


def test_a_minimal_answer(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages"
    answer = http.post(url, content=b"x", headers={"prefer": "return=minimal, handling=strict"})
    assert (answer.status_code, answer.content) == (201, b"")
    assert answer.headers["preference-applied"] == "return=minimal"


def test_a_wait_may_be_a_preference(http: httpx.Client, topic: str) -> None:
    """Where a wait is understood, the answer says so; the query and the body outweigh it."""
    pull, receive = "queues/0/messages?offset=0", "groups/g/messages:receive"
    wish = {"prefer": "wait=0"}
    for accept in ("application/json", "application/x-ndjson", EVENTS):
        answer = http.get(f"/v1/topics/{topic}/{pull}", headers={**wish, "accept": accept})
        assert answer.headers["preference-applied"] == "wait=0"
    answers = [
        http.post(f"/v1/topics/{topic}/{receive}", headers=wish),
        http.post(f"/v1/topics/{topic}/{receive}?format=raw", headers=wish),
    ]
    assert [answer.status_code for answer in answers] == [200, 204]
    assert [answer.headers["preference-applied"] for answer in answers] == ["wait=0", "wait=0"]
    wish = {"prefer": "wait=60"}
    answers = [
        http.get(f"/v1/topics/{topic}/{pull}&wait=0", headers=wish),
        http.post(f"/v1/topics/{topic}/{receive}", headers=wish, json={"wait": 0}),
    ]
    assert all("preference-applied" not in answer.headers for answer in answers)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_every_body_may_be_packed(http: httpx.Client, topic: str, packing: str) -> None:
    pack = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[packing]
    headers = {"content-encoding": packing}
    base = f"/v1/topics/{topic}"
    sent = http.post(f"{base}/messages", content=pack(ALL_BYTES), headers=headers)
    assert sent.status_code == 201, sent.text
    made = http.put(f"/v1/groups/{topic}", content=pack(b'{"max_attempts":3}'), headers=headers)
    assert (made.status_code, made.json()["max_attempts"]) == (201, 3)
    receive = f"{base}/groups/{topic}/messages:receive"
    taken = http.post(receive, content=pack(b'{"max_messages":2}'), headers=headers)
    [message] = taken.json()["messages"]
    assert base64.b64decode(message["body_base64"]) == ALL_BYTES
    acks = pack(b'{"receipt_handles":["%b"]}' % message["receipt_handle"].encode())
    ack = http.post(receive.replace("receive", "ack"), content=acks, headers=headers)
    assert ack.status_code == 200, ack.text


def test_an_encoding_that_is_not_taken(http: httpx.Client, topic: str) -> None:
    base = f"/v1/topics/{topic}"
    answers = [
        http.post(f"{base}/messages", content=b"x", headers={"content-encoding": "br"}),
        http.post(f"{base}/messages:batch", content=b"{}", headers={"content-encoding": "br"}),
        http.post(f"{base}/groups/g/messages:ack", content=b"", headers={"content-encoding": "br"}),
        http.put(base, content=b"{}", headers={"content-encoding": "br"}),
    ]
    assert [answer.status_code for answer in answers] == [415] * 4
    assert {answer.headers["accept-encoding"] for answer in answers} == {"gzip, deflate, zstd"}


def test_a_durability_by_name_outweighs_respond_async(http: httpx.Client, topic: str) -> None:
    headers = {"prefer": "respond-async", "mq-durability": "flushed"}
    answer = http.post(f"/v1/topics/{topic}/messages", content=b"x", headers=headers)
    assert answer.status_code == 201
    assert "preference-applied" not in answer.headers
