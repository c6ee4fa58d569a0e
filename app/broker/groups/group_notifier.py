"""Long polls that wait for a change of their group, bounded in number. Event loop only."""

import asyncio

from app.domain.errors import TooManyRequests
from app.domain.quotas.quota import Quota


class GroupNotifier:
    """Heartbeats that wait, by group: a change of the group wakes all of them."""

    def __init__(self, waiters_max: int) -> None:
        self._waiters_max = waiters_max
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}
        self.count = 0
        """Requests that wait now."""
        self.is_closed = False

    @property
    def groups(self) -> list[str]:
        """Groups that anybody waits for."""
        return list(self._waiting)

    async def wait(self, group: str, wait_s: float) -> bool:
        """True: rung; False: the time is up, or the node is stopping."""
        if self.is_closed:
            return False
        if self.count >= self._waiters_max:
            raise TooManyRequests(
                f"{self.count} members are waiting already",
                hint="ask again without waiting, or wait on another node",
                fields={"limit": self._waiters_max},
                quota=Quota("members", self._waiters_max, "concurrent-requests", 0),
                retry_after_s=1,
            )
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        waiting = self._waiting.setdefault(group, set())
        waiting.add(waiter)
        self.count += 1
        timer = loop.call_later(wait_s, _set, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            self.count -= 1
            waiting.discard(waiter)
            if not waiting and self._waiting.get(group) is waiting:
                del self._waiting[group]

    def bell(self, group: str) -> "GroupBell":
        """For a request that waits for more than this."""
        return GroupBell(self._waiting, group)

    def ring(self, group: str) -> None:
        for waiter in self._waiting.pop(group, ()):
            _set(waiter, True)

    def close(self) -> None:
        """Answer everybody; nobody can wait any more."""
        self.is_closed = True
        for waiting in self._waiting.values():
            for waiter in waiting:
                _set(waiter, False)


class GroupBell:
    """Rings with every change of one group. `LongPolls` counts those that wait for it."""

    __slots__ = ("_group", "_waiting")

    def __init__(self, waiting: dict[str, set[asyncio.Future[bool]]], group: str) -> None:
        self._waiting = waiting
        self._group = group

    def add(self, waiter: asyncio.Future[bool]) -> None:
        self._waiting.setdefault(self._group, set()).add(waiter)

    def discard(self, waiter: asyncio.Future[bool]) -> None:
        waiting = self._waiting.get(self._group)
        if waiting is not None:
            waiting.discard(waiter)
            if not waiting:
                del self._waiting[self._group]

    def pass_on(self) -> None:
        """All were woken."""


def _set(waiter: "asyncio.Future[bool]", value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)
