"""The HTTP face over a real store, SQLite and broker, on a free port of 127.0.0.1, in a thread.

For tests that need sockets but no process of their own. Everything is opened on the server's loop.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from app.api import build_api
from app.broker import Broker, BrokerConfig
from app.cluster import ClusterConfig, Metadata, migrate
from app.domain.limits import MIB, Limits
from app.runtime.system_clock import SystemClock
from app.store import MessageStore, OsFiles, StoreConfig

OpenApp = Callable[[], "AsyncIterator[ASGIApp]"]


@asynccontextmanager
async def opened_api(
    directory: Path, limits: Limits | None = None, *, local_only: bool = True
) -> AsyncIterator[ASGIApp]:
    """The application over a store and a database in `directory`."""
    limits, clock = limits or Limits(), SystemClock()
    store_directory = directory / "store"
    store_directory.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{directory / 'metadata.db'}"
    await asyncio.to_thread(migrate, url)
    config = StoreConfig(segment_bytes=16 * MIB)
    loop = asyncio.get_running_loop()
    store = MessageStore.open(OsFiles(store_directory), config, clock, loop, limits)
    metadata = await Metadata.open(ClusterConfig(url), clock, limits)
    broker = Broker(store, metadata, clock, limits, BrokerConfig())
    await broker.start()
    try:
        yield build_api(broker, metadata, limits, local_only=local_only)
    finally:
        await broker.stop()
        await metadata.close()
        store.close()


class _Announced(uvicorn.Server):
    def __init__(self, app: ASGIApp, listening: threading.Event) -> None:
        super().__init__(uvicorn.Config(app, log_level="warning", lifespan="off", http="httptools"))
        self._listening = listening

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening.set()


@contextmanager
def http_server(directory: Path, limits: Limits | None = None) -> Iterator[str]:
    """The origin of a server that runs for the length of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    listening = threading.Event()
    servers: list[_Announced] = []

    async def serve() -> None:
        async with opened_api(directory, limits) as app:
            servers.append(_Announced(app, listening))
            await servers[0].serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="http-server")
    thread.start()
    try:
        assert listening.wait(timeout=20), "the server did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for server in servers:
            server.should_exit = True
        thread.join()
        listener.close()
