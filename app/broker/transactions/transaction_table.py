"""Transactions of producers: prepared, asked about, decided. Pure; time is an argument.

    PREPARED ── commit ──▶ COMMITTED
        └────── rollback, or asked too often ──▶ ROLLED_BACK

A prepared transaction is asked about first after its check-after, then once per interval, at most
`checks_max` times; when the last answer is overdue it is to be rolled back. Whoever fetches a check
has it to himself until the next one.

Decided ones are remembered, the last `remembered_max` of them, so that repeating a decision gives
the same answer and the opposite one is refused. Which half messages are decided is known for all of
them, compactly (`halves`). Times are epoch milliseconds (`_ms`) or monotonic seconds (`_s`).
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import Final, Self, TypeVar

import msgspec

from app.broker.progress.ack_set import AckSet
from app.domain.access.standing import Visible, every
from app.domain.limits import Limits

_ROWS_A_CHUNK: Final = 2_000

_STALE_MAX: Final = 1_024
"""Checks of decided transactions that are kept on the schedule, beside one for each pending one."""


_Item = TypeVar("_Item")


class TransactionState(StrEnum):
    """RocketMQ's transaction states, without its UNKNOW."""

    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"


@dataclass(slots=True)
class Transaction:
    """One transaction. `queue_offset` is that of the visible message, once it is known."""

    transaction_id: str
    producer_group: str
    topic: str
    queue_id: int
    half_offset: int
    prepared_ms: int
    check_after_ms: int
    checks: int = 0
    """How often its producer group was asked, or could have asked."""
    state: TransactionState = TransactionState.PREPARED
    decided_ms: int | None = None
    reason: str | None = None
    """Why it was rolled back, when the producer did not say so."""
    queue_offset: int | None = None
    next_check_s: float = 0.0
    next_check_ms: int = 0
    """The same by the wall clock, to be shown. Only while it is prepared."""
    generation: int = 0
    """Of the topic, while it is prepared; 0: not known, of an earlier version."""
    counts_when_asked: bool = False
    """Only checks that were handed out count: who is never there to be asked loses nothing."""


class _Decision(msgspec.Struct, array_like=True):
    """A journal's entry: one transaction was decided."""

    transaction_id: str
    producer_group: str
    topic: str
    queue_id: int
    half_offset: int
    prepared_ms: int
    check_after_ms: int
    checks: int
    state: TransactionState
    decided_ms: int
    reason: str | None


class _Chunk(msgspec.Struct, array_like=True):
    """Entry or chunk of a snapshot: decisions, checks begun, decided halves."""

    decisions: list[_Decision] = []
    checked: dict[str, int] = {}
    halves: list[tuple[int, int]] = []


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Chunk).decode


