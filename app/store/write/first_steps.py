"""Entries of the start that must be in the log before the first new message.

At its start the broker may find that its state names messages which the log has lost (committed
offsets beyond the end of a queue, results of producers). The entry that corrects the state must
stand in the log before the next message. On a full disk the node starts all the same: the entry
waits, and every append writes it first or is refused with it. A crash before that loses nothing,
since nothing was appended. Event loop only.
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Protocol

from app.domain.errors import (
    CurlewError,
    DiskFull,
    NotEnoughReplicas,
    StoreFailed,
    SystemBusy,
    TooManyRequests,
)
from app.domain.positions import FlushMode
from app.store.write.appender import Appended, StepPart
from app.store.write.blocks import Done


class Appending(Protocol):
    """What is needed of whoever appends."""

    before_next: Callable[[], None] | None

    def append_step(
        self, parts: Sequence[StepPart], flush: FlushMode, done: Done
    ) -> list[Appended]: ...


class FirstSteps:
    """Those of one store."""

    def __init__(self, appender: Appending) -> None:
        self._appender = appender
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, StepPart]] = []
        """A heap: one that is refused late still comes before those behind it."""

    def append(self, part: StepPart) -> None:
        """Append the part now, or when there is room, before anything else that comes after this.
        A store that takes no writes any more never does."""
        self._wait(next(self._numbers), part)
        with contextlib.suppress(
            DiskFull, SystemBusy, TooManyRequests, NotEnoughReplicas, StoreFailed
        ):
            self._write()

    def _write(self) -> None:
        """Before the next append. Raises what that raises; then it is refused, too."""
        self._appender.before_next = None
        try:
            while self._waiting:
                number, part = self._waiting[0]
                done = partial(self._done, number, part)
                self._appender.append_step((part,), FlushMode.ASYNC, done)
                heappop(self._waiting)
        finally:
            if self._waiting:
                self._appender.before_next = self._write

    def _done(self, number: int, part: StepPart, error: CurlewError | None) -> None:
        """Whatever was appended behind a part that is refused is refused with it."""
        if error is not None:
            self._wait(number, part)

    def _wait(self, number: int, part: StepPart) -> None:
        heappush(self._waiting, (number, part))
        self._appender.before_next = self._write
