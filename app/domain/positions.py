"""Positions in the log and in queues, one type each, so that they cannot be mixed up.

All bounds are half-open: an `end` is one past the last.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Byte position in the commit log of one node, counted over all segments."""

QueueOffset = NewType("QueueOffset", int)
"""Index of a message in its queue; the next message has the next number."""

TimestampMs = NewType("TimestampMs", int)
"""Wall time, milliseconds since the Unix epoch."""


class FlushMode(StrEnum):
    """When a send is answered: after the data is on the medium, or after the write."""

    SYNC = "sync"
    ASYNC = "async"


class ReplicationMode(StrEnum):
    """When a send is answered in a shard with replicas: when those in sync have the message, or
    when the leader does. As durable there as the flush mode asks."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Everything of the queue below `offset` is done for the group."""

    group: str
    topic: str
    queue_id: int
    offset: QueueOffset
    topic_generation: int = 0
    """Of the topic that is meant; 0: of whatever has the name."""
    group_generation: int = 0


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """The committed offsets of a group at one moment, kept under a name."""

    group: str
    name: str
    created_ms: int
    offsets: tuple[CommittedOffset, ...]
