"""Bodies with every byte value, through each way to send and each way to read, over a real node."""

import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import httpx
import pytest
import zstandard

from app.api.formats.cloudevents import EVENT, EVENTS
from app.api.formats.media import ENVELOPE, FRAMES, NDJSON
from app.domain.message import Message
from tests.support.clients.frames import read_frame, request_frame

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


def in_pieces(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
    """Chunked, without a length; pieces of one byte, of two, and the rest."""
    for body in bodies:
        pieces = [each for each in (body[:1], body[1:3], body[3:]) if each]
        url, octets = f"/v1/topics/{topic}/messages", {"content-type": OCTETS}
        assert http.post(url, content=iter(pieces), headers=octets).status_code == 201


def numbered(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
    for number, body in enumerate(bodies):
        keys = {"mq_producer_id": topic, "mq_producer_epoch": "0", "mq_producer_seq": str(number)}
        post(http, f"/v1/topics/{topic}/messages?queue_id=0", OCTETS, body, **keys)


def once(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        key = f"{topic}-{next(_NUMBERS)}"
        for _ in range(2):  # the second one is a repetition
            post(http, f"/v1/topics/{topic}/messages", OCTETS, body, idempotency_key=key)


def with_an_ack(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
    """Stored in one step with the ack of a message of another topic."""
    source = f"{topic}-source"
    http.put(f"/v1/topics/{source}", json={"queues": 1, "flush": "async"}).raise_for_status()
    http.post(f"/v1/topics/{source}/messages", content=b"x").raise_for_status()
    group = f"/v1/topics/{source}/groups/{source}/messages"
    [message] = http.post(f"{group}:receive").json()["messages"]
    sends = [{"topic": topic, **entry(body)} for body in bodies]
    settle = {"acks": [message["receipt_handle"]], "sends": sends}
    answer = http.post(f"{group}:settle", json=settle)
    assert answer.status_code == 200, answer.text


def as_requests(write: Callable[[bytes], bytes], content_type: str) -> Send:
    """Nobody replies."""

    def send(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            url = f"/v1/topics/{topic}/messages:request?wait=1ms"
            answer = http.post(url, content=write(body), headers={"content-type": content_type})
            assert answer.json()["outcome"] == "stored", answer.text

    return send


def packed_batch(content_type: str, write: Callable[[Sequence[bytes]], bytes], coding: str) -> Send:
    def pack(body: bytes) -> bytes:
        return gzip.compress(body) if coding == "gzip" else zstandard.compress(body)

    def send(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
        url = f"/v1/topics/{topic}/messages:batch"
        post(http, url, content_type, pack(write(bodies)), content_encoding=coding)

    return send


def packed_frame(coding: str) -> Send:
    def send(http: httpx.Client, topic: str, bodies: Sequence[bytes]) -> None:
        def write(some: Sequence[bytes]) -> bytes:
            return request_frame([Message(body) for body in some], topic)

        packed_batch(FRAMES, write, coding)(http, topic, bodies)

    return send


def in_lines(bodies: Sequence[bytes]) -> bytes:
    return b"\n".join(dump(entry(body)) for body in bodies)


MORE_SENDS: dict[str, Send] = {
    "raw, in pieces": in_pieces,
    "raw, by a producer": numbered,
    "raw, once": once,
    "with an ack": with_an_ack,
    "request": as_requests(bytes, OCTETS),
    "request, envelope": as_requests(lambda body: dump(entry(body)), ENVELOPE),
    "batch, gzip": packed_batch(JSON, lambda b: dump({"messages": list(map(entry, b))}), "gzip"),
    "NDJSON, zstd": packed_batch(NDJSON, in_lines, "zstd"),
    "events, gzip": packed_batch(EVENTS, lambda b: dump(list(map(event, b))), "gzip"),
    "frame, gzip": packed_frame("gzip"),
    "frame, zstd": packed_frame("zstd"),
}
"""Other ways into the log of what the ones below have read."""

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


def pulled_packed(coding: str) -> Read:
    def read(http: httpx.Client, topic: str, _: int) -> list[bytes]:
        url = f"/v1/topics/{topic}/queues/0/messages?offset=0&max_messages=100"
        answer = http.get(url, headers={"accept": FRAMES, "accept-encoding": coding})
        assert answer.headers["content-encoding"] == coding
        return [message.body for message in read_frame(answer.content)]

    return read


def received_as_is(http: httpx.Client, topic: str, _: int) -> list[bytes]:
    url = f"/v1/topics/{topic}/groups/{topic}/messages:receive"
    return [body_of(each) for each in http.post(url, json={"max_messages": 100}).json()["messages"]]


def received_again(http: httpx.Client, topic: str, count: int) -> list[bytes]:
    """After a failure; in any order, so it is put back into the first one."""
    url = f"/v1/topics/{topic}/groups/{topic}/messages"
    first = http.post(f"{url}:receive?body=base64", json={"max_messages": 100}).json()["messages"]
    nacks = [{"receipt_handle": each["receipt_handle"], "delay": "0s"} for each in first]
    http.post(f"{url}:settle", json={"nacks": nacks}).raise_for_status()
    asked = {"max_messages": 100, "min_messages": count, "wait": "20s"}
    again = http.post(f"{url}:receive?body=base64", json=asked, timeout=30).json()["messages"]
    assert {each["delivery_attempt"] for each in again} == {2}
    bodies = {each["message_id"]: body_of(each) for each in again}
    return [bodies[each["message_id"]] for each in first]


def streamed_as_is(http: httpx.Client, topic: str, count: int) -> list[bytes]:
    url = f"/v1/topics/{topic}/stream?at=earliest&max_messages={count}&duration=9s"
    lines = http.get(url).text.split("\n")
    return [body_of(json.loads(each[6:])) for each in lines if each.startswith('data: {"message_')]


def looked_up_in(form: str, body: Callable[[dict[str, Any]], bytes]) -> Read:
    def read(http: httpx.Client, topic: str, _: int) -> list[bytes]:
        views = pull(http, topic, JSON).json()["messages"]
        url, accept = f"/v1/topics/{topic}/messages/", {"accept": form}
        answers = [
            http.get(f"{url}{each['message_id']}?body=base64", headers=accept) for each in views
        ]
        assert {answer.status_code for answer in answers} == {200}
        return [body(answer.json()) for answer in answers]

    return read


MORE_READS: dict[str, Read] = {
    "pull, frame, gzip": pulled_packed("gzip"),
    "pull, frame, zstd": pulled_packed("zstd"),
    "receive, as it is": received_as_is,
    "receive, again": received_again,
    "stream, as it is": streamed_as_is,
    "look up, JSON": looked_up_in(JSON, body_of),
    "look up, event": looked_up_in(EVENT, event_body),
}

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
PAIRS += [(sent, read) for sent in MORE_SENDS for read in ("pull", "pull, frame", "receive, raw")]
PAIRS += [(sent, read) for sent in ("raw", "envelope", "frame") for read in MORE_READS]


@pytest.mark.parametrize(("sent", "read"), PAIRS)
def test_every_byte_comes_back(http: httpx.Client, topic: str, sent: str, read: str) -> None:
    (SENDS | MORE_SENDS)[sent](http, topic, BODIES)
    assert (READS | MORE_READS)[read](http, topic, len(BODIES)) == list(BODIES)


@pytest.mark.parametrize("shown", ["raw", "json"])
@pytest.mark.parametrize("given", ["raw", "envelope", "raw, gzip"])
def test_every_byte_of_a_reply_comes_back(
    http: httpx.Client, topic: str, given: str, shown: str
) -> None:
    content_type = ENVELOPE if given == "envelope" else OCTETS
    headers = {"content-type": content_type}
    if given == "raw, gzip":
        headers["content-encoding"] = "gzip"
    url = f"/v1/topics/{topic}/messages:request?wait=20&format={shown}&body=base64"
    group = f"/v1/topics/{topic}/groups/{topic}/messages:receive?wait=20"
    with ThreadPoolExecutor(1) as pool:
        for body in BODIES:
            asked = pool.submit(http.post, url, content=body, timeout=30)
            [request] = http.post(group, timeout=30).json()["messages"]
            reply = f"/v1/replies/{request['correlation_id']}"
            sent = {"raw": body, "envelope": dump(entry(body)), "raw, gzip": gzip.compress(body)}
            http.post(reply, content=sent[given], headers=headers).raise_for_status()
            answer = asked.result(30)
            found = answer.content if shown == "raw" else body_of(answer.json()["reply"])
            assert (answer.status_code, found) == (200, body)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_byte_of_a_line_comes_back(http: httpx.Client, topic: str, read: Read) -> None:
    together(OCTETS, b"\n".join, "?split=lines")(http, topic, LINES)
    assert read(http, topic, len(LINES)) == list(LINES)
