"""Where reading begins in each queue of a topic: at the first message, the end, or a time."""

from collections.abc import Sequence
from concurrent.futures import Executor

from app.broker.journal.cold_reads import ColdReads, find_offset_at
from app.broker.ports import Store
from app.domain.settings import StartPosition
from app.store import QueueBounds


async def start_offsets(
    store: Store,
    readers: Executor,
    topic: str,
    bounds: Sequence[QueueBounds],
    start: StartPosition,
) -> list[int]:
    """Per queue: the first offset, the end, or the first stored at or after a time in ms."""
    if start == "earliest":
        return [low for low, _ in bounds]
    if start == "latest":
        return [high for _, high in bounds]
    timestamp_ms = start

    def find_all(wait_for_disk: bool) -> list[int]:
        return [
            find_offset_at(
                store, topic, queue_id, queue_bounds, timestamp_ms, wait_for_disk=wait_for_disk
            )
            for queue_id, queue_bounds in enumerate(bounds)
        ]

    return await ColdReads(readers).run(find_all)
