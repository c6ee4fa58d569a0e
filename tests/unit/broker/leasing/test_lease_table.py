"""Leases and progress of one queue, against a model that keeps one row per message."""

from dataclasses import dataclass
from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.broker.leasing.epochs import LeaseIds
from app.broker.leasing.holders import InFlight
from app.broker.leasing.lease_table import REMEMBERED_ACKS_MAX, LeaseTable
from app.broker.leasing.leases import Lease
from app.broker.leasing.retry_policy import Failure
from app.broker.leasing.subscriptions import LeasedQueue
from app.broker.progress.consumer_state import ConsumerState
from app.broker.progress.queue_state import QueueState

State = Literal["leased", "failing", "moving", "delayed", "returned", "done"]
OPEN = ("leased", "failing", "moving", "delayed")
SECONDS = st.integers(1, 20)


@dataclass
class Row:
    """What the model knows of one message that was fetched."""

    state: State
    attempt: int
    lease_id: int
    until_s: float
    acked_by: int | None = None


@dataclass(frozen=True)
class Handle:
    """A handle that was given out at some time."""

    offset: int
    lease_id: int
    is_first: bool
    expires_s: float


class QueueMachine(RuleBasedStateMachine):
    """Everything that happens to a queue of a group."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.ids = LeaseIds(1)
        self.in_flight = InFlight()
        self.queue = LeasedQueue("g", "t", 0, QueueState(0), self.in_flight, self.ids.next)
        self.rows: dict[int, Row] = {}
        self.handles: list[Handle] = []
        self.floor = self.ids.next
        self.moving: dict[int, Lease] = {}
        self.attempts: dict[int, int] = {}

    # --- what the machine does

    @rule(count=st.integers(1, 5), hold_s=SECONDS)
    def receive_new(self, count: int, hold_s: int) -> None:
        queue = self.queue
        offsets: list[int] = []
        for _ in range(count):
            if queue.fetch_offset < queue.restored_end:
                queue.fetch_offset = queue.progress.next_open(queue.fetch_offset)
            offsets.append(queue.fetch_offset)
            queue.fetch_offset += 1
        expires_s = self.now_s + hold_s
        first_id = self.ids.take(count)
        leases = queue.leases.grant(offsets, first_id, expires_s)
        for offset, lease in zip(offsets, leases, strict=True):
            assert offset not in self.rows
            assert (lease.attempt, lease.expires_s, lease.is_first) == (1, expires_s, True)
            lease.attempt += queue.state.deliveries.get(offset, 0)
            assert lease.attempt == self.attempts.get(offset, 0) + 1
            self.deliver(offset, lease, expires_s, is_first=True)

    def deliver(self, offset: int, lease: Lease, expires_s: float, *, is_first: bool) -> None:
        self.rows[offset] = Row("leased", lease.attempt, lease.lease_id, expires_s)
        self.handles.append(Handle(offset, lease.lease_id, is_first, expires_s))
        self.attempts[offset] = self.queue.state.deliveries[offset] = lease.attempt

    @rule(count=st.integers(1, 5), hold_s=SECONDS, granted=st.integers(0, 5))
    def receive_returned(self, count: int, hold_s: int, granted: int) -> None:
        leases = self.queue.leases
        leases.expire(self.now_s)
        self.expire_rows()
        run = leases.take_returned_run(count)
        assert list(run) == self.expected_run(count)
        leases.put_back(run[granted:])
        run = run[:granted]
        expires_s = self.now_s + hold_s
        first_id = self.ids.take(len(run))
        for offset, lease in zip(run, leases.grant_again(run, first_id, expires_s), strict=True):
            row = self.rows[offset]
            assert lease.attempt == row.attempt + 1
            assert not lease.is_first
            self.deliver(offset, lease, expires_s, is_first=False)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """With any handle that was ever given out."""
        handle = data.draw(st.sampled_from(self.handles))
        row = self.rows.get(handle.offset)
        is_live = self.is_live(handle)
        acked = self.queue.leases.ack(handle.offset, handle.lease_id, self.now_s)
        assert acked == is_live
        if acked:
            assert row is not None
            row.state, row.acked_by = "done", handle.lease_id
            self.queue.state.ack_all((handle.offset,))
        elif (
            handle.expires_s > self.now_s
            and handle.lease_id >= self.floor
            and self.queue.progress.is_acked(handle.offset)
        ):
            was_its = row is not None and row.acked_by == handle.lease_id
            repeated = self.queue.leases.was_acked_by(
                handle.offset, handle.lease_id, handle.is_first
            )
            assert repeated == was_its

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(self.handles))
        is_live = self.is_live(handle)
        failure = Failure("no", is_final=data.draw(st.booleans()))
        lease = self.queue.leases.fail(handle.offset, handle.lease_id, self.now_s, failure)
        assert (lease is not None) == is_live
        if lease is not None:
            assert lease.failure is failure
            self.rows[handle.offset].state = "moving"
            self.moving[handle.offset] = lease

    @rule(count=st.integers(1, 4))
    def take_failing(self, count: int) -> None:
        taken = dict(self.queue.leases.take_failing(count))
        failing = [at for at, row in self.rows.items() if row.state == "failing"]
        assert set(taken) <= set(failing)
        assert len(taken) == min(count, len(failing))
        for offset, lease in taken.items():
            self.rows[offset].state = "moving"
            assert lease.attempt == self.rows[offset].attempt
        self.moving |= taken

    @precondition(lambda self: self.moving)
    @rule(data=st.data(), end=st.sampled_from(["settle", "delay", "keep"]))
    def decide(self, data: st.DataObject, end: str) -> None:
        """What the retrier does with a failed delivery."""
        offset = data.draw(st.sampled_from(sorted(self.moving)))
        lease = self.moving.pop(offset)
        leases, row = self.queue.leases, self.rows.get(offset)
        is_moving = row is not None and row.state == "moving"
        assert leases.is_moving(offset, lease) == is_moving
        if row is None or not is_moving:
            return
        if end == "delay":
            leases.delay(offset, self.now_s + 5)
            row.state, row.until_s = "delayed", self.now_s + 5
        elif end == "keep":
            leases.keep_failing(offset, lease)
            row.state = "failing"
        else:
            leases.moved(offset, self.now_s)
            self.queue.state.ack_all((offset,))
            row.state, row.acked_by = "done", None

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), hold_s=SECONDS)
    def extend(self, data: st.DataObject, hold_s: int) -> None:
        handle = data.draw(st.sampled_from(self.handles))
        is_live = self.is_live(handle)
        new_id = self.ids.take(1)
        expires_s = self.now_s + hold_s
        lease = self.queue.leases.extend(
            handle.offset, handle.lease_id, self.now_s, expires_s, new_id
        )
        assert (lease is not None) == is_live
        if lease is not None:
            row = self.rows[handle.offset]
            row.lease_id, row.until_s = new_id, expires_s
            self.handles.append(Handle(handle.offset, new_id, False, expires_s))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(self.handles))
        row = self.rows.get(handle.offset)
        # Unlike the others it also takes a lease whose end nobody has noticed yet.
        is_held = row is not None and row.state == "leased" and row.lease_id == handle.lease_id
        if self.queue.leases.give_back(handle.offset, handle.lease_id):
            assert is_held
            assert row is not None
            row.state, row.attempt = "returned", row.attempt - 1
            self.attempts[handle.offset] = row.attempt
            self.queue.state.deliveries[handle.offset] = row.attempt

    @rule(seconds=st.integers(1, 15))
    def let_time_pass(self, seconds: int) -> None:
        self.now_s += seconds

    @rule()
    def expire(self) -> None:
        leases = self.queue.leases
        if leases.next_change_s > self.now_s:
            assert not self.due_rows()
        leases.expire(self.now_s)
        self.expire_rows()

    @rule(ahead=st.integers(-2, 8))
    def commit(self, ahead: int) -> None:
        offset = self.queue.committed + ahead
        self.queue.skip_to(offset)
        for at, row in self.rows.items():
            if at < offset and row.state != "done":
                # The newest lease is the one that may say "ack" again, if it still is live.
                row.acked_by = row.lease_id if row.state == "leased" else None
                row.state = "done"
        for at in range(min(self.rows, default=0), offset):
            self.rows.setdefault(at, Row("done", 0, -1, 0))

    @rule(offset=st.integers(0, 30))
    def reset(self, offset: int) -> None:
        self.queue.state.restart(offset)
        self.queue.start_over(self.ids.next)
        self.floor = self.ids.next
        self.rows.clear()
        self.attempts.clear()

    @rule()
    def restart(self) -> None:
        """As after kill -9: acks and attempts come back from the log, leases do not."""
        before = ConsumerState()
        before.queues["g", "t", 0] = self.queue.state
        after = ConsumerState()
        for chunk in before.dump():
            after.load(chunk)
        self.queue.leases.close()
        state = after.queues["g", "t", 0]
        self.queue = LeasedQueue("g", "t", 0, state, self.in_flight, self.ids.next)
        self.floor = self.ids.next
        self.moving.clear()
        self.rows = {at: row for at, row in self.rows.items() if row.state == "done"}
        for row in self.rows.values():
            row.acked_by = None

    # --- what must hold

    @invariant()
    def committed_is_the_lowest_open_offset(self) -> None:
        open_rows = [at for at, row in self.rows.items() if row.state != "done"]
        unseen = self.queue.fetch_offset
        while unseen in self.rows:
            unseen += 1
        assert self.queue.committed == min([*open_rows, unseen])

    @invariant()
    def counts_agree(self) -> None:
        leases = self.queue.leases
        states: list[str] = [row.state for row in self.rows.values()]
        assert leases.leased_count == states.count("leased")
        assert leases.delayed_count == states.count("delayed")
        assert leases.returned_count == states.count("returned")
        assert leases.failing_count == states.count("failing") + states.count("moving")
        assert self.in_flight.count == sum(map(states.count, OPEN))

    # --- the model

    def is_live(self, handle: Handle) -> bool:
        row = self.rows.get(handle.offset)
        return (
            row is not None
            and row.state == "leased"
            and row.lease_id == handle.lease_id
            and row.until_s > self.now_s
        )

    def due_rows(self) -> list[Row]:
        return [
            row
            for row in self.rows.values()
            if row.state in ("leased", "delayed") and row.until_s <= self.now_s
        ]

    def expire_rows(self) -> None:
        for row in self.due_rows():
            row.state = "failing" if row.state == "leased" else "returned"

    def expected_run(self, count: int) -> list[int]:
        run: list[int] = []
        for offset in sorted(at for at, row in self.rows.items() if row.state == "returned"):
            if len(run) == count or (run and offset != run[-1] + 1):
                break
            run.append(offset)
        return run


QueueMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestQueueMachine = QueueMachine.TestCase


def test_expiry_entries_do_not_pile_up() -> None:
    """Long leases that are acked at once leave nothing behind."""
    table = LeaseTable(InFlight())
    ids = LeaseIds(1)
    for start in range(0, 320_000, 32):
        offsets = range(start, start + 32)
        first = ids.take(32)
        table.grant(offsets, first, 43_200.0)
        for lease_id, offset in enumerate(offsets, first):
            assert table.ack(offset, lease_id, 0.0)
    assert table._expiry_count < 2_000
    assert len(table._expiries) < 100
    assert not table._acked


def test_acks_that_are_refused_twice_are_held_again_also_behind_a_sweep() -> None:
    """A sweep leaves entries in another form; what is restored ends beside them."""
    table, until_s = LeaseTable(InFlight()), 100.0
    table.grant(range(2), 1, until_s)
    for _ in range(3):
        for offset, lease in table.ack_all({0: 1, 1: 2}, 0.0).items():
            table.restore(offset, lease)
        table._sweep_expiries()
    assert [table.get(offset, offset + 1, 0.0) is not None for offset in range(2)] == [True, True]
    table.expire(until_s)
    assert [offset for offset, _ in table.take_failing(2)] == [0, 1]


def held(table: LeaseTable, offset: int, lease_id: int, until_s: float) -> None:
    """Lease one message for the first time."""
    table.grant((offset,), lease_id, until_s)


def test_remembered_acks_end_with_their_handles() -> None:
    table = LeaseTable(InFlight())
    ids = LeaseIds(1)
    for offset in range(1_000):
        now_s = float(offset)
        held(table, offset, ids.take(1), now_s + 10)
        assert table.extend(offset, ids.next - 1, now_s, now_s + 20, ids.take(1))
        assert table.ack(offset, ids.next - 1, now_s)
    assert len(table._acked) <= 21


def test_a_handle_that_was_cut_short_stays_void_until_its_own_end() -> None:
    """Extending may shorten; the longer handle before it must not come back to life."""
    table = LeaseTable(InFlight())
    held(table, 0, 1, 100.0)
    assert table.extend(0, 1, 0.0, 5.0, 2)
    assert table.ack(0, 2, 1.0)
    held(table, 1, 3, 50.0)
    assert table.extend(1, 3, 10.0, 60.0, 4)
    assert table.ack(1, 4, 10.0)
    assert not table.was_acked_by(0, 1, is_first=True)
    assert table.was_acked_by(0, 2, is_first=False)


def test_a_commit_does_not_make_others_forgotten() -> None:
    """A long lease that is dropped has no say in how long others are remembered."""
    table = LeaseTable(InFlight())
    held(table, 0, 1, 10.0)
    assert table.extend(0, 1, 0.0, 11.0, 2)
    held(table, 1, 3, 10.0)
    assert table.extend(1, 3, 0.0, 99.0, 4)
    table.drop_below(2)
    assert not table.was_acked_by(0, 1, is_first=True)


def test_too_many_remembered_acks_fail_on_the_safe_side() -> None:
    table = LeaseTable(InFlight())
    for offset in range(REMEMBERED_ACKS_MAX + 1):
        held(table, offset, 2 * offset + 1, 100.0)
        assert table.extend(offset, 2 * offset + 1, 0.0, 100.0, 2 * offset + 2)
        assert table.ack(offset, 2 * offset + 2, 0.0)
    assert len(table._acked) == REMEMBERED_ACKS_MAX
    assert not table.was_acked_by(0, 1, is_first=True)
    assert not table.was_acked_by(0, 2, is_first=False)
    last = 2 * REMEMBERED_ACKS_MAX + 2
    assert table.was_acked_by(REMEMBERED_ACKS_MAX, last, is_first=False)
    held(table, last, last + 1, 100.0)
    assert table.ack(last, last + 1, 0.0)
    assert table.was_acked_by(last, last + 1, is_first=True)
