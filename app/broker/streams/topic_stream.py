"""A stream without a group: all queues of a topic from a place on, or one of them.

Each message has a cursor that says where to go on after it. In a queue the order is that of the
offsets; between queues there is none. Packed bodies are unpacked in a thread, and no more of them
than a chunk may have. Event loop only.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from typing_extensions import override

from app.broker.ports import Topic
from app.broker.results import PullRequest, PullResult
from app.broker.streams.stream import SharedParts, Stream, StreamRequest
from app.domain.errors import CurlewError
from app.domain.handles.cursors import BEGINNING, encode_cursor
from app.domain.limits import KIB
from app.domain.message import StoredMessage
from app.domain.settings import StartPosition
from app.store import Gap, QueueBounds, packed_bytes

_EXPIRED: Final = "EXPIRED"
"""The reason of a gap that retention made."""

_INLINE_BYTES_MAX: Final = 4 * KIB
"""Bytes of records with packed bodies that are unpacked where they are."""


@dataclass(frozen=True, slots=True)
class TopicStreamRequest(StreamRequest):
    """Where to start (at most one of the first five; default: at the end) and what to leave out."""

    cursor: str | None = None
    at: StartPosition | None = None
    """"earliest", "latest" or a time in epoch milliseconds."""
    offset: int | None = None
    """The same in every queue that is read."""
    tail: int | None = None
    """So many messages before the end, in every queue that is read."""
    queue_id: int | None = None
    """Read this queue only."""
    clamp: bool = False
    """Go on at the first readable offset where retention was faster, and report a gap."""


class StreamedMessage(NamedTuple):
    """A message, and where to go on after it."""

    message: StoredMessage
    cursor: str


class StreamGap(NamedTuple):
    """Offsets of a queue that could not be delivered."""

    queue_id: int
    gap: Gap


class TopicChunk(NamedTuple):
    """What came next; `cursor` is behind all of it."""

    messages: list[StreamedMessage]
    gaps: list[StreamGap]
    cursor: str


class TopicStream(Stream):
    """All queues of a topic from a place on, or one of them."""

    def __init__(
        self, shared: SharedParts, topic: Topic, request: TopicStreamRequest, offsets: list[int]
    ) -> None:
        super().__init__(shared, topic, request)
        self._request = request
        self._offsets = offsets
        self._next_queue = 0
        self._of_topic: tuple[Topic | None, Sequence[int]] = None, ()

    @property
    def cursor(self) -> str:
        """Where the stream stands."""
        return encode_cursor(self._topic.name, self._offsets)

    async def next(self, wait_s: float) -> TopicChunk:
        """What comes next, or nothing after `wait_s`. Raises `StreamEnded`, or the pull's error."""
        deadline = self._loop.time() + wait_s
        while True:
            self._check()
            self._grow()
            chunk = await self._collect()
            if self.is_refused:
                continue  # meanwhile; the check says so
            if chunk.messages or chunk.gaps:
                self._count(len(chunk.messages))
                return chunk
            left = self._left_until(deadline)
            if left <= 0:
                return chunk
            if any(self._has_more(queue) for queue in self._queues()):
                await asyncio.sleep(0)
                continue
            keys = [(self._topic.name, queue) for queue in self._queues()]
            await self._shared.long_polls.wait_for_queues(keys, left, self._watch)
            self._end_wait = None

    def _grow(self) -> None:
        """Queues that were added are read from their beginning."""
        for queue_id in range(len(self._offsets), self._topic.queues):
            self._offsets.append(self._bounds(queue_id).min_offset)

    @property
    @override
    def elsewhere(self) -> list[str]:
        return super().elsewhere if self._request.queue_id is None else []

    def _queues(self) -> Sequence[int]:
        """Those that it reads: of this node's shard."""
        queue_id, topic = self._request.queue_id, self._topic
        if queue_id is not None:
            return range(queue_id, queue_id + 1)
        if self._of_topic[0] is not topic:
            here = [each for each in range(topic.queues) if topic.shard_of(each) is None]
            for each in here:  # those that it has taken over may not have been read at all
                if self._offsets[each] == BEGINNING:
                    self._offsets[each] = self._bounds(each).min_offset
            self._of_topic = topic, here
        return self._of_topic[1]

    def _bounds(self, queue_id: int) -> QueueBounds:
        return self._shared.store.bounds(self._topic.name, queue_id)

    def _has_more(self, queue_id: int) -> bool:
        bounds = self._bounds(queue_id)
        return not bounds.min_offset <= self._offsets[queue_id] == bounds.max_offset

    async def _collect(self) -> TopicChunk:
        """One chunk, the queues in turn."""
        limits = self._shared.limits
        messages: list[StreamedMessage] = []
        gaps: list[StreamGap] = []
        messages_left = self._messages_max(limits.pull_messages_max)
        bytes_left = limits.stream_chunk_bytes_max
        queues = self._queues()
        first, self._next_queue = self._next_queue, self._next_queue + 1
        for step in range(len(queues)):
            queue_id = queues[(first + step) % len(queues)]
            if messages_left <= 0 or bytes_left <= 0:
                break
            if not self._has_more(queue_id):
                continue
            try:
                result = await self._pull(queue_id, messages_left, bytes_left)
            except CurlewError:
                if messages:
                    break  # the next look raises it again, after these have gone out
                raise
            found = await self._messages_of(result.read.records, bytes_left)
            self._take(queue_id, result, found, messages, gaps)
            messages_left -= len(found)
            stored_bytes = sum(map(len, result.read.records[: len(found)]))
            bytes_left -= max(stored_bytes, sum([len(each.body) for each in found]))
        return TopicChunk(messages, gaps, self.cursor)

    async def _pull(self, queue_id: int, max_messages: int, max_bytes: int) -> PullResult:
        request = PullRequest(
            offset=self._offsets[queue_id],
            max_messages=max_messages,
            max_bytes=max_bytes,
            filter=self._request.filter,
            clamp=self._request.clamp,
        )
        return await self._shared.puller.pull(self._topic.name, queue_id, request)

    async def _messages_of(
        self, records: Sequence[memoryview], bytes_max: int
    ) -> list[StoredMessage]:
        """The messages of the first records, until their plain bodies are `bytes_max`; at least
        one if there is one."""
        work = partial(_decoded, records, self._shared.store.decode, bytes_max)
        if packed_bytes(records) <= _INLINE_BYTES_MAX:
            return work()
        return await self._loop.run_in_executor(None, work)

    def _take(
        self,
        queue_id: int,
        result: PullResult,
        found: Sequence[StoredMessage],
        messages: list[StreamedMessage],
        gaps: list[StreamGap],
    ) -> None:
        """Take what was `found`; what of the result is behind it is read again."""
        offsets, end = self._offsets, result.next_offset
        if len(found) < len(result.read.records):
            end = found[-1].queue_offset + 1
        if result.clamped and offsets[queue_id] < result.min_offset:
            expired = Gap(offsets[queue_id], result.min_offset, _EXPIRED)
            gaps.append(StreamGap(queue_id, expired))
        gaps += [StreamGap(queue_id, gap) for gap in result.read.gaps if gap.from_offset < end]
        for message in found:
            offsets[queue_id] = message.queue_offset + 1
            messages.append(StreamedMessage(message, self.cursor))
        offsets[queue_id] = end


def _decoded(
    records: Sequence[memoryview], decode: Callable[[memoryview], StoredMessage], bytes_max: int
) -> list[StoredMessage]:
    """Any thread."""
    found: list[StoredMessage] = []
    size = 0
    for record in records:
        message = decode(record)
        found.append(message)
        size += len(message.body)
        if size >= bytes_max:
            break
    return found
