"""Waiting until the store has confirmed an append, or a flush. Event loop only."""

import asyncio
import contextlib
import types
from collections.abc import Callable, Generator
from typing import Any

from typing_extensions import override

from app.broker.ports import Store
from app.domain.errors import CurlewError, Outcome
from app.runtime.direct import Resumable, has_task
from app.store import Answer


class AppendFuture(Resumable):
    """Lets any number wait for one append. Costs no future when it is confirmed at once, and none
    where there is no task."""

    __slots__ = ("_error", "_is_done", "_waiting")

    def __init__(self) -> None:
        self._is_done = False
        self._error: CurlewError | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    @property
    def error(self) -> CurlewError | None:
        """Why it has failed; None also while that is not known."""
        return self._error and with_outcome(self._error, "unknown")

    @property
    def answer(self) -> Answer | None:
        """Who is to hear that this node has the block, where replicas confirm it later."""
        return None

    @property
    def is_here(self) -> bool:
        """Whether this node has the block, as safe as it asks, and other replicas are waited for.
        Never on a lone node, where both are one moment."""
        return False

    def done(self, error: CurlewError | None) -> None:
        """The store's callback."""
        self._is_done = True
        self._error = error
        for go_on in self._waiting:
            go_on()

    def at_end(self, tell: Callable[[CurlewError | None], None]) -> None:
        """Let one hear what becomes of the block in the end, whoever was answered before."""
        if self._is_done:
            tell(self.error)
        else:
            self._waiting.append(lambda: tell(self.error))

    @override
    def then(self, go_on: Callable[[], None]) -> None:
        self._waiting.append(go_on)

    @types.coroutine
    def wait(self) -> Generator[Any, None, None]:
        """Return when the data is safe; raise what went wrong.

        Made of a generator: a coroutine around one would be one more step of each send.
        """
        if not self._is_done:
            if has_task():
                yield from self._future()
            else:
                yield self
        if self._error is not None:
            raise with_outcome(self._error, "unknown")

    async def is_safe_by(self, deadline_s: float | None) -> bool:
        """Whether the data is safe by then, in seconds of the loop's time; None: however long it
        takes. Raises what went wrong. What ends is the wait; the append goes on. In a task only,
        when there is a deadline."""
        if deadline_s is None:
            await self.wait()
            return True
        if not self._is_done:
            await self._wait_until(deadline_s)
        if self._error is not None:
            raise with_outcome(self._error, "unknown")
        return self._is_done

    async def _wait_until(self, deadline_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                await self._future()

    def _future(self) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()

        def go_on() -> None:
            if not future.done():
                future.set_result(None)

        self._waiting.append(go_on)
        return future


async def flush_store(store: Store) -> None:
    """Return when all that was appended before is on the medium; raise what went wrong."""
    confirmation = AppendFuture()
    store.flush(confirmation.done)
    await confirmation.wait()


def with_outcome(error: CurlewError, outcome: Outcome) -> CurlewError:
    """Say what is known, unless the store has said it already."""
    if error.outcome is None:
        error.outcome = outcome
    return error
