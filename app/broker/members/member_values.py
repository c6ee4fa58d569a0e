"""What members say and what they are told, as `Members` passes it on. Values, no rules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from app.broker.ports import Topic
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.consumers.membership import (
    Assignment,
    Conflict,
    Member,
    Membership,
    Profile,
    QueueName,
    Strategy,
)
from app.domain.settings import GroupMode


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a member sends. `assignment_id` is the last that it knows; a wait ends when the present
    one differs. Without it a wait begins only if `generation` is the present one."""

    profile: Profile
    generation: int | None = None
    assignment_id: str | None = None
    wait_s: float = 0.0
    force: bool = False
    """Join although consumers of the group lease one of the topics: their leases end."""
    replace_subscription: bool = False
    """Read with these filters although the group reads a topic with another one."""


@dataclass(frozen=True, slots=True)
class MemberShare:
    """What a member is told: its queues with the offset where each begins, and what is wrong."""

    assignment: Assignment
    offsets: Mapping[QueueName, int]
    mode: GroupMode
    strategy: Strategy
    client_ids: tuple[str, ...]
    conflicts: Sequence[Conflict]
    effects: Sequence[ConsumptionEffect] = ()
    """What was ended when the group began to share out a topic."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """A group's members with their shares, for who looks from outside."""

    membership: Membership
    mode: GroupMode
    strategy: Strategy
    shares: Sequence[tuple[Member, Assignment]]
    conflicts: Sequence[Conflict]


class QueueCounts(Mapping[str, int]):
    """The topics of the snapshot as numbers of queues, without a copy."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    @override
    def __getitem__(self, topic: str) -> int:
        return self._topics[topic].queues

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    @override
    def __len__(self) -> int:
        return len(self._topics)
