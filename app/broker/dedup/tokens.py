"""What a producer says to have its request stored once, and where its messages went.

Values only; `dedup_table` keeps them, `deduplicator` acts on them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from app.domain.errors import InvalidRequest
from app.domain.limits import NAMESPACE_CHARS_MAX

_PRODUCER: Final = re.compile(
    rf"(?:[A-Za-z0-9_-]{{1,{NAMESPACE_CHARS_MAX}}}%)?[A-Za-z0-9._:@~-]{{1,255}}"
)
"""As it is stored: with its namespace."""
ANY_QUEUE: Final = -1
"""The scope of a sequence whose requests leave the queue to the service."""


class ProducerToken(NamedTuple):
    """The messages `seq`, `seq + 1`, … of an epoch of a producer.

    The numbers count the messages of one producer to one queue where requests name the queue, and
    to one topic where they do not; they begin at 0 in each epoch.
    """

    producer_id: str
    epoch: int
    seq: int


class KeyToken(NamedTuple):
    """An idempotency key of a topic, and a digest of the request that it stands for."""

    key: str
    fingerprint: str
    owner: str = ""
    """A digest of the principal whose key it is: the same word of another one is another key.
    Empty: nobody was asked for a name."""

    @property
    def owned_key(self) -> str:
        """The key as it is remembered."""
        return f"{self.key}\0{self.owner}" if self.owner else self.key


Claim = ProducerToken | KeyToken


class Placed(NamedTuple):
    """Where the messages of one request are: the queue of each (one entry: the same for all), and
    for each queue the offset of the first; they follow one another there."""

    size: int
    queues: Sequence[int]
    firsts: Sequence[tuple[int, int]]

    def offsets(self) -> Iterator[tuple[int, int]]:
        """Queue and offset of each message, in the order of the request."""
        following = dict(self.firsts)
        queues = self.queues if len(self.queues) == self.size else [self.queues[0]] * self.size
        for queue_id in queues:
            yield queue_id, following[queue_id]
            following[queue_id] += 1

    @classmethod
    def in_one_queue(cls, queue_id: int, first_offset: int, count: int) -> "Placed":
        return cls(count, (queue_id,), ((queue_id, first_offset),))


def check_producer(producer_id: str) -> str:
    """Return the id, or raise `InvalidRequest` when it cannot be one."""
    if not _PRODUCER.fullmatch(producer_id):
        raise InvalidRequest(
            f"producer id {producer_id!r} is not allowed",
            hint="use 1 to 255 letters, digits, or . _ : @ ~ -",
            fields={"parameter": "producer_id"},
        )
    return producer_id


def family_of(producer_id: str) -> str:
    """What is sealed together: the id up to its last colon, or the whole id without one."""
    return producer_id.rpartition(":")[0] or producer_id


def topic_key(name: str, generation: int) -> str:
    """What entries and tables name a topic by: no successor of the name has the same."""
    return f"{name}#{generation}"


def read_topic_key(key: str) -> tuple[str, int]:
    """Name and generation; 0: from a version that knew none."""
    name, _, generation = key.partition("#")
    return name, int(generation or 0)


def with_generation(topic: str, generation_of: Callable[[str], int]) -> str:
    """The topic key for one that may be a name alone, from a version that knew no generations."""
    generation = 0 if "#" in topic else generation_of(topic)
    return topic_key(topic, generation) if generation else topic
