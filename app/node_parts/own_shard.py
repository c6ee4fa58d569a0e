"""How a node stands to the shard that it has: what `Node` and its pulse ask. Event loop only."""

from typing import Protocol

from app.cluster import Beat


class OwnShard(Protocol):
    """Of one node, from its start to its end."""

    node_id: str
    shard_id: bytes

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
