"""Writing groups' progress down: one entry in the log for each settle, receive, commit and reset.

The log is the truth, SQL a checkpoint of the committed offsets (`offset_book`) that is at most a
second old. So a database that is slow, locked or gone costs no redelivery, and neither does a
kill -9; a loss of power costs what the topic's flush mode allows. Event loop only.

Invariant: memory takes a change in the turn in which its entry is appended (`journal`).
"""

import contextlib
import logging
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Executor
from itertools import groupby
from operator import itemgetter
from typing import Final

from app.broker.confirming import Confirmation
from app.broker.group_progress import (
    Bound,
    ConsumptionSet,
    Delivered,
    Entry,
    Forgotten,
    GroupProgress,
    HandedOut,
    HeldTo,
    Key,
    Placed,
    QueueState,
    Skipped,
    Unsubscribed,
    delivered_runs,
    encode_entry,
)
from app.broker.journal import Journal
from app.broker.offset_book import OffsetBook
from app.broker.ports import Group, Snapshot, Store, Topic
from app.broker.subscriptions import Held, Subscription
from app.domain.consumption import Consumption
from app.domain.errors import CurlewError, DiskFull
from app.domain.names import PROGRESS_TOPIC, dead_letter_topic, retry_topic
from app.domain.positions import FlushMode
from app.domain.receipt import RETRY_QUEUE_ID
from app.store import Done, StepPart

_LOG: Final = logging.getLogger(__name__)
_SHOWN: Final = 20
"""Queues that one line of the log lists."""


