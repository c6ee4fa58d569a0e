"""The rows of the Python client: its calls beside the same requests written by hand, and httpx.

By hand means over what the client uses, sockets or an `asyncio.Protocol`, with requests that have
the same headers and numbers; the load is one process, as for all rows.
"""

import asyncio
import json
import os
from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from struct import unpack_from
from time import monotonic

import httpx
from curlew_client import AsyncClient, Client, Worker
from curlew_client.aio.connection import AsyncConnection
from curlew_client.options import node_of
from curlew_client.producing.batches import SendFuture
from curlew_client.wire.frames import RecordMaker, encode_frame

from benchmarks.load import Connection, generate
from benchmarks.row import Row
from benchmarks.rows import FRAME, TOPIC, send_path
from benchmarks.servers import node

BODY = b"x" * 200
AT_ONCE = 32
FRAME_MESSAGES = 1_000
UNDER_WAY = 8
"""Batches of `send_async`, within the default bound of 10,000 messages."""
LEASED = 256
STORED_FRAMES = 300
"""What the consumers' rows read: 300,000 messages, more than they get through."""

POLLED_FRAMES = 1_500
"""The same for polls of frames, which read faster."""

Work = Callable[[str, int], Iterator[int]]
Measure = Callable[[float], tuple[float, float]]


def beside(baseline: Work, ours: Work, *, stored_frames: int = 0) -> Measure:
    """Messages a second of both, each on a node of its own."""

    def measure(seconds: float) -> tuple[float, float]:
        rates = []
        for work in (baseline, ours):
            with node() as (url, _):
                prepare(url, stored_frames)
                rates.append(generate(work, url, 1, seconds).per_second)
        return rates[0], rates[1]

    return measure


def prepare(url: str, frames: int) -> None:
    """A topic of four queues, with so many frames of 1,000 messages in it."""
    httpx.put(f"{url}/v1/topics/{TOPIC}", json={"queues": 4, "flush": "async"}).raise_for_status()
    frame = encode_frame([RecordMaker(TOPIC).make(BODY, b"")] * FRAME_MESSAGES)
    with httpx.Client(headers={"content-type": FRAME}) as http:
        for _ in range(frames):
            http.post(f"{url}{send_path()}:batch", content=frame).raise_for_status()


def _numbers(seq: int, lane: int = 1) -> list[str]:
    return [
        f"MQ-Producer-Id: bench@{os.getpid()}:{lane}",
        "MQ-Producer-Epoch: 1",
        f"MQ-Producer-Seq: {seq}",
    ]


# --- one at a time


def sends_by_hand(url: str, _number: int) -> Iterator[int]:
    """Numbered sends over a socket."""
    connection = Connection(url)
    yield 0
    seq = 0
    while True:
        status, _, answer = connection.exchange(
            connection.build("POST", send_path(), BODY, *_numbers(seq))
        )
        assert status == 201, answer
        seq += 1
        yield 1


def sends(url: str, _number: int) -> Iterator[int]:
    """`Client.send`."""
    with Client(url) as curlew:
        curlew.send(TOPIC, BODY)
        yield 0
        while True:
            curlew.send(TOPIC, BODY)
            yield 1


def sends_by_httpx(url: str, _number: int) -> Iterator[int]:
    """Numbered sends by httpx."""
    with httpx.Client() as http:
        yield 0
        seq = 0
        while True:
            headers = dict(line.split(": ") for line in _numbers(seq))
            answer = http.post(f"{url}{send_path()}", content=BODY, headers=headers)
            assert answer.status_code == 201, answer.text
            seq += 1
            yield 1


# --- 32 under way


def gathering(make: Callable[[str], Awaitable[Callable[[int], Awaitable[None]]]]) -> Work:
    """A step is ten sends in each of 32 tasks. `make` gives what sends for a numbered task."""

    def work(url: str, _number: int) -> Iterator[int]:
        with asyncio.Runner() as runner:

            async def prepared() -> Callable[[int], Awaitable[None]]:
                return await make(url)

            send = runner.run(prepared())

            async def one(number: int) -> None:
                for _ in range(10):
                    await send(number)

            async def step() -> None:
                await asyncio.gather(*(one(number) for number in range(AT_ONCE)))

            yield 0
            while True:
                runner.run(step())
                yield 10 * AT_ONCE

    return work


