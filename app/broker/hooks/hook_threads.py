"""Threads of one hook. A call that takes too long loses its thread until it returns.

Daemon threads, unlike those of an executor: a hook that never returns keeps no node from stopping.
At most `most` calls run at a time; when all are lost, further ones are not begun. Event loop only,
but for what the threads do.
"""

import asyncio
import contextlib
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

_Result = TypeVar("_Result")
_Work = Callable[[], None]


class NoThread(Exception):
    """All threads of the hook are in calls."""


class HookThreads:
    """One per hook."""

    def __init__(self, name: str, most: int) -> None:
        self._name = f"hook {name}"
        self._most = most
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread_count = 0
        self.running = 0
        """Calls that have begun and not returned."""
        self._waiting: list[asyncio.Future[None]] = []

    async def call(self, function: Callable[[], _Result], budget_s: float) -> _Result:
        """What `function` returns or raises; `TimeoutError` when that takes longer, while it goes
        on on its thread; `NoThread` when it was not begun."""
        if self.running >= self._most:
            raise NoThread
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Result] = loop.create_future()
        self.running += 1
        if self.running > self._thread_count:
            self._thread_count += 1
            Thread(target=_work_on, args=(self._work,), name=self._name, daemon=True).start()
        self._work.put(lambda: _answer(loop, answer, function, self._returned))
        async with asyncio.timeout(budget_s):
            return await answer

    def _returned(self) -> None:
        self.running -= 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def until_idle(self) -> None:
        """Wait until no call is under way."""
        while self.running:
            returned = asyncio.get_running_loop().create_future()
            self._waiting.append(returned)
            await returned

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._thread_count):
            self._work.put(None)


def _work_on(work: "SimpleQueue[_Work | None]") -> None:
    while (each := work.get()) is not None:
        each()


def _answer(
    loop: asyncio.AbstractEventLoop,
    answer: "asyncio.Future[_Result]",
    function: Callable[[], _Result],
    returned: Callable[[], None],
) -> None:
    """On a thread. Whatever a hook raises is an answer, SystemExit too."""
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - it is other people's code
        _tell(loop, answer, None, error, returned)
    else:
        _tell(loop, answer, result, None, returned)


def _tell(
    loop: asyncio.AbstractEventLoop,
    answer: "asyncio.Future[_Result]",
    result: _Result | None,
    error: BaseException | None,
    returned: Callable[[], None],
) -> None:
    def tell() -> None:
        returned()
        if answer.done():  # too late
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(HookRaised(error))

    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(tell)


class HookRaised(Exception):
    """The hook raised this; kept apart, as it may be no `Exception`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
