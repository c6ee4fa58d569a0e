"""Snapshots that are written over many turns, with entries in between, cut at any record.

A log of entries and snapshots is made with the real journal and state, chunks as small as they can
be. Then it is cut behind each of its records, as by a kill, and replayed: what comes back is what
the state was when the last entry before the cut was taken.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import Any, Protocol
from unittest.mock import AsyncMock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from app.broker.dedup import dedup_table
from app.broker.dedup.dedup_entries import KnownProducer, SequenceNumbers
from app.broker.dedup.dedup_table import DedupTable
from app.broker.dedup.producer_plans import Plan
from app.broker.dedup.tokens import KeyToken, Placed, ProducerToken, family_of
from app.broker.failures import dead_letter_admin as dead_letters
from app.broker.journal.journal import Journal, JournaledState
from app.broker.progress import consumer_state as group_progress
from app.broker.progress.consumer_state import ConsumerState
from app.broker.progress.progress_entries import (
    Entry,
    Forgotten,
    HandedOut,
    Parked,
    ParkedMessage,
    Released,
    Settled,
    Skipped,
    Unsubscribed,
    delivered_runs,
    encode_entry,
    runs_of,
)
from app.broker.progress.progress_entries import Placed as Begun
from app.broker.transactions import transaction_table
from app.broker.transactions.transaction_table import (
    Transaction,
    TransactionState,
    TransactionTable,
)
from app.domain.errors import CurlewError, DiskFull, ProducerFenced, TooManyRequests
from app.domain.limits import Limits
from app.domain.positions import FlushMode
from tests.support.stores.clock import FakeClock
from tests.support.stores.memory_store import MemoryQueue, MemoryStore

TOPIC = "rmq_sys_progress"
Op = tuple[int, int, int, int]
SequenceRow = tuple[tuple[str, int], SequenceNumbers]
OPS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 9), st.integers(1, 4)),
    min_size=5,
    max_size=60,
)


class Subject(Protocol):
    """A state, and what may happen to it."""

    state: JournaledState

    def change(self, op: Op) -> tuple[bytes, Callable[[], Callable[[bool], None]]] | None:
        """An entry, and what takes it; that returns what settles it. None: not possible now."""
        ...

    def picture(self) -> object:
        """All that must come back."""
        ...


def _settled(_is_safe: bool) -> None:
    """Nothing depends on the confirmation."""


class ProducersAtWork:
    """Sends by sequence and by key, seals, plans, deletions of topics; what these end is forgotten
    slice by slice, some time later or before the kill."""

    can_fail = False
    results_max = 3

    def __init__(self) -> None:
        limits = Limits(producer_results_max=self.results_max)
        self.table = self.state = DedupTable(limits)
        self._now_ms = 1_000

    def change(self, op: Op) -> tuple[bytes, Callable[[], Callable[[bool], None]]] | None:
        kind, who, what, count = op
        self._now_ms += 1
        table, family = self.table, f"p{who}"
        placed = Placed.in_one_queue(what % 2, 10 * what, count)
        if kind < 5:
            claim = ProducerToken(f"{family}:{what % 2}", what // 5, 0)
            scope, topic = what % 2, f"t{count % 2}"
            known = table.state(claim.producer_id)
            if claim.epoch < (known.epoch or 0) or claim.epoch <= (known.sealed_epoch or -1):
                return None
            if claim.epoch == known.epoch:
                where = topic, scope
                found = [each.next_seq for each in known.sequences if each[:2] == where]
                claim = claim._replace(seq=max(found, default=0))
            entry = table.entry(claim, topic, scope, placed, self._now_ms)
        elif kind == 5:
            entry = table.entry(KeyToken(f"k{what}", "f"), "t", self._now_ms, placed, self._now_ms)
        elif kind == 6:
            entry = table.seal_entry(family, max(table.sealed_epoch(family), what // 5), 5)
        elif kind == 7:
            plan = Plan(family, 2 + what // 5, f"t{what % 2}", count, self._now_ms)
            try:
                if table.plan(family, plan.epoch, plan.topic, 0) is not None:
                    return None
            except ProducerFenced:
                return None
            entry = table.plan_entry(plan)
        elif kind == 8:
            entry = table.deleted_entry(f"t{what % 2}")
        else:
            table.forget_some()
            return None
        return entry, lambda: table.taken(entry)

    def picture(self) -> object:
        table = self.table
        producers = [
            (
                name,
                each.epoch,
                each.used_ms,
                {where: (row.next_seq, list(row.results)) for where, row in rows},
            )
            for name, each, rows in self.known()
        ]
        assert table._sequence_count == sum(
            len(each.sequences) for each in table._producers.values()
        )
        return (
            producers,
            dict(table._seals),
            list(table._plans),
            list(table._keys._entries.items()),
        )

    def known(self) -> Iterator[tuple[str, KnownProducer, list[SequenceRow]]]:
        """Producers and sequences that no seal and no deletion has ended."""
        table = self.table
        members = {name for family in table._families.values() for name in family}
        assert members == set(table._producers)
        for name, each in table._producers.items():
            closed, _ = table._closed.get(family_of(name), (-1, None))
            if each.epoch > closed:
                rows = each.sequences.items()
                yield name, each, [row for row in rows if row[0][0] not in table._gone]


class FailingProducers(ProducersAtWork):
    """Some sends are not stored. What they leave in memory besides does not count: that the
    producer was in use."""

    can_fail = True
    results_max = 64

    @override
    def change(self, op: Op) -> tuple[bytes, Callable[[], Callable[[bool], None]]] | None:
        kind, who, what, count = op
        return super().change((kind, who, what % 5, count))

    @override
    def picture(self) -> object:
        sequences = {
            (name, where): (row.next_seq, list(row.results))
            for name, _, rows in self.known()
            for where, row in rows
            if row.next_seq
        }
        table = self.table
        return sequences, dict(table._seals), list(table._plans), dict(table._keys._entries)


class GroupsAtWork:
    """Acks, deliveries, resets and all that groups do."""

    can_fail = False

    def __init__(self) -> None:
        self.progress = self.state = ConsumerState()

    def change(self, op: Op) -> tuple[bytes, Callable[[], Callable[[bool], None]]] | None:
        kind, who, what, count = op
        group, topic, queue = f"g{who % 2}", f"t{who // 2}", what % 2
        offsets = list(range(700 * count + what, 700 * count + what + 3 * count, 2))
        entry: Entry
        if kind <= 2:
            entry = Settled(group, [(topic, queue, runs_of(offsets))])
        elif kind <= 4:
            runs = list(delivered_runs([(each, what % 3) for each in offsets]))
            entry = HandedOut(group, [(topic, queue, runs)])
        elif kind == 5:
            entry = Begun(group, [(topic, queue, 500 * what)])
        elif kind == 6:
            entry = Skipped(group, [(topic, queue, 400 * what)])
        elif kind == 7:
            entry = Parked(group, topic, queue, ParkedMessage(offsets[0], "k", 2, "no", 5))
        elif kind == 8:
            entry = Released(group, topic, queue, offsets[0])
        else:
            entry = Forgotten(group, None) if what < 3 else Unsubscribed(group, topic)

        def take() -> Callable[[bool], None]:
            self.progress.take(entry)
            return _settled

        return encode_entry(entry), take

    def picture(self) -> object:
        return {
            key: (
                each.progress.committed,
                list(each.progress.runs()),
                dict(each.deliveries),
                dict(each.parked),
            )
            for key, each in self.progress.queues.items()
        }


class TransactionsAtWork:
    """Decisions and checks; the half messages are somewhere else."""

    can_fail = False

    def __init__(self) -> None:
        self.table = self.state = TransactionTable(interval_s=1, checks_max=99, remembered_max=9)
        self._half = 0
        self._now_s = 0.0

    def change(self, op: Op) -> tuple[bytes, Callable[[], Callable[[bool], None]]] | None:
        kind, who, what, _ = op
        table = self.table
        if kind < 3:
            transaction = Transaction(f"x{self._half}", f"g{who}", "t", 0, self._half, 5, 0)
            self._half += 1
            table.add(transaction, now_s=self._now_s, now_ms=9)
            return None
        if kind < 5:
            self._now_s += 2.0
            due, _ = table.begin_checks(self._now_s)
            return table.checks_entry(due), lambda: _settled
        if not table.pending:
            return None
        transaction = list(table.pending.values())[what % len(table.pending)]
        state = TransactionState.COMMITTED if who else TransactionState.ROLLED_BACK
        entry = table.entry(transaction, state, 7, None)

        def take() -> Callable[[bool], None]:
            table.decide(transaction, state, 7, None)
            table.confirm(transaction)  # at once, so that the picture is that of the entry
            return _settled

        return entry, take

    def picture(self) -> object:
        table = self.table
        checked = {each.transaction_id: each.checks for each in table.pending.values()}
        return (
            [(name, each.half_offset, each.state) for name, each in table.decided.items()],
            (table.halves.committed, list(table.halves.runs())),
            {name: checks for name, checks in (table._checked | checked).items() if checks},
        )


class RemovalsAtWork:
    """Dead letters that are removed."""

    can_fail = False

    def __init__(self) -> None:
        self.removals = self.state = dead_letters._Removals()

    def change(self, op: Op) -> tuple[bytes, Callable[[], Callable[[bool], None]]] | None:
        _, who, what, count = op
        entry = dead_letters._encode((f"g{who}", [(700 * what, 700 * what + count)]))

        def take() -> Callable[[bool], None]:
            self.removals.apply(entry)
            return _settled

        return entry, take

    def picture(self) -> object:
        return {
            group: (each.committed, list(each.runs()))
            for group, each in self.removals.by_group.items()
        }


SUBJECTS = [ProducersAtWork, FailingProducers, GroupsAtWork, TransactionsAtWork, RemovalsAtWork]


class Tape:
    """What was done, record by record."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.store = MemoryStore(FakeClock())
        self.subject = make()
        self.pictures: dict[int, object] = {0: self.subject.picture()}
        """Records in the log → the state then, for the numbers at which an entry was the last."""
        self.snapshots: list[tuple[int, int]] = []
        """The offset that a snapshot makes the first one, and one past its end."""

    @property
    def length(self) -> int:
        return self.store.next_offset(TOPIC, 0)

    async def record(self, ops: list[Op]) -> None:
        """Do as told, a turn of the event loop after each; a snapshot is always under way."""
        task = None
        with ThreadPoolExecutor(1) as readers:
            journal = Journal(self.store, TOPIC, self.subject.state, readers)
            async with asyncio.TaskGroup() as tasks:
                for number, op in enumerate(ops):
                    if task is None or task.done():
                        task = tasks.create_task(self._snapshot(journal))
                    if number % 3 != 2:  # in some turns too much waits to be written
                        self.store.refusal = TooManyRequests("wait") if op[3] == 2 else None
                        await asyncio.sleep(0)
                        self.store.refusal = None
                    fails = self.subject.can_fail and op[0] == 4 and op[3] == 1
                    await self._do(journal, op, fails=fails)

    async def _snapshot(self, journal: Journal) -> None:
        try:
            await journal.write_snapshot()
        except DiskFull:
            return
        self.snapshots.append((self.store.bounds(TOPIC, 0).min_offset, self.length))

    async def _do(self, journal: Journal, op: Op, *, fails: bool) -> None:
        change = self.subject.change(op)
        if change is None:
            return
        entry, take = change
        settle: Callable[[bool], None] = _settled

        def done(error: CurlewError | None) -> None:
            settle(error is None)

        if fails:  # and so does all that is appended before that is known
            self.store.failure = DiskFull("no room")
        self.store.append_step((journal.entry(entry),), FlushMode.ASYNC, done)
        settle = take()
        if fails:
            for _ in range(3):
                await asyncio.sleep(0)
            self.store.failure = None
        else:
            self.pictures[self.length] = self.subject.picture()

    def check(self) -> None:
        """Cut behind every record."""
        for length in range(self.length + 1):
            asyncio.run(self._check_cut(length))

    async def _check_cut(self, length: int) -> None:
        expected = self.pictures[max(at for at in self.pictures if at <= length)]
        trims = {0, *(first for first, end in self.snapshots if end <= length)}
        for first in trims:
            assert await self._replayed(length, first) == expected, (length, first)

    async def _replayed(self, length: int, first: int) -> object:
        store = MemoryStore(FakeClock())
        queue = self.store.queues[TOPIC, 0]
        records = queue.records[:length]
        store.queues[TOPIC, 0] = MemoryQueue(first, length, records, queue.tag_hashes[:length])
        subject = self.make()
        with ThreadPoolExecutor(1) as readers:
            await Journal(store, TOPIC, subject.state, readers).replay()
        return subject.picture()


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    """A chunk for almost every row."""
    with ExitStack() as stack:
        for module, name in (
            (dedup_table, "_CHUNK_BYTES"),
            (dedup_table, "FORGOTTEN_AT_ONCE"),
            (group_progress, "CHUNK_BYTES"),
            (group_progress, "_ROW_PAGES_MAX"),
            (group_progress, "_ROW_DELIVERIES_MAX"),
            (transaction_table, "_ROWS_A_CHUNK"),
            (dead_letters, "_RUNS_A_CHUNK"),
        ):
            stack.enter_context(patch.object(module, name, 1))
        yield


