"""Which leases are held, and when they have to be extended. Pure.

A lease is extended when a third of it is over, again and again, until `hold_s` after the receive
(RocketMQ's `consumeTimeout`). Times are seconds of the monotonic clock.
"""

from collections.abc import Sequence
from typing import Any

from curlew_client.consuming.messages import Received

_Lease = tuple[Received[Any], float, float]
"""A message, when its lease is to be extended, and until when it may be."""


class Leases:
    """The leases of one consumer; one event loop only."""

    def __init__(self, invisible_s: float, hold_s: float) -> None:
        self.invisible_s = invisible_s
        self._hold_s = hold_s
        self._held: dict[int, _Lease] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, messages: Sequence[Received[Any]], now_s: float) -> None:
        """Messages were received."""
        due_s, deadline_s = now_s + self.invisible_s / 3, now_s + self._hold_s
        self._held.update({id(message): (message, due_s, deadline_s) for message in messages})

    def drop(self, message: Received[Any]) -> None:
        """A message is settled or lost."""
        self._held.pop(id(message), None)

    def due(self, now_s: float) -> list[Received[Any]]:
        """Messages whose leases are to be extended now."""
        return [
            message
            for message, due_s, deadline_s in self._held.values()
            if due_s <= now_s < deadline_s and not message.is_settled
        ]

    def overdue(self, now_s: float) -> list[Received[Any]]:
        """Messages that were held for too long; they are dropped, and told of once."""
        late = [message for message, _, end_s in self._held.values() if end_s <= now_s]
        for message in late:
            self.drop(message)
        return late

    def extended(self, message: Received[Any], handle: str | None, now_s: float) -> None:
        """The node has extended a lease and given another handle."""
        lease = self._held.get(id(message))
        if handle is not None:
            message.receipt_handle = handle
        if lease is not None:
            self._held[id(message)] = message, now_s + self.invisible_s / 3, lease[2]
