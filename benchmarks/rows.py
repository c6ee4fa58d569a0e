"""The rows of the table: what is measured, against which baseline, with which target."""

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.floods import beside_wrong_keys
from benchmarks.frames import request_frame, request_record
from benchmarks.in_process.polls import beside_one_pull
from benchmarks.in_process.timers import measure_lateness
from benchmarks.in_process.waking import Waiting, delays_ms, pulling, receiving
from benchmarks.load import Connection, Work, generate, wrk
from benchmarks.row import Row
from benchmarks.servers import node, running

BODY = b"x" * 1024
TOPIC = "bench"
FRAME = "application/vnd.curlew.batch"
FRAME_MESSAGES = 1000
MANY_TOPICS, QUEUES_A_TOPIC = 10, 1_000
CONSUMERS = 4
LATE_SECONDS = 20.0
"""Some 200 messages, ten a second."""


def send_path() -> str:
    """Where single messages go; also the path that the sink is asked with."""
    return f"/v1/topics/{TOPIC}/messages"


def single_send(flush: str, connections: int) -> Callable[[float], tuple[float, float]]:
    """Requests a second of single sends."""

    def measure(seconds: float) -> tuple[float, float]:
        if flush == "sync":
            with node("async") as (url, _):
                baseline = wrk(url + send_path(), BODY, connections, seconds)
        else:
            with running("benchmarks.baselines", "sink") as (url, _):
                baseline = wrk(url + send_path(), BODY, connections, seconds)
        with node(flush) as (url, _):
            ours = wrk(url + send_path(), BODY, connections, seconds)
        return baseline.per_second, ours.per_second

    return measure


def posting(path: str, body: bytes, messages: int, *headers: str) -> Work:
    """Post it again and again; each is so many messages."""

    def work(url: str, _number: int) -> Iterator[int]:
        connection = Connection(url)
        request = connection.build("POST", path, body, *headers)
        yield 0
        while True:
            status, _, answer = connection.exchange(request)
            assert status in {200, 201}, answer[:300]
            yield messages

    return work


def batch_frames(seconds: float) -> tuple[float, float]:
    """Messages a second in request frames."""
    with running("benchmarks.baselines", "sink") as (url, _):
        baseline = generate(_posting_frames(), url, 1, seconds)
    return baseline.per_second, send_frames(seconds)


def frames_over_tls(seconds: float) -> tuple[float, float]:
    """Messages a second in request frames, plain and encrypted."""
    return send_frames(seconds), send_frames(seconds, tls=True)


def send_frames(seconds: float, *, tls: bool = False) -> float:
    """The same, Curlew alone."""
    with node(tls=tls) as (url, _):
        _make_topic(url)
        return generate(_posting_frames(), url, 1, seconds).per_second


def _posting_frames() -> Work:
    body = request_frame([request_record(TOPIC, BODY)] * FRAME_MESSAGES)
    return posting(f"{send_path()}:batch", body, FRAME_MESSAGES, f"Content-Type: {FRAME}")


def batch_json(seconds: float) -> tuple[float, float]:
    """Messages a second in JSON batches."""
    document = {"messages": [{"text": BODY.decode()} for _ in range(100)]}
    body = json.dumps(document).encode()
    post = posting(f"{send_path()}:batch", body, 100, "Content-Type: application/json")
    with running("benchmarks.baselines", "sink") as (url, _):
        baseline = generate(post, url, 1, seconds)
    with node() as (url, _):
        _make_topic(url)
        ours = generate(post, url, 1, seconds)
    return baseline.per_second, ours.per_second


def _make_topic(url: str, queues: int = 4, name: str = TOPIC) -> None:
    connection = Connection(url)
    body = json.dumps({"queues": queues, "flush": "async"}).encode()
    request = connection.build("PUT", f"/v1/topics/{name}", body, "Content-Type: application/json")
    status, _, answer = connection.exchange(request)
    assert status in {200, 201}, answer
    connection.close()


def _fill(url: str, frames: int, queue_id: int = 0) -> None:
    connection = Connection(url)
    body = request_frame([request_record(TOPIC, BODY)] * FRAME_MESSAGES)
    path = f"{send_path()}:batch?queue_id={queue_id}"
    request = connection.build("POST", path, body, f"Content-Type: {FRAME}")
    for _ in range(frames):
        status, _, answer = connection.exchange(request)
        assert status == 200, answer[:300]
    connection.close()


