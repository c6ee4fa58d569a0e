"""Which delayed messages wait, which of them are next, and which are being dealt with.

The records of the timer topic decide. One with a due time waits from the moment it is readable; a
record without one lists those that wait no more. Both kinds are read back in the order of the log,
whoever wrote them, and handed to the timer log. In memory are only the nearest few thousand
(`near`), all up to a horizon; the timer log has the rest.

Somebody who wants to end the waiting of a record (deliver it, cancel it, move it) claims it first.
A claim ends when the record that says so has been read back, or when writing it has failed; until
then nobody else gets the record. So of two who race exactly one wins.

Event loop only.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from heapq import heappop, heappush
from typing import Final

from app.broker.delays.timer_records import QUEUE, counted_as, done_in, due_of
from app.broker.journal.cold_reads import ColdReads
from app.broker.ports import Store
from app.domain.limits import MIB
from app.domain.message import StoredMessage
from app.domain.names import TIMER_TOPIC
from app.store import Page, ReadResult, Timer, TimerLog, TimerLogDamaged

NEAR_MAX: Final = 8_192
"""Waiting records in memory, up to twice as many for a moment: about 2 MiB."""

BEHIND_MAX: Final = 50_000
"""Records of the timer topic that a request waits for; with more to read it is turned away."""

FOREVER_MS: Final = 1 << 62
EVERYTHING: Final = Timer(FOREVER_MS, 0)
NOTHING: Final = Timer(-FOREVER_MS, -1)

_READ_MESSAGES: Final = 256
_READ_BYTES: Final = 4 * MIB


class Claim:
    """Timers that somebody deals with; `over` is set when that is decided."""

    def __init__(self, timers: Sequence[Timer]) -> None:
        self.left = {timer.offset for timer in timers}
        self.over = asyncio.Event()

    def end(self, offset: int) -> None:
        self.left.discard(offset)
        if not self.left:
            self.over.set()


class _Watch:
    """Notices when a record stops waiting while somebody looks whether it does."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


