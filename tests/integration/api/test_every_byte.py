"""Bodies with every byte value, through each way to send and each way to read, over a real node."""

import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import httpx
import pytest
import zstandard

from app.api.cloudevents import EVENT, EVENTS
from app.api.lane.media import ENVELOPE, FRAMES, NDJSON
from app.domain.message import Message
from tests.support.frames import read_frame, request_frame

EVERY_BYTE = bytes(range(256))
BODIES = (
    EVERY_BYTE,
    EVERY_BYTE[::-1] * 3,
    b"",
    b"\x00",
    b"\r\n\x00\xff",
    b"\xef\xbb\xbf{}",
    b"\xc3\x28 is no UTF-8",
    "é 漢 \U0001f980".encode(),
    b'{"a": 1e400,\r\n "a": [null]}',
)
LINES = (*EVERY_BYTE.split(b"\n"), *EVERY_BYTE[::-1].split(b"\n"), b"\r", b" ")
"""A line is any bytes but a line feed."""
CE = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "b"}
OCTETS = "application/octet-stream"
JSON = "application/json"

_NUMBERS = count(1)

Send = Callable[[httpx.Client, str, Sequence[bytes]], None]
Read = Callable[[httpx.Client, str, int], list[bytes]]


@pytest.fixture
def topic(http: httpx.Client) -> str:
    """A new topic with one queue, so that nothing but the body must be said."""
    name = f"bytes-{next(_NUMBERS)}"
    http.put(f"/v1/topics/{name}", json={"queues": 1, "flush": "async"}).raise_for_status()
    return name


def post(http: httpx.Client, url: str, content_type: str, body: bytes, **headers: str) -> None:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = http.post(url, content=body, headers={"content-type": content_type, **given})
    assert answer.status_code in {200, 201}, answer.text