class ProgressJournal:
    """One per broker. `load` before use."""

    def __init__(self, store: Store, readers: Executor) -> None:
        self._store = store
        self._state = GroupProgress()
        self._journal = Journal(store, PROGRESS_TOPIC, self._state, readers)

    async def load(self, book: OffsetBook, snapshot: Snapshot) -> None:
        """Replay the log; then log, book and queues know the same.

        The log is the truth. SQL is looked at only for queues of which the log knows nothing. What
        lies beyond the end of its queue, because a loss of power took the end of the log or an
        older log was restored, is held to that end before anything new is stored there.
        """
        await self._journal.replay()
        queues = self._state.queues
        for group, topic in sorted({key[:2] for key in queues} | {*self.consumptions()}):
            self._take_up(group, topic, snapshot)
        for key, offset in book.rows():
            if key not in queues:
                self._state.get_or_make(key).skip_to(offset)
        await self._hold_to_ends()
        for (group, topic, queue_id), state in queues.items():
            if queue_id != RETRY_QUEUE_ID:
                book.correct((group, topic, queue_id), state.progress.committed)

    def _take_up(self, group: str, topic: str, snapshot: Snapshot) -> None:
        """Drop the work of what was deleted; keep that of what is merely not in the metadata."""
        group_now, topic_now = snapshot.groups.get(group), snapshot.topics.get(topic)
        of_group, of_topic = self._state.generations.get((group, topic), (0, 0))
        if self._is_gone(dead_letter_topic(group), of_group, group_now) or self._is_gone(
            topic, of_topic, topic_now
        ):
            self._finish_deletion(group, topic)
        elif group_now is not None and topic_now is not None:
            self.bind(group_now, topic_now)

    def _is_gone(self, stored: str, generation: int, now: Group | Topic | None) -> bool:
        if now is not None and generation in (0, now.generation):
            return False
        return self._store.is_gone(stored, generation)

    def _finish_deletion(self, group: str, topic: str) -> None:
        """The node was killed while it deleted one of them, or another node has done it.

        Written down, or it would come back with the next start for one made again by then.
        """
        self._delete_retries(group, topic)
        self._change_if_possible(Unsubscribed(group, topic))

    def _delete_retries(self, group: str, topic: str) -> None:
        retries = retry_topic(group, topic)
        if any(self._store.bounds(retries, 0)):
            self._store.delete_topic(retries)

    async def _hold_to_ends(self) -> None:
        """Once, before anybody stores or reads."""
        held: list[str] = []
        last: Confirmation | None = None
        for (group, topic, queue_id), state in self._state.queues.items():
            is_retry = queue_id == RETRY_QUEUE_ID
            place = (retry_topic(group, topic), 0) if is_retry else (topic, queue_id)
            end = self._store.bounds(*place).max_offset
            if state.end > end:
                if state.progress.committed > end:
                    committed = state.progress.committed
                    held.append(f"{group} in queue {place[1]} of {place[0]}: {committed} to {end}")
                last = self.change(HeldTo(group, topic, queue_id, end), FlushMode.ASYNC)
        if held:
            _LOG.warning(
                "committed offsets lay beyond the end of the log, whose end was lost or which is an"
                " older one; %d were set back: %s%s",
                *(len(held), "; ".join(held[:_SHOWN]), "; …" if len(held) > _SHOWN else ""),
            )
        if last is not None:
            await last.wait()

    def bind(self, group: Group, topic: Topic) -> None:
        """Let the group's work in the topic be that of these generations, before any of it.

        Raises what `Store.append` raises.
        """
        pair = group.name, topic.name
        generations = group.generation, topic.generation
        before = self._state.generations.get(pair)
        if before == generations:
            return
        if before is not None:
            self._delete_retries(*pair)

        def done(error: CurlewError | None) -> None:
            if error is not None and self._state.generations.get(pair) == generations:
                del self._state.generations[pair]  # the next one writes it again

        is_early = before is None and any(key[:2] == pair for key in self._state.queues)
        entry = Bound(*pair, generations, keeps=is_early)
        self._store.append_step((self.part(entry),), FlushMode.ASYNC, done)
        self._state.take(entry)

    def find(self, key: Key) -> QueueState | None:
        return self._state.queues.get(key)

    def queue(self, key: Key) -> QueueState:
        """The state of a queue; made when there is none."""
        return self._state.get_or_make(key)

    def topics(self, group: str) -> set[str]:
        """Topics in which the group has begun."""
        return {key[1] for key in self._state.queues if key[0] == group}

    def topics_of(self, groups: Collection[str]) -> dict[str, set[str]]:
        """The same for several groups, in one pass."""
        found: dict[str, set[str]] = {group: set() for group in groups}
        for group, topic, _ in self._state.queues:
            if group in found:
                found[group].add(topic)
        for group, topic in self._state.consumptions:
            if group in found:
                found[group].add(topic)
        return found

    def retried(self) -> list[tuple[str, str]]:
        """(group, topic) pairs that have a retry topic."""
        return [(key[0], key[1]) for key in self._state.queues if key[2] == RETRY_QUEUE_ID]

    def of_group(self, group: str) -> list[tuple[str, int, QueueState]]:
        """Topic, queue id and state of everything that a group consumes."""
        return [
            (topic, queue_id, state)
            for (name, topic, queue_id), state in self._state.queues.items()
            if name == group
        ]

    def consumption(self, group: str, topic: str) -> tuple[Consumption, int] | None:
        """How the group consumes the topic, and since when; None: nobody does."""
        return self._state.consumptions.get((group, topic))

    def consumptions(self) -> list[tuple[str, str]]:
        """(Group, topic) pairs that are consumed."""
        return list(self._state.consumptions)

    # --- entries

    def part(self, entry: Entry) -> StepPart:
        """The part of a step that writes `entry` down; the caller makes the change in this turn."""
        return self._journal.entry(encode_entry(entry))

    def append(self, entry: Entry, flush: FlushMode, settled: Done | None = None) -> Confirmation:
        """Write one entry down that belongs to no message. Raises what `Store.append` raises.

        `settled` is called before the confirmation tells anybody.
        """
        confirmation = Confirmation()
        done = confirmation.done
        if settled is not None:

            def done(error: CurlewError | None) -> None:
                settled(error)
                confirmation.done(error)

        self._store.append_step((self.part(entry),), flush, done)
        return confirmation

    def place(
        self, group: str, rows: Iterable[tuple[str, int, int]], flush: FlushMode
    ) -> Confirmation:
        """Let the group begin (anew) at (topic, queue id, offset) each."""
        return self.change(Placed(group, list(rows)), flush)

    def skip(
        self, group: str, rows: Iterable[tuple[str, int, int]], flush: FlushMode
    ) -> Confirmation:
        """Everything below (topic, queue id, offset) each is done for the group."""
        return self.change(Skipped(group, list(rows)), flush)

    def hand_out(self, subscription: Subscription, leased: Sequence[Held]) -> Confirmation:
        """Messages were leased once more each."""
        return self._count(subscription, leased, 1)

    def take_back(self, subscription: Subscription, leased: Sequence[Held]) -> None:
        """They never reached a consumer. Not waited for: at worst one attempt is lost."""
        self._count(subscription, leased, -1)

    def _count(self, subscription: Subscription, leased: Sequence[Held], by: int) -> Confirmation:
        rows: list[tuple[str, int, list[Delivered]]] = []
        for queue, run in groupby(leased, itemgetter(0)):
            offsets = [offset for _, offset, _ in run]
            known = queue.state.deliveries
            first, count = offsets[0], len(offsets)
            is_new = by == 1 and known.keys().isdisjoint(offsets)
            if is_new and offsets == list(range(first, first + count)):
                runs = [(first, count, 1)]
            else:
                runs = list(delivered_runs([(each, known.get(each, 0) + by) for each in offsets]))
            rows.append((subscription.topic, queue.queue_id, runs))
        return self.change(HandedOut(subscription.group, rows), FlushMode.ASYNC)

    def set_consumption(
        self, group: Group, topic: Topic, kind: Consumption | None, now_ms: int
    ) -> Confirmation | None:
        """From now on the group consumes the topic so. None: the disk is full; then a crash would
        forget it, as it would forget deliveries."""
        entry = ConsumptionSet(group.name, topic.name, kind, now_ms)
        written: Confirmation | None = None
        with contextlib.suppress(DiskFull):
            self.bind(group, topic)
            written = self.append(entry, FlushMode.ASYNC)
        self._state.take(entry)
        return written

    def unsubscribe(self, group: str, topic: str) -> Confirmation:
        """The group's progress in the topic is deleted."""
        return self.change(Unsubscribed(group, topic), FlushMode.SYNC)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group was deleted. Not waited for: the metadata says so as well."""
        self._change_if_possible(Forgotten(group, topic))

    def _change_if_possible(self, entry: Forgotten | Unsubscribed) -> None:
        """What was deleted is forgotten also when the log takes nothing now."""
        with contextlib.suppress(CurlewError):
            self.append(entry, FlushMode.ASYNC)
        self._state.take(entry)

    def change(self, entry: Entry, flush: FlushMode) -> Confirmation:
        """Write an entry down that belongs to no message, and make its change."""
        confirmation = self.append(entry, flush)
        self._state.take(entry)
        return confirmation

    async def turn(self) -> None:
        """Write a snapshot when one is due. A service's turn."""
        await self._journal.turn()
