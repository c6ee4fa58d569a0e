"""The ceilings: ASGI applications that do nothing but HTTP, served like a node is.

`python -m benchmarks.baselines KIND` prints its address and serves until it is stopped.
"""

import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SOURCE_BYTES: Final = 1 << 20
_START: Final = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-length", b"2")],
}
_BODY: Final = {"type": "http.response.body", "body": b"ok"}
_SOURCE: Final = bytes(SOURCE_BYTES)
_SOURCE_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-length", b"%d" % SOURCE_BYTES)],
}


async def sink(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the whole body, answer two bytes: the ceiling of any send."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(_START)
    await send(_BODY)


async def source(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer one MiB: the ceiling of any pull."""
    if scope["type"] != "http":
        return
    await send(_SOURCE_START)
    await send({"type": "http.response.body", "body": _SOURCE})


def main(kind: str) -> None:
    """Serve on a free port of 127.0.0.1."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    sys.stdout.write(f"page http://127.0.0.1:{listener.getsockname()[1]}/ui\n")
    sys.stdout.flush()
    config = uvicorn.Config(
        {"sink": sink, "source": source}[kind],
        lifespan="off",
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
