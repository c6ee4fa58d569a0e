"""Nodes over the two kinds of databases: what the conformance tests of the metadata share."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from app.cluster import CommittedOffset, Metadata
from app.domain.limits import Limits
from app.domain.positions import QueueOffset


class OpenNode(Protocol):
    """Opens the database of the test again, as another node or after a restart."""

    def __call__(self, limits: Limits | None = None) -> AbstractAsyncContextManager[Metadata]: ...


def offset(group: str, topic: str, queue_id: int, value: int) -> CommittedOffset:
    return CommittedOffset(group, topic, queue_id, QueueOffset(value))


async def make(metadata: Metadata, *, topics: str = "", groups: str = "") -> None:
    """Make topics and groups, given as names separated by spaces."""
    for name in topics.split():
        await metadata.ensure_topic(name)
    for name in groups.split():
        await metadata.ensure_group(name)
