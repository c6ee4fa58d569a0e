"""An event loop's turns without an event loop: a test runs them when it likes."""

import threading
from collections import deque
from collections.abc import Callable

WAIT_SECONDS = 10.0


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

    def run(self) -> None:
        """Run what is due, and what that makes due."""
        while self._callbacks:
            self._callbacks.popleft()()

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run turns, waiting for other threads, until `condition` holds."""
        self.run()
        while not condition():
            with self._arrived:
                assert self._arrived.wait_for(lambda: self._callbacks, WAIT_SECONDS), "nothing came"
            self.run()
