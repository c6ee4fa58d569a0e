"""Reading half messages from the log. Event loop only; what is cold is read by a thread."""

from concurrent.futures import Executor

from app.broker.journal.cold_reads import ColdReads
from app.broker.ports import Store
from app.broker.transactions.half_messages import QUEUE
from app.broker.transactions.transaction_table import Transaction
from app.domain.errors import InternalError
from app.domain.limits import MIB
from app.domain.message import StoredMessage
from app.domain.names import HALF_TOPIC
from app.store import ReadResult


class HalfReader:
    """Of one store."""

    def __init__(self, store: Store, readers: Executor) -> None:
        self._store = store
        self._readers = readers

    async def one(self, transaction: Transaction) -> StoredMessage:
        """That of a transaction. Raises `InternalError` where it cannot be read, and
        `ShardUnavailable` where a silent replica alone may have it whole."""
        at = transaction.half_offset
        read = await self.read(at, at + 1, 1)
        if not read.records:
            raise InternalError(
                f"the half message of transaction {transaction.transaction_id!r} cannot be read",
                hint="roll it back and send the message again",
                outcome="not_stored",
            )
        return self._store.decode(read.records[0])

    async def read(self, at: int, end: int, count: int) -> ReadResult:
        """Of offsets `at` to `end`, so many at most."""
        return await ColdReads(self._readers).run(
            lambda wait: self._store.read(
                HALF_TOPIC,
                QUEUE,
                at,
                max_messages=count,
                max_bytes=4 * MIB,
                end_offset=end,
                wait_for_disk=wait,
            )
        )
