"""Waiting for sends where replicas confirm what is written. A lone node has nothing of this.

A send is answered when its block is confirmed; one to a topic with async replication when this node
has the block. Who is to be answered at the confirmation waits for the replicas for a bounded time,
counted from when this node has the block. That time ends the wait and never the block, which may be
confirmed later: so what hangs on a block (numbers of producers, keys) hangs on `done` alone.

All bounds are the same and start in the order of the log, so one deque has them in their order, and
one timer is enough. Event loop only.
"""

import asyncio
import logging
import types
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Protocol

from typing_extensions import override

from app.broker.context import Context
from app.broker.figures.lost_answers import LostAnswers
from app.broker.journal.append_future import AppendFuture, with_outcome
from app.broker.ports import Topic
from app.domain.errors import CurlewError, ReplicationTimeout
from app.domain.positions import ReplicationMode
from app.runtime.direct import has_task
from app.store import Answer

_LOG: Final = logging.getLogger(__name__)

TOLD_A_TURN: Final = 500
"""Senders whose time is over that one turn of the event loop tells; each makes an answer then."""


class Timers(Protocol):
    """The part of an event loop that this needs."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> object: ...


class SendFuture(AppendFuture):
    """What one send waits for. `is_done`: its sender can be answered."""

    __slots__ = (
        *("_at_end", "_count", "_end_error", "_has_ended", "_is_early", "_is_here", "_is_late"),
        *("_sends", "until_s"),
    )

    def __init__(self, sends: "Sends", count: int, *, is_early: bool) -> None:
        super().__init__()
        self._sends = sends
        self._count = count
        self._is_early = is_early
        self._is_here = False
        self._is_late = False
        self._has_ended = False
        self._end_error: CurlewError | None = None
        self._at_end: Callable[[CurlewError | None], None] | None = None
        self.until_s = 0.0
        """When its sender waits for replicas no longer, in the loop's time; from `here` on."""

    @property
    @override
    def answer(self) -> Answer:
        return self

    @property
    def is_early(self) -> bool:
        """Whether it is answered when this node has the block."""
        return self._is_early

    @property
    @override
    def is_here(self) -> bool:
        return self._is_here

    def here(self) -> None:
        """The gate's call: this node has the block."""
        self._is_here = True
        if self._is_early:
            super().done(None)
        else:
            self._sends.watch(self)

    @override
    def done(self, error: CurlewError | None) -> None:
        self._has_ended = True
        self._end_error = error and with_outcome(error, "unknown")
        if not self._is_done:
            super().done(error)
        elif error is not None:
            self._sends.lost.messages += self._count
        self._sends.sweep()
        if self._at_end is not None:
            self._at_end(self._end_error)

    @override
    def at_end(self, tell: Callable[[CurlewError | None], None]) -> None:
        if self._has_ended:
            tell(self._end_error)
        else:
            self._at_end = tell

    def wait_no_longer(self) -> None:
        """The time is over in which replicas were to confirm it."""
        self._is_late = True
        waiting, self._waiting = self._waiting, []  # none is called again when the block ends
        for go_on in waiting:
            go_on()

    @override
    @types.coroutine
    def wait(self) -> Generator[Any, None, None]:
        if not (self._is_done or self._is_late):
            yield from self._told()
        if self._error is not None:
            raise with_outcome(self._error, "unknown")
        if not self._is_done:
            raise ReplicationTimeout(
                "written, and not confirmed by the other replicas in time", outcome="unknown"
            )

    @override
    async def is_safe_by(self, deadline_s: float | None) -> bool:
        if not (self._is_done or self._is_late):
            if deadline_s is not None:
                await self._wait_until(deadline_s)
            else:
                await self._told()
        if self._error is not None:
            raise with_outcome(self._error, "unknown")
        return self._is_done

    @types.coroutine
    def _told(self) -> Generator[Any, None, None]:
        """Return when its sender can be answered, or waits no longer."""
        if has_task():
            yield from self._future()
        else:
            yield self


class Sends:
    """The sends that wait for replicas. One per broker whose store has a gate."""

    def __init__(
        self,
        wait_ms: int,
        lost: LostAnswers,
        timers: Callable[[], Timers] = asyncio.get_running_loop,
    ) -> None:
        """Senders wait for replicas for `wait_ms` at most."""
        self.lost = lost
        self._wait_s = wait_ms / 1_000
        self._timers = timers
        self._watched: deque[SendFuture] = deque()
        self._is_timer_set = False

    def begin(self, count: int, topic: Topic | None = None) -> SendFuture:
        """For a send of so many messages to `topic`; None: whatever the topic says, it is answered
        when it is confirmed."""
        is_early = topic is not None and topic.replication is ReplicationMode.ASYNC
        return SendFuture(self, count, is_early=is_early)

    def watch(self, future: SendFuture) -> None:
        """Begin its time."""
        future.until_s = until_s = self._timers().time() + self._wait_s
        self._watched.append(future)
        if not self._is_timer_set:
            self._set_timer(until_s)

    def sweep(self) -> None:
        """Let go of those that have ended. Blocks end in the order in which they are watched."""
        watched = self._watched
        while watched and watched[0].is_done:
            watched.popleft()

    def _set_timer(self, when_s: float) -> None:
        self._is_timer_set = True
        self._timers().call_at(when_s, self._look)

    def _look(self) -> None:
        """The timer's turn: tell those whose time is over."""
        self._is_timer_set = False
        watched = self._watched
        now_s = self._timers().time()
        for _ in range(TOLD_A_TURN):
            if not watched or watched[0].until_s > now_s:
                break
            _tell(watched.popleft())
        if watched:
            self._set_timer(watched[0].until_s)


def sends_of(context: Context) -> Sends | None:
    """None on a lone node, where what is written is confirmed at once."""
    if not context.store.has_gate:
        return None
    return Sends(context.limits.replication_wait_ms, context.lost)


def begun(sends: Sends | None, count: int, topic: Topic | None = None) -> AppendFuture:
    """What a send waits for; without a gate its block alone. As `Sends.begin`."""
    return AppendFuture() if sends is None else sends.begin(count, topic)


def _tell(future: SendFuture) -> None:
    """One whose answer fails keeps nobody else from his."""
    try:
        future.wait_no_longer()
    except Exception:  # noqa: BLE001
        _LOG.exception("telling that replicas took too long failed; the others are told")
