"""What a replica needs of the connections, the database and the node. On the driver's thread."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from typing_extensions import override

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import UncleanJudged
from app.cluster.replication.messages import Blocks, GivenBlocks, PeerMessage
from app.cluster.replication.shard_row import RowChange
from app.cluster.replication.terms import Term, TermStart


class CutTail(NamedTuple):
    """What was cut off the end of the log, since the leader has something else there."""

    start: int
    size: int
    """Bytes of it."""
    kept_in: str
    """The file that has them now; empty: none, for want of room or as the whole log went."""
    is_loss: bool
    """Whether an unclean election gave it up: it may have been confirmed."""


Submit = Callable[[Callable[[], None]], Future[None]]
"""Has something done on a thread, one after the other."""


class WarmState(Protocol):
    """What the broker of a term begins with, kept up with the log while this replica follows. Of
    one opening of the store. The replica's thread."""

    def advance(self) -> bool:
        """Take some of what is dispatched; whether there is more. Raises as reads of the store that
        wait for the disk, and goes on there the next time."""
        ...

    def tick(self, dispatched_end: int, flushed_end: int) -> None:
        """Do what is due; the log is dispatched and on the medium so far."""
        ...

    def before_cut(self) -> None:
        """The end of the log is about to be cut off: keep nothing that was made of more than is
        dispatched. Raises `OSError`; may be repeated."""
        ...

    def end(self) -> None:
        """Leave nothing under way: this replica ends, and has not led."""
        ...


class ColdState(WarmState):
    """Of a node that keeps nothing up: its terms read all that they need."""

    @override
    def advance(self) -> bool:
        return False

    @override
    def tick(self, dispatched_end: int, flushed_end: int) -> None:
        """Nothing is due."""

    @override
    def before_cut(self) -> None:
        """Nothing was made of it."""

    @override
    def end(self) -> None:
        """Nothing is under way."""


class Peers(Protocol):
    """The connections to the other replicas. What is said on one comes in order or not at all.

    What comes is given to `ReplicaDriver.received`, the end of a connection as `Disconnected`; what
    is said to put damage right to `LogRepairs.heard`.
    """

    def send(self, node: str, message: PeerMessage) -> None:
        """Say it; without a connection it is lost."""
        ...

    def send_blocks(
        self, node: str, message: Blocks | GivenBlocks, data: bytes | memoryview
    ) -> None:
        """The same with the bytes of the blocks beside it."""
        ...

    def has_room(self, node: str) -> bool:
        """Whether more blocks may be read for it. `ReplicaDriver.has_room` is called when there is
        room again."""
        ...

    def close(self, node: str) -> None:
        """End the connection, at both sides; what is on its way may be lost."""
        ...


class Replicating(Protocol):
    """Hears of the connections. Any thread; returns at once."""

    def received(
        self,
        node: str,
        message: PeerMessage,
        blocks: Sequence[bytes | memoryview],
        done: Callable[[], object],
    ) -> None:
        """A message has come; `done` is called, on another thread, when it is carried out."""
        ...

    def has_room(self, node: str) -> None:
        """The connection takes blocks again."""
        ...

    def disconnected(self, node: str, *, has_stopped: bool) -> None:
        """It has ended, or another one is in its place; what was on its way may be lost.
        `has_stopped`: the other replica has said that it stops."""
        ...


class Connections(Peers, Protocol):
    """`Peers` that make their connections and keep them. `Peers`' methods are for any thread."""

    def start(self, replica: Replicating) -> None:
        """Make connections, and take those that others make. Event loop."""
        ...

    async def stop(self, *, is_told: bool = True) -> None:
        """End all connections; `is_told`: the others hear that this replica stops."""
        ...


class Database(Protocol):
    """The shard's row. Answers come as `RowSeen`, `RowChanged`, `DatabaseAway`, later."""

    def read_row(self) -> None: ...

    def change_row(self, change: RowChange) -> None: ...


class ReplicaOwner(Protocol):
    """The node: its writer and gate while it leads, its dispatcher while it follows.

    While it leads, each block of its writer is given as `Appended` when it has its place, in order,
    and `LogEnds` when it is written or synced further; a failed sync as `SyncFailed`.
    """

    def accept_loss(self, term: Term) -> None:
        """An operator has this replica stand uncleanly: if it leads in this term, then with what is
        good here, whatever of it others may have whole."""
        ...

    def append_term_start(self, term: Term) -> None:
        """Append and sync the block that begins the term. `Appended` follows, with its start.

        The block is written when the driver has taken `Appended` in, and not before: the history
        has the term by then. A block of a term that no history has would be taken for one of the
        term before.
        """
        ...

    def move_watermark(self, high_watermark: int) -> None:
        """All below is confirmed: show it and answer who waits; on a follower dispatch it."""
        ...

    def delete_below(self, start: int) -> None:
        """The leader's log begins at `start`: delete whole segments below it, when neither the
        dispatch nor a start needs them any more. Returns at once."""
        ...

    def serve(self, term: Term) -> None:
        """Begin the broker of the term."""
        ...

    def take_no_more(self) -> None:
        """Refuse new work with `NOT_LEADER`; what is under way goes on. `TakesNoMore` is given
        behind the last `Appended`."""
        ...

    def step_down(self, reason: str) -> LogEnd:
        """End the broker; who waits gets `unknown`. Its writer has ended when this returns: how far
        the log is written and synced, both ends of blocks. What was written and told `unknown`,
        because the writer was fenced in between, counts as written."""
        ...

    def unclean_judged(self, judged: UncleanJudged) -> None:
        """Answer the operator who has asked."""
        ...

    def before_cut(self) -> None:
        """The end of the log, of which nothing is dispatched, is about to be cut off. Raises
        `OSError`: it is not cut then."""
        ...

    def was_cut(self, tail: CutTail) -> None:
        """The end of the log was cut off, since the leader has something else there."""
        ...

    def is_damaged(self, at: int) -> None:
        """A block that begins here in the log, below the watermark, cannot be read: have it put
        right from another replica."""
        ...

    def make_anew(self, reason: str) -> None:
        """Have the store opened again as one that has shown nothing, in another incarnation."""
        ...

    def begin_anew(self, start: int, history: tuple[TermStart, ...], reason: str) -> None:
        """Have the store opened again with an empty log that begins at `start`, in another
        incarnation; `history` is that of the bytes below."""
        ...

    def alarm(self, code: str, detail: str) -> None:
        """Something that an operator has to know. Repeated while it lasts."""
        ...
