"""A connection to a node on an event loop. Its blocking twin has the same names."""

import asyncio
import ssl
from time import monotonic

from curlew_client.errors import ConnectionFailed, NotCurlew, TimedOut, TooMuchUnderWay
from curlew_client.options import Node
from curlew_client.producing.attempts import lost
from curlew_client.wire.http1 import Answer, AnswerParser, MalformedAnswer


class AsyncConnection(asyncio.Protocol):
    """One request at a time. After an error it is closed, and not used again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._parser = AnswerParser()
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None
        self.is_stale = False
        """Whether the node has closed it."""

    @classmethod
    async def open(
        cls, node: Node, tls: ssl.SSLContext | None, timeout_s: float
    ) -> "AsyncConnection":
        """Connect. Raises `ConnectionFailed` or `TimedOut`, with nothing stored."""
        loop = asyncio.get_running_loop()
        context = (tls or ssl.create_default_context()) if node.is_tls else None
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(node.url), node.host, node.port, ssl=context
                )
        except TimeoutError:
            raise _unreached(node, timeout_s) from None
        except OSError as error:
            raise lost(error, node.url, has_written=False) from error
        return connection

    async def exchange(
        self, data: bytes, deadline_s: float, begins_by_s: float | None = None
    ) -> Answer:
        """Send a request, and wait for its answer until `deadline_s` of the monotonic clock; until
        `begins_by_s` while no byte of it has come. Raises `TimedOut`, among others."""
        if self._transport is None or self.is_stale:
            raise lost(ConnectionError("it was closed"), self._url, has_written=False)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answer = answer
        now_s = monotonic()
        timers = [self._loop.call_later(deadline_s - now_s, self._give_up)]
        if begins_by_s is not None:
            timers.append(self._loop.call_later(begins_by_s - now_s, self._give_up_silent))
        self._transport.write(data)
        try:
            return await answer
        finally:
            for timer in timers:
                timer.cancel()
            self._answer = None

    def close(self) -> None:
        """Close at once; what is under way fails."""
        if self._transport is not None:
            self._transport.abort()

    def _give_up(self) -> None:
        self._fail(TimedOut(f"{self._url} did not answer in time", "unknown"))

    def _give_up_silent(self) -> None:
        if not self._parser.has_begun:
            self._give_up()

    def _fail(self, error: Exception) -> None:
        self.is_stale = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.is_stale = True  # nobody asked
            return
        try:
            answer = self._parser.feed(data)
        except MalformedAnswer as error:
            self._fail(NotCurlew(f"{self._url} does not speak HTTP as a Curlew node does: {error}"))
            return
        if answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._parser.end()
        if answer is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
        reason = exc or ConnectionError("the node closed it")
        self._fail(lost(reason, self._url, has_written=True))


def _unreached(node: Node, timeout_s: float) -> ConnectionFailed:
    error = TimeoutError(f"nothing answered within {timeout_s:g} s")
    return lost(error, node.url, has_written=False)


class AsyncSlots:
    """So many at once; others wait for their turn."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    async def acquire(self, deadline_s: float) -> None:
        """Take one. Raises `TooMuchUnderWay` at `deadline_s`."""
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(deadline_s - monotonic()):
                await self._free.acquire()
        except TimeoutError:
            raise TooMuchUnderWay(
                "all connections of the client were busy until the time was over; raise "
                "connections or timeout, or send less at once"
            ) from None

    def release(self) -> None:
        self._free.release()


async def pause(seconds: float) -> None:
    """Let the time pass."""
    await asyncio.sleep(seconds)
