"""A transport whose `close` first lets the client read. Used by `protocol` only."""

from asyncio import Transport
from collections.abc import Callable


class LingeringClose:
    """What uvicorn's cycle uses of a transport while a request has not come whole."""

    def __init__(self, transport: Transport, linger: Callable[[], None]) -> None:
        self._transport = transport
        self.close = linger

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()
