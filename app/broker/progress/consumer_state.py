"""What must survive of a group's work: acks, deliveries, positions; entries that change it. Pure.

One `QueueState` for each (group, topic, queue): which offsets are acked, and how often each message
that is not has been handed out. The queue of retries is the topic's queue `RETRY_QUEUE_ID`.

Every change is an `Entry`, written to the log in the turn in which it is made, and applied again
after a restart. Entries are idempotent: a snapshot may hold the effect of an entry behind it, and
then all entries behind that one are applied again as well.
Encoding: MessagePack arrays; runs of offsets as (distance from the end of the run before, length).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from app.broker.progress.ack_set import AckSet, PackedPages
from app.domain.consumers.consumption import Consumption, SubscriptionSource

Key = tuple[str, str, int]
"""Group, topic, queue id."""

CHUNK_BYTES: Final = 512 * 1024
"""Aim for the size of a chunk of a snapshot."""

_PAGE_COST: Final = 150
_DELIVERY_COST: Final = 16
_ROW_COST: Final = 300
_ROW_PAGES_MAX: Final = 2_048
_ROW_DELIVERIES_MAX: Final = 16_384

Delivered = tuple[int, int, int]
"""First offset, number of offsets, deliveries of each so far."""


class Settled(Struct, array_like=True, tag=1):
    """Messages are done. Rows: topic, queue id, runs of offsets."""

    group: str
    rows: list[tuple[str, int, list[int]]]


class HandedOut(Struct, array_like=True, tag=2):
    """Messages were handed out, so often by now. Rows: topic, queue id, offsets."""

    group: str
    rows: list[tuple[str, int, list[Delivered]]]


class Placed(Struct, array_like=True, tag=3):
    """The group begins (anew) at these offsets. Rows: topic, queue id, offset."""

    group: str
    rows: list[tuple[str, int, int]]


class Skipped(Struct, array_like=True, tag=4):
    """Everything below these offsets is done. Rows: topic, queue id, offset."""

    group: str
    rows: list[tuple[str, int, int]]


class Forgotten(Struct, array_like=True, tag=5):
    """A group or a topic was deleted."""

    group: str | None
    topic: str | None


class Unsubscribed(Struct, array_like=True, tag=6):
    """A group's progress in one topic was deleted."""

    group: str
    topic: str


class ParkedMessage(Struct, array_like=True, frozen=True):
    """A message that blocks its key in a group in order, until it is released."""

    offset: int
    key: str | None
    attempts: int
    reason: str
    since_ms: int


class Parked(Struct, array_like=True, tag=7):
    """A key is blocked."""

    group: str
    topic: str
    queue_id: int
    message: ParkedMessage


class Released(Struct, array_like=True, tag=8):
    """A parked message is to be delivered again, its attempts counted anew."""

    group: str
    topic: str
    queue_id: int
    offset: int


class Bound(Struct, array_like=True, tag=9):
    """From here on the group's work in the topic is that of these generations; what was known of
    others is void."""

    group: str
    topic: str
    generations: tuple[int, int]
    """Of the group and of the topic."""
    keeps: bool = False
    """What is known is theirs: a version that knew no generations wrote it."""


class HeldTo(Struct, array_like=True, tag=10):
    """The queue has no messages from `end` on: what is known of them is void."""

    group: str
    topic: str
    queue_id: int
    end: int


class ConsumptionSet(Struct, array_like=True, tag=11):
    """The group consumes the topic so from now on; None: whoever comes next decides."""

    group: str
    topic: str
    consumption: Consumption | None
    since_ms: int


class GroupSubscription(Struct, array_like=True, frozen=True):
    """The filter with which a group reads a topic."""

    filter: str
    source: SubscriptionSource
    set_by: str | None
    set_ms: int
    version: int


class SubscriptionSet(Struct, array_like=True, tag=12):
    """The group reads the topic with this filter from now on; None: whoever comes next decides."""

    group: str
    topic: str
    subscription: GroupSubscription | None


Entry = (
    Settled
    | HandedOut
    | Placed
    | Skipped
    | Forgotten
    | Unsubscribed
    | Parked
    | Released
    | Bound
    | HeldTo
    | ConsumptionSet
    | SubscriptionSet
)


