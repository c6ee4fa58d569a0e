"""One term in which this replica leads: the store over its directory, with a gate.

Made on the replica's thread when the replica begins to take over; from then on it belongs to the
event loop, but for `end_writer`. Its end has three steps: `end_broker`, `end_writer`, `close`. The
directory has to be opened anew behind them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from typing_extensions import override

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Appended,
    Event,
    LogEnds,
    SyncFailed,
    TakesNoMore,
    UncleanJudged,
)
from app.cluster.replication.terms import Term
from app.domain.errors import CurlewError, NotLeader
from app.domain.positions import FlushMode
from app.replica.ports import ColdState, CutTail, Submit, WarmState
from app.store import MessageStore, ReplicaGate, StepPart
from app.store.followed_store import FollowedStore
from app.store.replica.term_block import QUEUE
from app.store.write.gate import LogEnds as GateEnds
from app.store.write.gate import WrittenBlock
from app.store.write.worker import WriterThread

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderHooks:
    """What the node does while its replica leads. Event loop."""

    on_serve: Callable[[Term, MessageStore, WarmState], Awaitable[None]]
    """All is confirmed and dispatched: begin the broker of the term, with what was kept up. It is
    cancelled when the term is over before it returns."""
    on_step_down: Callable[[str], Awaitable[None]]
    """The term is over, and the store takes nothing any more: end the broker. When it returns
    nobody uses the store."""
    on_take_no_more: Callable[[], object] = lambda: None
    """The shard is being handed over: the store refuses new work with `NOT_LEADER`."""
    shard: str = ""
    """Its name, in that refusal."""
    on_unclean_judged: Callable[[UncleanJudged, int], object] = lambda *_: None
    """What an unclean election would lose, beside the time of the newest message that is here, in
    epoch milliseconds."""
    on_cut: Callable[[CutTail], object] = lambda _: None
    """The end of the log of this replica was cut off."""
    keep_warm: Callable[[FollowedStore, Submit], WarmState] = lambda *_: ColdState()
    """Begin to keep up what a broker begins with; what blocks it has done by the second, on one
    thread that ends with the replica. On the replica's thread."""


class LeaderGate(ReplicaGate):
    """A gate that tells when the store takes no more writes, and that can be shut."""

    def __init__(
        self,
        on_settled: Callable[[Sequence[WrittenBlock], GateEnds], object],
        on_failed: Callable[[str], object],
    ) -> None:
        super().__init__(on_settled)
        self.refusal: Callable[[], CurlewError] | None = None
        """Of all appends; None: they are taken."""
        self._on_failed = on_failed

    @override
    def admit(self, *, is_early: bool = False) -> None:
        if self.refusal is not None:
            raise self.refusal()
        super().admit(is_early=is_early)

    @override
    def give_up(self, error: CurlewError) -> None:
        super().give_up(error)
        self._on_failed(error.detail)


