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

from app.domain.limits import HOOK_REASON_CHARS_MAX

_Result = TypeVar("_Result")
_Work = Callable[[], None]


class NoThread(Exception):
    """Nothing was begun; the text says why."""


class HookThreads:
    """Of the checks of a hook, or of one of its points that are told."""

    def __init__(self, name: str, most: int) -> None:
        self._name = f"hook {name}"
        self._most = most
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread_count = 0
        self.running = 0
        """Calls that have begun and not returned."""
        self._is_closed = False
        self._waiting: list[asyncio.Future[None]] = []

    async def call(self, function: Callable[[], _Result], budget_s: float) -> _Result:
        """What `function` returns or raises; `TimeoutError` when that takes longer, while it goes
        on on its thread; `NoThread` when it was not begun."""
        if self._is_closed:
            raise NoThread("the node stops")
        if self.running >= self._most:
            all_of_them = (
                "its only thread is" if self._most == 1 else f"all its {self._most} threads are"
            )
            raise NoThread(f"{all_of_them} in calls")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Result] = loop.create_future()
        if self.running == self._thread_count:
            self._start_thread()
        self.running += 1
        self._work.put(lambda: _answer(loop, answer, function, self._returned))
        async with asyncio.timeout(budget_s):
            return await answer

    def _start_thread(self) -> None:
        try:
            Thread(target=_work_on, args=(self._work,), name=self._name, daemon=True).start()
        except RuntimeError as error:  # the machine has no room for another
            raise NoThread(f"no thread can be started: {error}") from error
        self._thread_count += 1

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
        """Let idle threads end. Nothing is begun any more."""
        self._is_closed = True
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
        _tell(loop, answer, None, HookRaised(type(error).__name__, _said_by(error)), returned)
    else:
        _tell(loop, answer, result, None, returned)


def _tell(
    loop: asyncio.AbstractEventLoop,
    answer: "asyncio.Future[_Result]",
    result: _Result | None,
    error: "HookRaised | None",
    returned: Callable[[], None],
) -> None:
    def tell() -> None:
        returned()
        if answer.done():  # too late
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(tell)


class HookRaised(Exception):
    """The hook raised something, which is kept apart, as it may be no `Exception`."""

    def __init__(self, kind: str, said: str) -> None:
        super().__init__(f"{kind}: {said}")
        self.kind = kind
        """The name of its class."""


def _said_by(error: BaseException) -> str:
    """What an error says. On a thread: that, too, is other people's code, which may take long, or
    raise."""
    try:
        return one_line(str(error))
    except BaseException:  # noqa: BLE001
        return "it cannot say what"


def one_line(text: str) -> str:
    """The first `HOOK_REASON_CHARS_MAX` characters as one line that can be written anywhere."""
    plain = str.__getitem__(text, slice(HOOK_REASON_CHARS_MAX))  # of a subclass, too
    known = plain.encode("utf-8", "backslashreplace").decode()
    shown = "".join(each if each.isprintable() else " " for each in known)
    return shown[:HOOK_REASON_CHARS_MAX]  # escapes are longer
