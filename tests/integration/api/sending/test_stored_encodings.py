"""Bodies that are stored as they came, packed: over real sockets, for readers of every kind."""

import gzip
import random
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

sys.path.insert(0, str(Path(__file__).parents[4] / "clients/python"))
from batch_frames import read_frame  # type: ignore[import-not-found]

FRAMES = "application/vnd.curlew.batch"
TEXT = "".join(f"line {number} of an order\n" for number in range(60))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}
FLAGS = {"deflate": 0x301, "zstd": 0x201}


def send(
    http: httpx.Client, topic: str, body: bytes, encoding: str, **headers: str
) -> httpx.Response:
    given = {"MQ-Keep-Encoding": "true", "Content-Encoding": encoding, "MQ-Queue-Id": "0"}
    return http.post(f"/v1/topics/{topic}/messages", content=body, headers=given | headers)


def kept(http: httpx.Client, topic: str, encoding: str = "zstd", **headers: str) -> dict[str, Any]:
    answer = send(http, topic, PACK[encoding](TEXT.encode()), encoding, **headers)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def frame(http: httpx.Client, topic: str, **query: str | int) -> list[dict[str, Any]]:
    path = f"/v1/topics/{topic}/queues/0/messages"
    answer = http.get(path, params={"offset": 0, **query}, headers={"Accept": FRAMES})
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = read_frame(answer.content)
    return records


def raw(http: httpx.Client, url: str, accepted: str, method: str = "GET") -> httpx.Response:
    with http.stream(method, url, headers={"Accept-Encoding": accepted}) as answer:
        answer.stored = b"".join(answer.iter_raw())  # type: ignore[attr-defined]
        return answer


@pytest.mark.parametrize("encoding", PACK)
def test_a_body_is_kept_and_each_reader_has_it_as_it_takes_it(
    http: httpx.Client, topic: str, encoding: str
) -> None:
    packed = PACK[encoding](TEXT.encode())
    sent = send(http, topic, packed, encoding)
    assert (sent.status_code, sent.headers["mq-stored-encoding"]) == (201, encoding)
    url = f"/v1/topics/{topic}/messages/{sent.json()['message_id']}"
    assert http.get(url).json()["text"] == TEXT
    as_it_is = raw(http, f"{url}?format=raw", f"gzip, {encoding}")
    assert (as_it_is.headers["content-encoding"], as_it_is.stored) == (encoding, packed)  # type: ignore[attr-defined]
    for accepted in ("identity", "gzip", f"{encoding};q=0"):
        plain = raw(http, f"{url}?format=raw", accepted)
        assert "content-encoding" not in plain.headers
        assert plain.stored == TEXT.encode()  # type: ignore[attr-defined]
        assert "accept-encoding" in plain.headers["vary"].lower()
    [plain_record] = frame(http, topic)
    assert (plain_record["body"], plain_record["system_flag"]) == (TEXT.encode(), 0)
    [stored] = frame(http, topic, encodings="zstd,deflate,lz4")
    assert (stored["body"], stored["system_flag"]) == (packed, FLAGS[encoding])
    [other] = frame(http, topic, encodings="lz4")
    assert other == plain_record
    path = f"/v1/topics/{topic}/queues/0/messages?offset=0"
    assert http.get(path).json()["messages"][0]["text"] == TEXT
    found = http.get(f"/v1/topics/{topic}/messages", params={"text": "line 59 of"}).json()
    assert [each["text"] for each in found["messages"]] == [TEXT]


