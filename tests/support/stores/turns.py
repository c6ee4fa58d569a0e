"""An event loop's turns without an event loop: a test runs them when it likes."""

import threading
from collections import deque
from collections.abc import Callable

from typing_extensions import override

from app.store.write.worker import Worker, Workers

WAIT_SECONDS = 60.0


class ManualTurns:
    """Implements `app.store.Turns`. `run` plays the loop's thread."""

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], object]] = deque()
        self._arrived = threading.Condition()

    def call_soon(self, callback: Callable[[], object], /) -> None:
        with self._arrived:
            self._callbacks.append(callback)
            self._arrived.notify()

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> None:
        self.call_soon(callback)

    def run_one(self) -> bool:
        """Run the callback that is due next; whether there was one."""
        if self._callbacks:
            self._callbacks.popleft()()
            return True
        return False

    def run(self) -> None:
        """Run what is due, and what that makes due."""
        while self.run_one():
            pass

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run turns, waiting for other threads, until `condition` holds."""
        self.run()
        while not condition():
            with self._arrived:
                assert self._arrived.wait_for(lambda: self._callbacks, WAIT_SECONDS), "nothing came"
            self.run()


class InlineWorker(Worker):
    """A writer without a thread: it works some turns later, so that everything can be replayed."""

    def __init__(self, turns: ManualTurns, work: Callable[[], bool]) -> None:
        self._turns = turns
        self._work = work

    @override
    def wake(self) -> None:
        self._turns.call_soon(lambda: self._turns.call_soon(self._work))

    @override
    def stop(self) -> None:
        while self._work():
            pass


def inline(turns: ManualTurns) -> Workers:
    """Workers that work in the turns of `turns`."""
    return lambda work: InlineWorker(turns, work)
