"""Transactions: a message that becomes visible when its producer says so, or never.

The half message is a record of a system topic, so nothing that reads topics sees it. Committing
writes the message itself and the decision as one step; so it becomes visible exactly once, however
often the node is killed and whoever else decides at the same time. The id of the half message is
the transaction's, and the message's own. Producers are asked by `ProducerChecks`. Event loop only.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from app.broker.context import Context
from app.broker.journal.append_future import AppendFuture, with_outcome
from app.broker.journal.cold_reads import ColdReads
from app.broker.journal.journal import Journal
from app.broker.ports import Topic
from app.broker.produce.message_types import check_type
from app.broker.read.long_polls import LongPolls
from app.broker.retries_and_dead_letters import fitted, plain_copy
from app.broker.topic_lookup import find_topic
from app.broker.transactions.half_messages import (
    CHECK_AFTER,
    CHECKS,
    PRODUCER_GROUP,
    QUEUE,
    WHEN_ASKED,
    transaction_of,
)
from app.broker.transactions.half_reader import HalfReader
from app.broker.transactions.producer_checks import ProducerChecks
from app.broker.transactions.transaction_table import (
    Transaction,
    TransactionState,
    TransactionTable,
)
from app.broker.transactions.warm_transactions import WarmTransactions
from app.domain.errors import (
    CurlewError,
    InvalidRequest,
    TooManyRequests,
    TopicNotFound,
    TransactionConflict,
    TransactionNotFound,
)
from app.domain.message import (
    PROPERTY_GENERATION,
    PROPERTY_HALF,
    PROPERTY_REAL_QUEUE,
    PROPERTY_REAL_TOPIC,
    Message,
    check_message,
)
from app.domain.names import (
    DECISION_TOPIC,
    DEFAULT_NAMESPACE,
    HALF_TOPIC,
    check_group,
    is_in,
)
from app.domain.positions import FlushMode
from app.store import StepPart

_READ_MESSAGES: Final = 1_024

Decision = TransactionState
Place = Callable[[str, Message, int | None], Awaitable[tuple[Topic, int]]]
"""Gives the topic, made where that is allowed, and the queue: `Sender.place`."""


class Transactions:
    """The transactions of one node. `start` before use."""

    def __init__(
        self,
        context: Context,
        long_polls: LongPolls,
        place: Place,
        warm: WarmTransactions | None = None,
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._statistics = context.statistics
        self._limits = context.limits
        self._readers = context.readers
        self._warm = warm
        self._check_open = context.gate.check
        self._place = place
        decisions = None if warm is None else warm.decisions
        self._table = TransactionTable.of(context.limits) if decisions is None else decisions.state
        self.journal = Journal(
            context.store, DECISION_TOPIC, self._table, context.readers, decisions
        )
        self._halves = HalfReader(context.store, context.readers)
        self.checks = ProducerChecks(
            context, long_polls, self._table, self.journal, self._halves, self.decide
        )
        self._preparing = 0
        """Half messages that were appended and are not confirmed yet."""
        self._deciding: dict[str, tuple[Decision, asyncio.Future[None]]] = {}
        """Until the decision is confirmed, or has failed."""

    async def start(self) -> None:
        """Read the decisions, then the half messages that have none."""
        await self.journal.replay()
        at, end = self._store.bounds(HALF_TOPIC, QUEUE)
        at = max(at, self._table.first_half)
        if self._warm is not None:
            at = max(at, await self._take_warm(self._warm))
            self._warm = None
        while at < end:
            read = await self._halves.read(at, end, _READ_MESSAGES)
            for record in read.records:
                half = self._store.decode(record)
                if not self._table.halves.is_acked(half.queue_offset):
                    self._take_up(transaction_of(half))
            for gap in read.gaps:  # nobody can decide what cannot be read, and it holds the log
                self._table.halves.ack_range(gap.from_offset, gap.to_offset)
            at = max(read.next_offset, at + 1)

    async def _take_warm(self, warm: WarmTransactions) -> int:
        """Take up what was read while this replica followed; how far that is."""
        for start, end in warm.lost:
            self._table.halves.ack_range(start, end)
        for number, (offset, half) in enumerate(warm.halves.items()):
            if not self._table.halves.is_acked(offset):
                self._take_up(half)
            if number % _READ_MESSAGES == 0:
                await asyncio.sleep(0)
        return warm.position

    def _take_up(self, transaction: Transaction) -> None:
        self._table.add(transaction, now_s=self._clock.monotonic_s(), now_ms=self._clock.now_ms())

    @property
    def pending_count(self) -> int:
        """Transactions that nobody has decided yet."""
        return len(self._table.pending)

    def pending_by_topic(self) -> Counter[str]:
        """The same by the topic that a message is for."""
        return Counter(each.topic for each in self._table.pending.values())

    # --- preparing

    async def prepare(
        self,
        topic: str,
        message: Message,
        *,
        producer_group: str,
        check_after_ms: int | None = None,
        counts_when_asked: bool = False,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
    ) -> Transaction:
        """Store a half message. Errors carry `outcome`."""
        try:
            self._check_open()
            check_message(message, self._limits)
            check_group(producer_group)
            after_ms = self._check_after(check_after_ms)
            view, queue_id = await self._place(topic, message, queue_id)
            check_type(view, message, is_transactional=True)
            pending = len(self._table.pending) + self._preparing
            if pending >= self._limits.transactions_pending_max:
                raise TooManyRequests(
                    f"{pending} transactions wait for their decision",
                    hint="commit or roll back some: GET /v1/transactions?state=PREPARED",
                    fields={"limit": self._limits.transactions_pending_max},
                    retry_after_s=1,
                )
            system = {
                PROPERTY_REAL_TOPIC: topic,
                PROPERTY_REAL_QUEUE: str(queue_id),
                PRODUCER_GROUP: producer_group,
                CHECK_AFTER: f"{after_ms / 1_000:g}",
                PROPERTY_GENERATION: str(view.generation),
            }
            if counts_when_asked:
                system[CHECKS] = WHEN_ASKED
            half = replace(message, system=system, message_id=None)
            confirmation = AppendFuture()

            def settled(error: CurlewError | None) -> None:
                self._preparing -= 1
                if error is None:  # also when nobody waits for the answer any more
                    self._take_up(transaction)
                confirmation.done(error)

            appended = self._store.append(HALF_TOPIC, QUEUE, (half,), flush or view.flush, settled)
        except CurlewError as error:
            raise with_outcome(error, "not_stored") from error.__cause__
        self._preparing += 1
        transaction = Transaction(
            appended.message_ids[0],
            producer_group,
            topic,
            queue_id,
            appended.first_queue_offset,
            appended.store_time_ms,
            after_ms,
            generation=view.generation,
            counts_when_asked=counts_when_asked,
        )
        await confirmation.wait()
        return transaction

    def _check_after(self, check_after_ms: int | None) -> int:
        limits = self._limits
        low, high = limits.transaction_check_after_ms_min, limits.transaction_check_after_ms_max
        if check_after_ms is None:
            return limits.transaction_check_after_ms
        if not low <= check_after_ms <= high:
            raise InvalidRequest(
                f"check-after is {check_after_ms} ms; it must be from {low} to {high} ms",
                hint="the first time when the producer group may be asked, such as 30s",
            )
        return check_after_ms

    # --- deciding

    def find(self, transaction_id: str, namespace: str | None = None) -> Transaction:
        """The transaction, or `TransactionNotFound`. `namespace`: of its topic; None: any."""
        transaction = self._table.find(transaction_id)
        if transaction is None or not (namespace is None or is_in(namespace, transaction.topic)):
            raise self.missing(transaction_id)
        return transaction

    def missing(self, transaction_id: str) -> TransactionNotFound:
        """What is said of one that is not there, or that the caller must not know of."""
        return TransactionNotFound(
            f"there is no transaction {transaction_id!r}",
            hint=f"the last {self._limits.transactions_remembered_max} decided ones are known",
        )

    async def decide(
        self, transaction_id: str, decision: Decision, *, reason: str | None = None
    ) -> Transaction:
        """Commit or roll back; repeating it gives the same answer.

        Raises `TransactionNotFound`, `TransactionConflict` when it is decided otherwise, and what a
        send raises, with `outcome`.
        """
        self._check_open()
        while True:
            transaction = self.find(transaction_id)
            in_progress = self._deciding.get(transaction_id)
            if in_progress is not None:
                if in_progress[0] is not decision:
                    raise _conflict(transaction_id, in_progress[0])
                await asyncio.shield(in_progress[1])
            elif transaction.state is TransactionState.PREPARED:
                break
            elif transaction.state is decision:
                await self._find_offset(transaction)
                return transaction
            else:
                raise _conflict(transaction_id, transaction.state)
        done = asyncio.get_running_loop().create_future()
        self._deciding[transaction_id] = decision, done
        try:
            confirmation = await self._append_decision(transaction, decision, reason)
        except BaseException:
            self._end_deciding(transaction_id)
            raise
        await confirmation.wait()
        return transaction

    async def preview(self, transaction_id: str, decision: Decision) -> Transaction:
        """The transaction, as long as `decide` could decide so. Raises as it does."""
        self._check_open()
        transaction = self.find(transaction_id)
        in_progress = self._deciding.get(transaction_id)
        state = transaction.state if in_progress is None else in_progress[0]
        if state is TransactionState.PREPARED and decision is TransactionState.COMMITTED:
            await self._halves.one(transaction)
            find_topic(self._metadata, transaction.topic)
        elif state not in {TransactionState.PREPARED, decision}:
            raise _conflict(transaction_id, state)
        return transaction

    def _end_deciding(self, transaction_id: str) -> None:
        _, done = self._deciding.pop(transaction_id)
        done.set_result(None)

    async def _append_decision(
        self, transaction: Transaction, decision: Decision, reason: str | None
    ) -> AppendFuture:
        """Whoever is cancelled while it is being confirmed leaves that to finish."""
        parts: list[StepPart] = []
        flush = FlushMode.SYNC
        if decision is TransactionState.COMMITTED:
            half = await self._halves.one(transaction)
            topic = find_topic(self._metadata, transaction.topic)
            _check_generation(transaction, topic)
            flush = topic.flush
            message = replace(plain_copy(half), message_id=transaction.transaction_id)
            half_offset = {PROPERTY_HALF: str(transaction.half_offset)}
            message = fitted(replace(message, system=half_offset))
            place = transaction.topic, transaction.queue_id
            parts.append(StepPart(*place, [message], topic.generation))
        now_ms = self._clock.now_ms()
        entry = self._table.entry(transaction, decision, now_ms, reason)
        confirmation = AppendFuture()

        def settled(error: CurlewError | None) -> None:
            if error is None:
                self._table.confirm(transaction)
                self.checks.forget(transaction)
            else:
                self._table.take_back(transaction)
            self._end_deciding(transaction.transaction_id)
            confirmation.done(error)

        try:
            appended = self._store.append_step((*parts, self.journal.entry(entry)), flush, settled)
        except CurlewError as error:
            raise with_outcome(error, "not_stored") from error.__cause__
        # In the turn of the append: see the journal's rule.
        self._table.decide(transaction, decision, now_ms, reason)
        if parts:
            transaction.queue_offset = appended[0].first_queue_offset
            size = len(parts[0].messages[0].body)
            self._statistics.stored(transaction.topic, None, 1, size)
        return confirmation

    async def _find_offset(self, transaction: Transaction) -> None:
        """After a restart the journal knows that it was committed; the topic knows where."""
        is_committed = transaction.state is TransactionState.COMMITTED
        if is_committed and transaction.queue_offset is None:
            topic, message_id = transaction.topic, transaction.transaction_id
            message = await ColdReads(self._readers).run(
                lambda wait: self._store.read_message(message_id, topic=topic, wait_for_disk=wait)
            )
            if message is not None and message.topic == topic:  # else the half, which has its id
                transaction.queue_offset = message.queue_offset

    def listed(
        self,
        *,
        state: TransactionState | None = None,
        producer_group: str | None = None,
        after: str | None = None,
        count: int = 100,
        namespace: str = DEFAULT_NAMESPACE,
        visible: Callable[[Transaction], bool] = lambda _transaction: True,
    ) -> list[Transaction]:
        """Transactions of a namespace by id, which is by time: those that wait and those that are
        remembered."""
        every = (*self._table.pending.values(), *self._table.decided.values())
        chosen = [
            each
            for each in every
            if is_in(namespace, each.topic)
            and (state is None or each.state is state)
            and (producer_group is None or each.producer_group == producer_group)
            and (after is None or each.transaction_id > after)
            and visible(each)
        ]
        return sorted(chosen, key=lambda each: each.transaction_id)[:count]


def _conflict(transaction_id: str, state: TransactionState) -> TransactionConflict:
    return TransactionConflict(
        f"transaction {transaction_id!r} is {state} already",
        hint="a decision is final",
        fields={"state": state},
        outcome="not_stored",
    )


def _check_generation(transaction: Transaction, topic: Topic) -> None:
    """Raise `TopicNotFound` when the transaction was prepared for a predecessor of the topic."""
    if transaction.generation:
        is_other = transaction.generation != topic.generation
    else:
        is_other = transaction.prepared_ms < topic.created_ms
    if is_other:
        raise TopicNotFound(
            f"topic {topic.name!r} was deleted since transaction {transaction.transaction_id!r}"
            " was prepared, and made again",
            hint="roll it back; what was prepared for the deleted topic is not for its successor",
            outcome="not_stored",
        )