async def _by_hand(url: str) -> Callable[[int], Awaitable[None]]:
    address = node_of(url)
    connections = [await AsyncConnection.open(address, None, 5) for _ in range(AT_ONCE)]
    seqs = [0] * AT_ONCE
    head = f"POST {send_path()} HTTP/1.1\r\nhost: {address.authority}\r\n"

    async def send(number: int) -> None:
        lines = (
            f"content-length: {len(BODY)}\r\nmq-producer-id: hand@{os.getpid()}:{number}\r\n"
            f"mq-producer-epoch: 1\r\nmq-producer-seq: {seqs[number]}\r\n\r\n"
        )
        request = f"{head}{lines}".encode() + BODY
        answer = await connections[number].exchange(request, monotonic() + 10)
        assert answer.status == 201, answer.body
        json.loads(answer.body)
        seqs[number] += 1

    return send


async def _by_client(url: str) -> Callable[[int], Awaitable[None]]:
    curlew = AsyncClient(url)

    async def send(_number: int) -> None:
        await curlew.send(TOPIC, BODY)

    return send


async def _by_httpx(url: str) -> Callable[[int], Awaitable[None]]:
    http = httpx.AsyncClient(limits=httpx.Limits(max_connections=AT_ONCE))

    async def send(_number: int) -> None:
        answer = await http.post(f"{url}{send_path()}", content=BODY)
        assert answer.status_code == 201, answer.text

    return send


# --- batches


def frames_by_hand(under_way: int) -> Work:
    """Frames of 1,000 messages, each encoded as it is sent, over so many connections in turn."""

    def work(url: str, _number: int) -> Iterator[int]:
        free = deque((lane, Connection(url)) for lane in range(under_way))
        busy: deque[tuple[int, Connection]] = deque()
        seqs = [0] * under_way
        maker = RecordMaker(TOPIC)
        yield 0
        while True:
            frame = maker.frame_of_bodies([BODY for _ in range(FRAME_MESSAGES)])
            lane, connection = free.popleft()
            headers = [f"Content-Type: {FRAME}", *_numbers(seqs[lane], lane)]
            seqs[lane] += FRAME_MESSAGES
            connection.send(connection.build("POST", f"{send_path()}:batch", frame, *headers))
            busy.append((lane, connection))
            if not free:
                free.append(busy.popleft())
                status, _, answer = free[0][1].answer()
                assert status == 200, answer
            yield FRAME_MESSAGES

    return work


def batched_sends(url: str, _number: int) -> Iterator[int]:
    """`send_async`, with as much under way as a client holds unless told otherwise."""
    with Client(url) as curlew:
        under_way: deque[SendFuture] = deque()
        yield 0
        while True:
            for _ in range(FRAME_MESSAGES - 1):
                _ = curlew.send_async(TOPIC, BODY)
            under_way.append(curlew.send_async(TOPIC, BODY))
            if len(under_way) > UNDER_WAY:
                under_way.popleft().result(60)
            yield FRAME_MESSAGES


# --- consumers


def leases_by_hand(url: str, _number: int) -> Iterator[int]:
    """Receive, decode, settle."""
    connection = Connection(url)
    base = f"/v1/topics/{TOPIC}/groups/hand/messages:"
    json_type = "Content-Type: application/json"
    wish = json.dumps({"max_messages": LEASED, "wait": 1, "invisible_ms": 30_000}).encode()
    receive = connection.build("POST", f"{base}receive?body=base64", wish, json_type)
    yield 0
    while True:
        _, _, answer = connection.exchange(receive)
        messages = json.loads(answer)["messages"]
        assert messages, "the topic is read to its end"
        for each in messages:
            b64decode(each["body_base64"])
        acks = json.dumps({"acks": [each["receipt_handle"] for each in messages]}).encode()
        status, _, answer = connection.exchange(
            connection.build("POST", f"{base}settle", acks, json_type)
        )
        assert status == 200, answer
        yield len(messages)


def _bodies(frame: bytes) -> list[bytes]:
    """The bodies of a frame, each taken out of its record."""
    (count,) = unpack_from(">I", frame, 8)
    at = 32 + count * (12 if frame[5] & 4 else 4)
    found = []
    for size in unpack_from(f">{count}I", frame, 32):
        (length,) = unpack_from(">I", frame, at + 84)
        found.append(frame[at + 88 : at + 88 + length])
        at += size
    return found


