"""Requests that wait for messages: parked on futures, woken by arrivals, bounded in number.

Pulls wait on one queue, and an arrival wakes all of them, since each gets the message. Receives
wait on one group's subscription, and an arrival wakes one of them, since one gets the message; the
one that was woken wakes the next when it leaves something (`receiver` sees to that). A receive
that wants several messages is patient: it is woken when so many are ready and nobody takes less.

Deadlines are timers of the event loop; nothing here polls. Event loop only. A wake-up is never
lost: whoever parks has looked for messages in the same turn of the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from app.domain.errors import TooManyRequests
from app.domain.quotas.quota import Quota

Watch = Callable[[Callable[[], object]], None]
"""Given a function that ends a wait: calls it when the client of the request leaves."""


class Bell(Protocol):
    """Something that wakes a parked request, beside arrivals."""

    def add(self, waiter: asyncio.Future[bool]) -> None:
        """Set it to True when the bell rings."""
        ...

    def discard(self, waiter: asyncio.Future[bool]) -> None:
        """It waits no more."""
        ...

    def pass_on(self) -> None:
        """The one that was woken is gone: wake another, if only one was woken."""
        ...


class WaitQueue:
    """Parked receives of one group on one topic, in order of arrival."""

    __slots__ = ("count_ready", "patient", "ring_count", "topics", "waiting")

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        """An arrival in any of them wakes: the topic itself, the group's retries."""
        self.waiting: deque[asyncio.Future[bool]] = deque()
        self.patient: dict[asyncio.Future[bool], int] = {}
        """Receives that want several messages, and how many."""
        self.count_ready: Callable[[], int] = _none
        """Messages that could be taken now; asked only while a patient receive waits."""
        self.ring_count = 0
        """Wakings, also those that woke nobody; arrivals count only while anybody waits."""

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.patient

    @property
    def count(self) -> int:
        """Receives that wait."""
        return sum(not each.done() for each in (*self.waiting, *self.patient))

    def add(self, waiter: asyncio.Future[bool]) -> None:
        """Let a request stand in the line that waits for other things as well."""
        self.waiting.append(waiter)

    def discard(self, waiter: asyncio.Future[bool]) -> None:
        if waiter in self.waiting:
            self.waiting.remove(waiter)

    def pass_on(self) -> None:
        self.wake_one()

    def wake_one(self) -> bool:
        """Wake the one that waits longest; False when nobody waits for what is there.

        A patient one is woken only when so many are ready; one that finds less after all, since
        others were quicker, parks again and wakes nobody. So none wake each other for ever.
        """
        self.ring_count += 1
        waiting = self.waiting
        while waiting:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(True)
                return True
        if self.patient:
            ready = self.count_ready()
            for waiter, needed in self.patient.items():
                if needed <= ready and not waiter.done():
                    del self.patient[waiter]
                    waiter.set_result(True)
                    return True
        return False

    def wake_everybody(self) -> None:
        """Let all look again: it is not about how many messages there are."""
        self.ring_count += 1
        for waiter in (*self.waiting, *self.patient):
            _wake(waiter)
        self.waiting.clear()
        self.patient.clear()


