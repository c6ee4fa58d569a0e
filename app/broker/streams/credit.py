"""Credit: how many unsettled messages each leased stream may hold. Pure; time is an argument.

Messages are known by their receipt handles. One counts from its delivery on until it is acked or
nacked, or until its lease ends; an extend replaces the handle, and it counts for longer. What ends
a lease in other ways (an offset that is committed or reset, a deleted topic) is noticed when the
time of the lease is over: too little may be delivered for so long, never too much.

Times are monotonic seconds. Event loop only.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from app.broker.results import SettleResult

_STALE_EXPIRIES_MAX: Final = 1_024
"""Expiry entries of settled messages that may pile up before they are swept out."""


class Credit:
    """The credit of one stream; changed by its `Credits` only."""

    __slots__ = ("held", "limit", "on_room", "until_s")

    def __init__(self, limit: int, on_room: Callable[[], None]) -> None:
        self.limit = limit
        self.held = 0
        self.until_s = 0.0
        """None of the leases ends later."""
        self.on_room = on_room
        """Called after messages have been let go of, or are leased for longer."""

    @property
    def room(self) -> int:
        """How many more may be delivered."""
        return self.limit - self.held


class Credits:
    """Who holds which handle, over all streams of a node."""

    def __init__(self) -> None:
        self._holders: dict[str, tuple[Credit, float]] = {}
        """Handle → holder, and when its lease ends."""
        self._expiries: list[tuple[float, str]] = []
        """Heap; entries of handles that are no longer held until then are stale."""

    @property
    def held_count(self) -> int:
        return len(self._holders)

    def take(self, credit: Credit, handles: Sequence[str], expires_s: float) -> None:
        """Delivered to the stream: they use up its credit."""
        for handle in handles:
            self._hold(credit, handle, expires_s)
        credit.held += len(handles)

    def _hold(self, credit: Credit, handle: str, expires_s: float) -> None:
        self._holders[handle] = (credit, expires_s)
        credit.until_s = max(credit.until_s, expires_s)
        heappush(self._expiries, (expires_s, handle))
        if len(self._expiries) > 2 * len(self._holders) + _STALE_EXPIRIES_MAX:
            self._expiries = [(until, each) for each, (_, until) in self._holders.items()]
            heapify(self._expiries)

    def note(self, settled: Sequence[SettleResult], extended_to_s: Callable[[int], float]) -> None:
        """After a settle: acked, nacked and released messages make room, extended ones have new
        handles.

        `extended_to_s` turns the wall time at which a lease ends into a monotonic one.
        """
        if not self._holders:
            return
        changed: set[Credit] = set()
        for result in settled:
            if result.error is not None:
                continue
            holder = self._holders.pop(result.receipt_handle, None)
            if holder is None:
                continue
            credit = holder[0]
            if result.new_handle is not None and result.invisible_until_ms is not None:
                until_s = extended_to_s(result.invisible_until_ms)
                self._hold(credit, result.new_handle, until_s)
            else:
                credit.held -= 1
            changed.add(credit)
        for credit in changed:
            credit.on_room()

    def expire(self, now_s: float) -> None:
        """Leases that have ended by now no longer count."""
        expiries, holders = self._expiries, self._holders
        roomier: set[Credit] = set()
        while expiries and expiries[0][0] <= now_s:
            _, handle = heappop(expiries)
            holder = holders.get(handle)
            if holder is not None and holder[1] <= now_s:
                del holders[handle]
                holder[0].held -= 1
                roomier.add(holder[0])
        for credit in roomier:
            credit.on_room()

    def drop(self, credit: Credit) -> None:
        """The stream has ended: what it was sent stays leased, but counts no more."""
        if credit.held:
            mine = [handle for handle, holder in self._holders.items() if holder[0] is credit]
            for handle in mine:
                del self._holders[handle]
            credit.held = 0