def _pulling(accept: str, messages: int, end: int, query: str = "") -> Callable[..., Iterator[int]]:
    def work(url: str, _number: int) -> Iterator[int]:
        connection = Connection(url)
        path = (
            f"/v1/topics/{TOPIC}/queues/0/messages?max_messages={messages}&max_bytes=8000000{query}"
        )
        requests = [
            connection.build("GET", f"{path}&offset={offset}", b"", f"Accept: {accept}")
            for offset in range(0, end, messages)
        ]
        yield 0
        while True:
            for request in requests:
                status, _, answer = connection.exchange(request)
                assert status == 200, answer[:300]
                yield messages

    return work


def pull(accept: str, messages: int, query: str = "") -> Callable[[float], tuple[float, float]]:
    """Messages a second pulled; the baseline is scaled to the same bytes."""

    def measure(seconds: float) -> tuple[float, float]:
        with node() as (url, _):
            _make_topic(url)
            _fill(url, 20)
            end = 20_000 // messages * messages
            ours = generate(_pulling(accept, messages, end, query), url, 1, seconds)
        with running("benchmarks.baselines", "source") as (url, _):
            size = 1 << 20
            baseline = generate(_pulling(accept, messages, messages), url, 1, seconds)
        per_message = size / messages / (len(BODY) + 130)
        return baseline.per_second * per_message, ours.per_second

    return measure


def _consuming(url: str, number: int) -> Iterator[int]:
    connection = Connection(url)
    group = f"/v1/topics/{TOPIC}/groups/bench/messages"
    kind = "Content-Type: application/json"
    receive = connection.build("POST", f"{group}:receive", b'{"max_messages":32}', kind)
    yield 0
    while True:
        _, _, answer = connection.exchange(receive)
        messages = msgspec.json.decode(answer)["messages"]
        if not messages:
            return
        handles = [message["receipt_handle"] for message in messages]
        settle = connection.build(
            "POST", f"{group}:settle", msgspec.json.encode({"acks": handles}), kind
        )
        status, _, answer = connection.exchange(settle)
        assert status == 200, answer[:300]
        yield len(messages)


def receive_and_settle(seconds: float) -> tuple[float, float]:
    """Messages a second through both calls. With fewer consumers the node waits for them: each one
    asks, reads its answer and settles it in turn."""
    with node() as (url, _):
        _make_topic(url)
        for queue_id in range(4):
            _fill(url, 60, queue_id)
        ours = generate(_consuming, url, CONSUMERS, seconds)
    return 40_000.0, ours.per_second


def long_poll(_seconds: float) -> tuple[float, float]:
    """Milliseconds from the answer of a send to the answer of the poll that waited: (p99, p50)."""
    with node() as (url, _):
        _make_topic(url, queues=1)
        sender, poller = Connection(url), Connection(url)
        send = sender.build("POST", send_path(), BODY)
        delays: list[float] = []
        for offset in range(200):
            path = f"/v1/topics/{TOPIC}/queues/0/messages?offset={offset}&wait=10"
            arrived: list[float] = []
            request = poller.build("GET", path)

            def poll(request: bytes = request, arrived: list[float] = arrived) -> None:
                poller.exchange(request)
                arrived.append(time.perf_counter())

            waiting = threading.Thread(target=poll)
            waiting.start()
            time.sleep(0.005)
            start = time.perf_counter()
            sender.exchange(send)
            waiting.join()
            delays.append((arrived[0] - start) * 1000)
    delays.sort()
    return delays[int(len(delays) * 0.99)], median(delays)


def wake_up(waiting: Waiting, *, sync: bool = False) -> Callable[[float], tuple[float, float]]:
    """Milliseconds from an append's confirmation to whoever waited having it: (p99, p50)."""

    def measure(_seconds: float) -> tuple[float, float]:
        delays = delays_ms(waiting, sync=sync)
        return delays[int(len(delays) * 0.99)], median(delays)

    return measure


