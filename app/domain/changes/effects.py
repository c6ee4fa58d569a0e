"""What a change of settings does to those who are at work, beside changing a setting. Pure.

The facts are of the moment of the change, as the node that makes it knows them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from app.domain.positions import ReplicationMode
from app.domain.settings import GroupMode, GroupSettings, Permission, TopicSettings, TopicType

View = TypeVar("View")


class EffectCode(StrEnum):
    """What happens. Programs switch on it."""

    LEASES_END = "LEASES_END"
    """Messages that are out lose their leases and are delivered again."""
    QUEUES_GROW_FOR_EVER = "QUEUES_GROW_FOR_EVER"
    """Queues are added, and none can be taken away again."""
    KEYS_MOVE = "KEYS_MOVE"
    """Messages of one sharding key go to another queue than those before."""
    ORDER_CHANGES = "ORDER_CHANGES"
    """Messages come in another order than before."""
    CLIENTS_REFUSED = "CLIENTS_REFUSED"
    """Requests that were taken before are refused, or get nothing for a while."""
    REPLICATION_CHANGES = "REPLICATION_CHANGES"
    """Sends are answered earlier or later than before, as safe as that is."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One of them. `count`: of what `detail` names; None: nobody knows how many."""

    code: EffectCode
    detail: str
    count: int | None


@dataclass(frozen=True, slots=True)
class SettingsChange(Generic[View]):
    """What was done, or would be."""

    before: View | None
    """None: it was made."""
    after: View
    effects: Sequence[Effect]
    is_dry_run: bool

    @property
    def is_made(self) -> bool:
        return self.before is None


class TopicFacts(NamedTuple):
    """A topic at work."""

    messages: int = 0
    """That are readable in its queues."""
    groups: int = 0
    """That have read it."""
    has_replicas: bool = False
    """Whether what is written is confirmed by other nodes."""


class GroupFacts(NamedTuple):
    """A group at work."""

    leases: int = 0
    """Messages that clients hold."""
    in_flight: int = 0
    """Those, and those that wait in their place for their next delivery."""
    waiting: int = 0
    """Receives that wait for messages."""
    topics: int = 0
    """That it reads."""
    holders: tuple[int, ...] = ()
    """Messages that each client holds, where clients are counted."""


_TAKES: Final = {
    TopicType.FIFO: "without a sharding key, delayed ones and transactions",
    TopicType.DELAY: "without a delivery time, and transactions",
    TopicType.TRANSACTION: "outside of transactions, and delayed ones",
}


def effects_on_topic(
    before: TopicSettings, after: TopicSettings, facts: TopicFacts
) -> list[Effect]:
    """Of a change of a topic."""
    effects: list[Effect] = []
    added = after.queues - before.queues
    writing = _write_queues(before), _write_queues(after)
    if added > 0:
        effects.append(
            Effect(
                EffectCode.QUEUES_GROW_FOR_EVER,
                f"{_many(added, 'queue')} more: a topic cannot have fewer again",
                added,
            )
        )
    if writing[0] != writing[1] and facts.messages:
        effects.append(
            Effect(
                EffectCode.KEYS_MOVE,
                f"of {_many(facts.messages, 'message')} in the topic, those with a sharding key "
                "may be in another queue than the next ones of their key",
                facts.messages,
            )
        )
    if writing[0] == 1 and writing[1] > 1:
        effects.append(
            Effect(
                EffectCode.ORDER_CHANGES,
                "one queue kept all messages in one order; several keep that of each key. "
                f"{_many(facts.groups, 'group')} read the topic",
                facts.groups,
            )
        )
    if after.type is not before.type and after.type is not TopicType.NORMAL:
        effects.append(
            Effect(
                EffectCode.CLIENTS_REFUSED,
                f"messages {_TAKES[after.type]} are refused from now on; "
                "how many producers send such is not known",
                None,
            )
        )
    return [
        *effects,
        *_effects_of_refusing(before, after, facts),
        *_effects_of_replication(before.replication, after.replication, facts),
    ]