def test_consumers_of_every_kind_have_plain_bodies(http: httpx.Client, topic: str) -> None:
    sent = kept(http, topic, **{"MQ-Prop-region": "eu"})
    group = f"/v1/topics/{topic}/groups/of-{topic}/messages:receive"
    filtered = http.post(group, params={"filter": "sql: region = 'eu'"}).json()["messages"]
    assert [each["text"] for each in filtered] == [TEXT]
    taken = raw(http, f"{group[:-17]}-2/messages:receive?format=raw", "zstd", "POST")
    assert taken.stored == PACK["zstd"](TEXT.encode())  # type: ignore[attr-defined]
    with http.stream(
        "GET", f"/v1/topics/{topic}/stream", params={"at": "earliest", "max_messages": 1}
    ) as stream:
        assert "line 59 of" in stream.read().decode()
    asked = {
        "client_id": "c",
        "subscriptions": [{"topic": topic}],
        "queues": [{"topic": topic, "queue_id": 0}],
        "wait": "1s",
    }
    polled = http.post(f"/v1/groups/poll-{topic}/members:poll", json=asked).json()
    assert [each["text"] for each in polled["messages"]] == [TEXT]
    frames = http.post(
        f"/v1/groups/poll2-{topic}/members:poll", json=asked, headers={"Accept": FRAMES}
    )
    at = frames.content.index(b"CRLW")
    [record] = read_frame(frames.content[at : frames.content.rindex(b"\r\n--")])
    assert (record["body"], record["system_flag"]) == (TEXT.encode(), 0)
    assert record["physical_offset"] == frame(http, topic)[0]["physical_offset"]
    assert sent["queue_offset"] == record["queue_offset"]


def test_copies_keep_the_body_as_it_is(http: httpx.Client, topic: str) -> None:
    packed = PACK["zstd"](TEXT.encode())
    kept(http, topic, **{"MQ-Delay": "1ms"})
    path = f"/v1/topics/{topic}/queues/0/messages"
    came = http.get(path, params={"offset": 0, "wait": "20s"}).json()["messages"]
    assert [each["text"] for each in came] == [TEXT]
    half = send(http, topic, packed, "zstd", **{"MQ-Transaction": "prepare; group=pg"})
    assert half.headers["mq-stored-encoding"] == "zstd"
    committed = http.post(f"{half.headers['location']}:commit")
    assert committed.status_code == 200
    stored = frame(http, topic, encodings="zstd")
    assert [each["body"] for each in stored] == [packed, packed]

    group = f"dead-{topic}"
    http.put(f"/v1/groups/{group}", json={"max_attempts": 2}).raise_for_status()
    receive = f"/v1/topics/{topic}/groups/{group}/messages:receive"
    [first] = http.post(receive).json()["messages"]
    nacks = {"nacks": [{"receipt_handle": first["receipt_handle"], "delay": "0s"}]}
    http.post(receive.replace("receive", "settle"), json=nacks).raise_for_status()
    again = raw(http, f"{receive}?format=raw&wait=20s", "zstd", "POST")
    handles = [{"receipt_handle": again.headers["mq-receipt-handle"], "reason": "bad"}]
    if again.headers["mq-delivery-attempt"] == "2":
        assert again.stored == packed  # type: ignore[attr-defined]
    dead = {"dead_letters": handles}
    http.post(receive.replace("receive", "settle"), json=dead).raise_for_status()
    letters = http.get(f"/v1/groups/{group}/dlq/messages").json()["messages"]
    assert [each["text"] for each in letters] == [TEXT]
    assert TEXT in letters[0]["text"]


