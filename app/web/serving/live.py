"""Pages that go on while they are open: the part that changes, as server-sent events.

The stream has the address of the page, so it shows what its reader asked for. It sends the part
whole when it has changed, else only the time. It ends when the API refuses (the browser then asks
again, and is told why) and when the node stops. Event loop only.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from app.domain.clock import Clock
from app.domain.limits import UI_STREAMS_MAX, UI_STREAMS_OF_A_PRINCIPAL_MAX
from app.web.rendering.values import moment_text
from app.web.serving.api import Refused

MEDIA_TYPE: Final = "text/event-stream; charset=utf-8"
Look = Callable[[], Awaitable[str]]
"""Renders the part that changes."""


class LiveStreams:
    """All of a node. `close` ends them."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()
        self._open: Counter[str | None] = Counter()
        """How many each principal has."""

    def has_room(self, principal: str | None) -> bool:
        """Whether there may be one more, of that principal."""
        if self._closing.is_set() or self._open.total() >= UI_STREAMS_MAX:
            return False
        return principal is None or self._open[principal] < UI_STREAMS_OF_A_PRINCIPAL_MAX

    def close(self) -> None:
        """The node stops."""
        self._closing.set()

    async def follow(
        self, look: Look, every_s: float, clock: Clock, principal: str | None = None
    ) -> AsyncIterator[str]:
        """Events, for ever; none when there is no room any more."""
        if not self.has_room(principal):
            return
        self._open[principal] += 1
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
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return


def _event(name: str, text: str) -> str:
    lines = [f"event: {name}"] if name else []
    return "\n".join([*lines, *(f"data: {line}" for line in text.splitlines()), "", ""])
