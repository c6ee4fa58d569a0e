"""A lease of one message, and what is told of a message that is held. Times are monotonic seconds.

Which lease counts, and when it ends, is `lease_table`'s.
"""

from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from app.broker.leasing.holders import Holder
from app.broker.leasing.retry_policy import EXPIRED, Failure


class Lease(Struct, gc=False):
    """The newest delivery of one message; owned and changed by its table only.

    A struct that the garbage collector does not look at: there may be millions, and what a lease
    holds leads back to none.
    """

    lease_id: int
    expires_s: float
    former_end_s: float = 0.0
    """The latest end of the earlier leases of this message."""
    attempt: int = 1
    is_first: bool = True
    """No other lease of this message came before. True for nearly all."""
    holder: Holder | None = None
    """The client that holds it, where clients or bytes are counted."""
    size: int = 0
    """Bytes of the record, where there is a holder."""
    failure: Failure = EXPIRED
    """Why it failed last, when it has."""

    @property
    def handles_end_s(self) -> float:
        """The latest end of all leases of this message so far."""
        return max(self.expires_s, self.former_end_s)

    def let_go(self) -> None:
        """Its client does not hold it any more."""
        if self.holder is not None:
            self.holder.take(-1, -self.size)
            self.holder = None

    def renew(self, lease_id: int, expires_s: float) -> None:
        """Replace by another lease of the same message."""
        self.former_end_s = self.handles_end_s
        self.lease_id = lease_id
        self.expires_s = expires_s
        self.is_first = False


class LeaseState(Enum):
    """Where a message that was fetched and is not settled is."""

    LEASED = "leased"
    FAILING = "failing"
    DELAYED = "delayed"
    RETURNED = "returned"


class HeldMessage(NamedTuple):
    """What a table knows of one message; `until_s` for leases."""

    state: LeaseState
    attempt: int
    until_s: float | None
