"""Receipt handles with a memory: most come back to the process that issued them, and soon.

Reading such a handle is a look-up instead of a signature and the unpacking of what it signs. What
is remembered is what was signed, by its whole text, so nothing is accepted that the signature would
not prove; a handle that is not remembered (another node's, an old one) is read from its own bytes.
Event loop only.
"""

from collections.abc import Sequence

from typing_extensions import override

from app.broker.leases import Lease
from app.broker.subscriptions import Subscription
from app.domain.limits import HANDLES_REMEMBERED_MAX
from app.domain.receipt import ATTEMPT_MAX, ReceiptHandle, ReceiptSigner


class RecentHandles(ReceiptSigner):
    """A signer that remembers what `issue_all` gave out, up to `HANDLES_REMEMBERED_MAX`."""

    __slots__ = ("_earlier", "_newest")

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        # Two halves, so that forgetting the oldest is one assignment for thousands.
        self._newest: dict[str, ReceiptHandle] = {}
        self._earlier: dict[str, ReceiptHandle] = {}

    @property
    def remembered_count(self) -> int:
        return len(self._newest) + len(self._earlier)

    def issue_all(
        self,
        subscription: Subscription,
        queue_id: int,
        offsets: Sequence[int],
        leases: Sequence[Lease],
        expires_monotonic_ms: int,
    ) -> list[str]:
        """A handle for each lease of one queue, all with the same end."""
        if len(self._newest) + len(offsets) > HANDLES_REMEMBERED_MAX // 2:
            self._earlier, self._newest = self._newest, {}
        issue, remember = self.issue, self._newest.__setitem__
        topic, group, prefix = subscription.topic, subscription.group, subscription.handle_prefix
        texts: list[str] = []
        for offset, lease in zip(offsets, leases, strict=True):
            lease_id, is_first = lease.lease_id, lease.is_first
            attempt = min(ATTEMPT_MAX, lease.attempt)
            end = expires_monotonic_ms
            text = issue(prefix, queue_id, offset, lease_id, attempt, is_first, end)
            handle = ReceiptHandle(topic, group, queue_id, offset, lease_id, attempt, is_first, end)
            remember(text, handle)
            texts.append(text)
        return texts

    @override
    def read(self, handle: str) -> ReceiptHandle:
        """As the signer's. A handle is forgotten when it is read: few are read twice."""
        found = self._newest.pop(handle, None) or self._earlier.pop(handle, None)
        return super().read(handle) if found is None else found
