"""Making a connection to another replica: the handshake of the cluster port, then a link.

Event loop only.
"""

import asyncio

from typing_extensions import override

from app.api.relay.handshake import LINE_BYTES_MAX, Asking, Refused
from app.api.relay.peer_connection import Connecting
from app.api.relay.peers import Peers
from app.api.replicas.link import ReplicaLink
from app.runtime.secure.cluster_secret import ClusterSecret


class _Dialing(Connecting):
    """A connection until this side has proved the secret; then the link has it."""

    def __init__(self, asking: Asking, link: ReplicaLink) -> None:
        self._asking = asking
        self._link = link
        self._line = b""
        self._transport: asyncio.Transport
        self.ready = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.write(self._asking.greeting())

    @override
    def data_received(self, data: bytes) -> None:
        self._line += data
        line, end, _ = self._line.partition(b"\n")
        if not end and len(line) <= LINE_BYTES_MAX:
            return
        try:
            self._transport.write(self._asking.proof(line))
        except Refused as refusal:
            self._fail(refusal)
            self.abort()
            return
        self._transport.set_protocol(self._link)
        self._link.connection_made(self._transport)
        if not self.ready.done():
            self.ready.set_result(None)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError("it closed the connection"))

    @override
    def abort(self) -> None:
        self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # whoever waits gets it; nobody has to


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
