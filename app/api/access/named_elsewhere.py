"""What a request of the data plane names besides its path, asked before anything is done.

Called where headers, query and body were merged, so that it makes no difference where a name was
written. Producer ids and groups are asked for where they are read (`formats.dedup_headers`,
`formats.transaction_headers`). Event loop only.
"""

from collections.abc import Iterable
from hashlib import blake2b

from app.api.access.acting import act_as_caller
from app.api.access.client_owners import ClientOwners
from app.api.access.operation_rights import OperationRights
from app.api.http.request_context import RequestContext
from app.domain.access.actions import Action, Kind
from app.domain.access.standing import Standing
from app.runtime.direct import in_task

_ATTEMPT_BYTES = 16


class NamedElsewhere:
    """Asks for a server's handlers. Stateless beside its collaborators."""

    def __init__(self, rights: OperationRights | None, owners: ClientOwners | None) -> None:
        self._rights = rights
        self._owners = owners

    def topics_sent_to(self, standing: RequestContext, names: Iterable[str]) -> None:
        """Of messages that are sent with acks: all of them or none. What is made is the caller's:
        to be called in a task of the request."""
        for name in dict.fromkeys(names):
            standing.require(Action.PUB, Kind.TOPIC, name)
            self.to_make(standing, Kind.TOPIC, name)
        if standing.makes:
            act_as_caller(standing)

    def to_make(self, standing: Standing, kind: Kind, name: str) -> None:
        """What naming it makes, when there is none."""
        if self._rights is not None:
            self._rights.require_to_make(standing, kind, name)

    def client(self, standing: Standing, group: str, client_id: str | None) -> None:
        """A client id, which belongs to whoever first used it."""
        if self._owners is not None and client_id is not None:
            self._owners.claim(standing, group, client_id)

    async def member(self, standing: Standing, group: str, client_id: str) -> None:
        """As `client`, of a member: on whichever node it joined."""
        if self._owners is not None:
            await self._owners.claim_member(standing, group, client_id)

    async def force(self, standing: RequestContext, group: str) -> None:
        """Ending what others of the group do, or replacing the filter that they read with. The
        rest of the request is a task, and the caller's doing."""
        standing.require(Action.UPDATE, Kind.GROUP, group)
        await in_task()
        act_as_caller(standing)


def attempt_of(standing: Standing, attempt_id: str | None) -> str | None:
    """An attempt id as the broker knows it: the same word of another principal is another one."""
    name = standing.caller.name
    if attempt_id is None or name is None:
        return attempt_id
    return blake2b(f"{name}\0{attempt_id}".encode(), digest_size=_ATTEMPT_BYTES).hexdigest()
