"""Whose a client id is: that of the principal that first used it in a group, while it is used.

A client id is a word that anybody in a group can say; without this, one who shares the group could
fence a member, evict it, or commit for it. Of a member the database says whose it is, to all nodes.
Here it is kept in memory for the lease of a member after its last use, at most `clients_max` in all
and `CLIENTS_OF_A_PRINCIPAL_MAX` of one principal. Who has too many loses its own longest unused
one, so that nobody makes others' forgotten by naming many. Event loop only.
"""

from collections import defaultdict
from collections.abc import Callable, Container
from contextlib import suppress
from typing import NamedTuple, Protocol

from app.domain.access.actions import Action, Kind
from app.domain.access.standing import Standing
from app.domain.clock import Clock
from app.domain.consumers.membership import Membership
from app.domain.errors import MetadataUnavailable
from app.domain.limits import CLIENTS_OF_A_PRINCIPAL_MAX, Limits

_Client = tuple[str, str]
"""A group and a client id."""


class Members(Protocol):
    """What is known of the members of groups."""

    def last(self, group: str) -> Membership | None: ...

    async def catch_up(self, group: str) -> None: ...


class _Owner(NamedTuple):
    """Who used a client id last."""

    name: str
    until_s: float
    is_member: bool
    """Whether the database was asked whose member it is."""


class ClientOwners:
    """The owners on one node."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        members: Callable[[], Members] | None = None,
        groups: Callable[[], Container[str]] = tuple,
    ) -> None:
        """`members` of all nodes, of the `groups` that there are; None: nobody joins here."""
        self._members = members
        self._groups = groups
        self._clock = clock
        self._lease_s = limits.member_lease_ms / 1_000
        self._most = limits.clients_max
        self._owners: dict[_Client, _Owner] = {}
        """The longest unused first."""
        self._of: defaultdict[str, dict[_Client, None]] = defaultdict(dict)
        """The clients of each principal, likewise."""

    def __len__(self) -> int:
        return len(self._owners)

    async def claim_member(self, standing: Standing, group: str, client_id: str) -> None:
        """As `claim`, of a client that is a member or may become one: it is whose it is on the node
        on which it joined. The database is asked for those that were not used here lately, or have
        been seen to be another's since."""
        name = standing.caller.name
        if name is None:
            return
        owner = self._owners.get((group, client_id))
        is_known = owner is not None and owner.is_member and owner.name == name
        is_known = is_known and self._who_was_seen(group, client_id) in (None, name)
        if owner is None or not is_known or owner.until_s <= self._clock.monotonic_s():
            joined = await self._who_joined(group, client_id)
            if joined not in (None, name):
                standing.require(Action.UPDATE, Kind.GROUP, group)
                return
            if joined == name:  # whoever has received here under its client id
                self._forget((group, client_id))
        self._claim(standing, name, (group, client_id), is_member=True)

    async def _who_joined(self, group: str, client_id: str) -> str | None:
        if self._members is None or group not in self._groups():
            return None
        with suppress(MetadataUnavailable):  # what is known has to do
            await self._members().catch_up(group)
        return self._who_was_seen(group, client_id)

    def _who_was_seen(self, group: str, client_id: str) -> str | None:
        """Whose member it was when this node last looked, which is a turn ago at most."""
        last = None if self._members is None else self._members().last(group)
        member = None if last is None else last.members.get(client_id)
        return None if member is None else member.profile.principal

    def claim(self, standing: Standing, group: str, client_id: str) -> None:
        """Let the caller act as the client. Raises `NotPermitted` when it is another's and the
        caller may not UPDATE the group."""
        name = standing.caller.name
        if name is not None:
            self._claim(standing, name, (group, client_id), is_member=False)

    def _claim(self, standing: Standing, name: str, client: _Client, *, is_member: bool) -> None:
        now_s = self._clock.monotonic_s()
        owner = self._owners.get(client)
        if owner is not None and owner.until_s > now_s:
            if owner.name != name:
                standing.require(Action.UPDATE, Kind.GROUP, client[0])
                return
            is_member = is_member or owner.is_member
        self._forget(client)
        self._make_room(name, now_s)
        self._owners[client] = _Owner(name, now_s + self._lease_s, is_member)
        self._of[name][client] = None

    def _make_room(self, name: str, now_s: float) -> None:
        own = self._of.get(name)
        if own is not None and len(own) >= CLIENTS_OF_A_PRINCIPAL_MAX:
            self._forget(next(iter(own)))
        if len(self._owners) < self._most:
            return
        oldest = next(iter(self._owners))
        is_used = self._owners[oldest].until_s > now_s
        self._forget(next(iter(own)) if is_used and own else oldest)

    def _forget(self, client: _Client) -> None:
        owner = self._owners.pop(client, None)
        if owner is not None:
            own = self._of[owner.name]
            del own[client]
            if not own:
                del self._of[owner.name]