class TimerIndex:
    """The waiting records of one broker. `load` before use."""

    def __init__(
        self, store: Store, log: TimerLog, readers: Executor, near_max: int = NEAR_MAX
    ) -> None:
        self.log = log
        self._store = store
        self._readers = readers
        self._near_max = near_max
        self._reading = asyncio.Lock()
        self._looking = asyncio.Lock()
        self.damage: str | None = None
        """Why the timer log must be made again."""
        self._begin()

    def _begin(self) -> None:
        self._near: list[Timer] = []
        """A heap; one whose offset is not in `_near_offsets` is gone."""
        self._near_offsets: set[int] = set()
        self._horizon = EVERYTHING if self.log.count == 0 else NOTHING
        """Every waiting record up to it is near, or claimed."""
        self._news: list[Timer] | None = None
        """While a page is read: what began to wait meanwhile."""
        self._olds: set[int] = set()
        """And what ended."""
        self._claims: dict[int, Claim] = {}
        self._watches: dict[int, list[_Watch]] = {}
        self.is_whole = False
        """Whether the topic was read to its end once; before, what is done may seem to wait."""

    @property
    def count(self) -> int:
        """Waiting records."""
        return self.log.count

    @property
    def behind(self) -> int:
        """Records of the timer topic that were not read yet."""
        return self._store.bounds(TIMER_TOPIC, QUEUE).max_offset - self.log.position

    @property
    def are_late(self) -> bool:
        """Whether there is so much to read back that a request does not wait for it."""
        return self.damage is not None or self.behind > BEHIND_MAX

    def load(self) -> None:
        """Open the timer log."""
        self.log.load(*self._store.bounds(TIMER_TOPIC, QUEUE))
        self._begin()

    async def rebuild(self) -> None:
        """The timer log is damaged: make it again from the topic, from the next catching up on."""
        async with self._reading, self._looking:
            if self.damage is not None:
                self.log.note_damage(self.damage)
            self.damage = None
            self.log.reset(self._store.bounds(TIMER_TOPIC, QUEUE).min_offset)
            claims, watches = self._claims, self._watches
            self._begin()
            self._claims, self._watches = claims, watches

    # --- reading back

    async def catch_up(self, most: int | None = None) -> bool:
        """Read what has been added to the timer topic by now, at most so many records; whether that
        was all. What comes meanwhile is left for the next time: else nothing is delivered and
        written down while more and more comes."""
        if not self.behind:
            self.is_whole = True
            return True
        async with self._reading:
            is_whole = most is None or self.behind <= most
            end = self.log.position + (self.behind if is_whole or most is None else most)
            while self.log.position < end:
                read = await ColdReads(self._readers).run(self._reader(self.log.position, end))
                for gap in read.gaps:
                    self.log.pass_over(gap.from_offset, gap.to_offset)
                for record in read.records:
                    self._take(self._store.decode(record))
                self.log.position = max(read.next_offset, self.log.position + 1)
                self._shrink()
                await asyncio.sleep(0)
            self.is_whole = self.is_whole or is_whole
        return is_whole

    def _reader(self, offset: int, end: int) -> Callable[[bool], ReadResult]:
        def read(wait_for_disk: bool) -> ReadResult:
            return self._store.read(
                TIMER_TOPIC,
                QUEUE,
                offset,
                max_messages=_READ_MESSAGES,
                max_bytes=_READ_BYTES,
                end_offset=end,
                wait_for_disk=wait_for_disk,
            )

        return read

    def _take(self, record: StoredMessage) -> None:
        due_ms = due_of(record)
        if due_ms is not None:
            self._begin_waiting(Timer(due_ms, record.queue_offset), counted_as(record))
            return
        for timer, topic in done_in(record):
            self.log.remove(timer, topic)
            self._end_waiting(timer)

    def _begin_waiting(self, timer: Timer, topic: str) -> None:
        self.log.add(timer, topic)
        if timer.offset in self._claims:  # the log is made again; a claim that fails brings it near
            return
        if timer <= self._horizon:
            self._push(timer)
        elif self._news is not None:
            self._news.append(timer)

    def _end_waiting(self, timer: Timer) -> None:
        self._near_offsets.discard(timer.offset)
        if self._news is not None:
            self._olds.add(timer.offset)
        for watch in self._watches.get(timer.offset, ()):
            watch.ended = True
        self._end_claim(timer.offset)

    def _end_claim(self, offset: int) -> None:
        claim = self._claims.pop(offset, None)
        if claim is not None:
            claim.end(offset)

    def _push(self, timer: Timer) -> None:
        heappush(self._near, timer)
        self._near_offsets.add(timer.offset)

    def _shrink(self) -> None:
        """Leave what lies far ahead to the timer log."""
        if len(self._near) <= 2 * self._near_max or self._news is not None:
            return
        kept = sorted({timer for timer in self._near if timer.offset in self._near_offsets})
        if len(kept) > self._near_max:
            kept = kept[: self._near_max]
            self._horizon = kept[-1]
        self._near = kept
        self._near_offsets = {timer.offset for timer in kept}

    # --- looking ahead

    async def look_ahead(self) -> None:
        """Bring the next ones near, when few are left of those that are."""
        if self._horizon == EVERYTHING or len(self._near_offsets) > self._near_max // 4:
            return
        async with self._looking:
            self._news, self._olds = [], set()
            try:
                page = await self.page(self._horizon, FOREVER_MS, self._near_max)
                horizon = page[-1] if len(page) == self._near_max else EVERYTHING
                self._horizon = max(self._horizon, horizon)
                for timer in [*page, *self._news]:
                    known = timer.offset in self._olds or timer.offset in self._claims
                    if timer <= self._horizon and not known:
                        self._push(timer)
            finally:
                self._news = None

    async def page(self, after: Timer, until_ms: int, limit: int) -> list[Timer]:
        """Waiting records behind `after`, due until then, in order."""
        page: Page = self.log.page(after)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, page.read, until_ms, limit)
        except TimerLogDamaged as error:
            self.damage = str(error)
            raise

    async def claim_waiting(self, timer: Timer) -> bool:
        """Claim a record by name; False: it does not wait (any more)."""
        while True:
            while (claim := self._claims.get(timer.offset)) is not None:
                await claim.over.wait()
            watch = _Watch()
            self._watches.setdefault(timer.offset, []).append(watch)
            try:
                is_waiting = await self.is_waiting(timer)
            finally:
                self._forget(timer.offset, watch)
            if not is_waiting or watch.ended:
                return False
            if timer.offset not in self._claims:
                self.claim([timer])
                return True

    def _forget(self, offset: int, watch: _Watch) -> None:
        watches = self._watches[offset]
        watches.remove(watch)
        if not watches:
            del self._watches[offset]

    async def is_waiting(self, timer: Timer) -> bool:
        """Whether a record waits, as far as the topic was read. Also while it is claimed."""
        before = Timer(timer.due_ms, timer.offset - 1)
        return await self.page(before, timer.due_ms, 1) == [timer]

    # --- claiming

    def take_due(self, now_ms: int, limit: int) -> list[Timer]:
        """Claim at most `limit` that are due, in the order of their due times."""
        due: list[Timer] = []
        near = self._near
        while self.is_whole and near and near[0].due_ms <= now_ms and len(due) < limit:
            timer = heappop(near)
            if timer.offset in self._near_offsets:
                self._near_offsets.discard(timer.offset)
                due.append(timer)
        if due:
            self.claim(due)
        return due

    def claim(self, timers: Sequence[Timer]) -> None:
        """Keep others from them. None may be claimed already."""
        claim = Claim(timers)
        for timer in timers:
            assert timer.offset not in self._claims
            self._claims[timer.offset] = claim
            self._near_offsets.discard(timer.offset)

    def release(self, timers: Sequence[Timer]) -> None:
        """Nothing was done about them: they wait on. Those whose claim is over are left out."""
        for timer in timers:
            if timer.offset in self._claims:
                self._end_claim(timer.offset)
                if timer <= self._horizon:
                    self._push(timer)
