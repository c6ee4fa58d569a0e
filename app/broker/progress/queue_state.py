"""What must survive of a group's work on one queue: acks, deliveries, blocked keys. Pure.

Moves are resets and commits. What the log refuses is undone; later moves and acks stay.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from app.broker.progress.ack_set import AckSet
from app.broker.progress.progress_entries import HeldTo, Parked, ParkedMessage, Released

_epochs: Final = itertools.count(1)


class Move:
    """A reset or a commit of one queue that the log has not confirmed, and what it replaced."""

    __slots__ = ("before", "is_new", "is_restart", "offset")

    def __init__(self, before: "QueueState", offset: int, is_restart: bool, is_new: bool) -> None:
        self.before = before
        self.offset = offset
        self.is_restart = is_restart
        self.is_new = is_new
        """Nothing was known of the queue before."""

    def without(self, state: "QueueState") -> "QueueState":
        """A later state as it were without this move. Nothing outlives a reset, but what was done
        from a committed offset on does."""
        copy = self.before.copy()
        if not self.is_restart:
            start = self.offset
            copy.progress.add_acks_of(state.progress, start)
            copy.deliveries.update(item for item in state.deliveries.items() if item[0] >= start)
            copy.parked.update(item for item in state.parked.items() if item[0] >= start)
            copy.drop_acked()
        return copy


class QueueState:
    """Acks and deliveries of one queue and group.

    Moves are undone when the log refuses them, and so are the acks of `reopen`, in any order.
    """

    __slots__ = ("deliveries", "epoch", "moves", "parked", "progress")

    def __init__(self, offset: int) -> None:
        self.epoch = 0
        """Another one after each reset: what was done before is void then, and so is its undo."""
        self.moves: list[Move] = []
        """Those that are not confirmed, oldest first."""
        self.progress = AckSet(offset)
        self.deliveries: dict[int, int] = {}
        """Offset → how often it was handed out, for messages that are not done."""
        self.parked: dict[int, ParkedMessage] = {}

    def ack_all(self, offsets: Iterable[int]) -> None:
        """Messages are done."""
        ack, forget = self.progress.ack, self.deliveries.pop
        for offset in offsets:
            ack(offset)
            forget(offset, None)
        self._drop_done_parked()

    def ack_runs(self, runs: Sequence[int]) -> None:
        """As above, for what `runs_of` gave."""
        end = 0
        forget = self.deliveries.pop
        for index in range(0, len(runs), 2):
            start = end + runs[index]
            end = start + runs[index + 1]
            if end - start == 1:
                self.progress.ack(start)
            else:
                self.progress.ack_range(start, end)
            for offset in range(start, end) if self.deliveries else ():
                forget(offset, None)
        self._drop_done_parked()

    def copy(self) -> "QueueState":
        """As it is now, without moves."""
        twin = QueueState(0)
        twin._become(self)
        twin.progress = self.progress.copy()
        twin.deliveries, twin.parked = dict(self.deliveries), dict(self.parked)
        return twin

    def _become(self, other: "QueueState") -> None:
        self.progress.become(other.progress)
        self.deliveries, self.parked, self.epoch = other.deliveries, other.parked, other.epoch

    def drop_acked(self) -> None:
        for known in [known for known in self.deliveries if self.progress.is_acked(known)]:
            del self.deliveries[known]
        self._drop_done_parked()

    def begin_move(self, offset: int, is_restart: bool, is_new: bool) -> Move:
        """The state is about to be set to `offset`; `confirm` or `undo` is to follow."""
        move = Move(self.copy(), offset, is_restart, is_new)
        self.moves.append(move)
        return move

    def confirm(self, move: Move) -> None:
        """The log has it."""
        self.moves.remove(move)

    def undo(self, move: Move) -> bool:
        """The log has refused it. Later moves and what was done since stay. False: nothing is
        known of the queue."""
        at = self.moves.index(move)
        del self.moves[at]
        if move.is_new and self.moves:
            self.moves[0].is_new = True
        done_end = 0
        for later in self.moves[at:]:
            later.before = move.without(later.before)
            later.before.skip_to(done_end)
            if later.is_restart:
                return True
            done_end = max(done_end, later.offset)
        self._become(move.without(self))
        self.skip_to(done_end)
        return not move.is_new or bool(self.moves)

    def reopen(
        self, epoch: int, deliveries: Mapping[int, int], parked: Iterable[ParkedMessage]
    ) -> None:
        """Undo acks of an epoch that the log has refused; offset → deliveries so far. What was
        committed since stays done, unless that is undone as well."""
        parked = list(parked)
        done_end = 0
        for move in self.moves:
            if move.before.epoch == epoch:
                move.before._reopen(deliveries, parked, done_end)
            done_end = 0 if move.is_restart else max(done_end, move.offset)
        if self.epoch == epoch:
            self._reopen(deliveries, parked, done_end)

    def _reopen(
        self, deliveries: Mapping[int, int], parked: Sequence[ParkedMessage], done_end: int
    ) -> None:
        known = {offset: times for offset, times in deliveries.items() if offset >= done_end}
        if known:
            self.progress.reopen(known)
            self.deliveries |= known
            self.parked.update((each.offset, each) for each in parked if each.offset in known)

    def unpark(self, message: ParkedMessage) -> bool:
        """The log has refused that it is parked. True: it was until now."""
        was_parked = self.parked.get(message.offset) is message
        for state in [*[move.before for move in self.moves], self]:
            if state.parked.get(message.offset) is message:
                del state.parked[message.offset]
        return was_parked

    def park_again(self, epoch: int, message: ParkedMessage, deliveries: int) -> None:
        """The log has refused to release it: as it was in that epoch."""
        for state in [*[move.before for move in self.moves], self]:
            if state.epoch == epoch and not state.progress.is_acked(message.offset):
                state.parked[message.offset] = message
                state.deliveries[message.offset] = deliveries

    def _drop_done_parked(self) -> None:
        for offset in list(self.parked) if self.parked else ():
            if self.progress.is_acked(offset):
                del self.parked[offset]

    def skip_to(self, offset: int) -> None:
        """Everything below `offset` is done."""
        self.progress.skip_to(offset)
        self.drop_below(self.progress.committed)

    def take(self, entry: Parked | Released | HeldTo) -> None:
        """Block a key, let its message be delivered again as if for the first time, or forget
        what lies behind the end of the queue."""
        if isinstance(entry, HeldTo):
            self.hold_to(entry.end)
        elif isinstance(entry, Parked):
            self.parked[entry.message.offset] = entry.message
        else:
            self.parked.pop(entry.offset, None)
            self.deliveries.pop(entry.offset, None)

    def drop_below(self, offset: int) -> None:
        for parked in [parked for parked in self.parked if parked < offset]:
            del self.parked[parked]
        for known in [known for known in self.deliveries if known < offset]:
            del self.deliveries[known]

    def hold_to(self, end: int) -> None:
        """Forget what is known of offsets from `end` on; `committed` may go back."""
        self.progress.hold_to(end)
        for known in [known for known in self.deliveries if known >= end]:
            del self.deliveries[known]
        for parked in [parked for parked in self.parked if parked >= end]:
            del self.parked[parked]

    def restart(self, offset: int) -> None:
        """Begin anew at `offset`."""
        self.epoch = next(_epochs)
        self.progress.restart(offset)
        self.deliveries.clear()
        self.parked.clear()

    @property
    def end(self) -> int:
        """Nothing is known of offsets from here on."""
        return max(self.progress.end, max(self.deliveries, default=-1) + 1)