def lateness(_seconds: float) -> tuple[float, float]:
    """How late 200 delayed messages come, sent ten a second: p99 and p50."""
    with tempfile.TemporaryDirectory() as directory:
        late = asyncio.run(measure_lateness(Path(directory), LATE_SECONDS))
    return max(late[int(len(late) * 0.99)], 0.1), late[len(late) // 2]


def parked_polls(seconds: float) -> tuple[float, float]:
    """Sends per second without and with 1,000 parked long polls."""
    with node() as (url, _):
        _make_topic(url)
        baseline = wrk(url + send_path(), BODY, 32, seconds)
        # Polls wait on another topic, so that sends do not wake them.
        other = Connection(url)
        other.exchange(other.build("PUT", "/v1/topics/parked", b"{}"))
        parked = [Connection(url) for _ in range(1000)]
        for connection in parked:
            path = "/v1/topics/parked/queues/0/messages?offset=0&wait=60"
            connection.send(connection.build("GET", path))
        ours = wrk(url + send_path(), BODY, 32, seconds)
        for connection in parked:
            connection.close()
    return baseline.per_second, ours.per_second


def many_queues(seconds: float) -> tuple[float, float]:
    """Sends per second with 4 queues, and round 1,000 of 10,000 that all have messages."""
    with node() as (url, _):
        _make_topic(url)
        baseline = wrk(url + send_path(), BODY, 32, seconds)
    with node() as (url, _):
        connection = Connection(url)
        batch = json.dumps({"messages": [{"text": "x"}] * QUEUES_A_TOPIC}).encode()
        for name in (TOPIC, *[f"{TOPIC}-{number}" for number in range(1, MANY_TOPICS)]):
            _make_topic(url, QUEUES_A_TOPIC, name)
            path = f"/v1/topics/{name}/messages:batch?spread=true"
            request = connection.build("POST", path, batch, "Content-Type: application/json")
            status, _, answer = connection.exchange(request)
            assert status == 200, answer[:300]
        connection.close()
        ours = wrk(url + send_path(), BODY, 32, seconds)
    return baseline.per_second, ours.per_second


ROWS = [
    Row("single send 1 KiB, async, 32 connections", "req/s", "ASGI sink", "≥ 0.70",
        single_send("async", 32)),
    Row("single send 1 KiB, sync, 64 connections", "req/s", "the same, async", "≥ 0.5",
        single_send("sync", 64)),
    Row("batch send, frames of 1,000 x 1 KiB", "msg/s", "ASGI sink", "≥ 0.6", batch_frames),
    Row("batch send, frames of 1,000 x 1 KiB, TLS", "msg/s", "plain HTTP", "≥ 0.5",
        frames_over_tls),
    Row("batch send, JSON 100 x 1 KiB", "msg/s", "ASGI sink", "≥ 100 k msg/s", batch_json),
    Row("pull, frames of 1,000 x 1 KiB", "msg/s", "ASGI source", "≥ 0.5", pull(FRAME, 1000)),
    Row("pull, frames of 1,024 x 1 KiB, CRC-32", "msg/s", "ASGI source", "≥ 0.5",
        pull(FRAME, 1024, "&checksum=crc32")),
    Row("pull, JSON 100 x 1 KiB", "msg/s", "ASGI source", "≥ 100 k msg/s",
        pull("application/json", 100)),
    Row("receive + settle, JSON 32, 4 consumers", "msg/s", "the target", "≥ 40 k msg/s",
        receive_and_settle),
    Row("poll of 8 queues, 32 messages each", "msg/s CPU", "one pull of 256", "≥ 0.9",
        beside_one_pull("poll")),
    Row("the same with a commit a second", "msg/s CPU", "one pull of 256", "≥ 0.85",
        beside_one_pull("poll with a commit a second")),
    Row("long poll, idle queue (p99 | p50)", "ms", "p99 ≤ 10", "p50 ≤ 2", long_poll),
    Row("wake-up of a pull in process (p99 | p50)", "ms", "p99 ≤ 1", "p50 ≤ 1", wake_up(pulling)),
    Row("wake-up of a receive in process (p99 | p50)", "ms", "p99 ≤ 1", "p50 ≤ 1",
        wake_up(receiving)),
    Row("wake-up of a pull, sync (p99 | p50)", "ms", "p99 ≤ 1", "p50 ≤ 1",
        wake_up(pulling, sync=True)),
    Row("delay, lateness of 200 at rest (p99 | p50)", "ms", "p99 ≤ 100", "p50 ≤ 20", lateness,
        runs=1),
    Row("single send beside 1,000 parked polls", "req/s", "without them", "≥ 0.95", parked_polls),
    Row("send beside wrong keys, p99", "ms", "alone", "≤ 5 times", beside_wrong_keys),
    Row("single send, 10,000 queues", "req/s", "4 queues", "≥ 0.9", many_queues),
]  # fmt: skip
