"""Pages that go on while they are open: the part that changes, as server-sent events.

The stream has the address of the page, so it shows what its reader asked for. It sends the part
whole when it has changed, else only the time. It ends when the API refuses (the browser then asks
again, and is told why) and when the node stops. Event loop only.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from app.domain.clock import Clock
from app.domain.limits import UI_STREAMS_MAX
from app.web.rendering.values import moment_text
from app.web.serving.api import Refused

MEDIA_TYPE: Final = "text/event-stream; charset=utf-8"
Look = Callable[[], Awaitable[str]]
"""Renders the part that changes."""


class LiveStreams:
    """All of a node. `close` ends them."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many as a node has."""
        return self._count >= UI_STREAMS_MAX or self._closing.is_set()

    def close(self) -> None:
        """The node stops."""
        self._closing.set()

    async def follow(self, look: Look, every_s: float, clock: Clock) -> AsyncIterator[str]:
        """Events, for ever."""
        self._count += 1
        try:
            before = ""
            while not self._closing.is_set():
                try:
                    text = await look()
                except Refused:
                    return
                if text != before:
                    yield _event("", text)
                yield _event("looked", moment_text(clock.now_ms()))
                before = text
                await self._pause(every_s)
        finally:
            self._count -= 1

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return


def _event(name: str, text: str) -> str:
    lines = [f"event: {name}"] if name else []
    return "\n".join([*lines, *(f"data: {line}" for line in text.splitlines()), "", ""])