class _Row(Struct, array_like=True):
    """Part of a queue's state in a snapshot."""

    group: str
    topic: str
    queue_id: int
    committed: int
    pages: list[PackedPages]
    deliveries: list[Delivered]
    parked: list[ParkedMessage] = []
    generations: tuple[int, int] = (0, 0)
    consumption: Consumption | None = None
    since_ms: int = 0
    """Of a row that has no queue, one for each group and topic: how the group consumes the topic,
    and since when."""
    subscription: GroupSubscription | None = None


NO_QUEUE: Final = -1
"""The queue id of such a row."""
_epochs: Final = itertools.count(1)

encode_entry: Final = msgspec.msgpack.Encoder().encode
_decode_entry: Final = msgspec.msgpack.Decoder(Entry).decode
_decode_rows: Final = msgspec.msgpack.Decoder(list[_Row]).decode


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


class ConsumerState:
    """The state of all groups; a `JournaledState`. Event loop only."""

    def __init__(self) -> None:
        self.queues: dict[Key, QueueState] = {}
        self.generations: dict[tuple[str, str], tuple[int, int]] = {}
        """(group, topic) → the generations of both whose work this is; without one, of a version
        that knew none."""
        self.consumptions: dict[tuple[str, str], tuple[Consumption, int]] = {}
        """(group, topic) → how it is consumed, and since when in epoch milliseconds."""
        self.subscriptions: dict[tuple[str, str], GroupSubscription] = {}
        """(group, topic) → the filter with which it is read."""

    def get_or_make(self, key: Key) -> QueueState:
        state = self.queues.get(key)
        if state is None:
            state = self.queues[key] = QueueState(0)
        return state

    def forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Drop all of a deleted group or topic."""
        for key in [key for key in self.queues if key[0] == group or key[1] == topic]:
            del self.queues[key]
        for pair in [pair for pair in self.generations if pair[0] == group or pair[1] == topic]:
            del self.generations[pair]
        for pair in [pair for pair in self.consumptions if pair[0] == group or pair[1] == topic]:
            del self.consumptions[pair]
        for pair in [pair for pair in self.subscriptions if pair[0] == group or pair[1] == topic]:
            del self.subscriptions[pair]

    # --- JournaledState

    def clear(self) -> None:
        self.queues.clear()
        self.generations.clear()
        self.consumptions.clear()
        self.subscriptions.clear()

    def apply(self, entry: bytes) -> None:
        self.take(_decode_entry(entry))

    def take(self, entry: Entry) -> None:
        """Make the change that an entry tells of."""
        match entry:
            case Settled(group, rows):
                for topic, queue_id, runs in rows:
                    self.get_or_make((group, topic, queue_id)).ack_runs(runs)
            case HandedOut(group, handed):
                for topic, queue_id, deliveries in handed:
                    self._hand_out(self.get_or_make((group, topic, queue_id)), deliveries)
            case Placed(group, places) | Skipped(group, places):
                for topic, queue_id, offset in places:
                    state = self.get_or_make((group, topic, queue_id))
                    (state.restart if isinstance(entry, Placed) else state.skip_to)(offset)
            case Parked() | Released() | HeldTo():
                state = self.get_or_make((entry.group, entry.topic, entry.queue_id))
                state.take(entry)
            case Forgotten() | Unsubscribed():
                self._drop(entry)
            case Bound() | ConsumptionSet() | SubscriptionSet():
                self._take_of_pair(entry)

    def _take_of_pair(self, entry: Bound | ConsumptionSet | SubscriptionSet) -> None:
        pair = entry.group, entry.topic
        if isinstance(entry, SubscriptionSet):
            self._subscribe(pair, entry.subscription)
            return
        if isinstance(entry, ConsumptionSet):
            self._set_consumption(pair, entry.consumption, entry.since_ms)
            return
        if not entry.keeps:
            self._drop(Unsubscribed(*pair))
        self.generations[pair] = entry.generations

    def _drop(self, entry: Forgotten | Unsubscribed) -> None:
        if isinstance(entry, Forgotten):
            self.forget(group=entry.group, topic=entry.topic)
            return
        for key in [key for key in self.queues if key[:2] == (entry.group, entry.topic)]:
            del self.queues[key]
        self.generations.pop((entry.group, entry.topic), None)
        self.consumptions.pop((entry.group, entry.topic), None)
        self.subscriptions.pop((entry.group, entry.topic), None)

    def _subscribe(self, pair: tuple[str, str], now: GroupSubscription | None) -> None:
        if now is None:
            self.subscriptions.pop(pair, None)
        else:
            self.subscriptions[pair] = now

    def _set_consumption(
        self, pair: tuple[str, str], kind: Consumption | None, since_ms: int
    ) -> None:
        if kind is None:
            self.consumptions.pop(pair, None)
        else:
            self.consumptions[pair] = kind, since_ms

    def _hand_out(self, state: QueueState, deliveries: Iterable[Delivered]) -> None:
        is_acked = state.progress.is_acked
        for first, count, attempts in deliveries:
            if attempts and not state.progress.has_acked(first, first + count):
                state.deliveries.update(dict.fromkeys(range(first, first + count), attempts))
                continue
            for offset in range(first, first + count):
                if attempts == 0 or is_acked(offset):
                    state.deliveries.pop(offset, None)
                else:
                    state.deliveries[offset] = attempts

    def load(self, chunk: bytes) -> None:
        for row in _decode_rows(chunk):
            if any(row.generations):
                self.generations[row.group, row.topic] = row.generations
            if row.queue_id == NO_QUEUE:
                self._set_consumption((row.group, row.topic), row.consumption, row.since_ms)
                self._subscribe((row.group, row.topic), row.subscription)
                continue
            state = self.get_or_make((row.group, row.topic, row.queue_id))
            state.progress.committed = row.committed
            state.progress.unpack(row.pages)
            self._hand_out(state, row.deliveries)
            state.parked |= {message.offset: message for message in row.parked}

    def dump(self) -> Iterator[bytes]:
        rows: list[_Row] = []
        cost = 0
        for row in self._rows():
            rows.append(row)
            cost += _ROW_COST + _PAGE_COST * len(row.pages) + _DELIVERY_COST * len(row.deliveries)
            if cost >= CHUNK_BYTES:
                yield encode_entry(rows)
                rows, cost = [], 0
        if rows:
            yield encode_entry(rows)

    def _rows(self) -> Iterator[_Row]:
        for pair in {**self.generations, **self.consumptions, **self.subscriptions}:
            generations = self.generations.get(pair, (0, 0))
            kind, since_ms = self.consumptions.get(pair, (None, 0))
            filters = self.subscriptions.get(pair)
            yield _Row(*pair, NO_QUEUE, 0, [], [], [], generations, kind, since_ms, filters)
        for key in list(self.queues):
            state = self.queues.get(key)
            if state is None:
                continue  # forgotten since the first row
            committed = state.progress.committed
            parked = list(state.parked.values())
            pages = list(state.progress.pack())
            deliveries = list(delivered_runs(state.deliveries.items()))
            while True:
                yield _Row(
                    *key,
                    committed,
                    pages[:_ROW_PAGES_MAX],
                    deliveries[:_ROW_DELIVERIES_MAX],
                    parked,
                    self.generations.get(key[:2], (0, 0)),
                )
                del pages[:_ROW_PAGES_MAX], deliveries[:_ROW_DELIVERIES_MAX]
                if not pages and not deliveries:
                    break


def runs_of(offsets: Sequence[int]) -> list[int]:
    """Rising offsets as runs: distance from the end of the run before, length, and so on."""
    if not offsets:
        return []
    first = offsets[0]
    if offsets[-1] - first == len(offsets) - 1:
        return [first, len(offsets)]
    runs: list[int] = []
    end = 0
    start = expected = first
    for offset in offsets:
        if offset != expected:
            runs += (start - end, expected - start)
            end, start = expected, offset
        expected = offset + 1
    runs += (start - end, expected - start)
    return runs


def offsets_of(runs: Sequence[int]) -> Iterator[int]:
    """Invert `runs_of`."""
    end = 0
    for index in range(0, len(runs), 2):
        start = end + runs[index]
        end = start + runs[index + 1]
        yield from range(start, end)


def delivered_runs(deliveries: Iterable[tuple[int, int]]) -> Iterator[Delivered]:
    """(offset, deliveries) pairs, with neighbours of the same number joined."""
    first, count, attempts = -1, 0, 0
    for offset, times in deliveries:
        if offset == first + count and times == attempts:
            count += 1
            continue
        if count:
            yield first, count, attempts
        first, count, attempts = offset, 1, times
    if count:
        yield first, count, attempts
