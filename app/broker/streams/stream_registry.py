"""All open streams of a node: opening them, counting them, ending them. One per broker.

Event loop only.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from app.broker.consume.receiver import Receiver, check_invisible
from app.broker.context import Context
from app.broker.filters.filters import parse_filter
from app.broker.groups.groups import Groups
from app.broker.leasing.epochs import epoch_of
from app.broker.ports import Topic
from app.broker.read.long_polls import LongPolls
from app.broker.read.puller import Puller, outside
from app.broker.results import Delivery, SettleResult
from app.broker.streams.credit import Credits
from app.broker.streams.credit_elsewhere import CreditElsewhere
from app.broker.streams.group_stream import GroupStream, GroupStreamRequest
from app.broker.streams.stream import Stream, StreamEnd, StreamRequest
from app.broker.streams.topic_stream import TopicStream, TopicStreamRequest
from app.broker.topic_lookup import check_queue, readable_topic
from app.domain.errors import (
    GroupNotFound,
    IllegalOffset,
    InvalidRequest,
    ShuttingDown,
    TooManyRequests,
)
from app.domain.handles.cursors import BEGINNING, decode_cursor
from app.domain.quotas.quota import Quota
from app.store import QueueBounds


class StreamRegistry:
    """All open streams of a node. One per broker."""

    def __init__(
        self,
        context: Context,
        long_polls: LongPolls,
        puller: Puller,
        groups: Groups,
        receiver: Receiver,
    ) -> None:
        self.store = context.store
        self.metadata = context.metadata
        self.limits = context.limits
        self.long_polls = long_polls
        self.puller = puller
        self.receive = receiver.receive
        self.credits = Credits()
        self.elsewhere = CreditElsewhere(
            self.credits, lambda: epoch_of(groups.lease_ids.next), context.clock.monotonic_s
        )
        self.ends: Counter[StreamEnd] = Counter()
        self._clock = context.clock
        self._groups = groups
        self._begin = receiver.begin
        self._agree = receiver.agree_on_filter
        self._open: dict[Stream, str | None] = {}
        """Each with whose it is."""
        self._of_principal: Counter[str] = Counter()

    @property
    def open_count(self) -> int:
        return len(self._open)

    def monotonic_of(self, wall_ms: int) -> float:
        """The monotonic time in seconds of a wall time near now."""
        return self._clock.monotonic_s() + (wall_ms - self._clock.now_ms()) / 1_000

    async def open_topic(self, topic_name: str, request: TopicStreamRequest) -> TopicStream:
        """A stream without a group. Raises what a pull raises, and `TooManyRequests`."""
        topic = readable_topic(self.metadata, topic_name)
        parse_filter(request.filter)
        self._check(request)
        if request.queue_id is not None:
            check_queue(topic, request.queue_id)
        bounds = [self.store.bounds(topic_name, queue) for queue in range(topic.queues)]
        offsets = await self._start(topic, request, bounds)
        stream = TopicStream(self, topic, request, offsets)
        self._enter(stream, request.principal)
        return stream

    async def open_group(
        self, topic_name: str, group_name: str, request: GroupStreamRequest
    ) -> GroupStream:
        """A stream of leased messages. Raises what a receive raises, and `TooManyRequests`."""
        topic = readable_topic(self.metadata, topic_name)
        parse_filter(request.filter)
        self._check(request)
        if request.invisible_ms is not None:
            check_invisible(request.invisible_ms, self.limits)
        if not 1 <= request.credit <= self.limits.stream_credit_max:
            raise InvalidRequest(
                f"a credit of {request.credit} is not possible",
                hint=f"from 1 to {self.limits.stream_credit_max} unsettled messages",
                fields={"limit": self.limits.stream_credit_max},
            )
        self.check_room(request.principal)
        group = await self._groups.find_or_create_group(group_name)
        _, effects = await self._begin(group, topic, force=request.force)
        used = self._agree(group, topic, request.filter, replaces=request.replace_subscription)
        request = replace(request, filter=used)
        stream = GroupStream(self, topic, group, request, effects)
        self._enter(stream, request.principal)
        return stream

    def _check(self, request: StreamRequest) -> None:
        if request.max_messages is not None and request.max_messages < 1:
            raise InvalidRequest("max_messages is at least 1")
        if request.duration_ms is not None and request.duration_ms < 1:
            raise InvalidRequest("a stream lasts for at least 1 ms")
        if self.long_polls.closed:
            raise ShuttingDown("the node is shutting down", hint="ask another node, or again later")

    def _enter(self, stream: Stream, principal: str | None) -> None:
        self.check_room(principal)
        self._open[stream] = principal
        if principal is not None:
            self._of_principal[principal] += 1

    def leave(self, stream: Stream, reason: StreamEnd) -> None:
        """A stream has ended."""
        principal = self._open.pop(stream, None)
        if principal is not None:
            self._of_principal[principal] -= 1
            if not self._of_principal[principal]:
                del self._of_principal[principal]
        self.ends[reason] += 1
        if isinstance(stream, GroupStream):
            self.credits.drop(stream.credit)

    async def _start(
        self, topic: Topic, request: TopicStreamRequest, bounds: list[QueueBounds]
    ) -> list[int]:
        """The first offset to read of each queue."""
        given = (request.cursor, request.at, request.offset, request.tail)
        if sum(value is not None for value in given) > 1:
            raise IllegalOffset(
                "a stream starts at one place", hint="give one of cursor, at, offset and tail"
            )
        if request.tail is not None:
            return [max(low, high - request.tail) for low, high in bounds]
        if request.cursor is None and request.offset is None:
            at = "latest" if request.at is None else request.at
            return await self._groups.offsets.offsets_at(topic.name, bounds, at)
        if request.cursor is not None:
            offsets = decode_cursor(topic.name, request.cursor)[: len(bounds)]
        else:
            assert request.offset is not None
            offsets = [request.offset] * len(bounds)
        offsets += [low for low, _ in bounds[len(offsets) :]]
        for queue_id, (low, high) in enumerate(bounds):
            if topic.shard_of(queue_id) is not None:
                continue  # read in its shard, and told in cursors as it was given
            if offsets[queue_id] == BEGINNING:
                offsets[queue_id] = low
            is_read = request.queue_id in {None, queue_id}
            if is_read and not request.clamp and not low <= offsets[queue_id] <= high:
                raise outside(offsets[queue_id], bounds[queue_id])
            offsets[queue_id] = min(offsets[queue_id], high)
        return offsets

    def note(self, settled: Sequence[SettleResult]) -> None:
        """Messages were settled, by whomever."""
        self.credits.note(settled, self.monotonic_of)

    def check_group(self, name: str) -> None:
        """Raise `GroupNotFound` for a stream of a group that is gone: it does not make it again."""
        if name not in self.metadata.snapshot.groups:
            raise GroupNotFound(f"consumer group {name!r} was deleted", hint="open another stream")

    def give_elsewhere(self, stream: str, deliveries: Sequence[Delivery]) -> None:
        """Messages were leased for a stream that another node answers."""
        if deliveries:
            until_s = self.monotonic_of(max(each.invisible_until_ms for each in deliveries))
            self.elsewhere.take(stream, [each.receipt_handle for each in deliveries], until_s)

    def take_back(self, deliveries: Sequence[Delivery]) -> None:
        """Messages that were leased for a stream did not reach it: they count no more."""
        self.note([SettleResult(each.receipt_handle, "release") for each in deliveries])

    def check_room(self, principal: str | None) -> None:
        """Raise `TooManyRequests` where the principal can open no other stream here now."""
        most, own_most = self.limits.streams_max, self.limits.streams_per_principal_max
        if len(self._open) >= most:
            raise _too_many(f"{most} streams are open already", "streams", most)
        if principal is not None and self._of_principal[principal] >= own_most:
            detail = f"principal {principal!r} has {own_most} streams open already"
            raise _too_many(detail, "principal-streams", own_most)

    def expire(self) -> None:
        """Leases that have ended make room. A service calls this."""
        self.credits.expire(self._clock.monotonic_s())

    def wake(self) -> None:
        """A topic or group was deleted: let streams that wait for room notice."""
        for stream in tuple(self._open):
            stream.wake()

    def close(self) -> None:
        """The node stops: each stream tells its reader and ends. The waiters are closed before."""
        self.elsewhere.close()
        for stream in tuple(self._open):
            stream.wake()
            if stream.on_draining is not None:
                stream.on_draining()


def _too_many(detail: str, name: str, most: int) -> TooManyRequests:
    return TooManyRequests(
        detail,
        hint="end one, poll, or ask another node",
        fields={"limit": most},
        quota=Quota(name, most, "concurrent-requests", 0),
        retry_after_s=1,
    )
