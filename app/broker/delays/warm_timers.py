"""The timer log of a replica that follows: it is kept up with the topic, so that who begins to lead
reads back only what came last.

It is written down as on a leader: not before the log is on the medium as far as it goes. Only what
is confirmed is read, which no cut takes back; so the files may go further than the checkpoint. An
unclean election takes back what is confirmed all the same, and a replica that was killed does not
know how far that was: before a cut goes what the files say beyond the checkpoint (`before_cut`).

The replica's thread, until `hand_over`; then the event loop. A flush runs on a thread of `submit`.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from app.broker.delays.timer_records import QUEUE, counted_as, done_in, due_of
from app.broker.ports import QueueRecords
from app.domain.clock import Clock
from app.domain.limits import MIB
from app.domain.names import TIMER_TOPIC
from app.store import Flushing, Timer, TimerLog, TimerLogDamaged

_LOG: Final = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 60.0
"""How long changes stay in memory only, as on a leader."""

RETRY_SECONDS: Final = 5.0
"""Pause after a flush that failed, as on a leader."""

CHANGES_MAX: Final = 60_000
"""Changes in memory, beside those of a flush: with more, nothing is read before they are written
down."""

_READ_MESSAGES: Final = 512
_READ_BYTES: Final = 4 * MIB

Submit = Callable[[Callable[[], None]], Future[None]]
"""Has something done on a thread, one after the other."""


class WarmTimers:
    """Of one opening of a replica's store."""

    def __init__(self, store: QueueRecords, log: TimerLog, clock: Clock, submit: Submit) -> None:
        self.log = log
        self._store = store
        self._clock = clock
        self._submit = submit
        self._flushed_s = clock.monotonic_s()
        self._retry_s = 0.0
        self._is_handed_over = False
        self._flushing: Flushing | None = None
        self._needed_end = 0
        """Where the log has to be on the medium before that is written."""
        self._written: Future[None] | None = None
        log.follow(store.bounds(TIMER_TOPIC, QUEUE).min_offset)

    def advance(self) -> bool:
        """Take some of what is dispatched; whether there is more. Raises as `QueueRecords.read`
        with `wait_for_disk`, and goes on there the next time."""
        log = self.log
        start, end = self._store.bounds(TIMER_TOPIC, QUEUE)
        if log.position >= end or (log.position >= start and log.changes >= CHANGES_MAX):
            return False
        if log.position < start:  # what was passed over has ended, and its ends with it
            self.end()
            log.reset(start)
        read = self._store.read(
            TIMER_TOPIC,
            QUEUE,
            log.position,
            max_messages=_READ_MESSAGES,
            max_bytes=_READ_BYTES,
            end_offset=end,
            wait_for_disk=True,
        )
        for gap in read.gaps:
            log.pass_over(gap.from_offset, gap.to_offset)
        for each in read.records:
            record = self._store.decode(each)
            due_ms = due_of(record)
            if due_ms is not None:
                log.add(Timer(due_ms, record.queue_offset), counted_as(record))
            else:
                for timer, topic in done_in(record):
                    log.remove(timer, topic)
        log.position = max(read.next_offset, log.position + 1)
        return log.position < end

    def tick(self, dispatched_end: int, flushed_end: int) -> None:
        """Write down what is due: as far as the log was dispatched, once it is on the medium."""
        if self._written is not None:
            if self._written.done():
                self._end_flush()
        elif self._flushing is not None:
            if flushed_end >= self._needed_end:
                self._written = self._submit(self._flushing.run)
        elif self._is_flush_due():
            self._flushed_s = self._clock.monotonic_s()
            self._flushing, self._needed_end = self.log.begin_flush(), dispatched_end

    def _is_flush_due(self) -> bool:
        log = self.log
        now_s = self._clock.monotonic_s()
        if now_s < self._retry_s:
            return False
        is_late = now_s - self._flushed_s >= FLUSH_SECONDS
        return log.is_flush_due() or (is_late and log.position > log.watermark)

    def before_cut(self) -> None:
        """What is not dispatched may be cut off and replaced: know nothing of it. Raises `OSError`,
        and may be repeated."""
        self.log.forget_beyond(*self._store.bounds(TIMER_TOPIC, QUEUE))

    def end(self) -> None:
        """Wait for a flush that runs; give up one that does not. Idempotent."""
        if self._written is not None:
            self._end_flush()
        elif self._flushing is not None:
            self.log.abandon(self._flushing)
            self._flushing = None

    def hand_over(self, call_soon: Callable[[Callable[[], None]], object]) -> TimerLog:
        """The log, for the broker that begins. A flush that runs ends there by `call_soon`, which
        any thread may call."""
        written = self._written
        self._is_handed_over = True
        if written is not None:
            written.add_done_callback(lambda _: call_soon(self.end))
        else:
            self.end()
        return self.log

    def _end_flush(self) -> None:
        flushing, written = self._flushing, self._written
        self._flushing = self._written = None
        assert flushing is not None
        assert written is not None
        try:
            written.result()
        except (OSError, TimerLogDamaged) as error:
            _LOG.warning("the timer log is not written, and is tried again: %s", error)
            self.log.abandon(flushing)
            self._retry_s = self._clock.monotonic_s() + RETRY_SECONDS
            if isinstance(error, TimerLogDamaged) and not self._is_handed_over:
                self.log.note_damage(str(error))
                self.log.reset(self._store.bounds(TIMER_TOPIC, QUEUE).min_offset)
        else:
            self.log.finish(flushing)