def polls_by_hand(url: str, _number: int) -> Iterator[int]:
    """Polls for frames, which take the bodies apart and commit what the poll before gave."""
    connection = Connection(url)
    lines = "Content-Type: application/json", f"Accept: {FRAME}"
    state: dict[str, object] = {"client_id": "hand", "generation": 0}
    wish = {"subscriptions": [{"topic": TOPIC}], "wait": 1, "max_messages": 500}
    yield 0
    while True:
        body = json.dumps({**wish, **state}).encode()
        request = connection.build("POST", "/v1/groups/hand/members:poll", body, *lines)
        status, head, answer = connection.exchange(request)
        assert status == 200, answer
        mark = b"--" + head.partition(b"boundary=")[2].partition(b"\r\n")[0].strip(b'"')
        parts = [part.partition(b"\r\n\r\n")[2][:-2] for part in answer.split(mark)[1:-1]]
        shown = json.loads(parts[0])
        places = [
            {"topic": TOPIC, "queue_id": each["queue_id"], "offset": each["next_offset"]}
            for each in shown["queues"]
        ]
        since = {each["queue_id"]: each["since_generation"] for each in shown["assigned"]}
        state.update(
            generation=shown["generation"],
            assignment_id=shown["assignment_id"],
            positions=places,
            commits=[{**each, "since_generation": since[each["queue_id"]]} for each in places],
        )
        yield sum(len(_bodies(frame)) for frame in parts[1:])


def _counting(make: Callable[[Worker, Callable[[object], Awaitable[None]]], None]) -> Work:
    """A worker with coroutines as handlers, counted where they end."""

    def work(url: str, _number: int) -> Iterator[int]:
        done = 0
        at_work = Worker(url)

        async def handle(_message: object) -> None:
            nonlocal done
            done += 1

        make(at_work, handle)
        with asyncio.Runner() as runner:
            runner.run(at_work.__aenter__())
            yield 0
            counted = done
            while True:
                runner.run(asyncio.sleep(0.01))
                yield done - counted
                counted = done

    return work


def _leasing(at_work: Worker, handle: Callable[[object], Awaitable[None]]) -> None:
    at_work.consumer(TOPIC, group="worker", concurrency=AT_ONCE)(handle)


def _assigned(at_work: Worker, handle: Callable[[object], Awaitable[None]]) -> None:
    at_work.assigned_consumer(TOPIC, group="member", concurrency=AT_ONCE)(handle)


def pulls(url: str, _number: int) -> Iterator[int]:
    """Lite pull of a subscribed topic, as much at once as by hand."""
    with Client(url) as curlew, curlew.pull_consumer(group="pull") as consumer:
        consumer.subscribe(TOPIC)
        yield 0
        while True:
            yield len([each.body for each in consumer.poll(1, max_messages=500)])


sends_at_once = gathering(_by_client)
leasing = _counting(_leasing)

CLIENT_ROWS = [
    Row("Python client, send", "msg/s", "by hand", "≥ 0.6", beside(sends_by_hand, sends)),
    Row("Python client, send, beside httpx", "msg/s", "httpx", "≥ 2",
        beside(sends_by_httpx, sends)),
    Row("Python client, send, asyncio, 32 at once", "msg/s", "by hand", "≥ 0.5",
        beside(gathering(_by_hand), sends_at_once)),
    Row("Python client, the same, beside httpx", "msg/s", "httpx", "≥ 2",
        beside(gathering(_by_httpx), sends_at_once)),
    Row("Python client, send_async", "msg/s", "frames of 1,000 by hand", "≥ 0.5",
        beside(frames_by_hand(1), batched_sends)),
    Row("Python client, the same", "msg/s", f"frames by hand, {UNDER_WAY} under way", "≥ 0.5",
        beside(frames_by_hand(UNDER_WAY), batched_sends)),
    Row("Python client, worker", "msg/s", f"receive {LEASED}, settle, by hand", "≥ 0.6",
        beside(leases_by_hand, leasing, stored_frames=STORED_FRAMES)),
    Row("Python client, assigned consumer", "msg/s", "polls of frames by hand", "≥ 0.7",
        beside(polls_by_hand, _counting(_assigned), stored_frames=POLLED_FRAMES)),
    Row("Python client, lite pull", "msg/s", "polls of frames by hand", "≥ 0.7",
        beside(polls_by_hand, pulls, stored_frames=POLLED_FRAMES)),
]  # fmt: skip
