"""How much a consumer holds, and how much more it may fetch. Pure.

RocketMQ's bounds: messages, bytes, and the span of offsets in one queue. Within them it holds what
its handlers need, which it learns: the target doubles when they had nothing to do, up to the bound.
"""

from collections import Counter
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
        self._count = 0
        self._bytes = 0
        self._offsets: dict[int, Counter[int]] = {}

    @property
    def count(self) -> int:
        """Messages that are held."""
        return self._count

    def take(self, message: Received[Any]) -> None:
        """A message was received."""
        self._count += 1
        self._bytes += len(message.body)
        self._offsets.setdefault(message.queue_id, Counter())[message.queue_offset] += 1

    def give(self, message: Received[Any]) -> None:
        """A message is settled."""
        self._count -= 1
        self._bytes -= len(message.body)
        offsets = self._offsets[message.queue_id]
        offsets[message.queue_offset] -= 1
        if offsets[message.queue_offset] <= 0:
            del offsets[message.queue_offset]

    def starved(self) -> None:
        """The handlers had nothing to do while more was there."""
        self._target = min(self._target * 2, self._messages_max)

    @property
    def span(self) -> int:
        """The widest span of offsets in a queue."""
        spans = (max(each) - min(each) for each in self._offsets.values() if each)
        return max(spans, default=0)

    def room(self) -> tuple[int, int]:
        """How many messages, and bytes, to fetch now; (0, 0): none."""
        count = min(self._target - self._count, FETCH_MAX)
        size = min(self._bytes_max - self._bytes, FETCH_BYTES_MAX)
        if count < max(self._target // 4, 1) or size <= 0:
            return 0, 0
        if self._count > 1 and self.span > self._span_max:
            return 0, 0
        return count, size
