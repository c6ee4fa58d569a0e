"""Transactions that a replica which follows keeps up: decisions, and half messages that have none.

The replica's thread, until a broker begins with it.
"""

from typing import Final

from app.broker.journal.warm_journal import WarmJournal
from app.broker.ports import QueueRecords
from app.broker.transactions.half_messages import QUEUE, transaction_of
from app.broker.transactions.transaction_table import Transaction, TransactionTable
from app.domain.limits import MIB, Limits
from app.domain.names import DECISION_TOPIC, HALF_TOPIC

_READ_MESSAGES: Final = 512
_READ_BYTES: Final = 4 * MIB
_KEPT_MIN: Final = 1_024
"""Decided half messages that are kept, beside one for each that nobody has decided."""


class WarmTransactions:
    """Of one opening of a replica's store."""

    def __init__(self, store: QueueRecords, limits: Limits) -> None:
        self.decisions = WarmJournal(store, DECISION_TOPIC, lambda: TransactionTable.of(limits))
        self.halves: dict[int, Transaction] = {}
        """By the offset of the half message, in their order. Some may be decided."""
        self.lost: list[tuple[int, int]] = []
        """Ranges of half messages that cannot be read."""
        self.position = 0
        """Half messages below are known here."""
        self._store = store
        self._kept_max = _KEPT_MIN

    def advance(self) -> bool:
        """Take some of what is dispatched; whether there is more. Raises as `QueueRecords.read`
        with `wait_for_disk`, and goes on there the next time."""
        return self.decisions.advance() or self._advance_halves()

    def _advance_halves(self) -> bool:
        start, end = self._store.bounds(HALF_TOPIC, QUEUE)
        at = max(self.position, start)
        if at >= end:
            return False
        read = self._store.read(
            HALF_TOPIC,
            QUEUE,
            at,
            max_messages=_READ_MESSAGES,
            max_bytes=_READ_BYTES,
            end_offset=end,
            wait_for_disk=True,
        )
        for each in read.records:
            half = self._store.decode(each)
            self.halves[half.queue_offset] = transaction_of(half)
        self.lost += [(gap.from_offset, gap.to_offset) for gap in read.gaps]
        self.position = max(read.next_offset, at + 1)
        if len(self.halves) > self._kept_max:
            self._leave_out_decided()
        return self.position < end

    def _leave_out_decided(self) -> None:
        is_decided = self.decisions.state.halves.is_acked
        for offset in [offset for offset in self.halves if is_decided(offset)]:
            del self.halves[offset]
        self._kept_max = 2 * len(self.halves) + _KEPT_MIN
