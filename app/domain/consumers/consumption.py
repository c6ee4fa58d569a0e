"""How a group consumes a topic, and what changing that does to those who are at work. Pure.

A group is of one kind in a topic at a time, or a queue would have two readers in one group: the
server hands out leases, or members and clients with offsets of their own read by offset. Broadcast
groups have no kind: their clients share nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from app.domain.errors import ConsumptionConflict
from app.domain.limits import CONSUMERS_SHOWN_MAX


class Consumption(StrEnum):
    """The kinds."""

    LEASE = "lease"
    """Receives, group streams and settling."""
    ASSIGNED = "assigned"
    """Members by heartbeat, their commits, and commits of clients that name no member."""


class SubscriptionSource(StrEnum):
    """Where the filter of a group in a topic comes from."""

    SET = "set"
    """An operator has set it: another one is refused."""
    USED = "used"
    """The first consumer has named it: when nobody consumes any more, the next one may."""


class SubscriptionPair(NamedTuple):
    """A group and a topic, of these generations."""

    group: str
    topic: str
    group_generation: int
    topic_generation: int


class ConsumptionElsewhere(NamedTuple):
    """How another shard says that a group consumes a topic."""

    shard: str
    consumption: Consumption
    since_ms: int


class ConsumptionRow(NamedTuple):
    """How this shard has said that a group consumes a topic."""

    group: str
    topic: str
    consumption: Consumption
    is_ended: bool
    """By force, in another shard."""


class FirstUse(NamedTuple):
    """The first use of a topic by a group, in any shard."""

    at_ms: int
    is_this: bool
    """It is the one that asks."""


@dataclass(frozen=True, slots=True)
class KeptSubscription:
    """What an operator has said of the filter with which a group reads a topic, for all shards."""

    filter: str | None
    """None: whoever comes next names one."""
    set_by: str | None
    set_ms: int
    version: int
    """A shard's own filter of the two holds only with a higher one."""


class ConsumptionEffectCode(StrEnum):
    """What a change of the kind does. Programs switch on it."""

    LEASES_END = "LEASES_END"
    """Messages that are out lose their leases; their handles are void."""
    RETRIES_WAIT = "RETRIES_WAIT"
    """Failed messages wait until a member polls or the group receives again."""
    PARKED_RETURN = "PARKED_RETURN"
    """Parked messages are read again in their place."""
    ASSIGNMENTS_END = "ASSIGNMENTS_END"
    """Members lose their queues of the topic and are fenced."""


@dataclass(frozen=True, slots=True)
class ConsumptionEffect:
    """One of them. `count`: of what `detail` names."""

    code: ConsumptionEffectCode
    detail: str
    count: int


class ConsumptionState(NamedTuple):
    """The kind of one group in one topic; None: whoever comes next decides."""

    topic: str
    consumption: Consumption | None
    since_ms: int | None


class Unsettled(NamedTuple):
    """Messages of a leasing group that are not done and not simply ready."""

    leased: int = 0
    """Out, or waiting in their place for the next delivery."""
    retrying: int = 0
    """In the group's retries of the topic."""
    parked: int = 0

    def effects(self) -> list[ConsumptionEffect]:
        """Of ending the leases."""
        effects: list[ConsumptionEffect] = []
        if self.leased:
            effects.append(
                ConsumptionEffect(
                    ConsumptionEffectCode.LEASES_END,
                    f"{_many(self.leased, 'message')} lost their leases: the receipt handles are "
                    "void, and whoever reads from the committed offsets gets the messages again",
                    self.leased,
                )
            )
        if self.retrying:
            effects.append(
                ConsumptionEffect(
                    ConsumptionEffectCode.RETRIES_WAIT,
                    f"{_many(self.retrying, 'failed message')} stay in the group's retries, where "
                    "a poll of a member that reads the topic gets them, or a receive when the "
                    "group leases again, as long as the topic keeps its messages",
                    self.retrying,
                )
            )
        if self.parked:
            effects.append(
                ConsumptionEffect(
                    ConsumptionEffectCode.PARKED_RETURN,
                    f"{_many(self.parked, 'parked message')} are not done: whoever reads from the "
                    "committed offsets gets them in their place",
                    self.parked,
                )
            )
        return effects


def assignments_end(client_ids: Sequence[str]) -> ConsumptionEffect:
    """The effect of fencing these members."""
    return ConsumptionEffect(
        ConsumptionEffectCode.ASSIGNMENTS_END,
        f"{_many(len(client_ids), 'member')} lost their queues of the topic: "
        f"{_shown(client_ids)}; their next heartbeat or commit is refused",
        len(client_ids),
    )


def conflict(
    group: str,
    current: ConsumptionState,
    clients: Sequence[str],
    lease_ms: int,
    shard: str | None = None,
) -> ConsumptionConflict:
    """Why a request of the other kind is refused, and what can be done. `shard`: the one that says
    so, where it is another."""
    kind = current.consumption
    if kind is Consumption.LEASE:
        how = "receives and leases"
        until = "nothing is leased, waits for a retry or is parked"
    else:
        how = "members or commits of offsets"
        until = "no member reads the topic"
    who = f" by {_shown(clients)}" if clients else ""
    where = "" if shard is None else f" in shard {shard!r}"
    ends = "ends the leases" if kind is Consumption.LEASE else "takes the queues from the members"
    return ConsumptionConflict(
        f"group {group!r} consumes topic {current.topic!r} by {how}{who}{where}",
        hint=f"use another group; or wait until nobody has done so for {lease_ms // 1_000} s and "
        f"{until}; or repeat the request with force=true, which {ends}",
        fields={
            "topic": current.topic,
            "current": None if kind is None else kind.value,
            "since_ms": current.since_ms,
            "clients": list(clients[:CONSUMERS_SHOWN_MAX]),
        },
    )


def _shown(client_ids: Sequence[str]) -> str:
    shown = ", ".join(client_ids[:CONSUMERS_SHOWN_MAX])
    more = len(client_ids) - CONSUMERS_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