def test_records_in_the_files_are_not_sent_packed_to_who_does_not_ask(
    http: httpx.Client, topic: str
) -> None:
    noise = random.Random(25)
    bodies = [noise.randbytes(6_000).hex().encode() for _ in range(256)]
    pack = PACK["zstd"]
    for body in bodies:
        assert send(http, topic, pack(body), "zstd").status_code == 201
    wanted: dict[str, str | int] = {"checksum": "crc32", "max_messages": 256, "max_bytes": 8 << 20}
    for _ in range(3):  # the first one finds the blocks good
        records = frame(http, topic, **wanted)
        assert {each["system_flag"] for each in records} == {0}
        assert [each["body"] for each in records] == bodies[: len(records)]
        assert len(records) >= 128
    stored = frame(http, topic, encodings="zstd", **wanted)
    assert [each["body"] for each in stored] == [pack(body) for body in bodies[: len(stored)]]


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate"])
def test_what_would_not_pay_or_grow_too_much_is_stored_plain(
    http: httpx.Client, topic: str, encoding: str
) -> None:
    pack = gzip.compress if encoding == "gzip" else PACK[encoding]
    body = TEXT.encode() if encoding == "gzip" else b"a" * 50_000
    sent = send(http, topic, pack(body), encoding)
    assert sent.status_code == 201
    assert "mq-stored-encoding" not in sent.headers
    [stored] = frame(http, topic, encodings="zstd,deflate,lz4")
    assert (stored["body"], stored["system_flag"]) == (body, 0)
    if encoding != "gzip":
        small = send(http, topic, pack(b"x"), encoding)
        assert "mq-stored-encoding" not in small.headers


ZSTD = PACK["zstd"](TEXT.encode())
DEFLATE = PACK["deflate"](TEXT.encode())


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"x", {}, 400, "BAD_REQUEST"),
        (b"x", {"Content-Encoding": "identity"}, 400, "BAD_REQUEST"),
        (b"x", {"Content-Encoding": "br"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"x", {"Content-Encoding": "lz4"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"x", {"Content-Encoding": "zstd, zstd"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"x", {"Content-Encoding": "zstd"}, 400, "MALFORMED_BODY"),
        (b"x", {"Content-Encoding": "deflate"}, 400, "MALFORMED_BODY"),
        (DEFLATE[2:-4], {"Content-Encoding": "deflate"}, 400, "MALFORMED_BODY"),
        (DEFLATE[:-1], {"Content-Encoding": "deflate"}, 400, "MALFORMED_BODY"),
        (DEFLATE + b"x", {"Content-Encoding": "deflate"}, 400, "MALFORMED_BODY"),
        (ZSTD[:-1], {"Content-Encoding": "zstd"}, 400, "MALFORMED_BODY"),
        (ZSTD, {"Content-Encoding": "zstd", "MQ-Keep-Encoding": "perhaps"}, 400, "BAD_REQUEST"),
        (PACK["zstd"](bytes(4_194_305)), {"Content-Encoding": "zstd"}, 400, "MALFORMED_BODY"),
        (
            PACK["deflate"](bytes(60 << 20)),
            {"Content-Encoding": "deflate"},
            413,
            "MESSAGE_BODY_TOO_LARGE",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(
    http: httpx.Client, topic: str, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    given = {"MQ-Keep-Encoding": "true"} | headers
    answer = http.post(f"/v1/topics/{topic}/messages", content=body, headers=given)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["outcome"] == "not_stored"


def test_only_a_body_that_is_the_message_can_be_kept(http: httpx.Client, topic: str) -> None:
    envelope = {"Content-Type": "application/vnd.curlew+json"}
    answer = send(http, topic, PACK["zstd"](b'{"text": "x"}'), "zstd", **envelope)
    assert (answer.status_code, answer.json()["parameter"]) == (400, "keep_encoding")
    batch = http.post(
        f"/v1/topics/{topic}/messages:batch", params={"keep_encoding": "true"}, json={}
    )
    assert batch.status_code == 400


@pytest.mark.parametrize("encodings", ["br", "", "zstd,", "gzip", "ZSTD", "zstd;deflate"])
def test_a_reader_names_encodings_that_there_are(
    http: httpx.Client, topic: str, encodings: str
) -> None:
    path = f"/v1/topics/{topic}/queues/0/messages"
    query: dict[str, str | int] = {"offset": 0, "encodings": encodings}
    answer = http.get(path, params=query, headers={"Accept": FRAMES})
    assert (answer.status_code, answer.json()["parameter"]) == (400, "encodings")
    as_json = http.get(path, params={"offset": 0, "encodings": "zstd"})
    assert as_json.status_code == 400
