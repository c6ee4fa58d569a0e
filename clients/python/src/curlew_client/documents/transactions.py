"""What the node says about transactions."""

from typing import Literal, NotRequired, TypedDict

TransactionState = Literal["PREPARED", "COMMITTED", "ROLLED_BACK"]


class Transaction(TypedDict):
    """One transaction. `queue_offset` is that of the committed message. `reason` says why
    it was rolled back, when its producer did not: CHECKS_EXHAUSTED."""

    transaction_id: str
    message_id: str
    state: TransactionState
    producer_group: str
    topic: str
    queue_id: int
    queue_offset: int | None
    prepared_ms: int
    check_time_ms: int
    checks: int
    decided_ms: int | None
    reason: str | None
    namespace: str


class TransactionList(TypedDict):
    """A page of transactions, the oldest first; `next_page_token` is null on the last
    page."""

    transactions: list[Transaction]
    next_page_token: str | None
    partial: NotRequired[list[str]]


class Decision(Transaction):
    """A transaction after its decision; with `dry_run`, in the state that it would have."""

    dry_run: bool