class TransactionTable:
    """All transactions of a node. A journal's state: see `app.broker.journal.journal`."""

    def __init__(self, *, interval_s: float, checks_max: int, remembered_max: int) -> None:
        self._interval_s = interval_s
        self._checks_max = checks_max
        self._remembered_max = remembered_max
        self.clear()

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """An empty one, of a node with these limits."""
        return cls(
            interval_s=limits.transaction_check_interval_ms / 1_000,
            checks_max=limits.transaction_checks_max,
            remembered_max=limits.transactions_remembered_max,
        )

    def clear(self) -> None:
        self.pending: dict[str, Transaction] = {}
        self.decided: OrderedDict[str, Transaction] = OrderedDict()
        self.halves = AckSet(0)
        """Offsets of half messages that are decided."""
        self._checked: dict[str, int] = {}
        """Checks of transactions whose half message has not been read again yet."""
        self._schedule: list[tuple[float, str]] = []
        self._ready: dict[str, dict[str, None]] = {}
        """Producer group → transactions to ask about, in order; values mean nothing."""

    # --- life of a transaction

    def add(self, transaction: Transaction, *, now_s: float, now_ms: int) -> None:
        """Take up a prepared transaction, new or read again after a restart."""
        transaction.checks = self._checked.pop(transaction.transaction_id, transaction.checks)
        passed_ms = max(now_ms - transaction.prepared_ms, 0)  # the clock may have been set back
        first_s = (transaction.check_after_ms - passed_ms) / 1_000
        wait_s = max(first_s if transaction.checks == 0 else self._interval_s, 0.0)
        transaction.next_check_s = now_s + wait_s
        transaction.next_check_ms = now_ms + round(wait_s * 1_000)
        self.pending[transaction.transaction_id] = transaction
        heappush(self._schedule, (transaction.next_check_s, transaction.transaction_id))

    def find(self, transaction_id: str) -> Transaction | None:
        """The transaction, prepared or remembered."""
        found = self.pending.get(transaction_id)
        return found if found is not None else self.decided.get(transaction_id)

    def entry(
        self, transaction: Transaction, state: TransactionState, now_ms: int, reason: str | None
    ) -> bytes:
        """The entry that decides a pending transaction. Append it, then `decide` in this turn."""
        decided = replace(transaction, state=state, decided_ms=now_ms, reason=reason)
        return _encode(_Chunk([_row(decided)]))

    def decide(
        self, transaction: Transaction, state: TransactionState, now_ms: int, reason: str | None
    ) -> None:
        """Decide a pending transaction; `confirm` or `take_back` when its fate in the log is known.

        Until then its half message counts as undecided, so that nobody trims it.
        """
        transaction.state = state
        transaction.decided_ms = now_ms
        transaction.reason = reason
        self.pending.pop(transaction.transaction_id, None)
        self.decided[transaction.transaction_id] = transaction
        self._forget_checks(transaction)

    def _forget_checks(self, transaction: Transaction) -> None:
        """Most are decided before anybody asks, and checks may be due in hours."""
        ready = self._ready.get(transaction.producer_group)
        if ready is not None:
            ready.pop(transaction.transaction_id, None)
            if not ready:
                del self._ready[transaction.producer_group]
        if len(self._schedule) > 2 * len(self.pending) + _STALE_MAX:
            self._schedule = [(each.next_check_s, name) for name, each in self.pending.items()]
            heapify(self._schedule)

    def confirm(self, transaction: Transaction) -> None:
        """The decision is in the log."""
        self.halves.ack(transaction.half_offset)
        if len(self.decided) > self._remembered_max:
            self.decided.popitem(last=False)

    def take_back(self, transaction: Transaction) -> None:
        """The decision was not written: the transaction is pending again."""
        del self.decided[transaction.transaction_id]
        transaction.state = TransactionState.PREPARED
        transaction.decided_ms = transaction.reason = transaction.queue_offset = None
        self.pending[transaction.transaction_id] = transaction
        heappush(self._schedule, (transaction.next_check_s, transaction.transaction_id))

    # --- checks

    def begin_checks(self, now_s: float) -> tuple[list[Transaction], list[Transaction]]:
        """Transactions whose next check is due: those to ask about, and those asked too often."""
        due: list[Transaction] = []
        overdue: list[Transaction] = []
        schedule = self._schedule
        while schedule and schedule[0][0] <= now_s:
            at_s, transaction_id = heappop(schedule)
            transaction = self.pending.get(transaction_id)
            if transaction is None or transaction.next_check_s != at_s:
                continue
            if transaction.checks < self._checks_max:
                transaction.checks += not transaction.counts_when_asked
                self._ready.setdefault(transaction.producer_group, {})[transaction_id] = None
                due.append(transaction)
            else:
                # It stays on the schedule until its rollback is written down.
                overdue.append(transaction)
            # Counted from now on, so that the time when the node was down asks nobody.
            transaction.next_check_s = now_s + self._interval_s
            transaction.next_check_ms += round((transaction.next_check_s - at_s) * 1_000)
            heappush(schedule, (transaction.next_check_s, transaction_id))
        return due, overdue

    def checks_entry(self, transactions: Iterable[Transaction]) -> bytes:
        """The entry that says how often these were asked about."""
        checked = {each.transaction_id: each.checks for each in transactions}
        return _encode(_Chunk(checked=checked))

    def take_checks(
        self, producer_group: str, count: int, visible: Visible = every
    ) -> list[Transaction]:
        """Checks of the group that nobody has fetched yet, the oldest first; of topics that are
        `visible`."""
        ready = self._ready.get(producer_group, {})
        taken: list[Transaction] = []
        for transaction_id in list(ready):
            if len(taken) == count:
                break
            transaction = self.pending.get(transaction_id)
            if transaction is None:
                del ready[transaction_id]
            elif visible(transaction.topic):
                del ready[transaction_id]
                transaction.checks += transaction.counts_when_asked
                taken.append(transaction)
        if not ready:
            self._ready.pop(producer_group, None)
        return taken

    def has_checks(self, producer_group: str, visible: Visible) -> bool:
        """Whether `take_checks` would give something."""
        found = map(self.pending.get, self._ready.get(producer_group, ()))
        return any(each is not None and visible(each.topic) for each in found)

    def give_back_checks(self, transactions: Iterable[Transaction]) -> None:
        """Undo `take_checks`: they never reached the producer."""
        for transaction in transactions:
            transaction.checks -= transaction.counts_when_asked
            if transaction.transaction_id in self.pending:
                ready = self._ready.setdefault(transaction.producer_group, {})
                ready[transaction.transaction_id] = None

    def ask_anew(self, transaction: Transaction) -> None:
        """Its half message cannot be read now, so nobody could be asked about it: no check counts
        but one that nobody has fetched yet."""
        ready = self._ready.get(transaction.producer_group, {})
        is_waiting = transaction.transaction_id in ready
        transaction.checks = int(is_waiting and not transaction.counts_when_asked)

    @property
    def first_half(self) -> int:
        """Half messages below this offset are all decided."""
        return self.halves.committed

    # --- journal

    def apply(self, entry: bytes) -> None:
        self.load(entry)

    def load(self, chunk: bytes) -> None:
        if not chunk:
            return
        content = _decode(chunk)
        for start, end in content.halves:
            self.halves.ack_range(start, end)
        self._checked.update(content.checked)
        for row in content.decisions:
            self._checked.pop(row.transaction_id, None)
            decided = _transaction(row)
            self.decided[decided.transaction_id] = decided
            self.confirm(decided)

    def dump(self) -> Iterable[bytes]:
        """As it is when the first chunk is made. Rows of a decided transaction do not change."""
        halves = self.halves.copy()
        checked = [
            (each.transaction_id, each.checks) for each in self.pending.values() if each.checks
        ]
        decided = list(self.decided.values())
        for runs in _parts(chain([(0, halves.committed)], halves.runs())):
            yield _encode(_Chunk(halves=runs))
        for checks in _parts(checked):
            yield _encode(_Chunk(checked=dict(checks)))
        for rows in _parts(map(_row, decided)):
            yield _encode(_Chunk(rows))


def _parts(rows: Iterable[_Item]) -> Iterator[list[_Item]]:
    remaining = iter(rows)
    while part := list(islice(remaining, _ROWS_A_CHUNK)):
        yield part


def _row(transaction: Transaction) -> _Decision:
    assert transaction.decided_ms is not None
    return _Decision(
        transaction.transaction_id,
        transaction.producer_group,
        transaction.topic,
        transaction.queue_id,
        transaction.half_offset,
        transaction.prepared_ms,
        transaction.check_after_ms,
        transaction.checks,
        transaction.state,
        transaction.decided_ms,
        transaction.reason,
    )


def _transaction(row: _Decision) -> Transaction:
    return Transaction(
        row.transaction_id,
        row.producer_group,
        row.topic,
        row.queue_id,
        row.half_offset,
        row.prepared_ms,
        row.check_after_ms,
        row.checks,
        row.state,
        row.decided_ms,
        row.reason,
    )
