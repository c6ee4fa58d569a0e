"""What is in conflict among the members of a group, as far as the caller may know of the topics.

A member of a shared group reads its own topics; what others read there is not its business.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.domain.access.actions import Action, Kind
from app.domain.access.standing import Standing
from app.domain.consumers.membership import Conflict, ConflictKind

_OF_QUEUES = (ConflictKind.QUEUES, ConflictKind.UNASSIGNED)


def seen_conflicts(access: Standing, conflicts: Sequence[Conflict]) -> Sequence[Conflict]:
    """Those with what the caller may know."""
    if not conflicts or access.caller.name is None:
        return conflicts

    def sees(topic: str) -> bool:
        return any(access.may(action, Kind.TOPIC, topic) for action in (Action.GET, Action.SUB))

    found = (_kept_to(each, sees) for each in conflicts)
    return [each for each in found if each is not None]


def _kept_to(conflict: Conflict, sees: Callable[[str], bool]) -> Conflict | None:
    if conflict.topic is not None:
        return conflict if sees(conflict.topic) else None
    if conflict.kind is ConflictKind.STRATEGY:  # `brokers` names topics
        values = [(value.partition(" brokers=")[0], who) for value, who in conflict.values]
    elif conflict.kind in _OF_QUEUES:
        values = [pair for pair in conflict.values if sees(pair[0].rpartition("/")[0])]
    else:
        seen = [([each for each in v.split(", ") if sees(each)], who) for v, who in conflict.values]
        values = [(", ".join(topics), who) for topics, who in seen if topics]
    if not values:
        return None
    detail = conflict.detail
    if conflict.kind is ConflictKind.UNASSIGNED:
        detail = detail.replace(str(len(conflict.values)), str(len(values)), 1)
    return replace(conflict, detail=detail, values=tuple(values))
