"""The event loop of a blocking client: one daemon thread, which all its calls share."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads that wait for them."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run it on the loop, and wait for its result; an interrupt cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a callback runs in the thread of the client, which cannot wait for itself; hand "
                "the work over to another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The same for a function."""

        async def called() -> T:
            return function()

        return self.run(called())

    def stop(self) -> None:
        """End the loop; cancels what still runs on it."""
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            return
        self.run(_cancel_others())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
