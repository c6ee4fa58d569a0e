"""Who holds how many messages: groups, their clients, and principals, where a quota bounds those.

Principals are counted by the holders of leases, so in every way in which a lease begins and ends.
What is held over a start counts for none: the log does not say who has it. Event loop only.
"""

from typing import Final

from app.domain.errors import TooManyRequests
from app.domain.limits import QUOTA_ROWS_MAX
from app.domain.quotas.quota import Quota

_RETRY_S: Final = 1
LEASES_QUOTA: Final = "principal-leases"
"""The name of the quota, as clients get it."""


class HeldByOne:
    """What one principal holds, over all groups; changed by `Holder` only."""

    __slots__ = ("count", "name", "reserved", "short")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.reserved = 0
        """What of `count` may still come to nothing: it is being read from the disk."""
        self.short: dict[str, InFlight] = {}
        """Groups in which it got fewer than it wanted while something was reserved."""


class InFlight:
    """Number of messages that a group holds, over all its queues. Shared and changed by tables."""

    __slots__ = ("bytes", "count", "has_refused", "has_refused_member", "holders")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        """Of the records that holders have: counted while the group bounds bytes or members."""
        self.holders: dict[str, Holder] = {}
        """By client id, for groups with a bound for each member."""
        self.has_refused_member = False
        """A client got fewer than it wanted, because it holds as many as one may."""
        self.has_refused = False
        """A consumer got fewer than it wanted, because the group holds as many as it may."""


class Holder:
    """What one client of a group holds: messages, and bytes of their records."""

    __slots__ = ("_group", "bytes", "count", "owner")

    def __init__(self, group: InFlight, owner: HeldByOne | None = None) -> None:
        self._group = group
        self.owner = owner
        """The principal whose client it is, where a quota bounds that."""
        self.count = 0
        self.bytes = 0

    def take(self, count: int, size: int) -> None:
        """It holds so many more; less, when they are negative."""
        self.count += count
        self.bytes += size
        self._group.bytes += size
        if self.owner is not None:
            self.owner.count += count

    def reserve(self, count: int, size: int) -> None:
        """As `take`, for what is being read; ended with the same numbers, negative."""
        self.take(count, size)
        if self.owner is not None:
            self.owner.reserved += count


class PrincipalLeases:
    """One per receiver."""

    def __init__(self, most: int) -> None:
        """`most` of each; 0: as many as the groups allow, and none is counted."""
        self._most = most
        self._held: dict[str, HeldByOne] = {}

    def of(self, principal: str | None) -> HeldByOne | None:
        """The count of a principal; None: nothing bounds it."""
        if not self._most or principal is None:
            return None
        held = self._held.get(principal)
        if held is None:
            if len(self._held) >= QUOTA_ROWS_MAX:
                self._held = {name: each for name, each in self._held.items() if each.count}
            held = self._held[principal] = HeldByOne(principal)
        return held

    def room(self, held: HeldByOne) -> int:
        """How many more it may have; none while what is left is reserved. Raises `TooManyRequests`
        when it holds all."""
        if (count := held.count - held.reserved) >= self._most:
            raise TooManyRequests(
                f"principal {held.name!r} holds {count} messages; it may hold {self._most}",
                hint="settle what was received, or let its leases end",
                quota=Quota(LEASES_QUOTA, self._most, "concurrent-requests", 0),
                fields={"limit": self._most},
                retry_after_s=_RETRY_S,
            )
        return max(0, self._most - held.count)
