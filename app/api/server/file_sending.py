"""The body of an answer from files to the socket: past this process' memory and past the transport.

A transport copies what it is given, and somebody has to read it before. Here the kernel moves
pages of its cache (sendfile). What is not in memory is sent by a thread, so that the event loop
never waits for the disk, while all that is behind it is read ahead; what the client does not take
is waited for here and held by nobody.
Used by `cycle` only. Event loop only.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from app.api.http.request_context import ClientGone
from app.domain.shortages import shortage_of
from app.store import ColdRead, FilePart

_log: Final = logging.getLogger(__name__)


class FileAnswers:
    """Counts the answers from files: each has a second descriptor. One per server."""

    def __init__(self, count_max: int) -> None:
        self.count = 0
        self._count_max = count_max

    def second_descriptor(self, transport: asyncio.Transport) -> int | None:
        """Another descriptor of a connection; None when there are too many or no more."""
        assert transport.get_extra_info("sslcontext") is None, "files would go out in clear"
        if self.count >= self._count_max:
            return None
        try:
            descriptor = os.dup(transport.get_extra_info("socket").fileno())
        except OSError as error:
            if shortage_of(error) is None:
                raise
            return None
        self.count += 1
        return descriptor

    def close(self, descriptor: int) -> None:
        self.count -= 1
        os.close(descriptor)


class FileSending:
    """One answer on its way."""

    def __init__(
        self, transport: asyncio.Transport, news: asyncio.Event, answers: FileAnswers
    ) -> None:
        """`news` is set when the connection is lost."""
        self._transport = transport
        self._answers = answers
        self._news = news
        self._socket = -1
        """A second descriptor of the connection, which the transport does not watch."""
        self.unsent_bytes = 0
        """What the client has not taken yet."""
        self._reads_ahead = False
        """Whether the disk has been asked for the rest of the answer."""

    async def run(self, first: bytes, parts: Sequence[FilePart]) -> None:
        """Send all. Raises `ClientGone`, with the connection at its end, when that cannot be."""
        transport = self._transport
        second = None
        if not transport.get_write_buffer_size():  # else an earlier answer has to go first
            second = self._answers.second_descriptor(transport)
        if second is None:
            rest = await asyncio.to_thread(lambda: [part.read() for part in parts])
            transport.write(b"".join([first, *rest]))
            return
        self.unsent_bytes = len(first) + sum(part.size for part in parts)
        self._socket = second
        try:
            await self._send_all(memoryview(first), parts)
        except OSError as error:
            if not isinstance(error, ConnectionError):
                _log.exception("an answer could not be sent from its files")
            raise ClientGone from error
        finally:
            if self.unsent_bytes and not transport.is_closing():
                transport.abort()
            self.unsent_bytes = 0
            self._answers.close(second)

    async def _send_all(self, first: memoryview, parts: Sequence[FilePart]) -> None:
        while first:
            first = first[await self._step(partial(self._take, first)) :]
        for number, part in enumerate(parts):
            done = 0
            while done < part.size:
                done += await self._step(partial(self._take_of_file, parts[number:], done))

    def _take(self, data: memoryview, _wait_for_disk: bool) -> int:
        """How many bytes the socket took; `BlockingIOError` when it takes none now."""
        return os.write(self._socket, data)

    def _take_of_file(self, parts: Sequence[FilePart], done: int, wait_for_disk: bool) -> int:
        """The same, for what is behind the first `done` bytes of the first part."""
        if wait_for_disk and not self._reads_ahead:
            self._reads_ahead = True
            for each in parts:
                each.will_read()
        part = parts[0]
        count = part.send(self._socket, done, wait_for_disk=wait_for_disk)
        if count == 0:
            raise OSError(f"a file ends {part.size - done} bytes too soon")
        return count

    async def _step(self, take: Callable[[bool], int]) -> int:
        """How many bytes the client took, once it takes some. `take` gets `wait_for_disk`."""
        is_cold = False
        while not self._transport.is_closing():
            try:
                count = await _in_thread(partial(take, True)) if is_cold else take(False)
            except ColdRead:
                is_cold = True
            except BlockingIOError:
                await self._until_it_takes_more()
            else:
                self.unsent_bytes -= count
                return count
        raise ConnectionAbortedError

    async def _until_it_takes_more(self) -> None:
        """Or until the connection is lost."""
        loop = asyncio.get_running_loop()
        self._news.clear()
        loop.add_writer(self._socket, self._news.set)
        try:
            if not self._transport.is_closing():
                await self._news.wait()
        finally:
            loop.remove_writer(self._socket)


async def _in_thread(send: Callable[[], int]) -> int:
    """Not left before it is over, also when cancelled: until then the descriptor is in use."""
    run = asyncio.ensure_future(asyncio.to_thread(send))
    try:
        return await asyncio.shield(run)
    except asyncio.CancelledError:
        while not run.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([run])
        run.exception()
        raise
