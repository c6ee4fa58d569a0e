"""How much a consumer holds, and how much more it may fetch. Pure.

RocketMQ's bounds: messages, bytes, and the span of offsets in one queue. Within them it holds what
its handlers need, which it learns: the target doubles when they had nothing to do, up to the bound.
"""

from typing import Any, Final

from curlew_client.consuming.messages import Received

FETCH_MAX: Final = 256
FETCH_BYTES_MAX: Final = 8 * 1024 * 1024


class Flow:
    """Of one consumer; one event loop only."""

    def __init__(self, *, handlers: int, messages_max: int, bytes_max: int, span_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._span_max = span_max
        self._target = min(max(2 * handlers, 16), messages_max)
        self._bytes = 0
        self._held: dict[int, Received[Any]] = {}

    @property
    def count(self) -> int:
        """Messages that are held."""
        return len(self._held)

    def take(self, message: Received[Any]) -> None:
        """A message was received."""
        self._held[id(message)] = message
        self._bytes += len(message.body)

    def give(self, message: Received[Any]) -> None:
        """A message is settled."""
        del self._held[id(message)]
        self._bytes -= len(message.body)

    def starved(self) -> None:
        """The handlers had nothing to do while more was there."""
        self._target = min(self._target * 2, self._messages_max)

    @property
    def span(self) -> int:
        """The widest span of offsets in a queue. Looks at all that is held: once a fetch."""
        ends: dict[int, tuple[int, int]] = {}
        for message in self._held.values():
            offset = message.queue_offset
            low, high = ends.get(message.queue_id, (offset, offset))
            ends[message.queue_id] = min(low, offset), max(high, offset)
        return max((high - low for low, high in ends.values()), default=0)

    def room(self) -> tuple[int, int]:
        """How many messages, and bytes, to fetch now; (0, 0): none."""
        count = min(self._target - self.count, FETCH_MAX)
        size = min(self._bytes_max - self._bytes, FETCH_BYTES_MAX)
        if count < max(self._target // 4, 1) or size <= 0:
            return 0, 0
        if self.count > 1 and self.span > self._span_max:
            return 0, 0
        return count, size