def one_by_one(content_type: str, write: Callable[[bytes], bytes], **headers: str) -> Send:
    def send(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            post(http, f"/v1/topics/{topic}/messages", content_type, write(body), **headers)

    return send


def together(content_type: str, write: Callable[[Sequence[bytes]], bytes], query: str = "") -> Send:
    def send(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
        url = f"/v1/topics/{topic}/messages:batch{query}"
        post(http, url, content_type, write(bodies))

    return send


def entry(body: bytes) -> dict[str, Any]:
    return {"body_base64": b64encode(body).decode()}


def event(body: bytes) -> dict[str, Any]:
    attributes = {name.removeprefix("ce-"): value for name, value in CE.items()}
    return {**attributes, "data_base64": b64encode(body).decode()}


def dump(value: object) -> bytes:
    return json.dumps(value).encode()


def in_frame(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
    frame = request_frame([Message(body) for body in bodies], topic)
    post(http, f"/v1/topics/{topic}/messages:batch", FRAMES, frame)


def in_transactions(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
    prepare = {"content-type": OCTETS, "mq-transaction": "prepare; group=bytes; check-after=60s"}
    for body in bodies:
        answer = http.post(f"/v1/topics/{topic}/messages", content=body, headers=prepare)
        assert answer.status_code == 202, answer.text
        transaction = answer.json()["transaction_id"]
        http.post(f"/v1/transactions/{transaction}:commit").raise_for_status()


def delayed(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
    one_by_one(OCTETS, bytes, mq_delay="1ms")(http, topic, bodies)
    count = len(bodies)
    all_there = f"offset=0&wait=20&min_messages={count}&max_messages={count}"
    answer = http.get(f"/v1/topics/{topic}/queues/0/messages?{all_there}", timeout=30)
    assert len(answer.json()["messages"]) == count


SENDS: dict[str, Send] = {
    "raw": one_by_one(OCTETS, bytes),
    "raw text": one_by_one("text/plain; charset=utf-8", bytes),
    "raw JSON": one_by_one(JSON, bytes),
    "raw, gzip": one_by_one(OCTETS, gzip.compress, content_encoding="gzip"),
    "raw, zstd": one_by_one(OCTETS, zstandard.compress, content_encoding="zstd"),
    "raw, as a transaction": in_transactions,
    "raw, delayed": delayed,
    "envelope": one_by_one(ENVELOPE, lambda body: dump(entry(body))),
    "event, binary": one_by_one(OCTETS, bytes, **CE),
    "event, structured": one_by_one(EVENT, lambda body: dump(event(body))),
    "batch": together(JSON, lambda bodies: dump({"messages": list(map(entry, bodies))})),
    "NDJSON": together(NDJSON, lambda bodies: b"\n".join(dump(entry(body)) for body in bodies)),
    "events": together(EVENTS, lambda bodies: dump(list(map(event, bodies)))),
    "frame": in_frame,
}


def body_of(view: dict[str, Any]) -> bytes:
    """The bytes of a message in JSON."""
    if "text" in view:
        return str(view["text"]).encode()
    return b64decode(view["body_base64"], validate=True)


def pull(http: httpx.Client, topic: str, accept: str, query: str = "") -> httpx.Response:
    url = f"/v1/topics/{topic}/queues/0/messages?offset=0&max_messages=100{query}"
    answer = http.get(url, headers={"accept": accept})
    assert answer.status_code == 200, answer.text
    return answer


def pulled(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    return [body_of(each) for each in pull(http, topic, JSON, "&body=base64").json()["messages"]]


def pulled_lines(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    lines = pull(http, topic, NDJSON, "&body=base64").content.splitlines()
    return [body_of(json.loads(line)) for line in lines]


def pulled_as_is(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    return [body_of(each) for each in pull(http, topic, JSON).json()["messages"]]


def pulled_events(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    return [event_body(each) for each in pull(http, topic, EVENTS, "&body=base64").json()]


def pulled_events_as_is(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    return [event_body(each) for each in pull(http, topic, EVENTS).json()]


def event_body(each: dict[str, Any]) -> bytes:
    if "data" in each:
        return str(each["data"]).encode()
    return b64decode(each.get("data_base64", ""), validate=True)


def pulled_frame(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    return [message.body for message in read_frame(pull(http, topic, FRAMES).content)]


def browsed(http: httpx.Client, topic: str, count: int) -> list[bytes]:
    return [body_of(view) for view in browse(http, topic, JSON).json()["messages"]]


def browsed_lines(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    return [body_of(json.loads(line)) for line in browse(http, topic, NDJSON).content.splitlines()]


def browse(http: httpx.Client, topic: str, accept: str) -> httpx.Response:
    url = f"/v1/topics/{topic}/messages?direction=forward&body=base64"
    answer = http.get(url, headers={"accept": accept})
    assert answer.status_code == 200, answer.text
    return answer


def streamed(path: str, accept: str) -> Read:
    def read(http: httpx.Client, topic: str, count: int) -> list[bytes]:
        url = f"/v1/topics/{topic}/{path.format(topic)}max_messages={count}&body=base64&duration=9s"
        lines = http.get(url, headers={"accept": accept}).text.split("\n")
        views = [line.removeprefix("data: ") for line in lines if '"message_id"' in line]
        return [body_of(json.loads(view)) for view in views]

    return read


def received(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    url = f"/v1/topics/{topic}/groups/{topic}/messages:receive?body=base64"
    answer = http.post(url, json={"max_messages": 100})
    return [body_of(each) for each in answer.json()["messages"]]


def received_raw(http: httpx.Client, topic: str, count: int) -> list[bytes]:
    url = f"/v1/topics/{topic}/groups/{topic}/messages:receive?format=raw"
    answers = [http.post(url) for _ in range(count)]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.content for answer in answers]


def looked_up(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    views = pull(http, topic, JSON).json()["messages"]
    url = f"/v1/topics/{topic}/messages/"
    answers = [http.get(url + view["message_id"], params={"format": "raw"}) for view in views]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.content for answer in answers]


READS: dict[str, Read] = {
    "pull": pulled,
    "pull, as it is": pulled_as_is,
    "pull, NDJSON": pulled_lines,
    "pull, events": pulled_events,
    "pull, events as they are": pulled_events_as_is,
    "pull, frame": pulled_frame,
    "browse": browsed,
    "browse, NDJSON": browsed_lines,
    "stream, events": streamed("stream?at=earliest&", "text/event-stream"),
    "stream, NDJSON": streamed("stream?at=earliest&", NDJSON),
    "group stream, events": streamed("groups/{}/stream?credit=100&", "text/event-stream"),
    "group stream, NDJSON": streamed("groups/{}/stream?credit=100&", NDJSON),
    "receive": received,
    "receive, raw": received_raw,
    "look up, raw": looked_up,
}


SPLICED = {("raw JSON", "pull, as it is"), ("raw JSON", "pull, events as they are")}
"""A body that is JSON and says so becomes part of the answer's JSON: its line breaks turn into
spaces, which changes no value. Whoever wants the bytes says `body=base64`."""

PAIRS = [(sent, read) for sent in SENDS for read in READS if (sent, read) not in SPLICED]


@pytest.mark.parametrize(("sent", "read"), PAIRS)
def test_every_byte_comes_back(http: httpx.Client, topic: str, sent: str, read: str) -> None:
    SENDS[sent](http, topic, BODIES)
    assert READS[read](http, topic, len(BODIES)) == list(BODIES)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_byte_of_a_line_comes_back(http: httpx.Client, topic: str, read: Read) -> None:
    together(OCTETS, b"\n".join, "?split=lines")(http, topic, LINES)
    assert read(http, topic, len(LINES)) == list(LINES)
