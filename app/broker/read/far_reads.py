"""Whether who reads is so far behind that its messages come from the disk, and another replica had
better give them: RocketMQ's suggestWhichBrokerId. Event loop only."""

import os
from typing import Final, Self

from app.broker.ports import Store

MEMORY_RATIO: Final = 0.4
"""Of the machine's memory: how much of the log's end counts as being there (RocketMQ's
accessMessageInMemoryMaxRatio)."""


def memory_bytes() -> int:
    """Of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class FarReads:
    """Of the store of a shard with replicas."""

    def __init__(self, store: Store, memory: int | None = None) -> None:
        """`memory` in bytes; None: the machine's."""
        self._store = store
        self._bytes = int(MEMORY_RATIO * (memory_bytes() if memory is None else memory))

    @classmethod
    def of(cls, store: Store) -> Self | None:
        """None: no other replica could be read."""
        return cls(store) if store.has_gate else None

    def is_far(self, physical_offset: int) -> bool:
        """Whether a message lies further from the log's end."""
        return self._store.written_end - physical_offset > self._bytes
