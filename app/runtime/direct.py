"""Running a coroutine at once, without a task, for as long as it waits for nothing but callbacks.

A task costs more than a small request does: it is registered, gets a context, and each of its steps
takes a turn of the event loop. A `DirectRun` takes the first step in its caller's turn. Where the
coroutine waits for a `Resumable`, that calls it back; where it waits for anything else, it goes on
as a task, which is made only then.

It has a context of its own, as a task has: what resumes it is another request's append, or a
connection that another request has made, and these are in contexts of theirs, with namespace and
caller.

Without a task `asyncio.timeout`, `TaskGroup` and some database drivers refuse to work. Who may come
to one of them before any other wait says `await in_task()`. Event loop only.
"""

import asyncio
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final

Run = Coroutine[Any, Any, None]
"""What it yields is asyncio's own affair."""


class _Step:
    """What the event loop of one thread runs now."""

    __slots__ = ("is_direct",)

    def __init__(self) -> None:
        self.is_direct = False


class _Steps(threading.local):
    """Each thread's own. Looking it up takes as long as a small call, so a run does it once."""

    def __init__(self) -> None:
        self.own = _Step()


_steps: Final = _Steps()


class Resumable:
    """What can be waited for without a task, where an `__await__` yields it."""

    __slots__ = ()

    def then(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once, when the wait is over; never before this returns."""
        raise NotImplementedError


def has_task() -> bool:
    """Whether a coroutine that runs now is a task (or was called by one), and waits with futures.

    Not `asyncio.current_task`, which asks the kernel for the process id each time.
    """
    return not _steps.own.is_direct


async def in_task() -> None:
    """Go on as a task. Costs nothing to speak of where there is one."""
    if not has_task():
        await asyncio.sleep(0)


class DirectRun:
    """One coroutine, and how it goes on: in the thread that has made this, and in a context that
    begins empty. `start_task` is given what is left of it, and that context."""

    __slots__ = ("_context", "_coroutine", "_start_task", "_step")

    def __init__(self, coroutine: Run, start_task: Callable[[Run, Context], object]) -> None:
        self._context = Context()
        self._coroutine = coroutine
        self._start_task = start_task
        self._step = _steps.own

    def go_on(self) -> None:
        """Run until the next wait, or to the end. Raises what the coroutine raises."""
        step = self._step
        before, step.is_direct = step.is_direct, True
        try:
            awaited = self._context.run(self._coroutine.send, None)
        except StopIteration:
            return
        finally:
            step.is_direct = before
        if isinstance(awaited, Resumable):
            awaited.then(self.go_on)
        else:
            self._start_task(_rest(self._coroutine, awaited), self._context)


async def _rest(coroutine: Run, awaited: object) -> None:
    await _resumed(coroutine, awaited)


@types.coroutine
def _resumed(coroutine: Run, awaited: object) -> Generator[Any, Any, None]:
    """What is left of `coroutine`, which has come to a wait for `awaited`.

    None stands for a turn of the loop, which the start of the task has taken.
    """
    is_first = awaited is None
    try:
        while True:
            try:
                result = None if is_first else (yield awaited)
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001  # handed on, a cancellation too
                awaited = coroutine.throw(error)
            else:
                awaited = coroutine.send(result)
            is_first = False
    except StopIteration:
        return