class Leadership:
    """See the module."""

    def __init__(
        self,
        term: Term,
        hooks: LeaderHooks,
        block: StepPart,
        block_end: int,
        give: Callable[["Leadership", Sequence[Event]], object],
        lacks: Callable[["Leadership", str], object],
    ) -> None:
        """`give` and `lacks` pass on what the driver has to hear, from any thread. `block` begins
        the term, and ends at `block_end`, which the driver has heard."""
        self.term = term
        self.gate = LeaderGate(self._settled, self._failed)
        self.store: MessageStore
        """Set before anything else is called."""
        self.warm: WarmState = ColdState()
        self._hooks = hooks
        self._block = block
        self._block_end = block_end
        self._has_begun = False
        self._is_ending = False
        self._too_few: str | None = None
        """Why appends are refused; those of the broker that begins are taken all the same."""
        self._give = give
        self._lacks = lacks
        self._serving: asyncio.Task[None] | None = None
        self._is_broker_there = False
        self._writer: WriterThread | None = None

    def make_writer(self, work: Callable[[], bool]) -> WriterThread:
        """The thread of the store's writer."""
        self._writer = WriterThread(work)
        return self._writer

    def begin(self) -> None:
        """Append the block that begins the term: the first thing that this store appends."""
        if self._is_ending:
            return
        try:
            self.store.append_step((self._block,), FlushMode.SYNC, self._begun)
        except CurlewError as error:
            self._lacks(self, f"the term cannot begin: {error.detail}")

    def _begun(self, error: CurlewError | None) -> None:
        if error is not None and not self._is_ending:
            self._lacks(self, f"the term cannot begin: {error.detail}")

    def _settled(self, blocks: Sequence[WrittenBlock], ends: GateEnds) -> None:
        if blocks and not self._has_begun:
            self._has_begun = True
            if blocks[0].end != self._block_end:
                self._lacks(self, f"the term's block ends at {blocks[0].end}")
                return
            blocks = blocks[1:]
        events: list[Event] = []
        for wants_sync, run in groupby(blocks, key=lambda block: block.wants_sync):
            *_, last = run  # they were written together, and are confirmed together
            events.append(Appended(last.end, wants_sync))
        events.append(LogEnds(ends.written, ends.flushed))
        self._give(self, events)

    def _failed(self, reason: str) -> None:
        """The store has failed: it was not ended from here."""
        if not self._is_ending:
            _LOG.error("the store of the leader takes no more writes: %s", reason)
            self._give(self, [SyncFailed()])

    def confirm(self, high_watermark: int) -> None:
        """All below is confirmed."""
        if not self._is_ending:
            self.gate.confirm(high_watermark)

    def refuse_while(self, too_few: str | None) -> None:
        """Refuse appends because too few replicas are in sync; None: enough are. What the broker of
        the term appends when it begins is taken: it waits for no confirmation (ADR 0150), and reads
        need no other replica."""
        self._too_few = too_few
        self.gate.too_few = too_few if self._is_broker_there else None

    def take_no_messages_while_full(self, nodes: tuple[str, ...]) -> None:
        """R13: the disks of these members of the set are full, and they are needed. What the broker
        says itself is taken, so that what has expired can be deleted everywhere."""
        full = f"the disk of {', '.join(nodes)} is full" if nodes else None
        self.store.refuse_for_replicas(full)

    def serve(self) -> None:
        """The term's block, and all before it, is confirmed: let the node begin."""
        if self._is_ending:
            return
        topic = self._block.topic
        self.store.trim(topic, QUEUE, self.store.bounds(topic, QUEUE).max_offset)
        self._serving = asyncio.ensure_future(self._serve())
        self._serving.add_done_callback(self._is_serving)

    async def _serve(self) -> None:
        """In the turn in which the broker is there, what needs more replicas is refused."""
        try:
            await self._hooks.on_serve(self.term, self.store, self.warm)
        finally:
            self._is_broker_there = True
            self.gate.too_few = self._too_few

    def _is_serving(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("the broker of the term cannot begin", exc_info=task.exception())
            self._lacks(self, f"the broker cannot begin: {task.exception()!r}")

    def take_no_more(self) -> None:
        """New work is for the next leader. The driver hears of it behind all that has a place."""
        if self._is_ending:
            return
        self.gate.refusal = self._refusal
        self._hooks.on_take_no_more()
        self.store.when_written(self._takes_no_more)

    def _takes_no_more(self, _error: CurlewError | None) -> None:
        if not self._is_ending:
            self._give(self, [TakesNoMore()])

    def _refusal(self) -> CurlewError:
        return NotLeader("what is written", self._hooks.shard)

    async def end_broker(self, reason: str) -> None:
        """End the broker; who waits is told `unknown`. May be cancelled: close the store still."""
        self.cut_off(reason)
        if self._serving is not None:
            self._serving.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._serving
            try:
                await self._hooks.on_step_down(reason)
            except Exception:  # noqa: BLE001 - the store has to be closed all the same
                _LOG.exception("the broker of the term did not end in order")

    def end_writer(self) -> None:
        """Wait for what is being written or synced. Blocks: not the event loop. Behind `cut_off`;
        idempotent."""
        if self._writer is not None:
            self._writer.stop()

    def close(self) -> LogEnd:
        """Close the store, whose writer has ended; how far the log is."""
        if self._serving is not None:
            self._serving.cancel()  # where the broker was not ended, as by a kill
        self.store.close()
        status = self.store.status()
        return LogEnd(status.written_end, status.flushed_end)

    def cut_off(self, reason: str) -> None:
        """Take no more writes, and say no more to the driver."""
        self._is_ending = True
        self.store.fence(reason, self._refusal)
