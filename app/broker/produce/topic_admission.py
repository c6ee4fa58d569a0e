"""Whether a topic takes messages now: by its permission, and by its limits.

Looked at for topics that say anything of it (`Topic.is_guarded`), just before an append and after a
repetition was told its first result: so what was stored once is never called "not stored". Rates
are of this node. Event loop only.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final

from app.broker.context import Context
from app.broker.ports import Topic
from app.broker.topic_lookup import check_here
from app.domain.errors import BodyTooLarge, NoPermission, TooManyRequests, TopicFull
from app.domain.limits import TOPIC_BYTES_FRESH_S
from app.domain.quotas.quota import Quota
from app.domain.quotas.token_bucket import TokenBucket
from app.domain.settings import Permission

_WRITABLE: Final = (Permission.READ_WRITE, Permission.WRITE)
_FULL_RETRY_S: Final = 60
_KEPT_SPARED: Final = 1_024
"""States of deleted topics that may pile up before they are swept out."""


@dataclass(slots=True)
class _Taken:
    """What a topic of one generation has taken."""

    generation: int
    bucket: TokenBucket | None = None
    stored_bytes: int = 0
    looked_s: float | None = None
    """When `stored_bytes` was looked up; what was taken since is in it."""


class TopicAdmission:
    """One per sender."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._taken: dict[str, _Taken] = {}

    def admit(self, topic: Topic, messages: int, size: int, largest: int) -> None:
        """Count messages with so many bytes of bodies, and one with so many, against the limits of
        a topic.

        Raises `NoPermission`, `BodyTooLarge`, `TopicFull` or `TooManyRequests`; then nothing is
        counted.
        """
        check_writable(topic)
        check_body(topic, largest)
        if topic.max_rate is None and topic.max_stored_bytes is None:
            return
        taken = self._taken_by(topic)
        now_s = self._clock.monotonic_s()
        if topic.max_stored_bytes is not None:
            self._check_room(topic, taken, now_s)
        if topic.max_rate is not None:
            _check_rate(topic, topic.max_rate, taken, messages, now_s)
        taken.stored_bytes += size

    def _taken_by(self, topic: Topic) -> _Taken:
        taken = self._taken.get(topic.name)
        if taken is None or taken.generation != topic.generation:
            known = self._metadata.snapshot.topics
            if len(self._taken) > len(known) + _KEPT_SPARED:
                self._taken = {name: each for name, each in self._taken.items() if name in known}
            taken = self._taken[topic.name] = _Taken(topic.generation)
        return taken

    def _check_room(self, topic: Topic, taken: _Taken, now_s: float) -> None:
        if taken.looked_s is None or now_s - taken.looked_s >= TOPIC_BYTES_FRESH_S:
            taken.stored_bytes, taken.looked_s = self._stored_bytes(topic), now_s
        if taken.stored_bytes >= (topic.max_stored_bytes or 0):
            raise TopicFull(
                f"topic {topic.name!r} holds about {taken.stored_bytes} bytes; it takes messages up"
                f" to {topic.max_stored_bytes}",
                hint="shorten its retention, or raise max_stored_bytes",
                fields={"limit_bytes": topic.max_stored_bytes or 0, "bytes": taken.stored_bytes},
                retry_after_s=_FULL_RETRY_S,
            )

    def _stored_bytes(self, topic: Topic) -> int:
        """About how many bytes the readable records have: by samples of each queue."""
        total = 0
        for queue_id in range(topic.queues):
            low, high = self._store.bounds(topic.name, queue_id)
            if high > low:
                total += (high - low) * (self._store.average_bytes(topic.name, queue_id) or 0)
        return total


def check_writable(topic: Topic) -> None:
    """Raise `NoPermission` unless the topic takes messages."""
    if topic.permission not in _WRITABLE:
        raise NoPermission(
            f"topic {topic.name!r} takes no messages: its permission is {topic.permission.value}",
            hint="PATCH the topic with permission rw, or send to another",
            fields={"permission": topic.permission.value},
        )


def check_write_queue(topic: Topic, queue_id: int) -> None:
    """Raise `QueueNotFound`, `NotLeader`, or `NoPermission` for a queue that is only read until it
    is empty, as there are fewer `write_queues` or its shard drains."""
    check_here(topic, queue_id)
    if queue_id >= topic.write_queues:
        raise NoPermission(
            f"queue {queue_id} of topic {topic.name!r} takes no new messages: its write_queues is"
            f" {topic.write_queues}",
            hint=f"the queues from 0 to {topic.write_queues - 1} take them",
            fields={"permission": topic.permission_of(queue_id).value, "queue_id": queue_id},
        )
    if queue_id in topic.moved:
        raise NoPermission(
            f"queue {queue_id} of topic {topic.name!r} takes no new messages: its shard drains",
            hint="name no queue, or one that GET /v1/topics/{topic}/route shows with rw",
            fields={"permission": topic.permission_of(queue_id).value, "queue_id": queue_id},
        )


def check_body(topic: Topic, size: int) -> None:
    """Raise `BodyTooLarge` for a body over the topic's own bound."""
    most = topic.max_body_bytes
    if most is not None and size > most:
        raise BodyTooLarge(
            f"the body has {size} bytes; topic {topic.name!r} takes at most {most}",
            hint="send the payload to an object store and its address as the message",
            fields={"limit_bytes": most},
        )


def _check_rate(topic: Topic, rate: int, taken: _Taken, messages: int, now_s: float) -> None:
    bucket = taken.bucket
    if bucket is None or bucket.rate_per_s != rate:
        bucket = taken.bucket = TokenBucket(rate, rate, now_s)
    wait_s = bucket.take(messages, now_s)
    if wait_s:
        raise TooManyRequests(
            f"topic {topic.name!r} takes {rate} messages a second",
            hint="send again after Retry-After, or raise max_rate",
            quota=Quota("topic-messages", rate, "requests", 0, window_s=1),
            fields={"limit": rate},
            retry_after_s=ceil(wait_s),
        )
