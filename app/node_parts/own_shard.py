"""How a node stands to the shard that it has, and what its terms are told to. Event loop only."""

from contextlib import AsyncExitStack
from typing import Final, Protocol

from app.api.ports import Following, ReadsHere, Replicas
from app.api.replicas.link_table import LinkTable
from app.cluster import Beat
from app.node_parts.served_term import ServedTerm, TermParts

LEAVE_SECONDS: Final = 1.0
"""How long a stop waits for the database to hear of it, which may be away."""


class TermApp(Protocol):
    """What answers requests for a node."""

    def serve(self, term: ServedTerm) -> None:
        """The node leads its shard."""
        ...

    def follow(self) -> None:
        """It does no more, or not yet: new requests are for those who lead."""
        ...

    async def end_term(self) -> None:
        """Return when no request uses the broker of the term that is over; it has stopped, and
        whoever waited is answered."""
        ...


class Terms(Protocol):
    """The node, which hears of the terms in which it leads its shard."""

    def begin_term(self, term: ServedTerm) -> None:
        """The node leads its shard."""
        ...

    def take_no_more(self) -> None:
        """The term is about to end: what comes from now on is for the next leader."""
        ...

    async def end_term(self) -> None:
        """The term is over: nobody uses its store when this returns. Nothing without a term."""
        ...


class ClusterPort(Protocol):
    """The node's cluster port."""

    links: LinkTable | None
    """Takes the connections of other replicas; None: the node keeps no replica now."""


class OwnShard(Protocol):
    """Of one node, from its start to its end."""

    node_id: str
    shard_id: bytes
    following: Following | None
    """What it says while it leads nothing; None: it leads as long as it lives."""
    replicas: Replicas | None
    """Of the shard; None: it has one."""
    reads_here: ReadsHere | None
    """What may be read while another node leads the shard; None: it has one replica."""

    async def start(self, parts: TermParts, terms: Terms, stack: AsyncExitStack) -> None:
        """Lead the shard, or keep a replica of it and lead when it is elected; what ends that is on
        `stack`."""
        ...

    def listen_on(self, port: ClusterPort) -> None:
        """Where other replicas reach this one."""
        ...

    async def hand_over(self) -> None:
        """The node is about to stop: let another replica lead, if there is one that can; return
        when it does, or after a while."""
        ...

    async def follow(self) -> None:
        """Act on what the metadata has anew, and on what could not be done the last time."""
        ...

    async def claim(self) -> None:
        """Before the node is registered: enter the shard where there was no room for it yet. Raises
        `MetadataUnavailable`."""
        ...

    async def tell(self) -> None:
        """The node is registered: tell the others that it leads its shard, if it is for the node to
        tell. Raises `MetadataUnavailable`."""
        ...

    async def look(self, found: Beat) -> None:
        """What the database says of the shard, every second. Raises `MetadataUnavailable`."""
        ...
