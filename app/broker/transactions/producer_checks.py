"""Asking producers what became of their transactions: RocketMQ's check-back. Event loop only.

A transaction that nobody has decided becomes due, again and again; then whoever polls for its
producer group is given it, with its message. One that was asked about too often is rolled back.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from app.broker.context import Context
from app.broker.journal.journal import Journal
from app.broker.read.long_polls import LongPolls
from app.broker.read.puller import check_wait
from app.broker.row_faults import RowFaults
from app.broker.transactions.half_messages import QUEUE
from app.broker.transactions.half_reader import HalfReader
from app.broker.transactions.transaction_table import (
    Transaction,
    TransactionState,
    TransactionTable,
)
from app.domain.access.standing import Visible, every
from app.domain.errors import (
    InternalError,
    InvalidRequest,
    ShardUnavailable,
    TransactionConflict,
)
from app.domain.message import StoredMessage
from app.domain.names import HALF_TOPIC, check_group
from app.domain.positions import FlushMode

_LOG: Final = logging.getLogger(__name__)

CHECKS_EXHAUSTED: Final = "CHECKS_EXHAUSTED"


class Check(NamedTuple):
    """A question to a producer group: what became of this transaction?"""

    transaction: Transaction
    message: StoredMessage


class Decide(Protocol):
    """`Transactions.decide`."""

    async def __call__(
        self, transaction_id: str, decision: TransactionState, *, reason: str | None = None
    ) -> Transaction: ...


class ProducerChecks:
    """The checks of one node's transactions."""

    def __init__(
        self,
        context: Context,
        long_polls: LongPolls,
        table: TransactionTable,
        journal: Journal,
        halves: HalfReader,
        decide: Decide,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._limits = context.limits
        self._check_open = context.gate.check
        self._long_polls = long_polls
        self._table = table
        self._journal = journal
        self._halves = halves
        self._decide = decide
        self.faults = RowFaults("rolling back")
        """Transactions that were asked about too often and cannot be rolled back, and those whose
        half message may be whole at a silent replica alone, by id."""
        self._unread: set[str] = set()
        """Those whose half message could not be read when they were to be asked about."""

    async def receive(
        self,
        producer_group: str,
        *,
        max_checks: int,
        wait_s: float,
        gone: Callable[[], bool],
        visible: Visible = every,
    ) -> list[Check]:
        """Transactions that the group should decide now; waits for some when there are none.

        Each goes to one caller, until its next check is due; of topics that are `visible` only.
        One whose half may be whole at a silent replica alone is left for later, and its checks
        begin anew: raises `ShardUnavailable` when there is no other.
        """
        self._check(producer_group, wait_s)
        if not 1 <= max_checks <= self._limits.receive_messages_max:
            raise InvalidRequest(
                f"max_transactions must be from 1 to {self._limits.receive_messages_max}"
            )
        deadline_s = self._clock.monotonic_s() + wait_s
        while True:
            taken = self._table.take_checks(producer_group, max_checks, visible)
            left_s = deadline_s - self._clock.monotonic_s()
            if taken or left_s <= 0:
                break
            if not await self._long_polls.wait_for_queue(_line(producer_group), QUEUE, left_s):
                break
        unread: dict[str, ShardUnavailable] = {}
        try:
            checks = [await self._question(each, unread) for each in taken]
        except BaseException:  # also who leaves while the halves are read
            self._table.give_back_checks(taken)
            raise
        if gone():
            self._table.give_back_checks(taken)
            return []
        left = [each for each in taken if each.transaction_id in unread]
        self._table.give_back_checks(left)  # behind all others
        for each in left:
            self._cannot_ask(each, unread[each.transaction_id])
        asked = [each for each in taken if each.transaction_id not in unread]
        self._note([each for each in asked if each.counts_when_asked])
        found = [check for check in checks if check]
        if unread and not found:
            raise next(iter(unread.values()))
        return found

    async def wait(self, producer_group: str, wait_s: float, visible: Visible) -> None:
        """Return when the group has something to decide, or the wait is over. Nothing is taken."""
        self._check(producer_group, wait_s)
        deadline_s = self._clock.monotonic_s() + wait_s
        while not self._table.has_checks(producer_group, visible):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0 or not await self._long_polls.wait_for_queue(
                _line(producer_group), QUEUE, left_s
            ):
                return

    def _check(self, producer_group: str, wait_s: float) -> None:
        self._check_open()
        check_group(producer_group)
        check_wait(wait_s, self._limits)

    def give_back(self, checks: Sequence[Check]) -> None:
        """The client went away before the answer was written."""
        self._table.give_back_checks([check.transaction for check in checks])

    async def _question(
        self, transaction: Transaction, unread: dict[str, ShardUnavailable]
    ) -> Check | None:
        try:
            half = await self._halves.one(transaction)
        except ShardUnavailable as error:
            unread[transaction.transaction_id] = error
            return None
        except InternalError as error:
            _LOG.error("%s", error.detail)  # the traceback says nothing more
            return None
        if transaction.transaction_id in self._unread:  # it is not decided yet
            transaction.checks = 1  # the first that counts
            self._note([transaction])
            self.forget(transaction)
        message = replace(
            half,
            message_id=transaction.transaction_id,
            topic=transaction.topic,
            queue_id=transaction.queue_id,
        )
        return Check(transaction, message)

    async def turn(self) -> None:
        """Begin the checks that are due, roll back what was asked too often. A service's turn."""
        if self._store.failed is not None:
            return
        due, overdue = self._table.begin_checks(self._clock.monotonic_s())
        if due:
            self._note([each for each in due if not each.counts_when_asked])
            for producer_group in {each.producer_group for each in due}:
                self._long_polls.on_arrival(_line(producer_group), QUEUE)
        for transaction in overdue:
            with self.faults.guard(transaction.transaction_id):
                await self._roll_back(transaction)
        self._store.trim(HALF_TOPIC, QUEUE, self._table.first_half)

    def _note(self, transactions: Sequence[Transaction]) -> None:
        """Have the log know how often these were asked about. Not written, they are asked about
        once more after a restart."""
        if transactions:
            entry = self._journal.entry(self._table.checks_entry(transactions))
            with self.faults.guard("checks"):
                self._store.append_step((entry,), FlushMode.ASYNC, lambda _error: None)

    def _cannot_ask(self, transaction: Transaction, error: ShardUnavailable) -> None:
        """Its producer group cannot be told what it is about, so no check counts."""
        if transaction.transaction_id not in self._table.pending:
            return  # somebody has decided it meanwhile
        self.faults.note(transaction.transaction_id, error)
        self._unread.add(transaction.transaction_id)
        self._ask_anew(transaction)

    def _ask_anew(self, transaction: Transaction) -> None:
        before = transaction.checks
        self._table.ask_anew(transaction)
        if transaction.checks < before:
            self._note([transaction])

    def forget(self, transaction: Transaction) -> None:
        """What was wrong with it: its half message can be read, or it is decided."""
        self.faults.clear(transaction.transaction_id)
        self._unread.discard(transaction.transaction_id)

    async def _roll_back(self, transaction: Transaction) -> None:
        try:
            await self._halves.one(transaction)
        except ShardUnavailable as error:
            self._cannot_ask(transaction, error)
            raise
        except InternalError:
            pass  # nobody has it whole: it can only be rolled back
        if transaction.transaction_id in self._unread:
            self._unread.discard(transaction.transaction_id)
            self._ask_anew(transaction)  # nobody could be asked about it before
            return
        try:
            await self._decide(
                transaction.transaction_id,
                TransactionState.ROLLED_BACK,
                reason=CHECKS_EXHAUSTED,
            )
        except TransactionConflict:
            return  # its producer was quicker
        _LOG.warning(
            "transaction %s of producer group %s was rolled back after %d checks",
            *(transaction.transaction_id, transaction.producer_group, transaction.checks),
        )


def _line(producer_group: str) -> str:
    """What pollers of a producer group wait on. No topic has such a name."""
    return f"{HALF_TOPIC}/{producer_group}"