def _effects_of_replication(
    before: ReplicationMode | None, after: ReplicationMode | None, facts: TopicFacts
) -> list[Effect]:
    if after is before:
        return []
    if not facts.has_replicas:
        detail = (
            "none, as the shard of this node has one replica: it says nothing until it has more"
        )
    elif after is ReplicationMode.ASYNC:
        detail = (
            "sends are answered when the leader has the message, and a failover may lose what no "
            "other replica has yet"
        )
    elif before is ReplicationMode.ASYNC:
        detail = (
            "sends are answered when the replicas in sync have the message, and refused while too "
            "few are in sync"
        )
    else:
        return []
    return [Effect(EffectCode.REPLICATION_CHANGES, detail, None)]


def _write_queues(settings: TopicSettings) -> int:
    return settings.queues if settings.write_queues is None else settings.write_queues


def _effects_of_refusing(
    before: TopicSettings, after: TopicSettings, facts: TopicFacts
) -> list[Effect]:
    """Of less permission, fewer queues to write to, and tighter limits."""
    refused = EffectCode.CLIENTS_REFUSED
    effects: list[Effect] = []
    reads, writes = "r", "w"
    if writes in _letters(before.permission) and writes not in _letters(after.permission):
        effects.append(
            Effect(refused, "sends are refused from now on; how many come is not known", None)
        )
    if reads in _letters(before.permission) and reads not in _letters(after.permission):
        effects.append(
            Effect(
                refused,
                "pulls, receives and streams are refused from now on; "
                f"{_many(facts.groups, 'group')} read the topic",
                facts.groups,
            )
        )
    closed = _write_queues(before) - _write_queues(after)
    if closed > 0:
        effects.append(
            Effect(
                refused,
                f"{_many(closed, 'queue')} fewer take messages, and sends that name one of them "
                "are refused; they are read until they are empty, and stay",
                None,
            )
        )
    for name in ("max_body_bytes", "max_rate", "max_stored_bytes"):
        was, now = getattr(before, name), getattr(after, name)
        if now is not None and (was is None or now < was):
            effects.append(
                Effect(refused, f"sends over {name} of {now} are refused from now on", None)
            )
    return effects


def _letters(permission: Permission) -> str:
    return "" if permission is Permission.NONE else permission.value


def effects_on_group(
    before: GroupSettings, after: GroupSettings, facts: GroupFacts
) -> list[Effect]:
    """Of a change of a group."""
    effects: list[Effect] = []
    if after.order is not before.order:
        effects.append(
            Effect(
                EffectCode.ORDER_CHANGES,
                f"the order is {after.order.value} from now on, in {_many(facts.topics, 'topic')}",
                facts.topics,
            )
        )
        if facts.leases:
            effects.append(_leases_end(facts.leases))
    if before.mode is GroupMode.CLUSTERING and after.mode is GroupMode.BROADCAST:
        effects.append(
            Effect(
                EffectCode.CLIENTS_REFUSED,
                "receives and commits of a group in broadcast mode are refused; "
                f"{_many(facts.waiting, 'receive')} wait now",
                facts.waiting,
            )
        )
    return [*effects, *_effects_of_bounds(before, after, facts)]


def _effects_of_bounds(
    before: GroupSettings, after: GroupSettings, facts: GroupFacts
) -> list[Effect]:
    effects: list[Effect] = []
    most = after.max_in_flight
    if most < before.max_in_flight and facts.in_flight > most:
        effects.append(
            Effect(
                EffectCode.CLIENTS_REFUSED,
                f"{_many(facts.in_flight, 'message')} are in flight and {most} may be: receives "
                f"get nothing until enough are settled; {_many(facts.waiting, 'receive')} wait now",
                facts.waiting,
            )
        )
    each = after.max_in_flight_per_member
    was = before.max_in_flight_per_member
    if each is not None and (was is None or each < was):
        over = sum(held > each for held in facts.holders)
        if over:
            effects.append(
                Effect(
                    EffectCode.CLIENTS_REFUSED,
                    f"{_many(over, 'client')} with more than {each} get nothing until they "
                    "have settled enough",
                    over,
                )
            )
    return effects


def effects_of_deletion(leases: int, waiting: int) -> list[Effect]:
    """Of deleting a topic or a group."""
    effects = [_leases_end(leases)] if leases else []
    if waiting:
        detail = f"{_many(waiting, 'receive')} wait now and find nothing any more"
        effects.append(Effect(EffectCode.CLIENTS_REFUSED, detail, waiting))
    return effects


def _leases_end(count: int) -> Effect:
    return Effect(
        EffectCode.LEASES_END,
        f"{_many(count, 'message')} are out: their receipt handles are void",
        count,
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
