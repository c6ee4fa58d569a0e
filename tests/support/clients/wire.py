"""A node's server inside the test's event loop, and raw connections to it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from app.api.server import Connections
from app.config import Config
from app.domain.limits import Limits
from app.domain.settings import TopicSettings
from app.main import NodeServer, bind
from app.node import Node
from tests.support.metadata.migrated_file import migrate_by_copy
from tests.support.nodes.brokers import put_topic

PATIENCE_S = 60


@dataclass
class Served:
    """A server that takes connections on `port`."""

    port: int
    node: Node
    connections: Connections
    tls: ssl.SSLContext | None = None
    """What connections trust; None: they are plain."""
    _made: list["RawConnection"] = field(default_factory=list)

    async def connect(self) -> "RawConnection":
        """One that its test closes; if that fails, it ends with the server and harms no other."""
        streams = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        made = RawConnection(*streams)
        self._made.append(made)
        return made

    def abort(self) -> None:
        """End all connections that were made and are still open."""
        for each in self._made:
            # Of a transport that had something to write when it closed, asyncio's abort fails.
            with contextlib.suppress(AttributeError):
                each.writer.transport.abort()

    async def exchange(self, *parts: bytes) -> bytes:
        """Everything the server says to `parts` until it closes."""
        async with contextlib.aclosing(await self.connect()) as connection:
            for part in parts:
                await connection.say(part)
            return await connection.rest()


@dataclass
class RawConnection:
    """A connection that sends what it is told and understands nothing."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """All bytes until the server closes."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE_S)

    async def until(self, mark: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(mark), PATIENCE_S)

    async def answer(self) -> "RawAnswer":
        """The next answer; the connection stays open."""
        head = await self.until(b"\r\n\r\n")
        answer = parse_head(head)
        length = int(answer.headers.get("content-length", "0"))
        answer.body = await asyncio.wait_for(self.reader.readexactly(length), PATIENCE_S)
        return answer

    async def aclose(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@dataclass
class RawAnswer:
    """One parsed answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        return str(msgspec.json.decode(self.body)["code"])


def parse_head(head: bytes) -> RawAnswer:
    lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in lines[1:] if line)
    return RawAnswer(int(lines[0].split()[1]), {name.lower(): value for name, _, value in pairs})


def parse(data: bytes) -> RawAnswer:
    """The one answer in `data`, with everything after its head as the body."""
    head, _, body = data.partition(b"\r\n\r\n")
    answer = parse_head(head)
    answer.body = body
    return answer


@contextlib.asynccontextmanager
async def served_node(data_dir: Path, limits: Limits, **settings: Any) -> AsyncIterator[Served]:
    """A node with a topic `orders` of one queue, served on a free port. The directory is there.

    `settings` go into its configuration.
    """
    config = Config(data_dir=data_dir, port=0, **settings)
    migrate_by_copy(config.database)
    node = await Node.open(config, limits=limits)
    try:
        await put_topic(node.broker, "orders", TopicSettings(queues=1))
        listener = bind(config)
        server = NodeServer(node)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        served = Served(listener.getsockname()[1], node, server.open_connections)
        try:
            yield served
        finally:
            served.abort()
            server.should_exit = True
            await asyncio.wait_for(serving, PATIENCE_S)
            listener.close()
    finally:
        await node.close()
