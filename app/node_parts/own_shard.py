"""How a node stands to the shard that it has, and what its terms are told to. Event loop only."""

from typing import Protocol

from app.api.ports import Following
from app.cluster import Beat
from app.node_parts.served_term import ServedTerm


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


class OwnShard(Protocol):
    """Of one node, from its start to its end."""

    node_id: str
    shard_id: bytes
    following: Following | None
    """What it says while it leads nothing; None: it leads as long as it lives."""

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
