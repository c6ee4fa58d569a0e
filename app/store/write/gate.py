"""What comes between written and confirmed: the port of a gate, and the gate of a replica.

What is written here is confirmed when every replica that has to has it, too. A lone node has no
gate: what is written, as durable as it was asked for, is confirmed in the same turn.

A block waits here until the high watermark has passed its end. Nothing of it is visible before: no
unit is in its queue, no key in the index, nobody who waits for messages is told, and look-ups,
retention and checkpoints end at the watermark `confirmed`. A block ends in one of two ways, once:

- It is confirmed.
- The store takes no more writes (it failed, was fenced, or stops). Whether others have the block
  is not known then, and whoever waits is told `unknown`. Nothing is confirmed any more.

A time-out is neither: it ends somebody's wait and not the block, which may be confirmed later. Nor
is a write that is refused for want of room: what is written already waits on.

A sender may be answered before that: a block's `answer` hears when this node has the block. Nothing
else hangs on it, and a block that is answered and then given up is told to its `done` as any other.

Event loop only.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from typing_extensions import override

from app.domain.errors import CurlewError, NotEnoughReplicas
from app.domain.limits import UNCONFIRMED_BYTES_MAX
from app.store.write.blocks import Answer, Block, Done, Watermarks

_LOG: Final = logging.getLogger(__name__)


class Gate(Protocol):
    """Decides when blocks that are written are confirmed, in the order of the log."""

    def admit(self, *, is_early: bool = False) -> None:
        """Before an append, of which nothing is done yet. Raises `NotEnoughReplicas`; of one whose
        sender is answered early only when too much waits already."""
        ...

    def settled(self, blocks: Sequence[Block], marks: Watermarks) -> None:
        """These are written now; `marks` says how far the log is. Those that ask for a sync may be
        synced later.

        Called without blocks when the log was synced further.
        """
        ...

    def give_up(self, error: CurlewError) -> None:
        """Tell `error` to all who wait: the store takes no more writes. Idempotent."""
        ...


class WrittenBlock(NamedTuple):
    """A block that the log of this node has."""

    end: int
    wants_sync: bool


class LogEnds(NamedTuple):
    """How far the log of this node is, in its file and on its medium. Ends of blocks."""

    written: int
    flushed: int


class _Waiting(NamedTuple):
    end: int
    size: int
    done: Done


class ReplicaGate(Gate):
    """Holds back what the leader has written until the high watermark has passed it."""

    def __init__(self, on_settled: Callable[[Sequence[WrittenBlock], LogEnds], object]) -> None:
        """`on_settled` hears what is written, and how far the log is by then; it may `confirm`."""
        self.unconfirmed_bytes = 0
        """Of the blocks that wait."""
        self.too_few: str | None = None
        """Why nothing is taken but what is answered early: too few replicas are in sync. None:
        enough are."""
        self._on_settled = on_settled
        self._waiting: deque[_Waiting] = deque()
        self._unsynced: deque[tuple[int, Answer]] = deque()
        """Ends of blocks that are written, and whom to tell when they are synced."""
        self._marks: Watermarks | None = None
        self._high_watermark = 0
        self._ended = 0
        """The end of the last block that was confirmed or given up."""
        self._is_telling = False

    @override
    def admit(self, *, is_early: bool = False) -> None:
        if self.too_few is not None and not is_early:
            raise _refused(self.too_few)
        if self.unconfirmed_bytes > UNCONFIRMED_BYTES_MAX:
            raise _refused(f"{self.unconfirmed_bytes} bytes wait for other replicas")

    @override
    def settled(self, blocks: Sequence[Block], marks: Watermarks) -> None:
        self._marks = marks
        for block in blocks:
            self._waiting.append(_Waiting(block.end, block.size, block.done))
            self.unconfirmed_bytes += block.size
        written = [WrittenBlock(block.end, block.sync) for block in blocks]
        self._on_settled(written, LogEnds(marks.written, marks.flushed))
        while self._unsynced and self._unsynced[0][0] <= marks.flushed:
            end, answer = self._unsynced.popleft()
            self._tell_here(end, answer)
        for block in blocks:
            if block.answer is None:
                continue
            if block.sync and block.end > marks.flushed:
                self._unsynced.append((block.end, block.answer))
            else:
                self._tell_here(block.end, block.answer)

    def _tell_here(self, end: int, answer: Answer) -> None:
        """As `_tell`, unless the block is confirmed or given up by now."""
        if end <= self._ended:
            return
        try:
            answer.here()
        except Exception:  # noqa: BLE001
            _LOG.exception("telling that this node has an append failed; the others are told")

    def confirm(self, high_watermark: int) -> None:
        """All below is confirmed: tell and show it. It never goes back, and what this node has not
        written, or not as a whole, is not confirmed."""
        self._high_watermark = max(self._high_watermark, high_watermark)
        if self._is_telling or self._marks is None:
            return  # whoever tells goes on up to here
        waiting, marks = self._waiting, self._marks
        self._is_telling = True
        try:
            while waiting and waiting[0].end <= self._high_watermark:
                block = waiting.popleft()
                self.unconfirmed_bytes -= block.size
                marks.confirmed = self._ended = block.end
                _tell(block.done, None)
        finally:
            self._is_telling = False

    @override
    def give_up(self, error: CurlewError) -> None:
        while self._waiting:
            block = self._waiting.popleft()
            self.unconfirmed_bytes -= block.size
            self._ended = block.end
            _tell(block.done, error)


def _tell(done: Done, error: CurlewError | None) -> None:
    """One that raises keeps nobody else from being told."""
    try:
        done(error)
    except Exception:  # noqa: BLE001
        _LOG.exception("telling what became of an append failed; the others are told")


def _refused(why: str) -> NotEnoughReplicas:
    return NotEnoughReplicas(
        f"too few replicas of the shard are in sync: {why}",
        hint="nothing was stored; send again when they are back. GET /v1/cluster shows them",
        outcome="not_stored",
        retry_after_s=1,
    )
