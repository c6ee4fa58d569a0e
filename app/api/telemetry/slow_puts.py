"""The log of slow puts: which took long, and where the time went. One line a second at most."""

import logging
from time import monotonic
from typing import Final

from app.broker.ports import Store

_LOG: Final = logging.getLogger(__name__)

SLOW_PUT_S: Final = 0.5
"""RocketMQ's: a put that takes longer is logged."""

_LINE_EVERY_S: Final = 1.0


class SlowPuts:
    """One per server. Event loop only."""

    __slots__ = ("_left_out", "_next_s", "count")

    def __init__(self) -> None:
        self._next_s = 0.0
        self._left_out = 0
        self.count = 0

    def note(
        self, store: Store, topic: str, count: int, size: int, read_s: float, store_s: float
    ) -> None:
        """A request stored `count` messages of `size` bytes; reading it took `read_s`."""
        self.count += 1
        now_s = monotonic()
        if now_s < self._next_s:
            self._left_out += 1
            return
        self._next_s = now_s + _LINE_EVERY_S
        status = store.status()
        _LOG.warning(
            "slow put: %d messages (%d bytes) to topic %s took %d ms to store and %d ms to read the"
            " request; %d bytes wait to be written, %d to be synced; %d other slow puts were not"
            " logged",
            *(count, size, topic, store_s * 1_000, read_s * 1_000),
            *(status.pending_bytes, status.written_end - status.flushed_end, self._left_out),
        )
        self._left_out = 0
