"""What all streams have: a place among the open ones, a time limit, and one end with a reason.

A stream is asked for its next chunk by whoever writes it out, and reads no further until it is
asked again. So a slow reader costs one chunk of memory, and nothing is leased for a connection that
cannot take it. The kinds are in `topic_stream` and `group_stream`, the registry in
`stream_registry`. Event loop only.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from app.broker.ports import Metadata, Store, Topic
from app.broker.read.long_polls import LongPolls, Watch
from app.broker.read.puller import Puller
from app.broker.results import ReceiveRequest, ReceiveResult
from app.broker.streams.credit import Credits
from app.broker.topic_lookup import unreadable
from app.domain.errors import CurlewError
from app.domain.limits import Limits


class StreamEnd(StrEnum):
    """Why a stream ended. The texts are part of the HTTP contract."""

    DRAINING = "draining"
    TOPIC_DELETED = "topic_deleted"
    GROUP_DELETED = "group_deleted"
    TIME_LIMIT = "time_limit"
    MESSAGE_LIMIT = "message_limit"
    SLOW_READER = "slow_reader"
    ACCESS_ENDED = "access_ended"
    """What the client showed counts no more, or it may not read this any more."""
    CLIENT_GONE = "client_gone"
    """Counted, told to nobody."""
    ERROR = "error"


class StreamEnded(Exception):
    """The end of a stream. `error` is there when the reason is `ERROR` or `ACCESS_ENDED`."""

    def __init__(self, reason: StreamEnd, error: CurlewError | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What may be asked of any stream."""

    filter: str | None = None
    max_messages: int | None = None
    """End after so many."""
    duration_ms: int | None = None
    """End after so long, or when the node's own limit is reached."""
    principal: str | None = None
    """Whose it is; None: nobody's in particular."""


class Receive(Protocol):
    """`Receiver.receive`."""

    async def __call__(
        self,
        topic: str,
        group: str,
        request: ReceiveRequest,
        *,
        gone: Callable[[], bool],
        watch: Watch | None = None,
    ) -> ReceiveResult: ...


class SharedParts(Protocol):
    """What streams share: `StreamRegistry`, which keeps the open ones."""

    @property
    def store(self) -> Store: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def long_polls(self) -> LongPolls: ...
    @property
    def puller(self) -> Puller: ...
    @property
    def receive(self) -> Receive: ...
    @property
    def credits(self) -> Credits: ...

    def monotonic_of(self, wall_ms: int) -> float: ...

    def leave(self, stream: "Stream", reason: StreamEnd) -> None: ...


class Stream:
    """What all streams have: a place among the open ones, a time limit, and one end."""

    def __init__(self, shared: SharedParts, topic: Topic, request: StreamRequest) -> None:
        self._shared = shared
        self._topic = topic
        self._messages_left = request.max_messages
        self._loop = asyncio.get_running_loop()
        duration_ms = shared.limits.stream_ms_max
        if request.duration_ms is not None:
            duration_ms = min(duration_ms, request.duration_ms)
        self._ends_at = self._loop.time() + duration_ms / 1_000
        self.is_closed = False
        self._refusal: CurlewError | None = None
        self._end_wait: Callable[[], object] | None = None
        self.on_draining: Callable[[], None] | None = None
        """Set by whoever writes, while the connection takes nothing: hurries the end. Not called
        for what was set when `is_draining` already."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.is_closed:
            self.close(StreamEnd.CLIENT_GONE)

    def close(self, reason: StreamEnd) -> None:
        """Count the stream out. Once."""
        assert not self.is_closed
        self.is_closed = True
        self._shared.leave(self, reason)

    @property
    def topic_name(self) -> str:
        return self._topic.name

    @property
    def elsewhere(self) -> list[str]:
        """Other shards that have queues of the topic, of which nothing comes."""
        topic = self._topic
        shards = {topic.shard_of(queue_id) for queue_id in range(topic.queues)}
        return sorted(each for each in shards if each)

    @property
    def is_draining(self) -> bool:
        """Whether the node stops, and waits for no reader."""
        return self._shared.long_polls.closed

    def end_of_a_late_reader(self) -> StreamEnd:
        """Why a stream ends whose connection takes nothing: the reader, or we are in a hurry."""
        if self.is_refused:
            return StreamEnd.ACCESS_ENDED
        return StreamEnd.DRAINING if self.is_draining else StreamEnd.SLOW_READER

    def refuse(self, error: CurlewError) -> None:
        """Hand out nothing more: the reader may not have it."""
        self._refusal = error
        self.wake()
        if self._end_wait is not None:
            self._end_wait()
        if self.on_draining is not None:
            self.on_draining()

    @property
    def is_refused(self) -> bool:
        """Whether its reader may not have it any more."""
        return self._refusal is not None

    def _watch(self, end_wait: Callable[[], object]) -> None:
        """Have `refuse` end a wait."""
        self._end_wait = end_wait

    def wake(self) -> None:
        """Something that the stream may wait for has changed."""

    def _check(self) -> None:
        """Raise when the stream has come to its end."""
        if self._refusal is not None:
            raise StreamEnded(StreamEnd.ACCESS_ENDED, self._refusal)
        if self.is_draining:
            raise StreamEnded(StreamEnd.DRAINING)
        topic = self._shared.metadata.snapshot.topics.get(self._topic.name)
        if topic is None or topic.generation != self._topic.generation:
            raise StreamEnded(StreamEnd.TOPIC_DELETED)
        if not topic.is_readable:
            raise StreamEnded(StreamEnd.ERROR, unreadable(topic))
        if self._messages_left == 0:
            raise StreamEnded(StreamEnd.MESSAGE_LIMIT)
        if self._loop.time() >= self._ends_at:
            raise StreamEnded(StreamEnd.TIME_LIMIT)
        self._topic = topic

    def _left_until(self, deadline: float) -> float:
        return min(deadline, self._ends_at) - self._loop.time()

    def _count(self, messages: int) -> None:
        if self._messages_left is not None:
            self._messages_left -= messages

    def _messages_max(self, most: int) -> int:
        return most if self._messages_left is None else min(most, self._messages_left)
