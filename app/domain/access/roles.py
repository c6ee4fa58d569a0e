"""The roles that are there, as policies for the names that a principal was given. Pure.

Only `admin` reads bodies of all topics; `operator` and `viewer` read none. Keys and policies are
made by `admin` only.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from app.domain.access.actions import Action, Kind
from app.domain.access.policies import Effect, Matching, Pattern, Policy, Subject

Rights = Mapping[Kind, frozenset[Action]]


class Role(StrEnum):
    """A set of actions that belong together."""

    ADMIN = "admin"
    OPERATOR = "operator"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    VIEWER = "viewer"


ROLES: Final[Mapping[str, Role]] = {str(role): role for role in Role}

_EVERYTHING: Final = frozenset(Action)
_LOOK: Final = frozenset({Action.GET, Action.LIST})
_RUN: Final = _LOOK | {Action.CREATE, Action.UPDATE, Action.DELETE}
_SEND: Final = frozenset({Action.PUB, Action.GET})
_CONSUME: Final = frozenset({Action.SUB, Action.GET})

RIGHTS: Final[Mapping[Role, Rights]] = {
    Role.ADMIN: dict.fromkeys(Kind, _EVERYTHING),
    Role.OPERATOR: dict.fromkeys(Kind, _RUN),
    Role.PRODUCER: {Kind.TOPIC: _SEND, Kind.PRODUCER: _SEND},
    Role.CONSUMER: {Kind.TOPIC: _CONSUME, Kind.GROUP: _CONSUME | {Action.CREATE}},
    Role.VIEWER: dict.fromkeys(Kind, _LOOK),
}
"""What each role may do to what."""


def policies_of(
    role: Role, subject: Subject, given: Sequence[Pattern] = (), namespace: str = ""
) -> list[Policy]:
    """What `subject` is allowed by `role`: on the names `given`, or on any when none are.

    When names are given, a kind without one is denied: who is kept to some topics neither runs
    nodes nor sends under another team's producer ids.
    """
    policies = []
    for kind, actions in RIGHTS[role].items():
        patterns = tuple(pattern for pattern in given if pattern.kind is kind)
        if not given:
            patterns = (Pattern(kind, Matching.ANY),)
        if patterns:
            name = f"{role}:{subject.name}:{kind}"
            policies.append(Policy(name, subject, Effect.ALLOW, actions, patterns, namespace))
    return policies
