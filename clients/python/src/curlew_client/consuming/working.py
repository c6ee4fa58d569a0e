"""Handlers at work, and what settles what they decide by receipt handle. On an event loop.

Handlers are threads, or tasks when they are coroutine functions. They take messages from one line,
and tell what they decided; the settler says what has come together to the node in one request.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from curlew_client.consuming.calls import LOG, RETRY_S, SETTLE_MAX, LeasedGroup
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.handlers import decisions_of
from curlew_client.consuming.messages import Received

Work = list[Received[Any]]
Piece = Received[Any] | Work
"""What a handler takes: a message, or a batch."""

SETTLE_PAUSE_S: Final = 0.002
"""How long a decision waits for others, when nothing is being settled."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered handler, checked."""

    function: Callable[..., Any]
    is_async: bool
    concurrency: int
    batch: int | None
    messages_max: int
    bytes_max: int
    span_max: int


class AsyncLine:
    """The line in which pieces wait for handlers that are coroutines. On one event loop.

    An `asyncio.Queue` costs more for each piece than a short handler does. Who finds `pieces` empty
    waits with `get`; else he takes from the left himself.
    """

    def __init__(self) -> None:
        self.pieces: deque[Any] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()

    def put(self, pieces: Collection[Any]) -> None:
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

    async def get(self) -> Any:
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


class Handlers:
    """The handlers of one consumer. Start them; `end` and `ended`, or `give_up`, once."""

    def __init__(
        self,
        handler: Handler,
        name: str,
        acked: Callable[[Received[Any]], None],
        decided: Callable[[Work, list[Decision]], None],
        begins: Callable[[Received[Any]], bool] | None = None,
    ) -> None:
        """All of them run where the handler does. `acked` is told of a message whose handler has
        returned well, `decided` of all else; what may not begin is left.
        """
        self._handler = handler
        self._name = name
        self._acked = acked
        self._decided = decided
        self._begins: Callable[[Any], bool] | None = begins
        if begins is not None and handler.batch is not None:
            self._begins = lambda work: all(map(begins, work))
        self._loop = asyncio.get_running_loop()
        self._is_batch = handler.batch is not None
        self._line: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._async_line = AsyncLine()
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to handle."""
        for number in range(self._handler.concurrency):
            if self._handler.is_async:
                self._tasks.append(self._loop.create_task(self._handle_tasks()))
            else:
                thread = threading.Thread(
                    target=self._handle_in_thread, name=f"{self._name}-{number}", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for a handler."""
        return not self._async_line.pieces if self._handler.is_async else self._line.empty()

    def put(self, messages: Work) -> None:
        """Let handlers have messages, in pieces of a batch."""
        size = self._handler.batch
        if size is None:
            self._put(messages)
        else:
            self._put([messages[start : start + size] for start in range(0, len(messages), size)])

    def _put(self, pieces: Sequence[Piece | None]) -> None:
        if self._handler.is_async:
            self._async_line.put(pieces)
        else:
            for piece in pieces:
                self._line.put(piece)

    # What a handler that returns well costs beside itself is 80 ns; shared by the two loops, as a
    # method, it is 150.

    def _handle_in_thread(self) -> None:
        function, begins = self._handler.function, self._begins
        is_batch, acked = self._is_batch, self._acked
        while (piece := self._line.get()) is not None:
            if begins is not None and not begins(piece):
                continue
            try:
                returned = function(piece)
            except BaseException as raised:  # noqa: BLE001
                self._decide(piece, None, raised)
                continue
            if returned is None and not is_batch and not piece.is_settled:
                piece.is_settled = True  # by far the most
                acked(piece)
            else:
                self._decide(piece, returned, None)

    async def _handle_tasks(self) -> None:
        function, begins, line = self._handler.function, self._begins, self._async_line
        is_batch, acked = self._is_batch, self._acked
        pieces = line.pieces
        while (piece := pieces.popleft() if pieces else await line.get()) is not None:
            if begins is not None and not begins(piece):
                continue
            try:
                returned = await function(piece)
            except asyncio.CancelledError as cancelled:
                self._decide(piece, None, cancelled)
                raise
            except BaseException as raised:  # noqa: BLE001
                self._decide(piece, None, raised)
                continue
            if returned is None and not is_batch and not piece.is_settled:
                piece.is_settled = True  # by far the most
                acked(piece)
            else:
                self._decide(piece, returned, None)

    def _decide(self, piece: Piece, returned: object, error: BaseException | None) -> None:
        """In the handler's thread or task."""
        is_batch = isinstance(piece, list)
        work = piece if isinstance(piece, list) else [piece]
        try:
            decisions = decisions_of(work, returned, error, is_batch=is_batch)
        except (TypeError, ValueError) as wrong:  # a delay that is none
            decisions = decisions_of(work, None, wrong, is_batch=False)
            error = wrong
        if error is not None and any(each.reason and each.kind == "nack" for each in decisions):
            LOG.warning("a handler failed, its message comes again", exc_info=error)
        self._decided(work, decisions)

    # --- ending

    def end(self) -> list[Work]:
        """Let the handlers end after what they have; what they have not begun is given back."""
        found = list(self._taken_back())
        self._put([None] * self._handler.concurrency)
        return found

    def _taken_back(self) -> list[Work]:
        pieces = self._async_line.pieces
        found = [piece for piece in pieces if piece is not None]
        pieces.clear()
        with suppress(queue.Empty):
            while True:
                piece = self._line.get_nowait()
                if piece is not None:
                    found.append(piece)
        return [piece if isinstance(piece, list) else [piece] for piece in found]

    async def ended(self, within_s: float) -> None:
        """Wait for them, at most so long; coroutines are cancelled then."""
        try:
            async with asyncio.timeout(within_s):
                if self._tasks:
                    await asyncio.wait(self._tasks)
                for thread in self._threads:
                    await self._loop.run_in_executor(None, thread.join)
        except TimeoutError:
            LOG.warning("handlers still run after %g s; their messages come again", within_s)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


