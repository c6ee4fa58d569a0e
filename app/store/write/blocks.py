"""What is written and how far: blocks of the log, whom to tell of each, and the watermarks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from app.domain.errors import CurlewError
from app.store.fs.files import Buffer

Done = Callable[[CurlewError | None], None]
"""Called on the event loop: None when the block is confirmed, else why it failed."""


class Answer(Protocol):
    """Whoever answers the sender of a block, where a gate confirms it later than it is written.

    What the broker makes of a block hangs on its `done`. This is about the answer alone.
    """

    @property
    def is_early(self) -> bool:
        """Whether the sender is answered when this node has the block. Such a block is taken while
        too few replicas are in sync."""
        ...

    def here(self) -> None:
        """This node has the block, as safe as it asks; the gate has not confirmed it yet.

        Called on the event loop, at most once, before `done`, and never for a block that is
        confirmed in the turn in which it is written.
        """
        ...


Write = tuple[int, list[Buffer]]
"""A physical offset, and buffers that go there one behind the other, within one segment.

A plain tuple, and `Block` no named one: one of each is made for every message.
"""


class Block(msgspec.Struct, eq=False):
    """Bytes with assigned positions, and whom to tell.

    One to be synced without any writes is a flush of what comes before it.
    """

    end: int
    """Physical offset behind the block."""
    writes: list[Write]
    size: int
    sync: bool
    done: Done
    encode: Callable[[], list[Write]] | None = None
    """Gives the writes of a block that has none yet; for the worker, since it takes long."""
    answer: Answer | None = None


@dataclass(slots=True)
class Watermarks:
    """Ends of what is in the file, on the medium, and visible. Physical offsets."""

    written: int
    flushed: int
    confirmed: int

    def advance(self, written: int, *, synced: bool) -> None:
        """Take note of a batch that was written; all of a batch is confirmed together."""
        flushed = written if synced else self.flushed
        assert self.confirmed <= self.written <= written
        assert self.flushed <= flushed <= written
        self.written, self.flushed, self.confirmed = written, flushed, written

    def write(self, written: int, *, synced: bool) -> None:
        """The same of a batch that a gate confirms later."""
        confirmed = self.confirmed
        self.advance(written, synced=synced)
        self.confirmed = confirmed

    @property
    def settled(self) -> int:
        """The end of what is confirmed and on the medium: what a checkpoint may count on."""
        return min(self.flushed, self.confirmed)

    def flush(self, end: int) -> None:
        """Take note of a sync of what was written up to `end`; more may be written by now."""
        assert self.flushed <= end <= self.written
        self.flushed = end
