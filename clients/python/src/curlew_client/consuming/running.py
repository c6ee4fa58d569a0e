"""One consumer of a worker at work, on an event loop: fetch, hand to handlers, settle.

Handlers are threads, or tasks when they are coroutine functions. They take messages from one line
and give decisions back; the settler says what has come together to the node in one request.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from curlew_client.consuming.calls import (
    LOG,
    RETRY_S,
    SETTLE_MAX,
    WAIT_S,
    LeasedGroup,
    is_passing,
)
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.flow import Flow
from curlew_client.consuming.handlers import decisions_of
from curlew_client.consuming.messages import Received
from curlew_client.errors import CurlewError

Work = list[Received[Any]]

FAILURE_PAUSE_S: Final = 1.0
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


class RunningConsumer:
    """Start it, `drain` it, once each."""

    def __init__(self, group: LeasedGroup, handler: Handler) -> None:
        self._group = group
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._flow = Flow(
            handlers=handler.concurrency * (handler.batch or 1),
            messages_max=handler.messages_max,
            bytes_max=handler.bytes_max,
            span_max=handler.span_max,
        )
        self._line: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._async_line: asyncio.Queue[Work | None] = asyncio.Queue()
        self._decided: deque[Decision] = deque()
        self._is_woken = False
        self._has_decided = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_draining = False
        self._fetcher: asyncio.Task[None] | None = None
        self._settler: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: list[threading.Thread] = []
        self.failure: asyncio.Future[None] = self._loop.create_future()
        """Done with an error that ends the worker, such as a wrong key."""

    def start(self) -> None:
        """Begin to fetch and to handle."""
        self._group.start()
        name = f"curlew-{self._group.calls.options.group}"
        for number in range(self._handler.concurrency):
            if self._handler.is_async:
                self._tasks.append(self._loop.create_task(self._handle_tasks()))
            else:
                thread = threading.Thread(
                    target=self._handle_in_thread, name=f"{name}-{number}", daemon=True
                )
                thread.start()
                self._threads.append(thread)
        self._settler = self._loop.create_task(self._settle_on())
        self._fetcher = self._loop.create_task(self._fetch_on())
        self._fetcher.add_done_callback(self._fetching_ended)

    def _fetching_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.failure.done():
            return
        error = task.exception()
        if error is not None:
            self.failure.set_exception(error)

    # --- fetching

    async def _fetch_on(self) -> None:
        while not self._is_draining:
            count, size = self._flow.room()
            if count == 0:
                self._has_room.clear()
                if self._flow.room()[0] == 0:
                    await self._has_room.wait()
                continue
            try:
                messages = await self._group.receive(count, WAIT_S, self._by_hand, size)
            except CurlewError as error:
                if not is_passing(error):
                    raise
                LOG.warning("nothing can be received now: %s", error)
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            if self._is_idle() and len(messages) >= count:
                self._flow.starved()
            self._hand_out(messages)

    def _is_idle(self) -> bool:
        return self._async_line.empty() if self._handler.is_async else self._line.empty()

    def _hand_out(self, messages: Work) -> None:
        for message in messages:
            self._flow.take(message)
        size = self._handler.batch or 1
        for start in range(0, len(messages), size):
            self._put(messages[start : start + size])

    def _put(self, work: Work | None) -> None:
        if self._handler.is_async:
            self._async_line.put_nowait(work)
        else:
            self._line.put(work)

    # --- handling

    def _handle_in_thread(self) -> None:
        function, is_batch = self._handler.function, self._handler.batch is not None
        while (work := self._line.get()) is not None:
            error: BaseException | None = None
            returned: object = None
            try:
                returned = function(work if is_batch else work[0])
            except BaseException as raised:  # noqa: BLE001
                error = raised
            self._decide(work, returned, error)

    async def _handle_tasks(self) -> None:
        function, is_batch = self._handler.function, self._handler.batch is not None
        while (work := await self._async_line.get()) is not None:
            error: BaseException | None = None
            returned: object = None
            try:
                returned = await function(work if is_batch else work[0])
            except asyncio.CancelledError as cancelled:
                self._decide(work, None, cancelled)
                raise
            except BaseException as raised:  # noqa: BLE001
                error = raised
            self._decide(work, returned, error)

    def _decide(self, work: Work, returned: object, error: BaseException | None) -> None:
        """In the handler's thread or task."""
        try:
            decisions = decisions_of(
                work, returned, error, is_batch=self._handler.batch is not None
            )
        except (TypeError, ValueError) as wrong:  # a delay that is none
            decisions = decisions_of(work, None, wrong, is_batch=False)
            error = wrong
        if error is not None and any(each.reason and each.kind == "nack" for each in decisions):
            LOG.warning("a handler failed, its message comes again", exc_info=error)
        self._decided.extend(decisions)
        by_hand = len(work) - len(decisions)
        if not self._is_woken and (decisions or by_hand):
            self._is_woken = True
            with suppress(RuntimeError):  # a handler that outlived its worker
                self._loop.call_soon_threadsafe(self._has_decided.set)

    def _by_hand(self, decision: Decision) -> Any:
        """A handler settles a message itself: in its thread, or awaited."""
        settled = self._settle_one(decision)
        if self._handler.is_async:
            return settled
        return asyncio.run_coroutine_threadsafe(settled, self._loop).result()

    async def _settle_one(self, decision: Decision) -> None:
        try:
            await self._group.settle_now(decision)
        finally:
            self._give(decision)

    # --- settling

    async def _settle_on(self) -> None:
        while True:
            await self._has_decided.wait()
            if len(self._decided) < self._handler.concurrency:
                await asyncio.sleep(SETTLE_PAUSE_S)
            self._has_decided.clear()
            self._is_woken = False
            if not await self._settle():
                await asyncio.sleep(RETRY_S)
                self._has_decided.set()

    async def _settle(self) -> bool:
        while self._decided:
            some: list[Decision] = []
            while self._decided and len(some) < SETTLE_MAX:
                some.append(self._decided.popleft())
            try:
                left = await self._group.settle(some)
            except BaseException:
                self._decided.extendleft(reversed(some))  # an end in between; said again
                raise
            self._decided.extendleft(reversed(left))
            kept = set(map(id, left))
            for decision in some:
                if id(decision) not in kept:
                    self._give(decision)
            if left:
                return False
        return True

    def _give(self, decision: Decision) -> None:
        self._flow.give(decision.message)
        self._has_room.set()

    # --- ending

    async def drain(self, within_s: float) -> None:
        """Fetch nothing more, release what has not begun, wait for handlers, settle all."""
        self._is_draining = True
        if self._fetcher is not None:
            self._fetcher.cancel()
            await asyncio.gather(self._fetcher, return_exceptions=True)
        for message in await self._group.recovered(self._by_hand):
            self._flow.take(message)
            message.is_settled = True
            self._decided.append(Decision("release", message))
        for work in self._take_back():
            for message in work:
                message.is_settled = True
                self._decided.append(Decision("release", message))
        self._has_decided.set()  # others get what is released while handlers still work
        for _ in range(self._handler.concurrency):
            self._put(None)
        try:
            async with asyncio.timeout(within_s):
                await self._handlers_ended()
        except TimeoutError:
            LOG.warning("handlers still run after %g s; their messages come again", within_s)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._settler is not None:
            self._settler.cancel()
            await asyncio.gather(self._settler, return_exceptions=True)
        await self._settle()
        await self._group.stop()

    def _take_back(self) -> list[Work]:
        found: list[Work] = []
        try:
            while True:
                work = (
                    self._async_line.get_nowait()
                    if self._handler.is_async
                    else self._line.get_nowait()
                )
                if work is not None:
                    found.append(work)
        except (queue.Empty, asyncio.QueueEmpty):
            return found

    async def _handlers_ended(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        for thread in self._threads:
            await self._loop.run_in_executor(None, thread.join)
