"""What must survive of all groups' work, as a journaled state: snapshots and replay. Pure.

One `QueueState` for each (group, topic, queue): which offsets are acked, and how often each message
that is not has been handed out. The queue of retries is the topic's queue `RETRY_QUEUE_ID`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from app.broker.progress.ack_set import PackedPages
from app.broker.progress.open_deliveries import OpenDeliveries, OpenRun
from app.broker.progress.progress_entries import (
    Bound,
    ConsumptionSet,
    Delivered,
    Entry,
    Forgotten,
    GroupSubscription,
    HandedOut,
    HeldTo,
    Key,
    Parked,
    ParkedMessage,
    Placed,
    Released,
    Settled,
    Skipped,
    SubscriptionSet,
    Unsubscribed,
    decode_entry,
    delivered_runs,
    encode_entry,
)
from app.broker.progress.queue_state import QueueState
from app.broker.progress.queue_states import QueueStates
from app.domain.consumers.consumption import Consumption

CHUNK_BYTES: Final = 512 * 1024
"""Aim for the size of a chunk of a snapshot."""

_PAGE_COST: Final = 150
_DELIVERY_COST: Final = 16
_ROW_COST: Final = 300
_ROW_PAGES_MAX: Final = 2_048
_ROW_DELIVERIES_MAX: Final = 16_384


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
    open: list[OpenRun] = []
    is_ordered: bool = False
    """Whether those were handed out in order."""


NO_QUEUE: Final = -1
"""The queue id of such a row."""
_decode_rows: Final = msgspec.msgpack.Decoder(list[_Row]).decode


Leased = Callable[[Key], tuple[list[OpenRun], bool]]
"""The leases of a queue, for snapshots, and whether they were given in order."""


class ConsumerState:
    """The state of all groups; a `JournaledState`. Event loop only."""

    def __init__(self, now_ms: int = 0) -> None:
        """`now_ms`: by the wall clock, for leases of before that last still."""
        self.open = OpenDeliveries(now_ms)
        self.leased: Leased = lambda _key: ([], False)
        """Set by who has them."""
        self.queues = QueueStates()
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
        self.queues.take(group=group, topic=topic)
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
        self.open.clear()

    def apply(self, entry: bytes) -> None:
        change = decode_entry(entry)
        self.take(change)
        self.open.apply(change)

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
        for key in self.queues.of_pair(entry.group, entry.topic):
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
            key = row.group, row.topic, row.queue_id
            self.open.add(key, row.open, is_ordered=row.is_ordered)

    def dump(self) -> Iterator[bytes]:
        rows: list[_Row] = []
        cost = 0
        for row in self._rows():
            rows.append(row)
            cost += _ROW_COST + _PAGE_COST * len(row.pages)
            cost += _DELIVERY_COST * (len(row.deliveries) + 2 * len(row.open))
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
            leased, is_ordered = self.leased(key)
            while True:
                yield _Row(
                    *key,
                    committed,
                    pages[:_ROW_PAGES_MAX],
                    deliveries[:_ROW_DELIVERIES_MAX],
                    parked,
                    self.generations.get(key[:2], (0, 0)),
                    open=leased[:_ROW_DELIVERIES_MAX],
                    is_ordered=is_ordered,
                )
                del pages[:_ROW_PAGES_MAX], deliveries[:_ROW_DELIVERIES_MAX]
                del leased[:_ROW_DELIVERIES_MAX]
                if not (pages or deliveries or leased):
                    break
