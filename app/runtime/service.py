"""Background work with an owner: one task that runs a turn again and again until stopped; and how
what waits is ended in time.

Not for work that must survive the process; that goes through the log. A turn that raises is logged
and counted, and the next turn comes as usual: a service ends only when it is stopped.

Event loop only. `start` and `stop` may be repeated and come in any order.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

_LOG: Final = logging.getLogger(__name__)

_Returned = TypeVar("_Returned")

STOP_SECONDS: Final = 5.0
"""How long a turn in progress may take to finish when the service stops (shutdown has 10 s)."""

AGAIN_SECONDS: Final = 0.3
"""Between two cancellations of one task."""


async def end(task: "asyncio.Future[Any]") -> None:
    """Cancel a task until it has ended; nothing happens where it has.

    Once may not be enough: a query that is cancelled asks the database to cancel it, and waits up
    to ten seconds for one that says nothing. The second time it lets go of its connection.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN_SECONDS)


async def within(seconds: float, work: Coroutine[Any, Any, _Returned]) -> _Returned:
    """What `work` returns or raises; `TimeoutError` where it has not in time, and was ended.
    Cancelled, it ends `work` as well."""
    task = asyncio.ensure_future(work)
    try:
        _, late = await asyncio.wait({task}, timeout=max(seconds, 0))
    except asyncio.CancelledError:
        await end(task)
        raise
    if late:
        await end(task)
        raise TimeoutError
    return task.result()


class Service:
    """Runs `turn` every `interval_s` seconds, measured from the end of one to the next start."""

    def __init__(self, name: str, interval_s: float, turn: Callable[[], Awaitable[None]]) -> None:
        assert interval_s > 0
        self.name = name
        self.failures = 0
        self.problem: str | None = None
        """Why the last turn failed; None when it did not."""
        self.on_wake: Callable[[float], None] | None = None
        """Told how many seconds after its time the service was woken: the lag of the loop."""
        self._interval_s = interval_s
        self._turn = turn
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Begin; the first turn comes after one interval."""
        if self.running:
            return
        self._stopping = False
        self._wake.clear()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def stop(self, within_s: float = STOP_SECONDS) -> None:
        """Let the turn in progress finish, or cancel it after `within_s`; wait until it is over."""
        task = self._task
        if task is None:
            return
        self._stopping = True
        self._wake.set()
        _, late = await asyncio.wait({task}, timeout=within_s)
        if late:
            _LOG.warning("service %s did not stop within %s s; cancelled", self.name, within_s)
            await end(task)
        if self._task is task:
            self._task = None
        _release(self._waiting)

    def set_interval(self, interval_s: float) -> None:
        """Another time between two turns, from now on; it begins with a turn."""
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self._wake.set()

    def wake(self) -> None:
        """Start a turn without waiting for the interval."""
        self._wake.set()

    async def run_now(self) -> None:
        """Start a turn without waiting for the interval, and wait until it is over.

        For tests, and for whoever cannot wait. Returns at once when the service is not running.
        """
        if not self.running or self._stopping:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wake.set()
        await done

    async def _run(self) -> None:
        while True:
            await self._pause()
            if self._stopping:
                return
            waiting, self._waiting = self._waiting, []
            try:
                await self._turn()
            except Exception as error:  # noqa: BLE001  # one bad turn must not end the service
                self.failures += 1
                # An OSError's own text has the path, which clients need not know; the log has it.
                text = (isinstance(error, OSError) and error.strerror) or error
                problem, before = f"{type(error).__name__}: {text}", self.problem
                self.problem = problem
                if problem != before:  # once: some services have fifty turns a second
                    _LOG.exception("service %s failed; it goes on", self.name)
            else:
                self.problem = None
            finally:
                _release(waiting)

    async def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._interval_s
        timer = loop.call_at(due_s, self._ring, due_s)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()

    def _ring(self, due_s: float) -> None:
        if self.on_wake is not None:
            self.on_wake(asyncio.get_running_loop().time() - due_s)
        self._wake.set()


def _release(waiting: list[asyncio.Future[None]]) -> None:
    """Tell those who wait for a turn that it is over."""
    for done in waiting:
        if not done.done():
            done.set_result(None)
    waiting.clear()
