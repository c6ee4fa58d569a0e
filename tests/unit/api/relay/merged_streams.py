"""A stream of all shards over shards that say what a script has, in virtual time."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qsl

from app.api.dataplane.streaming import TOPIC_STREAM_PARAMETERS
from app.api.formats.stream_text import JsonLines
from app.api.http.memory_budget import MemoryBudget
from app.api.http.parameters import Query
from app.api.http.request_context import Event, RequestContext
from app.api.relay.calls import CallRequest
from app.api.relay.relay import Relay
from app.api.relay.streams.topic_streams import MergedStream
from app.domain.handles.cursors import decode_cursor, encode_cursor
from app.domain.limits import Limits
from tests.support.virtual_time import in_virtual_time

TOPIC = "orders"
Step = bytes | float | Exception
"""What a shard does next: it says something, waits for so many seconds, or breaks."""
Script = Callable[[dict[str, str]], Iterable[Step]]
"""By the parameters with which it is asked. At its end the shard is silent."""


def place(*offsets: int) -> bytes:
    """The line of a cursor."""
    return json.dumps({"cursor": encode_cursor(TOPIC, offsets)}).encode() + b"\n"


def message(queue_id: int, offset: int, *offsets: int) -> bytes:
    """The line of a message, with the cursor behind it."""
    text, cursor = f"{queue_id}.{offset}", encode_cursor(TOPIC, offsets)
    view = {"queue_id": queue_id, "queue_offset": offset, "text": text, "cursor": cursor}
    return json.dumps(view, separators=(",", ":")).encode() + b"\n"


def end(reason: str) -> bytes:
    return json.dumps({"end": {"reason": reason}}).encode() + b"\n"


def offsets_in(cursor: str) -> list[int]:
    return decode_cursor(TOPIC, cursor)


class Connection:
    """To a shard that plays a script."""

    status = 200

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = iter(steps)

    async def take(self) -> bytes:
        for step in self._steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, bytes):
                return step
            await asyncio.sleep(step)
        return await asyncio.Future()


class Shards:
    """A relay to them, at the node of the shard `a`; each queue is in one."""

    own_shard = "a"

    def __init__(self, scripts: dict[str, list[Script]], *shards: str, **limits: int) -> None:
        """The last script of a shard is played whenever it is asked again."""
        self.limits = Limits(**limits)
        self.stops = asyncio.Event()
        self.places = SimpleNamespace(topic=lambda _: self.topic)
        self.scripts = scripts
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.refreshed_to: tuple[str, ...] = ()
        """What another node has heard of."""
        self.grow(*shards or sorted(scripts))

    def grow(self, *shards: str) -> None:
        """The topic has these queues from now on."""
        self.topic = SimpleNamespace(name=TOPIC, shards=shards, queues=len(shards))

    async def refresh(self) -> None:
        self.grow(*self.refreshed_to)

    def shards_from_here(self) -> list[str]:
        return sorted(self.scripts)

    def times_asked(self, shard: str) -> int:
        return sum(each == shard for each, _ in self.asked)

    @asynccontextmanager
    async def in_parts(
        self, _exchange: RequestContext, shard: str, request: CallRequest
    ) -> AsyncIterator[Connection]:
        query = dict(parse_qsl(request.target.decode().partition("?")[2]))
        scripts = self.scripts[shard]
        script = scripts[min(self.times_asked(shard), len(scripts) - 1)]
        self.asked.append((shard, query))
        steps = iter(script(query))
        first = next(steps, 0.0)
        while not isinstance(first, bytes):  # before its head
            if isinstance(first, Exception):
                raise first
            await asyncio.sleep(first)
            first = next(steps, 3_600.0)
        yield Connection([first, *steps])


class Client:
    """Reads a stream, until it does not."""

    def __init__(self, shards: Shards, query: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.shards = shards
        self.reads = asyncio.Event()
        self.reads.set()
        self.stops_at = b""
        """What it reads last, for `stops_s`."""
        self.stops_s = 0.0
        self.written: list[tuple[float, bytes]] = []
        scope = {
            "method": "GET",
            "path": f"/v1/topics/{TOPIC}/stream",
            "headers": list(headers),
            "query_string": query.encode(),
        }
        self.exchange = RequestContext(
            scope, self._receive, self._send, b"id", MemoryBudget(Limits())
        )
        self.exchange.is_decided = True
        asked = Query(self.exchange.query, TOPIC_STREAM_PARAMETERS)
        relay, topic = cast("Relay", shards), cast("Any", shards.topic)
        self.stream = MergedStream(relay, self.exchange, topic, asked, JsonLines(False))

    async def _receive(self) -> Event:
        raise AssertionError

    async def _send(self, event: Event) -> None:
        if event["type"] != "http.response.body":
            return
        if event.get("more_body"):
            await self.reads.wait()
        part = event["body"]
        loop = asyncio.get_running_loop()
        if part:
            self.written.append((loop.time(), part))
        if self.stops_at and self.stops_at in part:
            self.stops_at = b""
            self.reads.clear()
            if self.stops_s:
                loop.call_later(self.stops_s, self.reads.set)

    @property
    def lines(self) -> list[dict[str, Any]]:
        text = b"".join(part for _, part in self.written)
        return [json.loads(line) for line in text.split(b"\n") if line]

    @property
    def texts(self) -> list[str]:
        return [each["text"] for each in self.lines if "text" in each]

    @property
    def end(self) -> tuple[str, list[int]]:
        """Why it ended, and where it stood."""
        last = self.lines[-1]["end"]
        return last["reason"], offsets_in(last["cursor"])


def followed(
    shards: Shards,
    query: str,
    *headers: tuple[bytes, bytes],
    prepare: Callable[[Client], object] = lambda _: None,
) -> Client:
    """A client that has read a stream until its end."""

    async def run() -> Client:
        client = Client(shards, query, headers)
        prepare(client)
        await client.stream.run()
        return client

    return in_virtual_time(run())