class LongPolls:
    """All parked requests of a node."""

    def __init__(self, waiters_max: int) -> None:
        self._waiters_max = waiters_max
        self._count = 0
        self._closed = False
        self._pulls: dict[str, dict[int, set[asyncio.Future[bool]]]] = {}
        self._lines: dict[str, dict[WaitQueue, None]] = {}

    @property
    def count(self) -> int:
        return self._count

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def quota(self) -> Quota:
        """How many more may wait."""
        left = max(0, self._waiters_max - self._count)
        return Quota("waiting", self._waiters_max, "concurrent-requests", left)

    def lines(self) -> list[WaitQueue]:
        """Lines in which somebody waits."""
        return list({line: None for lines in self._lines.values() for line in lines})

    # --- parking

    async def wait_for_queue(
        self, topic: str, queue_id: int, wait_s: float, watch: Watch | None = None
    ) -> bool:
        """Park a pull. True: something may have arrived; False: time is up, the client has left,
        or we are closing."""
        return await self.wait_for_queues(((topic, queue_id),), wait_s, watch)

    async def wait_for_queues(
        self, keys: Collection[tuple[str, int]], wait_s: float, watch: Watch | None = None
    ) -> bool:
        """Park on several queues at once, (topic, queue id) each; an arrival in any wakes."""
        return await self.wait_for_any(keys, (), wait_s, watch)

    async def wait_for_any(
        self,
        keys: Collection[tuple[str, int]],
        bells: Collection[Bell],
        wait_s: float,
        watch: Watch | None = None,
    ) -> bool:
        """The same, and any of the bells wakes as well. One future is parked, wherever it is."""
        waiter = self._enter()
        if waiter is None:
            return False
        for topic, queue_id in keys:
            self._pulls.setdefault(topic, {}).setdefault(queue_id, set()).add(waiter)
        for bell in bells:
            bell.add(waiter)
        try:
            return await self._sleep(waiter, wait_s, watch)
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                for bell in bells:
                    bell.pass_on()
            raise
        finally:
            for topic, queue_id in keys:
                self._forget(topic, queue_id, waiter)
            for bell in bells:
                bell.discard(waiter)

    def _forget(self, topic: str, queue_id: int, waiter: asyncio.Future[bool]) -> None:
        queues = self._pulls.get(topic)
        parked = None if queues is None else queues.get(queue_id)
        if queues is None or parked is None:
            return
        parked.discard(waiter)
        if not parked:
            del queues[queue_id]
        if not queues:
            del self._pulls[topic]

    async def wait_in_line(
        self, line: WaitQueue, wait_s: float, needed: int = 1, watch: Watch | None = None
    ) -> bool:
        """Park a receive. As above; one that is cancelled after being woken wakes the next.

        With `needed` over 1 until so many messages are ready (`line.count_ready`).
        """
        waiter = self._enter()
        if waiter is None:
            return False
        if needed > 1:
            line.patient[waiter] = needed
        else:
            line.waiting.append(waiter)
        for topic in line.topics:
            self._lines.setdefault(topic, {})[line] = None
        try:
            return await self._sleep(waiter, wait_s, watch)
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                line.wake_one()
            raise
        finally:
            self._leave_line(line, waiter)

    def _leave_line(self, line: WaitQueue, waiter: asyncio.Future[bool]) -> None:
        if waiter in line.waiting:
            line.waiting.remove(waiter)
        line.patient.pop(waiter, None)
        if line.is_empty:
            for topic in line.topics:
                lines = self._lines.get(topic)
                if lines is not None:
                    lines.pop(line, None)
                    if not lines:
                        del self._lines[topic]

    def _enter(self) -> asyncio.Future[bool] | None:
        if self._closed:
            return None
        if self._count >= self._waiters_max:
            raise TooManyRequests(
                f"{self._count} requests are waiting for messages already",
                hint="ask again without waiting, or wait on another node",
                fields={"limit": self._waiters_max},
                quota=self.quota,
                retry_after_s=1,
            )
        return asyncio.get_running_loop().create_future()

    async def _sleep(
        self, waiter: asyncio.Future[bool], wait_s: float, watch: Watch | None
    ) -> bool:
        self._count += 1
        if watch is not None:
            watch(partial(_time_is_up, waiter))
        timer = waiter.get_loop().call_later(wait_s, _time_is_up, waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._count -= 1

    # --- waking

    def on_arrival(self, topic: str, queue_id: int) -> None:
        """A message became readable. Costs two look-ups when nobody waits."""
        queues = self._pulls.get(topic)
        if queues is not None and queue_id in queues:
            for waiter in queues.pop(queue_id):
                _wake(waiter)
            if not queues:
                del self._pulls[topic]
        lines = self._lines.get(topic)
        if lines is not None:
            for line in lines:
                line.wake_one()

    def wake_topic(self, topic: str) -> None:
        """Let everybody on a topic look again: it was deleted or changed."""
        for parked in self._pulls.pop(topic, {}).values():
            for waiter in parked:
                _wake(waiter)
        for line in self._lines.get(topic, {}):
            line.wake_everybody()

    def close(self) -> None:
        """Answer everybody; nobody can park any more."""
        self._closed = True
        for topic in list(self._pulls):
            for parked in self._pulls.pop(topic).values():
                for waiter in parked:
                    _time_is_up(waiter)
        for line in self.lines():
            for waiter in (*line.waiting, *line.patient):
                _time_is_up(waiter)


def _none() -> int:
    return 0


def _wake(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(True)


def _time_is_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
