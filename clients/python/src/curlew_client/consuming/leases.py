"""Which leases are held, and when they have to be extended. Pure.

A lease is extended when a third of it is over, again and again, until `hold_s` after the receive
(RocketMQ's `consumeTimeout`). Times are seconds of the monotonic clock.
"""

from typing import Any

from curlew_client.consuming.messages import Received


class _Lease:
    __slots__ = ("deadline_s", "due_s", "message")

    def __init__(self, message: Received[Any], due_s: float, deadline_s: float) -> None:
        self.message = message
        self.due_s = due_s
        self.deadline_s = deadline_s


class Leases:
    """The leases of one consumer; one event loop only."""

    def __init__(self, invisible_s: float, hold_s: float) -> None:
        self.invisible_s = invisible_s
        self._hold_s = hold_s
        self._held: dict[int, _Lease] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, message: Received[Any], now_s: float) -> None:
        """A message was received."""
        due_s = now_s + self.invisible_s / 3
        self._held[id(message)] = _Lease(message, due_s, now_s + self._hold_s)

    def drop(self, message: Received[Any]) -> None:
        """A message is settled or lost."""
        self._held.pop(id(message), None)

    def due(self, now_s: float) -> list[Received[Any]]:
        """Messages whose leases are to be extended now."""
        return [
            lease.message
            for lease in self._held.values()
            if lease.due_s <= now_s < lease.deadline_s and not lease.message.is_settled
        ]

    def overdue(self, now_s: float) -> list[Received[Any]]:
        """Messages that were held for too long; they are dropped, and told of once."""
        late = [lease.message for lease in self._held.values() if lease.deadline_s <= now_s]
        for message in late:
            self.drop(message)
        return late

    def extended(self, message: Received[Any], handle: str | None, now_s: float) -> None:
        """The node has extended a lease and given another handle."""
        lease = self._held.get(id(message))
        if handle is not None:
            message.receipt_handle = handle
        if lease is not None:
            lease.due_s = now_s + self.invisible_s / 3
