"""How much a consumer holds, and how much more it may fetch. Pure.

RocketMQ's bounds: messages, bytes, and the span of offsets in one queue. Within them it holds what
its handlers need, which it learns: the target doubles when they had nothing to do, up to the bound.
"""

from collections.abc import Iterable
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
        self._held: dict[int, dict[int, int]] = {}
        """Offsets of what is held, by queue and message."""
        self.count = 0
        """Messages that are held."""

    def take(self, messages: Iterable[Received[Any]]) -> None:
        """Messages were received."""
        for message in messages:
            self._held.setdefault(message.queue_id, {})[id(message)] = message.queue_offset
            self._bytes += len(message.body)
            self.count += 1

    def give(self, messages: Iterable[Received[Any]]) -> None:
        """Messages are settled."""
        for message in messages:
            del self._held[message.queue_id][id(message)]
            self._bytes -= len(message.body)
            self.count -= 1

    def starved(self) -> None:
        """The handlers had nothing to do while more was there."""
        self._target = min(self._target * 2, self._messages_max)

    @property
    def span(self) -> int:
        """The widest span of offsets in a queue. Looks at all that is held: once a fetch."""
        held = [offsets.values() for offsets in self._held.values() if offsets]
        return max((max(offsets) - min(offsets) for offsets in held), default=0)

    def room(self) -> tuple[int, int]:
        """How many messages, and bytes, to fetch now; (0, 0): none."""
        count = min(self._target - self.count, FETCH_MAX)
        size = min(self._bytes_max - self._bytes, FETCH_BYTES_MAX)
        if count < max(self._target // 4, 1) or size <= 0:
            return 0, 0
        if self.count > 1 and self.span > self._span_max:
            return 0, 0
        return count, size
