"""Making a connection to another replica: the handshake of the cluster port, then a link.

Event loop only.
"""

from typing_extensions import override

from app.api.peers.connection import Connecting
from app.api.peers.handshake import Asking
from app.api.peers.pool import Peers
from app.api.replicas.link import ReplicaLink
from app.runtime.secure.cluster_secret import ClusterSecret


class _Dialing(Connecting):
    """Gives its transport to the link behind the handshake."""

    def __init__(self, asking: Asking, link: ReplicaLink) -> None:
        super().__init__(asking)
        self._link = link

    @override
    def proved(self) -> None:
        self._transport.set_protocol(self._link)
        self._link.connection_made(self._transport)


async def dial(
    peers: Peers,
    secret: ClusterSecret,
    url: str,
    me: tuple[str, int],
    link: ReplicaLink,
) -> None:
    """Connect to the cluster port at `url`, as this node and with this session, and give the
    connection to `link`. Raises `NotReached`, which says why: also where no replicas are kept."""
    await peers.connect(url, lambda: _Dialing(Asking(secret, me), link))
