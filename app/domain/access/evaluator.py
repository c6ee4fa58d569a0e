"""Whether a principal may do something: the one place where policies are decided. Pure.

Deny by default, and a deny wins over every allow, whichever is more specific. Made of a list of
policies and never changed; safe for concurrent use. A decision looks only at the policies of the
principal and its roles: one look-up for its literal names, and a walk over its other patterns.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from app.domain.access.actions import Action, Kind, Target
from app.domain.access.policies import Effect, Matching, Pattern, Policy, Subject, SubjectKind


class Principal(NamedTuple):
    """Who asks: a name, and the roles that it has."""

    name: str
    roles: tuple[str, ...] = ()

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """Whom policies may name, to be about it."""
        own = Subject(SubjectKind.PRINCIPAL, self.name)
        return own, *(Subject(SubjectKind.ROLE, role) for role in self.roles)


class Decision(NamedTuple):
    """Whether something may be done, and the policy that says so; None: no policy is about it."""

    is_allowed: bool
    policy: Policy | None


_Named = tuple[Action, Kind, str, str]
"""An action on a resource by namespace and name."""
_Wide = tuple[Action, Kind, str]
"""An action on a kind of resources in a namespace."""

_UNMENTIONED: Final = Decision(is_allowed=False, policy=None)


class _Rules:
    """The policies about one subject."""

    __slots__ = ("literal", "wide")

    def __init__(self) -> None:
        self.literal: dict[_Named, list[Policy]] = {}
        self.wide: dict[_Wide, list[tuple[Pattern, Policy]]] = {}

    def add(self, policy: Policy) -> None:
        for action in policy.actions:
            for pattern in policy.patterns:
                if pattern.matching is Matching.LITERAL:
                    named = action, pattern.kind, policy.namespace, pattern.name
                    self.literal.setdefault(named, []).append(policy)
                else:
                    wide = action, pattern.kind, policy.namespace
                    self.wide.setdefault(wide, []).append((pattern, policy))

    def about(self, action: Action, target: Target) -> Iterable[Policy]:
        """The policies that match; one may come twice."""
        yield from self.literal.get((action, target.kind, target.namespace, target.name), ())
        for pattern, policy in self.wide.get((action, target.kind, target.namespace), ()):
            if pattern.matches(target.kind, target.name):
                yield policy


class Evaluator:
    """Decides by the policies that it was made of."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._rules: dict[Subject, _Rules] = {}
        for policy in policies:
            self._rules.setdefault(policy.subject, _Rules()).add(policy)

    def decide(self, principal: Principal, action: Action, target: Target) -> Decision:
        """Whether `principal` may do `action` to `target`, which need not exist."""
        allowing: Policy | None = None
        for subject in principal.subjects:
            rules = self._rules.get(subject)
            if rules is None:
                continue
            for policy in rules.about(action, target):
                if policy.effect is Effect.DENY:
                    return Decision(is_allowed=False, policy=policy)
                allowing = allowing or policy
        return _UNMENTIONED if allowing is None else Decision(is_allowed=True, policy=allowing)