def run(make: Callable[[], Any], ops: list[Op]) -> Tape:
    tape = Tape(make)
    asyncio.run(tape.record(ops))
    return tape


@pytest.mark.parametrize("make", SUBJECTS)
@settings(max_examples=60, deadline=None)
@given(OPS)
def test_what_is_replayed_is_what_was(make: Callable[[], Any], ops: list[Op]) -> None:
    run(make, ops).check()


def _with_closed(table: DedupTable, producer_id: str) -> KnownProducer | None:
    return table._producers.get(producer_id)


def _without_entries(journal: Journal, snapshot: Any) -> None:
    snapshot.entries.clear()
    _load(journal, snapshot)


_load = Journal._load
BROKEN: list[tuple[Any, object, str, object]] = [
    (GroupsAtWork, Journal, "_load", _without_entries),  # entries between chunks are lost
    (ProducersAtWork, dedup_table, "drop_results", lambda *_: None),  # or applied twice
    (ProducersAtWork, DedupTable, "_find", _with_closed),  # or what was ended is written down
    (ProducersAtWork, Journal, "_append_chunk", AsyncMock()),  # or chunks are missing
]


@pytest.mark.parametrize(("make", "where", "name", "broken"), BROKEN)
def test_the_test_notices(
    make: Callable[[], Any], where: object, name: str, broken: object
) -> None:
    chance = Random(7)

    def run_some() -> None:
        for _ in range(30):
            numbers = [tuple(chance.randrange(9) for _ in range(3)) for _ in range(40)]
            run(make, [(a, b % 4, c, chance.randint(1, 4)) for a, b, c in numbers]).check()

    with patch.object(where, name, broken), pytest.raises(AssertionError):
        run_some()
