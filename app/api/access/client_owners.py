"""Whose a client id is: that of the principal that first used it in a group, while it is used.

A client id is a word that anybody in a group can say; without this, one who shares the group could
fence a member, evict it, or commit for it. Kept in memory for the lease of a member after its last
use, at most `clients_max` in all and `CLIENTS_OF_A_PRINCIPAL_MAX` of one principal. Who has too
many loses its own longest unused one, so that nobody makes others' forgotten by naming many. Event
loop only.
"""

from collections import defaultdict

from app.domain.access.actions import Action, Kind
from app.domain.access.standing import Standing
from app.domain.clock import Clock
from app.domain.limits import CLIENTS_OF_A_PRINCIPAL_MAX, Limits

_Client = tuple[str, str]
"""A group and a client id."""


class ClientOwners:
    """The owners on one node."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._lease_s = limits.member_lease_ms / 1_000
        self._most = limits.clients_max
        self._owners: dict[_Client, tuple[str, float]] = {}
        """The longest unused first."""
        self._of: defaultdict[str, dict[_Client, None]] = defaultdict(dict)
        """The clients of each principal, likewise."""

    def __len__(self) -> int:
        return len(self._owners)

    def claim(self, standing: Standing, group: str, client_id: str) -> None:
        """Let the caller act as the client. Raises `NotPermitted` when it is another's and the
        caller may not UPDATE the group."""
        name = standing.caller.name
        if name is None:
            return
        client = group, client_id
        now_s = self._clock.monotonic_s()
        owner = self._owners.get(client)
        if owner is not None and owner[0] != name and owner[1] > now_s:
            standing.require(Action.UPDATE, Kind.GROUP, group)
            return
        self._forget(client)
        self._make_room(name, now_s)
        self._owners[client] = name, now_s + self._lease_s
        self._of[name][client] = None

    def release(self, group: str, client_id: str) -> None:
        """It has left."""
        self._forget((group, client_id))

    def _make_room(self, name: str, now_s: float) -> None:
        own = self._of.get(name)
        if own is not None and len(own) >= CLIENTS_OF_A_PRINCIPAL_MAX:
            self._forget(next(iter(own)))
        if len(self._owners) < self._most:
            return
        oldest = next(iter(self._owners))
        is_used = self._owners[oldest][1] > now_s
        self._forget(next(iter(own)) if is_used and own else oldest)

    def _forget(self, client: _Client) -> None:
        owner = self._owners.pop(client, None)
        if owner is not None:
            own = self._of[owner[0]]
            del own[client]
            if not own:
                del self._of[owner[0]]
