"""The line in which work waits for handlers that are coroutines. On one event loop.

An `asyncio.Queue` costs more for each piece than a short handler does.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class AsyncLine(Generic[T]):
    """Who finds `pieces` empty waits with `get`; else he takes from the left himself."""

    def __init__(self) -> None:
        self.pieces: deque[T] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()

    def put(self, pieces: Collection[T]) -> None:
        """Add pieces, and wake as many who wait."""
        self.pieces.extend(pieces)
        self._wake(len(pieces))

    def _wake(self, count: int) -> None:
        waiters = self._waiters
        while count > 0 and waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def get(self) -> T:
        """The next piece, when there is one."""
        while not self.pieces:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled() and self.pieces:
                    self._wake(1)  # who was woken takes nothing
                raise
        return self.pieces.popleft()
