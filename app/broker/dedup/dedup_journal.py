"""What is remembered of producers and idempotency keys: the table, and its journal in the log.

An entry belongs to messages, or stands by itself; whoever appends it has the table take it in the
same turn. What a seal or a deletion ends is forgotten a slice at a time. Event loop only.
"""

import asyncio
import contextlib

from app.broker.context import Context
from app.broker.dedup.dedup_table import DedupTable
from app.broker.dedup.tokens import read_topic_key, topic_key
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.journal import Journal
from app.broker.journal.warm_journal import WarmJournal
from app.domain.errors import CurlewError, DiskFull, StoreFailed
from app.domain.names import PRODUCER_TOPIC
from app.domain.positions import FlushMode


class DedupJournal:
    """One per broker. `start` before use."""

    def __init__(self, context: Context, warm: WarmJournal[DedupTable] | None = None) -> None:
        """`warm` was kept up while this replica followed."""
        self.table = DedupTable(context.limits) if warm is None else warm.state
        self.journal = Journal(context.store, PRODUCER_TOPIC, self.table, context.readers, warm)
        self._store = context.store
        self._is_forgetting = False

    async def start(self) -> None:
        """Bring back what was known before."""
        await self.journal.replay()
        self.forget_on()
        bounds = self._store.bounds
        is_adopted = self.table.adopt(self._store.generation)
        entry = self.table.repair(lambda topic, queue_id: bounds(topic, queue_id).max_offset)
        if entry is not None and not is_adopted:  # else the snapshot tells of it as well
            self._store.first_steps.append(self.journal.entry(entry))
        for topic in self.table.topics():
            name, generation = read_topic_key(topic)
            if generation and self._store.is_gone(name, generation):
                self._forget(topic)
        if is_adopted:  # before a successor of one of these names can be taken for it
            try:
                await self.journal.write_snapshot()
            except (DiskFull, StoreFailed):
                self.journal.is_demanded = True

    def forget_topic(self, name: str, generation: int) -> None:
        """The topic was deleted. Not waited for: the next start sees it as well."""
        self._forget(topic_key(name, generation))

    def _forget(self, topic: str) -> None:
        entry = self.table.deleted_entry(topic)
        with contextlib.suppress(CurlewError):
            self.append(entry)
        self.table.taken(entry)
        self.forget_on()

    def forget_on(self) -> None:
        """Have what a seal or a deletion has ended forgotten, a slice in each turn."""
        if not self._is_forgetting:
            self._is_forgetting = True
            asyncio.get_running_loop().call_soon(self._forget_some)

    def _forget_some(self) -> None:
        self._is_forgetting = False
        if self.table.forget_some():
            self.forget_on()

    async def write(self, entry: bytes, flush: FlushMode) -> None:
        """Write an entry that belongs to no message, and take it in this turn."""
        confirmation = AppendFuture()

        def done(error: CurlewError | None) -> None:  # never in the turn of the append
            settle(error is None)
            confirmation.done(error)

        self._store.append_step((self.journal.entry(entry),), flush, done)
        settle = self.table.taken(entry)
        await confirmation.wait()

    def append(self, entry: bytes) -> None:
        """Append an entry that belongs to no message. Not synced, and nobody waits for it."""
        self._store.append_step((self.journal.entry(entry),), FlushMode.ASYNC, _ignore)


def _ignore(_error: CurlewError | None) -> None:
    """Nobody waits for it."""
