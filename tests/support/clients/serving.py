"""Serves an ASGI application on a free port of 127.0.0.1 from a thread, for browsers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override


class _Announced(uvicorn.Server):
    """Says when it listens, so that nobody has to try."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The origin at which `app` is served while the block runs."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = _Announced(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), name="served")
    thread.start()
    try:
        assert server.listening.wait(timeout=60), "the server did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
