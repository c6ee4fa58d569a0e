"""Waiting until the store has confirmed an append. Event loop only."""

import asyncio

from app.domain.errors import CurlewError, Outcome


class Confirmation:
    """Lets any number wait for one append. Costs no future when it is confirmed at once."""

    __slots__ = ("_error", "_futures", "_is_done")

    def __init__(self) -> None:
        self._is_done = False
        self._error: CurlewError | None = None
        self._futures: list[asyncio.Future[None]] = []

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def done(self, error: CurlewError | None) -> None:
        """The store's callback."""
        self._is_done = True
        self._error = error
        for future in self._futures:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Return when the data is safe; raise what went wrong."""
        if not self._is_done:
            future = asyncio.get_running_loop().create_future()
            self._futures.append(future)
            await future
        if self._error is not None:
            raise with_outcome(self._error, "unknown")


def with_outcome(error: CurlewError, outcome: Outcome) -> CurlewError:
    """Say what is known, unless the store has said it already."""
    if error.outcome is None:
        error.outcome = outcome
    return error
