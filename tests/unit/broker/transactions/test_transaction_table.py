"""The table of transactions against a plain model: states, checks, and what a restart remembers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app.broker.transactions.transaction_table import (
    Transaction,
    TransactionState,
    TransactionTable,
)

INTERVAL_S = 30.0
CHECKS_MAX = 3
AFTER_MS = 6_000

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "commit", "rollback", "advance", "take", "give back", "restart"]),
        st.integers(0, 40),
    ),
    max_size=60,
)


def new_table(remembered_max: int = 1_000) -> TransactionTable:
    return TransactionTable(
        interval_s=INTERVAL_S, checks_max=CHECKS_MAX, remembered_max=remembered_max
    )


class Harness:
    """A table, its journal, and for each transaction what should be true of it."""

    def __init__(self) -> None:
        self.table = new_table()
        self.now_s = 0.0
        self.halves: list[Transaction] = []
        self.entries: list[bytes] = []
        self.states: dict[str, TransactionState] = {}
        self.checks: dict[str, int] = {}
        self.due_s: dict[str, float] = {}
        self.fetchable: set[str] = set()
        self.fetched: list[Transaction] = []

    @property
    def now_ms(self) -> int:
        return int(self.now_s * 1_000)

    def add(self, _: int) -> None:
        number = len(self.halves)
        group = f"pg{number % 2}"
        new = Transaction(f"tx{number}", group, "orders", 0, number, self.now_ms, AFTER_MS)
        self.halves.append(new)
        self.table.add(_copy(new), now_s=self.now_s, now_ms=self.now_ms)
        self.states[new.transaction_id] = TransactionState.PREPARED
        self.checks[new.transaction_id] = 0
        self.due_s[new.transaction_id] = self.now_s + AFTER_MS / 1_000

    def decide(self, number: int, state: TransactionState) -> None:
        pending = list(self.table.pending.values())
        if not pending:
            return
        chosen = pending[number % len(pending)]
        self.entries.append(self.table.entry(chosen, state, self.now_ms, None))
        self.table.decide(chosen, state, self.now_ms, None)
        self.table.confirm(chosen)
        self.states[chosen.transaction_id] = state
        self.fetchable.discard(chosen.transaction_id)

    def advance(self, seconds: int) -> None:
        self.now_s += seconds
        due, overdue = self.table.begin_checks(self.now_s)
        if due:
            self.entries.append(self.table.checks_entry(due))
        expected = {
            name
            for name, state in self.states.items()
            if state is TransactionState.PREPARED and self.due_s[name] <= self.now_s
        }
        assert {each.transaction_id for each in (*due, *overdue)} == expected
        for each in due:
            self.checks[each.transaction_id] += 1
            assert self.checks[each.transaction_id] <= CHECKS_MAX
            self.fetchable.add(each.transaction_id)
        for each in overdue:
            assert self.checks[each.transaction_id] == CHECKS_MAX
        for name in expected:
            self.due_s[name] = self.now_s + INTERVAL_S
        for name, each in self.table.pending.items():
            assert each.next_check_ms == self.due_s[name] * 1_000

    def take(self, count: int) -> None:
        for group in ("pg0", "pg1"):
            wanted = {
                half.transaction_id
                for half in self.halves
                if half.producer_group == group and half.transaction_id in self.fetchable
            }
            taken = self.table.take_checks(group, count)
            names = {each.transaction_id for each in taken}
            assert len(names) == len(taken) == min(count, len(wanted))
            assert names <= wanted
            self.fetchable -= names
            self.fetched += taken

    def give_back(self, _: int) -> None:
        back = [each for each in self.fetched if each.transaction_id in self.table.pending]
        self.table.give_back_checks(self.fetched)
        self.fetchable |= {each.transaction_id for each in back}
        self.fetched = []

    def restart(self, number: int) -> None:
        if number % 2:
            self.entries = list(self.table.dump())
        self.table = new_table()
        for entry in self.entries:
            self.table.load(entry)
        for half in self.halves[self.table.first_half :]:
            if not self.table.halves.is_acked(half.half_offset):
                self.table.add(_copy(half), now_s=self.now_s, now_ms=self.now_ms)
                name = half.transaction_id
                first_s = half.prepared_ms / 1_000 + AFTER_MS / 1_000
                again_s = self.now_s + INTERVAL_S
                self.due_s[name] = again_s if self.checks[name] else max(first_s, self.now_s)
        self.fetchable.clear()
        self.fetched = []

    def check(self) -> None:
        for name, state in self.states.items():
            found = self.table.find(name)
            assert found is not None
            assert (found.state, found.checks) == (state, self.checks[name])
            assert (name in self.table.pending) == (state is TransactionState.PREPARED)
        pending = [half.half_offset for half in self.table.pending.values()]
        assert self.table.first_half == min(pending, default=len(self.halves))


def _copy(half: Transaction) -> Transaction:
    return Transaction(
        half.transaction_id,
        half.producer_group,
        half.topic,
        half.queue_id,
        half.half_offset,
        half.prepared_ms,
        half.check_after_ms,
    )


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_the_table_does_what_the_model_says(steps: list[Step]) -> None:
    harness = Harness()
    for name, number in steps:
        if name == "commit":
            harness.decide(number, TransactionState.COMMITTED)
        elif name == "rollback":
            harness.decide(number, TransactionState.ROLLED_BACK)
        else:
            getattr(harness, name.replace(" ", "_"))(number)
        harness.check()


def test_only_the_last_decided_ones_are_remembered_and_none_comes_back() -> None:
    table = new_table(remembered_max=10)
    table.add(Transaction("old", "pg", "t", 0, 0, 0, AFTER_MS), now_s=0, now_ms=0)
    for number in range(1, 5_001):
        one = Transaction(f"tx{number}", "pg", "t", 0, number, 0, AFTER_MS)
        table.add(one, now_s=0, now_ms=0)
        table.decide(one, TransactionState.COMMITTED, 0, None)
        table.confirm(one)
    assert len(table.decided) == 10
    assert table.find("tx1") is None
    chunks = list(table.dump())
    assert sum(map(len, chunks)) < 2_000
    again = new_table(remembered_max=10)
    for chunk in chunks:
        again.load(chunk)
    assert again.first_half == 0
    assert not again.halves.is_acked(0)
    assert all(again.halves.is_acked(number) for number in range(1, 5_001))


def test_what_is_decided_leaves_nothing_behind_but_what_is_remembered() -> None:
    """However late the check would have been, and though nobody ever fetched one."""
    table = new_table(remembered_max=10)
    for number in range(20_000):
        one = Transaction(
            f"tx{number}", "pg", "orders", 0, number, 0, 12 * 3_600_000 * (number % 2)
        )
        table.add(one, now_s=0.0, now_ms=0)
        table.begin_checks(0.0)
        table.decide(one, TransactionState.COMMITTED, 0, None)
        table.confirm(one)
    assert len(table._schedule) < 5_000
    assert table._ready == {}
