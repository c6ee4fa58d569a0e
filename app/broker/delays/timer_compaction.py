"""Upkeep of the timer topic: writing the timer log down, trimming, and rolling what waits long.

What is delivered in order leaves the front of the topic, and the front is trimmed. A message that
waits for weeks would hold all the log behind it; so it is rolled, that is stored again at the end
of the log, when it has been in its place for two days, as in RocketMQ, or earlier when the disk
fills and what waits is small beside the log that it holds. Until then it is pinned: retention never
takes it.

Event loop only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final

from app.broker.delays.timer_index import TimerIndex
from app.broker.delays.timer_records import QUEUE, counted_as, due_of, moved_part
from app.broker.journal.append_future import flush_store
from app.broker.journal.cold_reads import ColdReads
from app.broker.ports import Store
from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.domain.limits import MIB
from app.domain.message import StoredMessage
from app.domain.names import TIMER_TOPIC
from app.store import ReadResult, StepPart, Timer, TimerLogDamaged

_LOG: Final = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 60.0
"""How long changes stay in memory only: what a start after a crash reads again at most."""

RETRY_SECONDS: Final = 5.0
"""Pause after a flush that failed."""

LOG_BYTES_MAX: Final = 256 * MIB
"""Log behind the last flush after which the next one is due, so that old segments can go."""

LOOK_SECONDS: Final = 10.0
"""How often the oldest waiting message is looked at."""

ROLL_AFTER_MS: Final = 2 * 86_400_000
"""RocketMQ's timerRollWindowSlot: two days."""

ROLL_BYTES: Final = 2 * MIB
"""Bytes that one step rolls, unless a single message is larger."""

HELD_BYTES_MIN: Final = 512 * MIB
"""With a filling disk: log held by what waits from which on rolling is worth it."""

ROLL_RECORDS: Final = 256
"""Records that one step looks at."""

LOOK_RECORDS: Final = 512
"""Records that one look passes over on its way to the oldest waiting one."""

End = Callable[[Mapping[Timer, str], Sequence[StepPart]], Awaitable[None]]