class Settler:
    """Settles what is decided about leased messages. `add` and `wake` from any thread."""

    def __init__(
        self, group: LeasedGroup, given: Callable[[Sequence[Decision]], None], at_once: int
    ) -> None:
        """`given`: called with decisions that are settled; `at_once`: so many do not wait."""
        self._group = group
        self._given = given
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._decided: deque[Decision] = deque()
        self._is_woken = False
        self._has_decided = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to settle."""
        self._task = self._loop.create_task(self._settle_on())

    def add(self, decisions: Sequence[Decision]) -> None:
        """Something was decided."""
        self._decided.extend(decisions)
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # a handler that outlived its worker
                self._loop.call_soon_threadsafe(self._has_decided.set)

    def ack(self, message: Received[Any]) -> None:
        """One is done."""
        self.add((Decision("ack", message),))

    async def now(self, decision: Decision) -> None:
        """Settle one message at once; raises what the node says against it."""
        try:
            await self._group.settle_now(decision)
        finally:
            self._given([decision])

    async def _settle_on(self) -> None:
        while True:
            await self._has_decided.wait()
            if len(self._decided) < self._at_once:
                await asyncio.sleep(SETTLE_PAUSE_S)
            self._has_decided.clear()
            self._is_woken = False
            if not await self.settle():
                await asyncio.sleep(RETRY_S)
                self._has_decided.set()

    async def settle(self) -> bool:
        """Settle what is decided; whether all of it is."""
        while self._decided:
            count = min(len(self._decided), SETTLE_MAX)
            some = [self._decided.popleft() for _ in range(count)]
            try:
                left = await self._group.settle(some)
            except BaseException:
                self._decided.extendleft(reversed(some))  # an end in between; said again
                raise
            if left:
                self._decided.extendleft(reversed(left))
                kept = set(map(id, left))
                self._given([decision for decision in some if id(decision) not in kept])
                return False
            self._given(some)
        return True

    async def stop(self) -> None:
        """Settle what is left, and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.settle()
