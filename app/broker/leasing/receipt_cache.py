"""Receipt handles with a memory: most come back to the process that issued them, and soon.

Recalling such a handle is a look-up instead of a signature and the unpacking of what it signs. What
is remembered is what was signed, by its whole text, so nothing is accepted that the signature would
not prove; a handle that is not remembered (another node's, an old one) is read from its own bytes.
Event loop only.
"""

from collections.abc import Sequence

from app.broker.leasing.leases import Lease
from app.broker.leasing.subscriptions import Held
from app.domain.handles.receipt import ReceiptSigner
from app.domain.limits import HANDLES_REMEMBERED_MAX


class ReceiptCache(ReceiptSigner):
    """A signer that remembers what `issue_all` gave out, up to `HANDLES_REMEMBERED_MAX`."""

    __slots__ = ("_earlier", "_newest")

    def __init__(self, key: bytes, shard: bytes) -> None:
        super().__init__(key, shard)
        # Two halves, so that forgetting the oldest is one assignment for thousands.
        self._newest: dict[str, Held] = {}
        self._earlier: dict[str, Held] = {}

    def issue_all(
        self, prefix: bytes, held: Sequence[Held], leases: Sequence[Lease], end_monotonic_ms: int
    ) -> list[str]:
        """A handle for each of the leases of one queue, all with the same end.

        `prefix` is from `receipt_prefix`.
        """
        rows = [
            (offset, lease_id, lease.attempt, lease.is_first)
            for (_, offset, lease_id), lease in zip(held, leases, strict=True)
        ]
        texts = self.issue_rows(prefix, held[0][0].queue_id, rows, end_monotonic_ms)
        if len(self._newest) + len(held) > HANDLES_REMEMBERED_MAX // 2:
            self._earlier, self._newest = self._newest, {}
        self._newest.update(zip(texts, held, strict=True))
        return texts

    def recall_all(self, handles: Sequence[str]) -> list[Held | None]:
        """What each was issued for, when it is remembered still; `read` those that are None.

        They are forgotten with that: few are asked for twice. Whether the lease lasts is not known
        here, nor whether the queue is still the group's.
        """
        newest, earlier = self._newest.pop, self._earlier.pop
        return [newest(handle, None) or earlier(handle, None) for handle in handles]
