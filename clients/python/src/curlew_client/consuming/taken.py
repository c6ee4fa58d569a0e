"""A loop over received messages, as a state machine: which is at work, what is decided. Pure.

The next turn acks the message before. Leaving the block well acks the last one; leaving it with an
exception hands it back with the text of that, or untouched when it is no `Exception`, such as
KeyboardInterrupt. What was fetched and not begun is released. Whoever settles a message by hand
decides for it alone.
"""

from collections import deque
from typing import Any, Final

from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.messages import Received
from curlew_client.errors import DeadLetter, Retry
from curlew_client.wire.durations import milliseconds_of

BATCH: Final = 16
"""Messages that are fetched at once, at most."""


class TakenMessages:
    """Of one block."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit
        self._buffer: deque[Received[Any]] = deque()
        self._current: Received[Any] | None = None
        self.decided: deque[Decision] = deque()
        """What is to be settled; whoever settles it takes it out. Threads share it."""

    @property
    def wanted(self) -> int:
        """How many messages to fetch; 0: the limit is reached."""
        return BATCH if self._left is None else min(BATCH, self._left)

    def add(self, messages: list[Received[Any]]) -> None:
        """Messages were fetched."""
        self._buffer.extend(messages)
        if self._left is not None:
            self._left -= len(messages)

    def step(self) -> Received[Any] | None:
        """The next message; None: fetch more first. The one before is done."""
        self._end_current("ack")
        if self._buffer:
            self._current = self._buffer.popleft()
        return self._current

    def leave(self, error: BaseException | None) -> None:
        """The block is left."""
        if error is None or isinstance(error, GeneratorExit):
            self._end_current("ack")
        elif isinstance(error, Retry):
            delay_ms = None if error.delay is None else milliseconds_of("delay", error.delay)
            self._end_current("nack", delay_ms, error.reason)
        elif isinstance(error, DeadLetter):
            self._end_current("dead_letter", None, error.reason)
        elif isinstance(error, Exception):
            self._end_current("nack", None, f"{type(error).__name__}: {error}")
        else:
            self._end_current("release")
        while self._buffer:
            self._current = self._buffer.popleft()
            self._end_current("release")

    def _end_current(self, kind: Any, delay_ms: int | None = None, reason: str = "") -> None:
        message, self._current = self._current, None
        if message is not None and not message.is_settled:
            message.is_settled = True
            self.decided.append(Decision(kind, message, delay_ms, reason))
