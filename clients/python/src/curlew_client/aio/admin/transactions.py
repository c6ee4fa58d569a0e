"""Transactions, as an operator sees them."""

from curlew_client.aio.admin.asking import AsyncAsking
from curlew_client.documents.transactions import (
    Decision,
    Transaction,
    TransactionList,
    TransactionState,
)
from curlew_client.wire.http1 import path_part as part


class AsyncTransactions(AsyncAsking):
    """Transactions, as an operator sees them."""

    async def list_transactions(
        self,
        *,
        state: TransactionState | None = None,
        producer_group: str | None = None,
        page_token: str | None = None,
        page_size: int | None = None,
    ) -> TransactionList:
        """List transactions."""
        return await self._ask(
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

    async def get_transaction(self, transaction_id: str) -> Transaction:
        """The state of a transaction."""
        return await self._ask(Transaction, "GET", f"/v1/transactions/{part(transaction_id)}")

    async def commit_transaction(self, transaction_id: str, *, dry_run: bool = False) -> Decision:
        """Make the message of a transaction visible."""
        return await self._ask(
            Decision,
            "POST",
            f"/v1/transactions/{part(transaction_id)}:commit",
            params={"dry_run": dry_run},
        )

    async def rollback_transaction(self, transaction_id: str, *, dry_run: bool = False) -> Decision:
        """Drop the message of a transaction."""
        return await self._ask(
            Decision,
            "POST",
            f"/v1/transactions/{part(transaction_id)}:rollback",
            params={"dry_run": dry_run},
        )
