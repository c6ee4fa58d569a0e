"""A gate that holds everything back until a test confirms it."""

from collections.abc import Sequence

from app.domain.errors import StoreFailed
from app.store import ReplicaGate
from app.store.write.gate import LogEnds, WrittenBlock


class HoldingGate(ReplicaGate):
    """Remembers what a driver would be told."""

    def __init__(self) -> None:
        self.written: list[WrittenBlock] = []
        self.ends = LogEnds(0, 0)
        self.told: list[LogEnds] = []
        """All ends, in their order."""
        self.is_open = False
        """Everything is confirmed when it is written."""
        super().__init__(self._note)

    def _note(self, blocks: Sequence[WrittenBlock], ends: LogEnds) -> None:
        self.written += blocks
        self.ends = ends
        self.told.append(ends)
        if self.is_open:
            self.confirm(ends.written)

    def confirm_all(self) -> None:
        """Move the high watermark to the end of what is written."""
        self.confirm(self.ends.written)


class HastyGate(HoldingGate):
    """Tells a time-out as the failure of the block, which the design forbids."""

    def time_out(self) -> None:
        self.give_up(StoreFailed("waited too long", outcome="unknown"))
