"""Whose a client id is: that of the principal that first used it in a group, while it is used.

A client id is a word that anybody in a group can say; without this, one who shares the group could
fence a member, evict it, or commit for it. Kept in memory for the lease of a member after its last
use, at most `clients_max`; then the longest unused is forgotten. Event loop only.
"""

from app.domain.access.actions import Action, Kind
from app.domain.access.standing import Standing
from app.domain.clock import Clock
from app.domain.limits import Limits

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

    def claim(self, standing: Standing, group: str, client_id: str) -> None:
        """Let the caller act as the client. Raises `NotPermitted` when it is another's and the
        caller may not UPDATE the group."""
        name = standing.caller.name
        if name is None:
            return
        client = group, client_id
        now_s = self._clock.monotonic_s()
        owner = self._owners.pop(client, None)
        if owner is not None and owner[0] != name and owner[1] > now_s:
            self._owners[client] = owner
            standing.require(Action.UPDATE, Kind.GROUP, group)
            return
        if len(self._owners) >= self._most:
            del self._owners[next(iter(self._owners))]
        self._owners[client] = name, now_s + self._lease_s

    def release(self, group: str, client_id: str) -> None:
        """It has left."""
        self._owners.pop((group, client_id), None)
