"""The messages of queues by offset, for whoever has a store's parts open: one that leads its shard,
and a replica that follows. What is in the queues is confirmed.

Event loop, and reader threads with `wait_for_disk`.
"""

from collections.abc import Sequence

from app.domain.message import StoredMessage
from app.store.formats.record.record import decode_message
from app.store.lifecycle.store_parts import StoreParts
from app.store.queues.consume_queue import ConsumeQueue, Unit
from app.store.read.known_reads import Stretch
from app.store.read.lookups import offset_for_time
from app.store.read.queue_reads import ReadResult, Wanted
from app.store.store_status import QueueBounds


class ReadableQueues:
    """Of one opening of a store."""

    def __init__(self, parts: StoreParts) -> None:
        self.store_id = bytes.fromhex(parts.meta.store_id)
        self._queues, self._reader, self._limits = parts.queues, parts.reader, parts.limits

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """Readable offsets; (0, 0) for a queue that never had a message."""
        queue = self._queues.find(topic, queue_id)
        return QueueBounds(queue.min_offset, queue.readable_end) if queue else QueueBounds(0, 0)

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
    ) -> ReadResult:
        """Messages from `offset` (within the bounds) on, at least one if there is one.

        `in_place`: what is known to be good may be left where it is, as `RecordsInPlace`; what has
        to be read all the same has the usual limits.

        Scans at most `pull_scan_units_max` units. A wrong unit of the queue is put right from the
        log, where the shard is led; what is reported as a gap then is a damaged record that no
        replica has. Ends before one that another replica may have, and raises `ShardUnavailable`
        where that is the first. Raises `ColdRead` when it would have to wait for the disk and may
        not; call again from a reader thread with `wait_for_disk`.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return ReadResult([], [], [], offset, 0, [])
        end = queue.readable_end
        end = end if end_offset is None else min(end_offset, end)
        end = min(end, offset + self._limits.pull_scan_units_max)
        wanted = Wanted(offset, end, max_messages, max_bytes, tag_hashes)
        if in_place and tag_hashes is None:
            found = self._reader.find_in_place(queue, wanted, wait_for_disk=wait_for_disk)
            if found is not None:
                return found
            limits = self._limits
            wanted = wanted.within(limits.pull_messages_max, limits.pull_bytes_max)
        result = self._read(queue, wanted, wait_for_disk=wait_for_disk)
        if not result.gaps:
            return result
        return self._reader.before_unasked(queue, offset, result, wait_for_disk=wait_for_disk)

    def read_known(
        self, asked: Sequence[tuple[str, int, int, int]], max_bytes: int, all_bytes_max: int
    ) -> list[ReadResult | None]:
        """Of several queues (topic, queue id, first offset, end) all that is asked for, where it is
        in memory, known to be good and at most `max_bytes`, and `all_bytes_max` with those before
        it; None: `read` that queue by itself.

        The offsets are within the bounds, and no stretch is empty.
        """
        stretches: list[Stretch] = []
        for topic, queue_id, first, end in asked:
            queue = self._queues.find(topic, queue_id)
            if queue is None:
                return [None] * len(asked)
            stretches.append((queue, first, end))
        return self._reader.read_known(stretches, max_bytes, all_bytes_max)

    def _read(self, queue: ConsumeQueue, wanted: Wanted, *, wait_for_disk: bool) -> ReadResult:
        return self._reader.read(queue, wanted, wait_for_disk=wait_for_disk)

    def offset_for_time(
        self, topic: str, queue_id: int, time_ms: int, *, wait_for_disk: bool = False
    ) -> int:
        """The first offset stored at `time_ms` or later, the end when there is none.

        `ColdRead` as for `read`.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        return offset_for_time(self._reader.source, queue, time_ms, wait_for_disk=wait_for_disk)

    def units(
        self, topic: str, queue_id: int, offset: int, end: int, *, wait_for_disk: bool = False
    ) -> list[Unit]:
        """Where the messages `[offset, end)` of a queue are, without reading them.

        Zeros where the unit is lost; as unchecked as the queue's files. `ColdRead` as for `read`.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return []
        end = min(end, queue.readable_end)
        return queue.units(offset, max(end, offset), wait_for_disk=wait_for_disk)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """What the next message of a queue gets; beyond the readable end while appends are open."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.next_offset

    def decode(self, record: memoryview) -> StoredMessage:
        """One record of a `ReadResult` as a message."""
        return decode_message(record, self.store_id)
