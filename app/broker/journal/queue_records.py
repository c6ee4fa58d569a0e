"""What reading a queue by offset needs of a store: of one that leads, or one that only follows."""

from typing import Protocol

from app.domain.message import StoredMessage
from app.store import QueueBounds, ReadResult


class QueueRecords(Protocol):
    """Event loop, and reader threads with `wait_for_disk`."""

    def bounds(self, topic: str, queue_id: int) -> QueueBounds: ...

    def next_offset(self, topic: str, queue_id: int) -> int:
        """What the next message of a queue gets."""
        ...

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        tag_hashes: frozenset[int] | None = None,
        end_offset: int | None = None,
        in_place: bool = False,
        wait_for_disk: bool = False,
    ) -> ReadResult: ...

    def decode(self, record: memoryview) -> StoredMessage: ...
