"""What the operations on shards and their replicas have in common."""

from typing import Final

from app.api.control.dependencies import Services
from app.api.http.request_context import RequestContext
from app.api.ports import Shard
from app.domain.errors import ShardNotFound

NODE_CHARS_MAX: Final = 64
"""Of the id of a node that a request names."""


def known_shard(services: Services, name: str) -> Shard:
    """The shard of this name. Raises `ShardNotFound`."""
    known = services.metadata.snapshot.shards.get(name)
    if known is None:
        names = ", ".join(sorted(services.metadata.snapshot.shards)) or "none"
        raise ShardNotFound(f"there is no shard {name!r}", hint=f"there are: {names}")
    return known


def asker(access: RequestContext) -> str:
    """Who asks, for events and logs."""
    return access.caller.name or "somebody without a key"
