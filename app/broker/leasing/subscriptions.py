"""One group on one topic: per queue, what was fetched, who holds it and what is done.

`LeasedQueue` joins the three pure parts of a queue: `fetch_offset` (the first offset that nobody in
the group has got yet), the lease table and the progress. Event loop only.

Invariants: committed <= fetch_offset; every offset from committed up to fetch_offset is leased,
delayed, returned or acked.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from app.broker.journal.append_future import AppendFuture
from app.broker.leasing.holders import InFlight
from app.broker.leasing.lease_table import LeaseTable
from app.broker.leasing.leases import Lease
from app.broker.leasing.ordering import KeyOrder, Turn
from app.broker.progress.progress_entries import ParkedMessage, offsets_of
from app.broker.progress.queue_state import QueueState
from app.broker.read.long_polls import WaitQueue
from app.domain.handles.receipt import RETRY_QUEUE_ID, receipt_prefix
from app.domain.limits import CONSUMERS_SHOWN_MAX
from app.domain.names import retry_topic

_TABLES_A_STEP: Final = 16
"""Tables of leases that are closed in one step of `Remains`, most of which have hardly any."""
_STALE_REPLAYS_MAX: Final = 1_024
"""Remembered leases that may have been settled before they are swept out."""

NEVER_USED: Final = float("-inf")


class LeasedQueue:
    """One queue of a subscription: of the topic, or the group's retries of the topic."""

    __slots__ = (
        "_in_flight",
        "fetch_offset",
        "first_lease_id",
        "is_being_read",
        "is_retry",
        "key",
        "leases",
        "order",
        "progress",
        "queue_id",
        "restored_end",
        "state",
        "stored_queue_id",
        "stored_topic",
        "unconfirmed",
    )

    def __init__(
        self,
        group: str,
        topic: str,
        queue_id: int,
        state: QueueState,
        in_flight: InFlight,
        first_lease_id: int,
        *,
        is_ordered: bool = False,
    ) -> None:
        self.key = (group, topic, queue_id)
        self.queue_id = queue_id
        self.is_retry = queue_id == RETRY_QUEUE_ID
        self.stored_topic = retry_topic(group, topic) if self.is_retry else topic
        self.stored_queue_id = 0 if self.is_retry else queue_id
        """Where the messages lie in the store."""
        self._in_flight = in_flight
        self.unconfirmed = 0
        """Requests whose acks the log does not have yet."""
        self.is_being_read = False
        """A reader thread reads for this queue; others pass it by."""
        self.state = state
        self.progress = state.progress
        self.fetch_offset = self.progress.committed
        self.restored_end = state.end
        """Below this, offsets may have been acked or handed out before a restart."""
        self.leases = LeaseTable(in_flight)
        self.order = KeyOrder() if is_ordered else None
        """Of a group in order: whose turn it is."""
        self.first_lease_id = first_lease_id
        """Handles with a lower lease id were issued before a restart or a reset: void."""

    @property
    def committed(self) -> int:
        return self.progress.committed

    def skip_to(self, offset: int) -> None:
        """Everything below `offset` is done: a client committed it, or retention took it."""
        if offset > self.progress.committed:
            self.state.skip_to(offset)
            self.follow()

    def follow(self) -> None:
        """The state was moved ahead: let go what lies behind, and fetch nothing of it again."""
        committed = self.progress.committed
        self.leases.drop_below(committed)
        self.fetch_offset = max(self.fetch_offset, committed)
        if self.order is not None:
            for turn in self.order.skip_to(committed):
                self.give_turn(turn)

    def pass_done(self) -> None:
        """Messages were done without having been fetched: let no later fetch begin with them."""
        self.restored_end = max(self.restored_end, self.state.end)
        self.follow()

    def finish(self, offsets: Collection[int]) -> None:
        """Messages are done; in a group in order, those behind them have their turn."""
        self.state.ack_all(offsets)
        if self.order is not None:
            for offset in offsets:
                turn = self.order.done(offset)
                if turn is not None:
                    self.give_turn(turn)

    def finish_runs(self, runs: Sequence[int]) -> None:
        """As above, for what `runs_of` gave."""
        if self.order is not None:
            self.finish(list(offsets_of(runs)))
        else:
            self.state.ack_runs(runs)

    def hold(self, leases: Mapping[int, Lease]) -> None:
        """Messages that were handed out before a restart are so still. To be called before any is
        fetched."""
        for offset, lease in leases.items():
            self.leases.restore(offset, lease)
        self.pass_known()

    def pass_known(self) -> None:
        """Fetch nothing that is done, nor, unless it has to stand in line, what the table has."""
        at, end = self.fetch_offset, self.restored_end
        if at < end:
            at = self.progress.next_open(at)
            while self.order is None and self.is_fetched(at):
                at = self.progress.next_open(at + 1)
            self.fetch_offset = at

    def is_fetched(self, offset: int) -> bool:
        """Whether the table has a message that stands where others are not fetched yet: it was
        handed out before a restart."""
        if offset >= self.restored_end:
            return False
        return self.leases.is_parked(offset) or self.leases.state_of(offset) is not None

    def alike_from(self, start: int, most: int) -> tuple[bool, int]:
        """Of a group in order: whether the message at `start` is handed out or parked since before
        a restart, so that its key waits for it whatever a filter says; and the end of those, at
        most `most`, of which the same is true."""
        is_known, end = self._is_waited_for(start), start + 1
        stop = min(start + most, self.restored_end)
        while end < stop and self._is_waited_for(end) is is_known:
            end += 1
        return is_known, end

    def _is_waited_for(self, offset: int) -> bool:
        return self.is_fetched(offset) or offset in self.state.parked

    def give_turn(self, turn: Turn) -> None:
        """It is this message's turn: it is ready, unless it was parked before a restart, and is
        not to be delivered before the log has its release; or it has had its turn then."""
        parked = self.state.parked.get(turn.offset)
        if self.leases.is_parked(turn.offset) or self.is_fetched(turn.offset):
            return
        if parked is None:
            self.leases.make_ready(turn.offset, turn.earlier)
        else:
            self.leases.park_unseen(turn.offset, parked.attempts)

    def known_of(self, offsets: Collection[int]) -> "Known":
        """What `finish` is about to forget and `reopen` needs. A retry counts the deliveries of
        its original in the attempt of its lease, so its own are kept beside."""
        deliveries, parked = self.state.deliveries, self.state.parked
        return Known(
            self.leases,
            self.state.epoch,
            {each: deliveries.get(each, 0) for each in offsets} if self.is_retry else {},
            [parked[each] for each in offsets if each in parked] if parked else [],
        )

    def reopen(self, known: "Known", leases: Mapping[int, Lease]) -> bool:
        """Undo in the progress what `finish` did and the log refused; offset → its lease.

        True: the table is that of the leases still. Otherwise the queue has begun again since, or
        is in order and others may have had their turn: `start_over` is to follow, or messages
        below `fetch_offset` would never come again. Nothing is undone after a reset.
        """
        if not leases:
            return True
        deliveries = {
            offset: known.deliveries.get(offset, lease.attempt) for offset, lease in leases.items()
        }
        self.state.reopen(known.epoch, deliveries, known.parked)
        if self.state.epoch != known.epoch:
            return True
        return self.leases is known.table and self.order is None

    def start_over(self, first_lease_id: int) -> None:
        """Fetch from the committed offset on, as after a restart; all handles become void."""
        self.leases.close()
        self.leases = LeaseTable(self._in_flight)
        self.fetch_offset = self.progress.committed
        self.restored_end = self.state.end
        if self.order is not None:
            self.order = KeyOrder()
        self.first_lease_id = first_lease_id
        self.is_being_read = False


