"""What a poll costs beside pulls, in process: processor time a message, through the gateway.

`python -m benchmarks.in_process.polls` fills eight queues, and reads the last 32 messages of each
again and again: by one poll over eight queues, by one pull of as many messages from one queue, and
by one pull of 32 from each. The same poll carries a commit of all queues once a second of the wall
clock, or none. Windows take turns; figures are messages for a second of processor time.
"""

import argparse
import asyncio
import gc
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import Any, Final

import msgspec

from app.api import build_api
from app.api.http.request_context import AsgiApp, Event
from app.cluster import migrate
from app.commands.node_commands import COLLECTOR_THRESHOLDS
from app.config import Config
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings
from app.node import Node
from benchmarks.frames import request_frame, request_record
from tests.support.clients.asgi import http_scope
from tests.support.nodes.brokers import put_topic

TOPIC: Final = "orders"
GROUPS: Final = ("billing", "shipping")
QUEUES: Final = 8
OF_A_QUEUE: Final = 32
MESSAGES: Final = QUEUES * OF_A_QUEUE
BODY: Final = b"x" * 1024
FRAMES: Final = (b"accept", b"application/vnd.curlew.batch")

Ask = Callable[[], Awaitable[int]]


class Client:
    """Asks the gateway, as a server would."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def ask(
        self, method: str, path: str, query: bytes, body: bytes, *headers: tuple[bytes, bytes]
    ) -> bytes:
        """The body of an answer that succeeded."""
        found: list[bytes] = []
        status = 0

        async def send(event: Event) -> None:
            nonlocal status
            status = event.get("status", status)
            found.append(bytes(event.get("body", b"")))

        async def receive() -> Event:
            return {"type": "http.request", "body": body, "more_body": False}

        sent = [(b"host", b"localhost:8710"), (b"content-type", b"application/json"), *headers]
        await self._app(http_scope(method, path, sent, query), receive, send)
        assert status == 200, b"".join(found)[:300]
        return b"".join(found)


class Poll:
    """One member that reads the last messages of all queues again and again."""

    def __init__(
        self, client: Client, group: str, end: int, headers: tuple[tuple[bytes, bytes], ...]
    ) -> None:
        self._client = client
        self._group = group
        self._end = end
        self._headers = headers
        self._said: dict[str, Any] = {
            "client_id": "worker-1",
            "subscriptions": [{"topic": TOPIC}],
            "generation": 0,
            "max_messages": MESSAGES,
            "positions": [
                {"topic": TOPIC, "queue_id": queue_id, "offset": end - OF_A_QUEUE}
                for queue_id in range(QUEUES)
            ],
        }
        self._text = b""
        self._committed = 0
        self.commit_at_s: float | None = None
        """When the next commit is due; None: no commits."""

    async def join(self) -> None:
        """Be a member, and put the answer into effect."""
        body = msgspec.json.encode(self._said)
        told = msgspec.json.decode(await self._send(body, ()))
        self._said["generation"] = told["generation"]
        self._said["assignment_id"] = told["assignment_id"]
        self._text = msgspec.json.encode(self._said)

    async def __call__(self) -> int:
        text = self._text
        if self.commit_at_s is not None and monotonic() >= self.commit_at_s:
            self.commit_at_s = monotonic() + 1.0
            self._committed = min(self._committed + 1, self._end)
            commits = [
                {"topic": TOPIC, "queue_id": queue_id, "offset": self._committed}
                for queue_id in range(QUEUES)
            ]
            text = msgspec.json.encode(self._said | {"commits": commits})
        await self._send(text, self._headers)
        return MESSAGES

    async def _send(self, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
        return await self._client.ask(
            "POST", f"/v1/groups/{self._group}/members:poll", b"", body, *headers
        )


def pull(client: Client, end: int, headers: tuple[tuple[bytes, bytes], ...]) -> Ask:
    """One pull of as many messages from one queue."""
    query = b"offset=%d&max_messages=%d&max_bytes=8388608" % (end - MESSAGES, MESSAGES)

    async def ask() -> int:
        await client.ask("GET", f"/v1/topics/{TOPIC}/queues/0/messages", query, b"", *headers)
        return MESSAGES

    return ask


def eight_pulls(client: Client, end: int, headers: tuple[tuple[bytes, bytes], ...]) -> Ask:
    """As many messages by one pull from each queue."""
    query = b"offset=%d&max_messages=%d" % (end - OF_A_QUEUE, OF_A_QUEUE)
    paths = [f"/v1/topics/{TOPIC}/queues/{queue_id}/messages" for queue_id in range(QUEUES)]

    async def ask() -> int:
        for path in paths:
            await client.ask("GET", path, query, b"", *headers)
        return MESSAGES

    return ask


async def window(ask: Ask, seconds: float) -> float:
    """Messages for a second of processor time."""
    count, began_s, until_s = 0, process_time(), monotonic() + seconds
    while monotonic() < until_s:
        count += await ask()
    return count / (process_time() - began_s)


async def compared(one: Ask, other: Ask, pairs: int, seconds: float) -> tuple[float, float]:
    """Medians of windows in turn."""
    ones: list[float] = []
    others: list[float] = []
    for number in range(pairs):
        for ask, found in ((one, ones), (other, others))[:: 1 if number % 2 else -1]:
            found.append(await window(ask, seconds))
    return median(ones), median(others)


@asynccontextmanager
async def clients(root: Path, *headers: tuple[bytes, bytes]) -> AsyncIterator[dict[str, Ask]]:
    """One pull, eight pulls, a poll, and a poll with a commit a second, over a node of its own."""
    config = Config(data_dir=root, port=0, flush=FlushMode.ASYNC)
    migrate(config.database)
    node = await Node.open(config)
    try:
        await put_topic(node.broker, TOPIC, TopicSettings(queues=QUEUES, flush=FlushMode.ASYNC))
        end = MESSAGES * 8
        frame = request_frame([request_record(TOPIC, BODY)] * end)
        for queue_id in range(QUEUES):
            await node.broker.sender.send_frame(TOPIC, frame, queue_id=queue_id)
        client = Client(build_api(node.broker, node.metadata, node.limits, local_only=True))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        plain, committing = [Poll(client, group, end, headers) for group in GROUPS]
        for poll in (plain, committing):
            await poll.join()
        committing.commit_at_s = 0.0
        yield {
            "one pull": pull(client, end, headers),
            "eight pulls": eight_pulls(client, end, headers),
            "poll": plain,
            "poll with a commit a second": committing,
        }
    finally:
        await node.close()


def beside_one_pull(name: str) -> Callable[[float], tuple[float, float]]:
    """Messages for a second of processor time: one pull, and what is named."""

    def measure(seconds: float) -> tuple[float, float]:
        return asyncio.run(_measure(name, seconds))

    return measure


async def _measure(name: str, seconds: float) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="curlew-bench-") as directory:
        async with clients(Path(directory)) as asks:
            length_s = 1.0 if "commit" in name else 0.2
            pairs = max(int(seconds / length_s), 3)
            return await compared(asks["one pull"], asks[name], pairs, length_s)


async def _print(pairs: int, seconds: float) -> None:
    for form, headers in (("JSON", ()), ("frames", (FRAMES,))):
        with tempfile.TemporaryDirectory(prefix="curlew-bench-") as directory:
            async with clients(Path(directory), *headers) as asks:
                for name in ("poll", "poll with a commit a second"):
                    length_s = 1.0 if "commit" in name else seconds
                    count = pairs // 2 if "commit" in name else pairs
                    for beside in ("one pull", "eight pulls"):
                        base, ours = await compared(asks[beside], asks[name], count, length_s)
                        print(f"{form:7} {name:28} {ours / base:5.2f} of {beside}", flush=True)


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.2)
    options = parser.parse_args()
    asyncio.run(_print(options.pairs, options.seconds))


if __name__ == "__main__":
    main()
