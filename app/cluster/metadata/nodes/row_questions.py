"""Asks for the row of a shard on behalf of a replica: one question at a time, each with an answer.

The replica asks on its own thread and goes on; the answer is an event that it is given later. What
is not known in time is `DatabaseAway`, of a change also where it may have been carried out. Of
equal questions that wait one is asked: a leader repeats its own while the database is silent.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from app.cluster.metadata.nodes.shard_rows import ChangedRow, SeenRow
from app.cluster.replication.events import DatabaseAway, RowChanged, RowSeen
from app.cluster.replication.shard_row import HandOver, RowChange
from app.domain.errors import MetadataUnavailable
from app.runtime.service import end

_LOG: Final = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 2.0
"""For one question. A replica's lease is 5 s."""


CLOSING_SECONDS: Final = 1.0
"""For a hand-over that is not carried out yet when the replica has stopped."""


class Rows(Protocol):
    """The row in SQL: `ShardRows`."""

    async def read(self) -> SeenRow | None:
        """None: there is no such shard."""
        ...

    async def change(self, change: RowChange) -> ChangedRow | None:
        """None: there is no such shard."""
        ...


class _Question(NamedTuple):
    change: RowChange | None
    """None: what the row is."""
    asked_ms: int


class RowQuestions:
    """`read_row` and `change_row` may be called on any thread, the rest is for the event loop."""

    def __init__(
        self,
        rows: Rows,
        tell: Callable[[RowSeen | RowChanged | DatabaseAway], object],
        now_ms: Callable[[], int],
    ) -> None:
        """`tell` is given each answer on the event loop; `now_ms` is the replica's clock."""
        self._rows, self._tell, self._now_ms = rows, tell, now_ms
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Question] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._under_way: RowChange | None = None
        self._is_closed = False

    def read_row(self) -> None:
        """`RowSeen` or `DatabaseAway` follows: one for all that are asked while one waits."""
        self._loop.call_soon_threadsafe(self._take, _Question(None, self._now_ms()))

    def change_row(self, change: RowChange) -> None:
        """`RowChanged` or `DatabaseAway` follows: of equal ones that wait, for the last."""
        self._loop.call_soon_threadsafe(self._take, _Question(change, self._now_ms()))

    async def close(self) -> None:
        """Ask nothing more, but that the shard is handed over, if that is asked or waits. What is
        not carried out within a while, or where this is cancelled, may be, or not."""
        self._is_closed = True
        last = [each for each in self._waiting if isinstance(each.change, HandOver)]
        self._waiting.clear()
        self._waiting.extend(last)
        try:
            if self._asking is not None and (last or isinstance(self._under_way, HandOver)):
                await asyncio.wait({self._asking}, timeout=CLOSING_SECONDS)
        finally:
            self._waiting.clear()
            if self._asking is not None:
                await end(self._asking)

    def _take(self, question: _Question) -> None:
        if self._is_closed:
            return
        for place, waiting in enumerate(self._waiting):
            if waiting.change == question.change:
                self._waiting[place] = question  # it is asked behind both, so the later time holds
                return
        self._waiting.append(question)
        if self._asking is None:
            self._asking = self._loop.create_task(self._ask_all(), name="row of the shard")

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                question = self._waiting.popleft()
                self._under_way = question.change
                self._tell(await self._answer(question))
        finally:
            self._asking = self._under_way = None

    async def _answer(self, question: _Question) -> RowSeen | RowChanged | DatabaseAway:
        change, asked_ms = question
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if change is None:
                    seen = await self._rows.read()
                    if seen is not None:
                        return RowSeen(seen.row, seen.lease_left_ms, asked_ms)
                else:
                    changed = await self._rows.change(change)
                    if changed is not None:
                        return RowChanged(change, changed.seen.row, changed.is_done, asked_ms)
            _LOG.error("the shard has no row in the metadata database")
        except MetadataUnavailable as error:
            _LOG.warning("the row of the shard is not known: %s", error.for_log)
        except TimeoutError:
            _LOG.warning("the row of the shard is not known: no answer in %g s", ANSWER_SECONDS)
        except Exception:  # noqa: BLE001 - the replica waits for an answer
            _LOG.exception("the row of the shard is not understood")
        return DatabaseAway(change)
