# Made from aio/admin/transactions.py by make_blocking.py. Change that, and run it.
"""Transactions, as an operator sees them."""

from curlew_client.blocking.admin.asking import Asking
from curlew_client.documents.transactions import (
    Decision,
    Transaction,
    TransactionList,
    TransactionState,
)
from curlew_client.wire.http1 import path_part as part


class Transactions(Asking):
    """Transactions, as an operator sees them."""

    def list_transactions(
        self,
        *,
        state: TransactionState | None = None,
        producer_group: str | None = None,
        page_token: str | None = None,
        page_size: int | None = None,
    ) -> TransactionList:
        """List transactions."""
        return self._ask(
            TransactionList,
            "GET",
            "/v1/transactions",
            params={
                "state": state,
                "producer_group": producer_group,
                "page_token": page_token,
                "page_size": page_size,
            },
        )

    def get_transaction(self, transaction_id: str) -> Transaction:
        """The state of a transaction."""
        return self._ask(Transaction, "GET", f"/v1/transactions/{part(transaction_id)}")

    def commit_transaction(self, transaction_id: str, *, dry_run: bool = False) -> Decision:
        """Make the message of a transaction visible."""
        return self._ask(
            Decision,
            "POST",
            f"/v1/transactions/{part(transaction_id)}:commit",
            params={"dry_run": dry_run},
        )

    def rollback_transaction(self, transaction_id: str, *, dry_run: bool = False) -> Decision:
        """Drop the message of a transaction."""
        return self._ask(
            Decision,
            "POST",
            f"/v1/transactions/{part(transaction_id)}:rollback",
            params={"dry_run": dry_run},
        )
