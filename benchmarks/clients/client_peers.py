"""The rows of the Python client beside redis-py and nats-py, each with its own server, in one run.

Like is beside like: Redis with its log synced every second, and a JetStream stream in files, whose
answers come after the write and before the sync, as those of a topic with `flush: async`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks import peers
from benchmarks.clients.client_rows import (
    BODY,
    FRAME_MESSAGES,
    LEASED,
    STORED_FRAMES,
    Measure,
    Work,
    batched_sends,
    gathering,
    leasing,
    prepare,
    sends,
    sends_at_once,
)
from benchmarks.load import generate
from benchmarks.row import Row
from benchmarks.servers import node

STREAM = "bench"
SUBJECT = "bench.orders"
GROUP = "bench"
CLIENTS = "-r requirements/bench.txt (pip)"
PIPELINE = FRAME_MESSAGES
"""Commands of one pipeline of redis-py: as many as a batch of ours has messages."""
STORED = STORED_FRAMES * 1_000
REDIS_STORED = 1_000_000
"""redis-py reads faster than both others."""


def beside_peer(
    peer: Callable[[], AbstractContextManager[str]],
    theirs: Work,
    ours: Work,
    *,
    stored_frames: int = 0,
) -> Measure:
    """Messages a second of both, in turn."""

    def measure(seconds: float) -> tuple[float, float]:
        with peer() as address:
            baseline = generate(theirs, address, 1, seconds).per_second
        with node() as (url, _):
            prepare(url, stored_frames)
            return baseline, generate(ours, url, 1, seconds).per_second

    return measure


# --- Redis


@contextmanager
def redis(*, stored: int = 0) -> Iterator[str]:
    """A Redis with its log, and so many messages in the stream."""
    with peers.redis(append_only=True) as port:
        address = f"redis://127.0.0.1:{port}"
        if stored:
            client: Any = import_module("redis").Redis.from_url(address)
            client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            for _ in range(stored // 1_000):
                pipeline = client.pipeline(transaction=False)
                for _ in range(1_000):
                    pipeline.xadd(STREAM, {"body": BODY})
                pipeline.execute()
        yield address


def redis_sends(address: str, _number: int) -> Iterator[int]:
    """`xadd`, one after the other."""
    client: Any = import_module("redis").Redis.from_url(address)
    yield 0
    while True:
        client.xadd(STREAM, {"body": BODY})
        yield 1


def redis_pipelines(address: str, _number: int) -> Iterator[int]:
    """`xadd` in pipelines."""
    client: Any = import_module("redis").Redis.from_url(address)
    yield 0
    while True:
        pipeline = client.pipeline(transaction=False)
        for _ in range(PIPELINE):
            pipeline.xadd(STREAM, {"body": BODY})
        pipeline.execute()
        yield PIPELINE


def redis_leases(address: str, _number: int) -> Iterator[int]:
    """`xreadgroup` and `xack`."""
    client: Any = import_module("redis").Redis.from_url(address)
    yield 0
    while True:
        found = client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=LEASED)
        assert found, "the stream is read to its end"
        [(_, messages)] = found
        client.xack(STREAM, GROUP, *(each for each, _ in messages))
        yield len(messages)


async def _by_redis(address: str) -> Callable[[int], Awaitable[None]]:
    client: Any = import_module("redis.asyncio").Redis.from_url(address)

    async def send(_number: int) -> None:
        await client.xadd(STREAM, {"body": BODY})

    return send


# --- NATS


@contextmanager
def nats(*, stored: int = 0) -> Iterator[str]:
    """A NATS server with a stream in files, and so many messages in it."""
    with peers.nats() as port:
        address = f"nats://127.0.0.1:{port}"
        asyncio.run(_fill(address, stored))
        yield address


async def _fill(address: str, stored: int) -> None:
    client: Any = await import_module("nats").connect(address)
    stream = client.jetstream(publish_async_max_pending=10_000)
    await stream.add_stream(name=STREAM, subjects=["bench.*"])
    for _ in range(stored // 1_000):
        await asyncio.gather(*[await stream.publish_async(SUBJECT, BODY) for _ in range(1_000)])
    await client.close()


async def _by_nats(address: str) -> Callable[[int], Awaitable[None]]:
    client: Any = await import_module("nats").connect(address)
    stream = client.jetstream()

    async def send(_number: int) -> None:
        await stream.publish(SUBJECT, BODY)

    return send


def nats_batches(address: str, _number: int) -> Iterator[int]:
    """`publish_async`, a thousand at once."""
    with asyncio.Runner() as runner:
        client: Any = runner.run(import_module("nats").connect(address))
        stream = client.jetstream(publish_async_max_pending=10_000)
        under_way: deque[Any] = deque()

        async def step() -> None:
            for _ in range(1_000):
                under_way.append(await stream.publish_async(SUBJECT, BODY))
            while len(under_way) > 8_000:
                await under_way.popleft()

        yield 0
        while True:
            runner.run(step())
            yield 1_000


def nats_leases(address: str, _number: int) -> Iterator[int]:
    """A pull consumer: fetch, and ack each."""
    with asyncio.Runner() as runner:
        client: Any = runner.run(import_module("nats").connect(address))
        consumer: Any = runner.run(client.jetstream().pull_subscribe(SUBJECT, durable=GROUP))

        async def step() -> int:
            messages = await consumer.fetch(LEASED, timeout=5)
            for each in messages:
                await each.ack()
            return len(messages)

        yield 0
        while True:
            yield runner.run(step())


# --- the rows


def _missing(package: str, module: str) -> list[str]:
    """What has to be installed: the server, of Debian, and the clients, by pip."""
    found = peers.missing(package)
    return found if find_spec(module) else [*found, CLIENTS]


_redis = partial(Row, missing=partial(_missing, "redis-server", "redis"))
_nats = partial(Row, missing=partial(_missing, "nats-server", "nats"))

CLIENT_PEER_ROWS = [
    _redis("Python client, send, beside redis-py", "msg/s", "XADD", "",
           beside_peer(redis, redis_sends, sends)),
    _redis("Python client, send, asyncio, beside redis-py", "msg/s", "XADD", "",
           beside_peer(redis, gathering(_by_redis), sends_at_once)),
    _nats("Python client, send, asyncio, beside nats-py", "msg/s", "JetStream publish", "",
          beside_peer(nats, gathering(_by_nats), sends_at_once)),
    _redis("Python client, send_async, beside redis-py", "msg/s",
           f"XADD, pipeline of {PIPELINE:,}", "",
           beside_peer(redis, redis_pipelines, batched_sends)),
    _nats("Python client, send_async, beside nats-py", "msg/s", "JetStream publish_async", "",
          beside_peer(nats, nats_batches, batched_sends)),
    _redis("Python client, worker, beside redis-py", "msg/s", f"XREADGROUP {LEASED}, XACK", "",
           beside_peer(partial(redis, stored=REDIS_STORED), redis_leases, leasing,
                       stored_frames=STORED_FRAMES)),
    _nats("Python client, worker, beside nats-py", "msg/s", f"fetch {LEASED}, ack", "",
          beside_peer(partial(nats, stored=STORED), nats_leases, leasing,
                      stored_frames=STORED_FRAMES)),
]  # fmt: skip
