"""What the writer runs on: turns of an event loop, and a worker away from it, which is a thread."""

import threading
from collections.abc import Callable
from typing import Final, Protocol

from typing_extensions import override

THREAD_NAME: Final = "curlew-writer"


class Turns(Protocol):
    """What the writer needs of an event loop; an asyncio loop has it."""

    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object: ...


class Worker(Protocol):
    """Does the writer's work away from the event loop."""

    def wake(self) -> None:
        """There may be work."""
        ...

    def stop(self) -> None:
        """Finish the work there is, then end. Blocks."""
        ...


Workers = Callable[[Callable[[], bool]], Worker]
"""Makes a worker. It calls what it is given until that says that there was nothing to do."""


class WriterThread(Worker):
    """A thread that works when it is woken."""

    def __init__(self, work: Callable[[], bool]) -> None:
        self._work = work
        self._state = threading.Condition()
        self._awake = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @override
    def wake(self) -> None:
        with self._state:
            self._awake = True
            self._state.notify()

    @override
    def stop(self) -> None:
        with self._state:
            self._stopping = True
            self._state.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._state:
                while not self._awake and not self._stopping:
                    self._state.wait()
                self._awake = False
                stopping = self._stopping
            while self._work():
                pass
            if stopping:
                return
