"""The entries of the journal that change what is known of a group's work. Pure.

Every change is an `Entry`, written to the log in the turn in which it is made, and applied again
after a restart. Entries are idempotent: a snapshot may hold the effect of an entry behind it, and
then all entries behind that one are applied again as well.
Encoding: MessagePack arrays; runs of offsets as (distance from the end of the run before, length).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from app.domain.consumers.consumption import Consumption, SubscriptionSource

Key = tuple[str, str, int]
"""Group, topic, queue id."""

Delivered = tuple[int, int, int]
"""First offset, number of offsets, deliveries of each so far."""

LeaseRun = tuple[int, int, int, int]
"""First offset, number of offsets, lease id of the first (they count up), attempt of each."""


class Settled(Struct, array_like=True, tag=1):
    """Messages are done. Rows: topic, queue id, runs of offsets."""

    group: str
    rows: list[tuple[str, int, list[int]]]


class HandedOut(Struct, array_like=True, tag=2):
    """Messages were handed out, so often by now. Rows: topic, queue id, offsets."""

    group: str
    rows: list[tuple[str, int, list[Delivered]]]
    until_ms: int = 0
    """When their leases end, by the wall clock; 0: they have ended, or a version that did not note
    them wrote this."""
    leases: list[list[LeaseRun]] = []
    """Of each row."""
    is_ordered: bool = False
    """Whether the group delivered in order then."""


class Placed(Struct, array_like=True, tag=3):
    """The group begins (anew) at these offsets. Rows: topic, queue id, offset."""

    group: str
    rows: list[tuple[str, int, int]]


class Skipped(Struct, array_like=True, tag=4):
    """Everything below these offsets is done. Rows: topic, queue id, offset."""

    group: str
    rows: list[tuple[str, int, int]]


class Forgotten(Struct, array_like=True, tag=5):
    """A group or a topic was deleted."""

    group: str | None
    topic: str | None


class Unsubscribed(Struct, array_like=True, tag=6):
    """A group's progress in one topic was deleted."""

    group: str
    topic: str


class ParkedMessage(Struct, array_like=True, frozen=True):
    """A message that blocks its key in a group in order, until it is released."""

    offset: int
    key: str | None
    attempts: int
    reason: str
    since_ms: int


class Parked(Struct, array_like=True, tag=7):
    """A key is blocked."""

    group: str
    topic: str
    queue_id: int
    message: ParkedMessage


class Released(Struct, array_like=True, tag=8):
    """A parked message is to be delivered again, its attempts counted anew."""

    group: str
    topic: str
    queue_id: int
    offset: int


class Bound(Struct, array_like=True, tag=9):
    """From here on the group's work in the topic is that of these generations; what was known of
    others is void."""

    group: str
    topic: str
    generations: tuple[int, int]
    """Of the group and of the topic."""
    keeps: bool = False
    """What is known is theirs: a version that knew no generations wrote it."""


class HeldTo(Struct, array_like=True, tag=10):
    """The queue has no messages from `end` on: what is known of them is void."""

    group: str
    topic: str
    queue_id: int
    end: int


class ConsumptionSet(Struct, array_like=True, tag=11):
    """The group consumes the topic so from now on; None: whoever comes next decides."""

    group: str
    topic: str
    consumption: Consumption | None
    since_ms: int


class GroupSubscription(Struct, array_like=True, frozen=True):
    """The filter with which a group reads a topic."""

    filter: str
    source: SubscriptionSource
    set_by: str | None
    set_ms: int
    version: int


class SubscriptionSet(Struct, array_like=True, tag=12):
    """The group reads the topic with this filter from now on; None: whoever comes next decides."""

    group: str
    topic: str
    subscription: GroupSubscription | None


Entry = (
    Settled
    | HandedOut
    | Placed
    | Skipped
    | Forgotten
    | Unsubscribed
    | Parked
    | Released
    | Bound
    | HeldTo
    | ConsumptionSet
    | SubscriptionSet
)


encode_entry: Final = msgspec.msgpack.Encoder().encode
decode_entry: Final = msgspec.msgpack.Decoder(Entry).decode


def runs_of(offsets: Sequence[int]) -> list[int]:
    """Rising offsets as runs: distance from the end of the run before, length, and so on."""
    if not offsets:
        return []
    first = offsets[0]
    if offsets[-1] - first == len(offsets) - 1:
        return [first, len(offsets)]
    runs: list[int] = []
    end = 0
    start = expected = first
    for offset in offsets:
        if offset != expected:
            runs += (start - end, expected - start)
            end, start = expected, offset
        expected = offset + 1
    runs += (start - end, expected - start)
    return runs


def offsets_of(runs: Sequence[int]) -> Iterator[int]:
    """Invert `runs_of`."""
    end = 0
    for index in range(0, len(runs), 2):
        start = end + runs[index]
        end = start + runs[index + 1]
        yield from range(start, end)


def lease_runs(leases: Iterable[tuple[int, int, int]]) -> Iterator[LeaseRun]:
    """(offset, lease id, attempt), with neighbours of one attempt joined."""
    first, count, lease_id, attempt = -1, 0, 0, 0
    for offset, each_id, each_attempt in leases:
        goes_on = offset == first + count and each_id == lease_id + count
        if count and goes_on and each_attempt == attempt:
            count += 1
            continue
        if count:
            yield first, count, lease_id, attempt
        first, count, lease_id, attempt = offset, 1, each_id, each_attempt
    if count:
        yield first, count, lease_id, attempt


def delivered_runs(deliveries: Iterable[tuple[int, int]]) -> Iterator[Delivered]:
    """(offset, deliveries) pairs, with neighbours of the same number joined."""
    first, count, attempts = -1, 0, 0
    for offset, times in deliveries:
        if offset == first + count and times == attempts:
            count += 1
            continue
        if count:
            yield first, count, attempts
        first, count, attempts = offset, 1, times
    if count:
        yield first, count, attempts