class Known(NamedTuple):
    """What was known of messages before they were done."""

    table: LeaseTable
    epoch: int
    deliveries: Mapping[int, int]
    parked: Sequence[ParkedMessage]


Held = tuple[LeasedQueue, int, int]
"""A delivery: queue, offset, lease id."""


class Replay:
    """What one `attempt_id` got: (queue, offset, lease id) each, to be read again when asked."""

    __slots__ = ("expires_s", "leases")

    def __init__(self, expires_s: float, leases: list[Held]) -> None:
        self.expires_s = expires_s
        self.leases = leases


class Subscription:
    """A group's state on one topic; made on first use, dropped with the topic or group."""

    __slots__ = (
        "clients",
        "generations",
        "group",
        "handle_prefix",
        "in_flight",
        "is_closed",
        "is_leasing",
        "is_ordered",
        "last_used_s",
        "line",
        "next_queue",
        "placed",
        "queues",
        "replayed_count",
        "replays",
        "retry",
        "sources",
        "topic",
    )

    def __init__(
        self, group: str, topic: str, retry: LeasedQueue, in_flight: InFlight, shard: bytes
    ) -> None:
        self.group = group
        self.topic = topic
        self.generations = 0, 0
        """Of the group and of the topic; zeros in a stand-in."""
        self.is_ordered = retry.order is not None
        self.queues: list[LeasedQueue] = []
        self.retry = retry
        self.sources: list[LeasedQueue] = [retry]
        """Everything that messages are taken from."""
        self.in_flight = in_flight
        """Of the whole group, over all its topics."""
        self.line = WaitQueue((topic, retry.stored_topic))
        self.next_queue = 0
        """Where the next receive begins, so that all queues get their turn."""
        self.is_closed = False
        self.is_leasing = False
        """Receives may take from it; `consumption` says when."""
        self.last_used_s = NEVER_USED
        """When somebody last received or settled."""
        self.clients: dict[str, None] = {}
        """Some who named themselves, the latest last."""
        self.placed: AppendFuture | None = None
        """Where the group begins is being written down."""
        self.handle_prefix = receipt_prefix(topic, group, shard)
        self.replays: dict[str, Replay] = {}
        self.replayed_count = 0

    @property
    def row(self) -> tuple[str, str]:
        """What it is called among the rows of a service: group and topic."""
        return self.group, self.topic

    @property
    def held_count(self) -> int:
        """Messages that are out, or wait in their place for the next delivery."""
        return sum([queue.leases.held_count for queue in self.sources])

    def note_client(self, client_id: str) -> None:
        self.clients.pop(client_id, None)
        self.clients[client_id] = None
        if len(self.clients) > CONSUMERS_SHOWN_MAX:
            del self.clients[next(iter(self.clients))]

    def find(self, queue_id: int) -> LeasedQueue | None:
        """The queue that a receipt handle names."""
        if queue_id == RETRY_QUEUE_ID:
            return self.retry
        return self.queues[queue_id] if queue_id < len(self.queues) else None

    def add(self, queue: LeasedQueue) -> None:
        """The topic has another queue."""
        self.queues.append(queue)
        self.sources.insert(len(self.sources) - 1, queue)

    @property
    def leased_count(self) -> int:
        """Messages that clients hold, or whose lease has just run out."""
        if not self.in_flight.count:
            return 0
        return sum([queue.leases.taken_count for queue in self.sources])

    def close(self) -> Iterator[None]:
        """The topic or group was deleted: whoever waits looks again, and sees it. To be gone
        through by `Remains`: each step lets go some of what was leased."""
        self.is_closed = True
        self.is_leasing = False
        self.line.wake_everybody()
        return _let_go([queue.leases for queue in self.sources])

    def expire(self, now_s: float) -> bool:
        """Notice leases and delays that have ended. True: some messages are ready."""
        is_ready = False
        for queue in self.sources:
            leases = queue.leases
            if leases.next_change_s <= now_s:
                leases.expire(now_s)
            if leases.returned_count:
                is_ready = True
        return is_ready

    # --- replays of receives

    def remember(self, attempt_id: str, replay: Replay, now_s: float) -> None:
        """Keep `replay` for a repeated `attempt_id`; now and then, forget what has ended."""
        self.forget(attempt_id)
        self.replays[attempt_id] = replay
        self.replayed_count += len(replay.leases)
        if self.replayed_count > 2 * self.in_flight.count + _STALE_REPLAYS_MAX:
            self._sweep_replays(now_s)

    def forget(self, attempt_id: str) -> None:
        replay = self.replays.pop(attempt_id, None)
        if replay is not None:
            self.replayed_count -= len(replay.leases)

    def _sweep_replays(self, now_s: float) -> None:
        """Drop settled leases from all replays: no more are live than are in flight."""
        for attempt_id in list(self.replays):
            replay = self.replays[attempt_id]
            replay.leases = live_leases(replay, now_s)
            if not replay.leases:
                del self.replays[attempt_id]
        self.replayed_count = sum(len(replay.leases) for replay in self.replays.values())


def live_leases(replay: Replay, now_s: float) -> list[Held]:
    """Those of a replay that are still held by the handles it gave out."""
    if replay.expires_s <= now_s:
        return []
    return [
        (queue, offset, lease_id)
        for queue, offset, lease_id in replay.leases
        if queue.leases.get(offset, lease_id, now_s) is not None
    ]


def _let_go(tables: Sequence[LeaseTable]) -> Iterator[None]:
    """Close them: some in each step, of a large one a piece."""
    for number, table in enumerate(tables, 1):
        pieces = table.detach()
        next(pieces, None)
        yield from pieces
        if number % _TABLES_A_STEP == 0:
            yield
