"""Which blocks are confirmed, and the high watermark that follows from it. Pure.

A block is confirmed when it, and all before it, is written on every required member, and synced
there too where it asks for that. The high watermark is the end of the last confirmed block, so it
never stands inside of one, and it never goes back.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class LogEnd(NamedTuple):
    """How far one member's log is safe. Ends of blocks, physical offsets."""

    written: int
    flushed: int


class Confirmation:
    """The leader's blocks behind the high watermark, oldest first."""

    __slots__ = ("_waiting", "high_watermark", "sync_to", "synced_below")

    def __init__(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.sync_to = high_watermark
        """The end of the last block that asks for the medium, or that is on the leader's."""
        self.synced_below = high_watermark
        """As far as what is confirmed has asked for the medium."""
        self._waiting: deque[tuple[int, bool]] = deque()

    def append(self, end: int, wants_sync: bool) -> None:
        """One more block ends at `end`."""
        assert end > (self._waiting[-1][0] if self._waiting else self.high_watermark)
        self._waiting.append((end, wants_sync))
        if wants_sync:
            self.sync_to = end

    def note_flushed(self, flushed: int) -> None:
        """The leader's medium has all below."""
        self.sync_to = max(self.sync_to, min(flushed, self.end))

    @property
    def end(self) -> int:
        """Of the last block."""
        return self._waiting[-1][0] if self._waiting else self.high_watermark

    def confirm(self, required: Iterable[LogEnd]) -> bool:
        """Move the high watermark as far as the members' ends allow; whether it moved."""
        ends = list(required)
        written = min(each.written for each in ends)
        flushed = min(each.flushed for each in ends)
        before = self.high_watermark
        while self._waiting:
            end, wants_sync = self._waiting[0]
            if end > written or (wants_sync and end > flushed):
                break
            self._waiting.popleft()
            self.high_watermark = end
            if wants_sync:
                self.synced_below = end
        return self.high_watermark > before