class TimerCompaction:
    """Keeps the timer topic short. One per broker."""

    def __init__(
        self, store: Store, clock: Clock, timers: TimerIndex, end: End, readers: Executor
    ) -> None:
        self.disk_is_low = False
        """Set by whoever watches the disk."""
        self.pinned: int | None = None
        """Physical offset from which on the log is needed; read by the retention thread."""
        self._store = store
        self._clock = clock
        self._timers = timers
        self._end = end
        self._readers = readers
        self._problem = ""
        """Why the last flush failed."""
        self._flushed_at = 0
        self._flushed_s = 0.0
        self._retry_s = 0.0
        self._looked_s = 0.0
        self._known = 0
        """No record of the timer topic below this offset waits."""
        self._rolls: Callable[[StoredMessage], bool] | None = None
        """Which records have to move; None: none has to."""

    def start(self) -> None:
        """Begin when the timer log is loaded."""
        self._flushed_at = self._store.written_end
        self._flushed_s = self._looked_s = self._clock.monotonic_s()
        self.pinned = self._store.status().start
        self._store.pins.add("delayed messages", lambda: self.pinned, {TIMER_TOPIC})

    async def stop(self) -> None:
        """Write the timer log down, so that the next start has nothing to read."""
        if self._timers.log.changes and self._store.failed is None:
            await self.flush()

    async def turn(self) -> None:
        """Do what is due; little at a time."""
        if self._store.failed is not None:
            return
        now_s = self._clock.monotonic_s()
        if self._is_flush_due(now_s):
            await self.flush()
        if not self._timers.is_whole:
            return  # what has ended may seem to wait, and would be stored again
        if now_s - self._looked_s >= LOOK_SECONDS:
            self._looked_s = now_s
            try:
                await self.look()
            except TimerLogDamaged:
                return
        if self._rolls is not None:
            await self.roll()

    # --- flushing and trimming

    def _is_flush_due(self, now_s: float) -> bool:
        log = self._timers.log
        if now_s < self._retry_s:
            return False
        if log.is_flush_due():
            return True
        if log.position == log.watermark:
            return False
        written = self._store.written_end - self._flushed_at
        return now_s - self._flushed_s >= FLUSH_SECONDS or written >= LOG_BYTES_MAX

    async def flush(self) -> None:
        """Write the timer log down as far as the topic was read, then trim the topic."""
        log = self._timers.log
        flushing = log.begin_flush()
        if flushing is None:
            return
        oldest = self._oldest_offset()  # for the files, what ends while they are written waits
        self._flushed_s = self._clock.monotonic_s()
        at = self._store.written_end
        try:
            # The files may know of nothing that a loss of power could take from the log.
            await flush_store(self._store)
            # Those are waited for before the store is closed.
            await asyncio.get_running_loop().run_in_executor(self._readers, flushing.run)
        except (CurlewError, OSError, TimerLogDamaged) as error:
            log.abandon(flushing)
            self._retry_s = self._flushed_s + RETRY_SECONDS
            if isinstance(error, TimerLogDamaged):
                self._timers.damage = str(error)
            if str(error) != self._problem:  # once, not every five seconds of a full disk
                self._problem = str(error)
                _LOG.warning("the timer log is not written, and is tried again: %s", error)
            return
        self._problem = ""
        log.finish(flushing)
        self._flushed_at = at
        self._store.trim(TIMER_TOPIC, QUEUE, min(oldest, log.watermark))
        await self._pin()

    async def _pin(self) -> None:
        bounds = self._store.bounds(TIMER_TOPIC, QUEUE)
        if bounds.min_offset == bounds.max_offset:
            self.pinned = None
            return
        first = await self._record_at(bounds.min_offset)
        self.pinned = self.pinned if first is None else first.physical_offset

    async def _record_at(self, offset: int) -> StoredMessage | None:
        records = await self._read(offset, offset + 1)
        return records[0] if records else None

    # --- rolling

    async def look(self) -> None:
        """Find the oldest waiting message, and decide whether it has to move."""
        await self._pin()
        oldest = await self._find_oldest()
        if oldest is None:
            return
        now_ms, end = self._clock.now_ms(), self._store.written_end
        held = end - oldest.physical_offset
        size = self._timers.log.count * (self._store.average_bytes(TIMER_TOPIC, QUEUE) or 0)
        if now_ms - oldest.store_time_ms >= ROLL_AFTER_MS:
            self._rolls = lambda record: now_ms - record.store_time_ms >= ROLL_AFTER_MS
        elif self.disk_is_low and held >= HELD_BYTES_MIN and size < held / 2:
            self._rolls = lambda record: end - record.physical_offset >= held / 2

    async def _find_oldest(self) -> StoredMessage | None:
        """The oldest waiting message; None: there is none, or it is not found yet."""
        log = self._timers.log
        if not log.count:
            self._known = log.position
            return None
        for _ in range(LOOK_RECORDS):
            offset = self._oldest_offset()
            record = await self._record_at(offset) if offset < log.position else None
            if record is not None:
                due_ms = due_of(record)
                if due_ms is not None and await self._timers.is_waiting(Timer(due_ms, offset)):
                    return record
            self._known = min(offset + 1, log.position)
        return None

    def _oldest_offset(self) -> int:
        """No record before it waits. That stays true: what begins to wait comes at the end."""
        log, minimum = self._timers.log, self._store.bounds(TIMER_TOPIC, QUEUE).min_offset
        return max(log.oldest_offset, self._known, minimum)

    async def roll(self) -> None:
        """Store some of the oldest waiting messages again, at the end of the log."""
        claimed: dict[Timer, StoredMessage] = {}
        try:
            await self._claim_oldest(claimed)
        except BaseException as error:
            self._timers.release(list(claimed))
            self._rolls = None
            if isinstance(error, TimerLogDamaged):
                return
            raise
        if not claimed:
            self._rolls = None
            return
        topics = {timer: counted_as(record) for timer, record in claimed.items()}
        try:
            await self._end(topics, [moved_part(list(claimed.values()))])
        except CurlewError as error:
            self._rolls = None
            _LOG.warning("old delayed messages are not moved: %s", error.detail)

    async def _claim_oldest(self, claimed: dict[Timer, StoredMessage]) -> None:
        """Claim old records, as many as one step takes."""
        assert self._rolls is not None
        offset, end = self._oldest_offset(), self._timers.log.position
        total = 0
        while offset < end and not claimed:
            records = await self._read(offset, min(end, offset + ROLL_RECORDS))
            offset = records[-1].queue_offset + 1 if records else offset + ROLL_RECORDS
            for record in records:
                if not self._rolls(record):
                    return
                due_ms = due_of(record)
                if due_ms is None or (claimed and total + len(record.body) > ROLL_BYTES):
                    continue
                timer = Timer(due_ms, record.queue_offset)
                if await self._timers.claim_waiting(timer):
                    claimed[timer] = record
                    total += len(record.body)

    async def _read(self, offset: int, end: int) -> list[StoredMessage]:
        def read(wait_for_disk: bool) -> ReadResult:
            return self._store.read(
                TIMER_TOPIC,
                QUEUE,
                offset,
                max_messages=end - offset,
                max_bytes=ROLL_BYTES,
                end_offset=end,
                wait_for_disk=wait_for_disk,
            )

        result = await ColdReads(self._readers).run(read)
        return [self._store.decode(record) for record in result.records]
