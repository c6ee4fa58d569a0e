"""`receive`: a block with a loop over messages, blocking and with asyncio.

The context manager is what makes it right: only `__exit__` knows how a loop ended. A generator
cannot tell a `break` after good work from an exception.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from types import TracebackType
from typing import Any, Final, TypeVar

from curlew_client.consuming.calls import (
    LOG,
    RETRY_S,
    SETTLE_MAX,
    WAIT_S,
    GroupCalls,
    LeasedGroup,
    ReceiveOptions,
    is_passing,
)
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.messages import Received
from curlew_client.consuming.taken import TakenMessages
from curlew_client.engine import AsyncEngine
from curlew_client.errors import CurlewError
from curlew_client.loop_thread import LoopThread

T = TypeVar("T")

WITHOUT_WITH: Final = (
    "receive is used in a block, which knows how the loop ended:\n"
    "    with client.receive(topic, group=…) as messages:\n"
    "        for message in messages: …"
)
ACK_PAUSE_S: Final = 0.1
"""How long an ack of the loop waits for others to go with, at most."""
FAILURE_PAUSE_S: Final = 1.0


class _Loop:
    """What both loops do on the event loop."""

    def __init__(
        self, group: LeasedGroup, limit: int | None, idle_s: float | None, by_hand: Any
    ) -> None:
        self.group = group
        self.taken = TakenMessages(limit)
        self._idle_s = idle_s
        self._by_hand = by_hand
        self._flusher: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to extend leases, and to settle what is decided."""
        self.group.start()
        self._flusher = asyncio.get_running_loop().create_task(self._flush_on())

    async def fetch(self) -> bool:
        """Messages, after what is decided is settled; False: there are no more to wait for."""
        await self.flush()
        wanted = self.taken.wanted
        end_s = None if self._idle_s is None else monotonic() + self._idle_s
        wait_s = WAIT_S if self._idle_s is None else min(WAIT_S, self._idle_s)
        while wanted > 0:
            try:
                messages = await self.group.receive(wanted, wait_s, self._by_hand)
            except CurlewError as error:
                if not is_passing(error):
                    raise
                LOG.warning("nothing can be received now: %s", error)
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            if messages:
                self.taken.add(messages)
                return True
            if end_s is not None:
                wait_s = min(WAIT_S, end_s - monotonic())
                if wait_s <= 0:
                    return False
        return False

    async def flush(self) -> bool:
        """Settle what is decided; whether all of it is."""
        decided: list[Decision] = []
        while self.taken.decided and len(decided) < SETTLE_MAX:
            decided.append(self.taken.decided.popleft())
        try:
            left = await self.group.settle(decided)
        except BaseException:
            self.taken.decided.extendleft(reversed(decided))  # an end in between; said again
            raise
        self.taken.decided.extend(left)
        return not left

    async def _flush_on(self) -> None:
        while True:
            await asyncio.sleep(ACK_PAUSE_S)
            if not await self.flush():
                await asyncio.sleep(RETRY_S)

    async def leave(self, error: BaseException | None) -> None:
        """Settle everything, and end."""
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        self.taken.add(await self.group.recovered(self._by_hand))
        self.taken.leave(error)
        try:
            await self.flush()
        finally:
            await self.group.stop()

    async def settle_by_hand(self, decision: Decision) -> None:
        """Settle one message now."""
        await self.group.settle_now(decision)


class BatchAsked:
    """One receive without a block: nobody extends its leases."""

    def __init__(self, group: LeasedGroup, max_messages: int, wait_s: float) -> None:
        self._group = group
        self._max_messages = max_messages
        self._wait_s = wait_s

    async def receive(self, settle: Callable[[Decision], Any]) -> list[Received[Any]]:
        """The messages."""
        return await self._group.calls.receive(self._max_messages, self._wait_s, settle)

    async def settle(self, decision: Decision) -> None:
        """Settle one of them now."""
        await self._group.settle_now(decision)


def batch_asked(
    engine: AsyncEngine, options: ReceiveOptions, max_messages: int, wait_s: float
) -> BatchAsked:
    """One receive."""
    group = LeasedGroup(GroupCalls(engine.session, engine.sender, options))
    return BatchAsked(group, max_messages, wait_s)


class MessageLoop:
    """What `Client.receive` gives: use it with `with`."""

    def __init__(
        self,
        running: Callable[[], tuple[AsyncEngine, LoopThread]],
        options: ReceiveOptions,
        limit: int | None,
        idle_s: float | None,
    ) -> None:
        self._running = running
        self._options = options
        self._limit = limit
        self._idle_s = idle_s
        self._loop: _Loop | None = None
        self._thread: LoopThread | None = None

    def __iter__(self) -> "_Messages":
        raise TypeError(WITHOUT_WITH)

    def __enter__(self) -> "_Messages":
        engine, thread = self._running()
        self._thread = thread

        async def begun() -> _Loop:
            group = LeasedGroup(GroupCalls(engine.session, engine.sender, self._options))
            loop = _Loop(group, self._limit, self._idle_s, by_hand)
            loop.start()
            return loop

        def by_hand(decision: Decision) -> None:
            loop = self._loop
            assert loop is not None
            thread.run(loop.settle_by_hand(decision))

        self._loop = thread.run(begun())
        return _Messages(self._loop, thread)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._thread.run(self._loop.leave(error))


class _Messages:
    """The loop itself; one thread at a time."""

    def __init__(self, loop: _Loop, thread: LoopThread) -> None:
        self._loop = loop
        self._thread = thread

    def __iter__(self) -> "_Messages":
        return self

    def __next__(self) -> Received[None]:
        while True:
            message = self._loop.taken.step()
            if message is not None:
                return message
            if not self._thread.run(self._loop.fetch()):
                raise StopIteration


class AsyncMessageLoop:
    """What `AsyncClient.receive` gives: use it with `async with`."""

    def __init__(
        self,
        running: Callable[[], AsyncEngine],
        options: ReceiveOptions,
        limit: int | None,
        idle_s: float | None,
    ) -> None:
        self._running = running
        self._options = options
        self._limit = limit
        self._idle_s = idle_s
        self._loop: _Loop | None = None

    def __aiter__(self) -> "_AsyncMessages":
        raise TypeError(WITHOUT_WITH.replace("with", "async with").replace("for", "async for"))

    async def __aenter__(self) -> "_AsyncMessages":
        engine = self._running()
        group = LeasedGroup(GroupCalls(engine.session, engine.sender, self._options))

        def by_hand(decision: Decision) -> Coroutine[Any, Any, None]:
            return group.settle_now(decision)

        self._loop = _Loop(group, self._limit, self._idle_s, by_hand)
        self._loop.start()
        return _AsyncMessages(self._loop)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        await self._loop.leave(error)


class _AsyncMessages:
    """The loop itself; one task at a time."""

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop

    def __aiter__(self) -> "_AsyncMessages":
        return self

    async def __anext__(self) -> Received[Awaitable[None]]:
        while True:
            message = self._loop.taken.step()
            if message is not None:
                return message
            if not await self._loop.fetch():
                raise StopAsyncIteration
