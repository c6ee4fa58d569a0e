"""Room for one more member: how many there are in all groups together, and how many join.

A member of another node counts from the next turn on. Event loop only.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from app.domain.consumers.membership import Membership
from app.domain.errors import StateConflict
from app.domain.limits import Limits


class MemberRoom:
    """Counts what `Members` sees."""

    def __init__(self, last: Mapping[str, Membership], limits: Limits) -> None:
        """`last` are the groups as they were seen last."""
        self._last = last
        self._limits = limits
        self._count = 0
        """Members in `last`."""
        self._joining: Counter[tuple[str, str]] = Counter()
        """(group, client id) of those that join now, and how many requests of each."""

    def note(self, before: Membership | None, now: Membership | None) -> None:
        """One of `last` is replaced; None: the group was or is not there."""
        self._count += _members(now) - _members(before)

    def check_group(self, membership: Membership, client_id: str) -> None:
        """Raise `StateConflict` when the group takes no such member."""
        most = self._limits.members_per_group_max
        if client_id not in membership.members and len(membership.members) >= most:
            raise StateConflict(
                f"group {membership.group!r} has {most} members; more are not taken",
                hint="let each process read more queues, or split the group",
                fields={"limit": most, "bound": "members_per_group_max"},
            )

    @contextmanager
    def one(self, group: str, client_id: str) -> Iterator[None]:
        """Keep room for a member that joins until it is seen. Raises `StateConflict`."""
        joining = group, client_id
        if joining not in self._joining and not self._is_seen(group, client_id):
            self._check()
        self._joining[joining] += 1
        try:
            yield
        finally:
            self._joining[joining] -= 1
            if not self._joining[joining]:
                del self._joining[joining]

    def _check(self) -> None:
        most = self._limits.members_max
        count = self._count + sum(not self._is_seen(*each) for each in self._joining)
        if count >= most:
            raise StateConflict(
                f"the groups have {count} members together; more are not taken",
                hint="let each process read more queues, or let the operator raise members_max",
                fields={"limit": most, "bound": "members_max"},
            )

    def _is_seen(self, group: str, client_id: str) -> bool:
        last = self._last.get(group)
        return last is not None and client_id in last.members


def _members(membership: Membership | None) -> int:
    return 0 if membership is None else len(membership.members)
