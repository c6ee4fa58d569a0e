"""Writing groups' progress down: one entry in the log for each settle, receive, commit and reset.

The log is the truth, SQL a copy of the committed offsets (`offset_cache`) that is at most a second
old and is never read back. So a database that is slow, locked or gone costs no redelivery, and
neither does a kill -9; a loss of power costs what the topic's flush mode allows. Event loop only.

Invariant: memory takes a change in the turn in which its entry is appended (`journal`).
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from app.broker.context import Context
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.journal import Journal
from app.broker.journal.warm_journal import WarmJournal
from app.broker.leasing.remains import Remains
from app.broker.leasing.subscriptions import Held, LeasedQueue, Subscription
from app.broker.ports import Group, Snapshot, Topic
from app.broker.progress.consumer_state import ConsumerState, Leased
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
    LeaseRun,
    Placed,
    Skipped,
    SubscriptionSet,
    Unsubscribed,
    delivered_runs,
    encode_entry,
    lease_runs,
)
from app.broker.progress.queue_state import Move, QueueState
from app.domain.consumers.consumption import Consumption
from app.domain.errors import CurlewError, DiskFull
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.names import PROGRESS_TOPIC, dead_letter_topic, retry_topic
from app.domain.positions import FlushMode
from app.store import Done, StepPart

_LOG: Final = logging.getLogger(__name__)
_NOTHING: Final[Mapping[Key, int]] = MappingProxyType({})
_SHOWN: Final = 20
"""Queues that one line of the log lists."""
_LET_GO_A_STEP: Final = 64
"""States of queues; sixteen steps of them in a turn take about a millisecond."""

Moved = Callable[[Key, int, CurlewError | None], None]
"""What became of a move of a queue to a committed offset."""


class ConsumerJournal:
    """One per broker. `load` before use."""

    def __init__(self, context: Context, warm: WarmJournal[ConsumerState] | None = None) -> None:
        """`warm` was kept up while this replica followed."""
        self._store = context.store
        self._state = ConsumerState(context.clock.now_ms()) if warm is None else warm.state
        self.open = self._state.open
        """Deliveries of before the start, until they are taken up."""
        self._remains = Remains()
        self._journal = Journal(context.store, PROGRESS_TOPIC, self._state, context.readers, warm)
        self._unbound: dict[tuple[str, str], Bound] = {}
        """(group, topic) → what the log has refused; written before any other entry of the pair."""
        self._unforgotten: set[tuple[str, str]] = set()
        """(group, topic) pairs that were deleted, which the log has refused to hear; told again."""
        self._untold: set[tuple[str, str]] = set()
        """(group, topic) pairs whose kind of consumption the log has refused; told again."""

    async def load(self, snapshot: Snapshot, early: Mapping[Key, int] = _NOTHING) -> None:
        """Replay the log; then log and queues know the same.

        `early` has the committed offsets of a version that kept some in SQL only; they are written
        into the log, for queues of which it knows nothing. What lies beyond the end of its queue,
        because a loss of power took the end of the log or an older log was restored, is held to
        that end before anything new is stored there.
        """
        await self._journal.replay()
        queues = self._state.queues
        for group, topic in sorted({*queues.pairs(), *self.consumptions()}):
            self._take_up(group, topic, snapshot)
        self._take_over({key: at for key, at in early.items() if key not in queues}, snapshot)
        self._hold_to_ends()

    def _take_over(self, early: Mapping[Key, int], snapshot: Snapshot) -> None:
        """Write offsets into the log that only SQL has, before anything else."""
        for (group, topic, queue_id), offset in sorted(early.items()):
            group_now, topic_now = snapshot.groups.get(group), snapshot.topics.get(topic)
            if group_now is None or topic_now is None or queue_id >= topic_now.queues:
                continue
            self.bind(group_now, topic_now, may_wait=True)
            end = self._store.bounds(topic, queue_id).max_offset
            entry = Placed(group, [(topic, queue_id, min(offset, end))])
            self._append_first(entry)
            self._state.take(entry)

    def committed(self) -> list[tuple[Key, int]]:
        """The committed offset of each queue of a topic."""
        return [
            (key, state.progress.committed)
            for key, state in self._state.queues.items()
            if key[2] != RETRY_QUEUE_ID
        ]

    def _take_up(self, group: str, topic: str, snapshot: Snapshot) -> None:
        """Drop the work of what was deleted; keep that of what is merely not in the metadata."""
        group_now, topic_now = snapshot.groups.get(group), snapshot.topics.get(topic)
        of_group, of_topic = self._state.generations.get((group, topic), (0, 0))
        if self._is_gone(dead_letter_topic(group), of_group, group_now) or self._is_gone(
            topic, of_topic, topic_now
        ):
            self._finish_deletion(group, topic)
        elif group_now is not None and topic_now is not None:
            self.bind(group_now, topic_now, may_wait=True)

    def _is_gone(self, stored: str, generation: int, now: Group | Topic | None) -> bool:
        if now is not None and generation in (0, now.generation):
            return False
        return self._store.is_gone(stored, generation)

    def _finish_deletion(self, group: str, topic: str) -> None:
        """The node was killed while it deleted one of them, or another node has done it.

        Written down, or it would come back with the next start for one made again by then.
        """
        self.delete_retries(group, topic)
        self._change_if_possible(Unsubscribed(group, topic))

    def delete_retries(self, group: str, topic: str) -> None:
        """Or who begins anew would begin with them, acked ones too. Those that are on their way are
        nobody's either. What cannot be written down now is unreadable all the same."""
        retries = retry_topic(group, topic)
        if self._store.next_offset(retries, 0):
            with contextlib.suppress(CurlewError):
                self._store.delete_topic(retries)

    def _hold_to_ends(self) -> None:
        """Once, before anybody stores or reads. Without room for it the log is told before the next
        message is stored, which would else seem to be done."""
        held: list[str] = []
        for (group, topic, queue_id), state in self._state.queues.items():
            is_retry = queue_id == RETRY_QUEUE_ID
            place = (retry_topic(group, topic), 0) if is_retry else (topic, queue_id)
            end = self._store.bounds(*place).max_offset
            if state.end > end:
                if state.progress.committed > end:
                    committed = state.progress.committed
                    held.append(f"{group} in queue {place[1]} of {place[0]}: {committed} to {end}")
                entry = HeldTo(group, topic, queue_id, end)
                self._append_first(entry)
                self._state.take(entry)
        if held:
            _LOG.warning(
                "committed offsets lay beyond the end of the log, whose end was lost or which is an"
                " older one; %d were set back: %s%s",
                *(len(held), "; ".join(held[:_SHOWN]), "; …" if len(held) > _SHOWN else ""),
            )

    def bind(self, group: Group, topic: Topic, *, may_wait: bool = False) -> None:
        """Let the group's work in the topic be that of these generations, before any of it.

        Raises what `Store.append` raises; an entry that `may_wait` waits for room instead, in line
        with what else waits, or it would take back a place that is written before it.
        """
        pair = group.name, topic.name
        generations = group.generation, topic.generation
        before = self._state.generations.get(pair)
        if before == generations:
            self._write_unbound([pair])
            return
        if before is not None:
            self.delete_retries(*pair)
        with contextlib.suppress(CurlewError):  # the store tells the log with its next checkpoint
            self._store.begin_topic(retry_topic(*pair), 0)
        is_early = before is None and bool(self._state.queues.of_pair(*pair))
        entry = Bound(*pair, generations, keeps=is_early)
        if may_wait:
            self._append_first(entry)
        else:
            self._append_bound(entry)
        self._state.take(entry)
        self._unforgotten.discard(pair)  # it forgets what was before

    def is_bound(self, group: Group, topic: Topic) -> bool:
        """Whether what is known of the two is of these generations."""
        bound = self._state.generations.get((group.name, topic.name))
        return bound == (group.generation, topic.generation)

    def _append_bound(self, entry: Bound) -> None:
        pair = entry.group, entry.topic

        def done(error: CurlewError | None) -> None:
            if error is not None and self._state.generations.get(pair) == entry.generations:
                self._unbound[pair] = entry

        self._store.append_step((self._journal.entry(encode_entry(entry)),), FlushMode.ASYNC, done)
        self._unbound.pop(pair, None)

    def _write_unbound(self, pairs: Iterable[tuple[str, str]]) -> None:
        """What the log has refused comes before anything else of the pair: a later one would take
        back all that is written before it."""
        for pair in pairs:
            entry = self._unbound.get(pair)
            if entry is not None:
                self._append_bound(entry)

    def find(self, key: Key) -> QueueState | None:
        return self._state.queues.get(key)

    def queue(self, key: Key) -> QueueState:
        """The state of a queue; made when there is none."""
        return self._state.get_or_make(key)

    def topics(self, group: str) -> set[str]:
        """Topics in which the group has begun."""
        return set(self._state.queues.topics_of(group))

    def topics_by_group(self) -> dict[str, set[str]]:
        """The same for all groups that have begun anywhere, in one pass."""
        found: dict[str, set[str]] = {}
        for group, topic in self._state.queues.pairs():
            found.setdefault(group, set()).add(topic)
        return found

    def topics_of(self, groups: Collection[str]) -> dict[str, set[str]]:
        """The same for several groups, in one pass."""
        found: dict[str, set[str]] = {group: set() for group in groups}
        for group, topic in self._state.queues.pairs():
            if group in found:
                found[group].add(topic)
        for group, topic in self._state.consumptions:
            if group in found:
                found[group].add(topic)
        return found

    def retried(self) -> list[tuple[str, str]]:
        """(group, topic) pairs that have a retry topic."""
        queues = self._state.queues
        return [pair for pair in queues.pairs() if (*pair, RETRY_QUEUE_ID) in queues]

    def of_group(self, group: str) -> list[tuple[str, int, QueueState]]:
        """Topic, queue id and state of everything that a group consumes."""
        return [
            (topic, queue_id, state)
            for topic in self._state.queues.topics_of(group)
            for (_, _, queue_id), state in self._state.queues.of_pair(group, topic).items()
        ]

    def consumption(self, group: str, topic: str) -> tuple[Consumption, int] | None:
        """How the group consumes the topic, and since when; None: nobody does."""
        return self._state.consumptions.get((group, topic))

    def consumptions(self) -> list[tuple[str, str]]:
        """(Group, topic) pairs that are consumed."""
        return list(self._state.consumptions)

    def subscription(self, group: str, topic: str) -> GroupSubscription | None:
        """The filter with which the group reads the topic; None: nobody has named one."""
        return self._state.subscriptions.get((group, topic))

    @property
    def subscription_count(self) -> int:
        """Of all groups."""
        return len(self._state.subscriptions)

    def subscriptions(self, group: str) -> dict[str, GroupSubscription]:
        """Topic → filter, of one group."""
        return {
            topic: each
            for (name, topic), each in self._state.subscriptions.items()
            if name == group
        }

    # --- entries

    def part(self, entry: Entry) -> StepPart:
        """The part of a step that writes `entry` down; the caller makes the change in this turn.

        Raises what `Store.append` raises.
        """
        if self._unbound and not isinstance(entry, Forgotten | Unsubscribed):
            self._write_unbound([pair for pair in self._unbound if pair[0] == entry.group])
        return self._journal.entry(encode_entry(entry))

    def append(self, entry: Entry, flush: FlushMode, settled: Done | None = None) -> AppendFuture:
        """Write one entry down that belongs to no message. Raises what `Store.append` raises.

        `settled` is called before the confirmation tells anybody.
        """
        confirmation = AppendFuture()
        done = confirmation.done
        if settled is not None:

            def done(error: CurlewError | None) -> None:
                settled(error)
                confirmation.done(error)

        self._store.append_step((self.part(entry),), flush, done)
        return confirmation

    def place(
        self, group: str, rows: Iterable[tuple[str, int, int]], flush: FlushMode
    ) -> AppendFuture:
        """Let the group begin at (topic, queue id, offset) each. Stays when the log refuses it: the
        caller writes it again."""
        return self.change(Placed(group, list(rows)), flush)

    def place_reader(
        self, group: str, topic: str, offsets: Mapping[int, int]
    ) -> AppendFuture | None:
        """Let a group that reads by offset begin here. What the log refuses is told to it before
        the next message; memory keeps it. None: it is refused already."""
        pair = group, topic
        entry = Placed(group, [(topic, queue_id, at) for queue_id, at in offsets.items()])
        generations = self._state.generations.get(pair)

        def settled(error: CurlewError | None) -> None:
            if error is not None and self._state.generations.get(pair) == generations:
                with contextlib.suppress(CurlewError):  # nothing is written any more
                    self._place_with_room(pair, entry)

        try:
            return self.change(entry, FlushMode.ASYNC, settled)
        except DiskFull:
            self._place_with_room(pair, entry)
            self._state.take(entry)
            return None

    def _place_with_room(self, pair: tuple[str, str], entry: Placed) -> None:
        """Behind the generations of the pair, which would take the place back, if those wait."""
        bound = self._unbound.pop(pair, None)
        for each in (bound, entry) if bound is not None else (entry,):
            self._append_first(each)

    def _append_first(self, entry: Entry) -> None:
        """Now, or before the next message."""
        self._store.first_steps.append(self._journal.entry(encode_entry(entry)))

    def skip(
        self, group: str, rows: Iterable[tuple[str, int, int]], flush: FlushMode
    ) -> AppendFuture:
        """Everything below (topic, queue id, offset) each is done for the group; as above."""
        return self.change(Skipped(group, list(rows)), flush)

    def move(self, entry: Placed | Skipped, flush: FlushMode, moved: Moved) -> AppendFuture:
        """A reset or a commit by a client, which is undone when the log refuses it.

        `moved` is called for each queue that is known still, before the confirmation tells anybody.
        """
        moves: list[tuple[Key, QueueState, Move]] = []
        committed: list[int] = []

        def settled(error: CurlewError | None) -> None:
            for (key, state, move), offset in zip(moves, committed, strict=True):
                is_known = True
                if error is None:
                    state.confirm(move)
                else:
                    is_known = state.undo(move)
                if self.find(key) is state:
                    if not is_known:
                        del self._state.queues[key]
                    moved(key, offset, error)

        confirmation = self.append(entry, flush, settled)
        for topic, queue_id, offset in entry.rows:
            key = entry.group, topic, queue_id
            is_new = key not in self._state.queues
            state = self.queue(key)
            is_restart = isinstance(entry, Placed)
            moves.append((key, state, state.begin_move(offset, is_restart, is_new)))
        self._state.take(entry)
        committed += [state.progress.committed for _, state, _ in moves]
        return confirmation

    def read_leases(self, leased: Leased) -> None:
        """Ask this for the leases of a queue when a snapshot is written."""
        self._state.leased = leased

    def hand_out(
        self, subscription: Subscription, leased: Sequence[Held], until_ms: int
    ) -> AppendFuture:
        """Messages were leased once more each, until then by the wall clock. When the log refuses
        that, memory knows it still, as `take_back` does."""
        entry = self._handed_out(subscription, leased, 1, until_ms)
        try:
            return self.append(entry, FlushMode.ASYNC)
        finally:
            self._state.take(entry)

    def note_leases(
        self, subscription: Subscription, leased: Sequence[Held], until_ms: int = 0
    ) -> None:
        """Leases last longer now, or (without a time) have ended. Not waited for, nor repeated when
        the log refuses it: a restart then holds the messages as long as they were said to be."""
        if not leased:
            return
        with contextlib.suppress(CurlewError):
            self.append(self._handed_out(subscription, leased, 0, until_ms), FlushMode.ASYNC)

    def take_back(self, subscription: Subscription, leased: Sequence[Held]) -> AppendFuture:
        """They were handed back untouched. When the log refuses that, memory knows it still, so
        that the next entry about these messages has the right number."""
        entry = self._handed_out(subscription, leased, -1, 0)
        try:
            return self.append(entry, FlushMode.ASYNC)
        finally:
            self._state.take(entry)

    def _handed_out(
        self, subscription: Subscription, leased: Sequence[Held], by: int, until_ms: int
    ) -> HandedOut:
        rows: list[tuple[str, int, list[Delivered]]] = []
        leases: list[list[LeaseRun]] = []
        for queue, run in groupby(leased, itemgetter(0)):
            held = list(run)
            offsets = [offset for _, offset, _ in held]
            known = queue.state.deliveries
            first, count, first_id = offsets[0], len(offsets), held[0][2]
            is_new = by == 1 and not queue.is_retry and known.keys().isdisjoint(offsets)
            is_run = is_new and offsets == list(range(first, first + count))
            if is_run and held[-1][2] - first_id == count - 1:
                runs = [(first, count, 1)]
                leases.append([(first, count, first_id, 1)])
            else:
                times = [(each, max(known.get(each, 0) + by, 0)) for each in offsets]
                runs = list(delivered_runs(times))
                if until_ms:
                    leases.append(list(lease_runs(_attempts(queue, held))))
            rows.append((subscription.topic, queue.queue_id, runs))
        if not until_ms:
            return HandedOut(subscription.group, rows)
        return HandedOut(subscription.group, rows, until_ms, leases, subscription.is_ordered)

    def set_consumption(
        self, group: Group, topic: Topic, kind: Consumption | None, now_ms: int
    ) -> AppendFuture | None:
        """From now on the group consumes the topic so. None: the disk is full. What the log has
        refused it is told again (`turn`); a crash before would forget it, as it would forget
        deliveries."""
        entry = ConsumptionSet(group.name, topic.name, kind, now_ms)
        written: AppendFuture | None = None
        try:
            self.bind(group, topic)
            written = self._append_kind(entry)
        except DiskFull:
            self._untold.add((group.name, topic.name))
        self._state.take(entry)
        return written

    def _append_kind(self, entry: ConsumptionSet) -> AppendFuture:
        pair = entry.group, entry.topic

        def settled(error: CurlewError | None) -> None:
            if error is not None:
                self._untold.add(pair)

        return self.append(entry, FlushMode.ASYNC, settled)

    def _tell_kinds_again(self) -> None:
        """Those of now, whatever was refused; who is not bound has begun nothing."""
        untold, self._untold = self._untold, set()
        for pair in untold & self._state.generations.keys():
            kind, since_ms = self._state.consumptions.get(pair, (None, 0))
            try:
                self._append_kind(ConsumptionSet(*pair, kind, since_ms))
            except CurlewError:
                self._untold.add(pair)

    def set_subscription(
        self, group: Group, topic: Topic, now: GroupSubscription | None, flush: FlushMode
    ) -> AppendFuture:
        """From now on the group reads the topic with this filter. Undone when the log refuses it.
        Raises what `Store.append` raises."""
        self.bind(group, topic)  # forgets the filter of an earlier topic of this name
        pair = group.name, topic.name
        before = self._state.subscriptions.get(pair)

        def settled(error: CurlewError | None) -> None:
            is_mine = self._state.subscriptions.get(pair) is now
            if error is not None and is_mine and pair in self._state.generations:
                self._state.take(SubscriptionSet(*pair, before))

        return self.change(SubscriptionSet(*pair, now), flush, settled)

    def unsubscribe(self, group: str, topic: str, left: Done) -> AppendFuture:
        """The group's progress in the topic is deleted; when the log refuses it, all is as it was.
        `left` is told, before the confirmation tells anybody."""
        pair = group, topic
        before = self._state.queues.of_pair(*pair)
        generations, unbound = self._state.generations.get(pair), self._unbound.get(pair)
        consumption = self._state.consumptions.get(pair)
        subscription = self._state.subscriptions.get(pair)

        def settled(error: CurlewError | None) -> None:
            if error is not None:
                self._state.queues.update(before)
                if generations is not None:
                    self._state.generations[pair] = generations
                if consumption is not None:
                    self._state.consumptions[pair] = consumption
                if subscription is not None:
                    self._state.subscriptions[pair] = subscription
                if unbound is not None:
                    self._unbound[pair] = unbound
            left(error)

        confirmation = self.append(Unsubscribed(group, topic), FlushMode.SYNC, settled)
        self._unbound.pop(pair, None)
        self._state.take(Unsubscribed(group, topic))
        return confirmation

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group was deleted. Not waited for: the metadata says so as well."""
        self._change_if_possible(Forgotten(group, topic))

    def _change_if_possible(self, entry: Forgotten | Unsubscribed) -> None:
        """What was deleted is forgotten also when the log takes nothing now; it is told again."""
        if isinstance(entry, Unsubscribed):
            gone = {(entry.group, entry.topic)}
        else:
            gone = self._pairs_of(entry)

        def settled(error: CurlewError | None) -> None:
            if error is not None:
                self._unforgotten |= gone - self._state.generations.keys()

        try:
            self.append(entry, FlushMode.ASYNC, settled)
        except CurlewError:
            self._unforgotten |= gone
        for pair in gone:
            self._unbound.pop(pair, None)
        if isinstance(entry, Forgotten):
            for states in self._state.queues.take(group=entry.group, topic=entry.topic):
                self._remains.take(_let_go(states))
        self._state.take(entry)

    def _pairs_of(self, entry: Forgotten) -> set[tuple[str, str]]:
        """(group, topic) pairs of which anything is known, of a group or of a topic."""
        known = {*self._state.generations, *self._state.queues.pairs()}
        return {pair for pair in known if pair[0] == entry.group or pair[1] == entry.topic}

    def _forget_again(self) -> None:
        """What the log has refused to forget, and what was not made again since."""
        for pair in list(self._unforgotten):
            self._unforgotten.discard(pair)
            if pair not in self._state.generations:
                self._change_if_possible(Unsubscribed(*pair))

    def change(self, entry: Entry, flush: FlushMode, settled: Done | None = None) -> AppendFuture:
        """Write an entry down that belongs to no message, and make its change."""
        confirmation = self.append(entry, flush, settled)
        self._state.take(entry)
        return confirmation

    async def turn(self) -> None:
        """Say again what was refused; write a snapshot when one is due. A service's turn."""
        if self._unforgotten:
            self._forget_again()
        if self._untold:
            self._tell_kinds_again()
        await self._journal.turn()


def _let_go(states: dict[Key, QueueState]) -> Iterator[None]:
    """Drop the states of what was deleted, some at each step."""
    while states:
        for _ in range(min(len(states), _LET_GO_A_STEP)):
            states.popitem()
        yield


def _attempts(queue: LeasedQueue, held: Iterable[Held]) -> Iterator[tuple[int, int, int]]:
    """Offset, lease id and attempt of those that are leased still."""
    leased = queue.leases.leased
    for _, offset, lease_id in held:
        lease = leased.get(offset)
        if lease is not None and lease.lease_id == lease_id:
            yield offset, lease_id, lease.attempt
