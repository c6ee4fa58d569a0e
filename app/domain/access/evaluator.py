"""Whether a principal may do something: the one place where policies are decided. Pure.

Deny by default, and a deny wins over every allow, whichever is more specific. Made of a list of
policies; what a principal may by its roles on the names that it was given is added when it is
asked about first. Event loop only. A decision looks only at the policies of the principal and its
roles: one look-up for its literal names, and a walk over its other patterns.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from app.domain.access.actions import Action, Kind, Target
from app.domain.access.policies import (
    EVERY_NAMESPACE,
    Effect,
    Matching,
    Pattern,
    Policy,
    Subject,
    SubjectKind,
)
from app.domain.access.roles import ROLES, policies_of
from app.domain.limits import PRINCIPALS_MAX


class Principal(NamedTuple):
    """Who asks: a name, its roles, and what they are kept to."""

    name: str
    roles: tuple[str, ...] = ()
    namespace: str = ""
    """The one that it is bound to; empty: none, its roles hold in every namespace."""
    patterns: tuple[Pattern, ...] = ()
    """The names that its roles are kept to; none: its roles hold for all names."""
    is_disabled: bool = False
    allowed_from: tuple[str, ...] = ()
    """The networks that it is let in from, asked at authentication; none: anywhere."""

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """Whom policies may name, to be about it."""
        own = Subject(SubjectKind.PRINCIPAL, self.name)
        return own, *(Subject(SubjectKind.ROLE, role) for role in self.roles)

    @property
    def by_role(self) -> list[Policy]:
        """What its roles allow it."""
        own = Subject(SubjectKind.PRINCIPAL, self.name)
        namespace = self.namespace
        if not namespace and not self.patterns:
            namespace = EVERY_NAMESPACE
        known = [ROLES[role] for role in self.roles if role in ROLES]
        return [
            policy for role in known for policy in policies_of(role, own, self.patterns, namespace)
        ]


class Decision(NamedTuple):
    """Whether something may be done, and the policy that says so; None: no policy is about it."""

    is_allowed: bool
    policy: Policy | None


_Named = tuple[Action, Kind, str, str]
"""An action on a resource by namespace and name."""
_Wide = tuple[Action, Kind, str]
"""An action on a kind of resources in a namespace."""

UNMENTIONED: Final = Decision(is_allowed=False, policy=None)


class _Rules:
    """The policies about one subject."""

    __slots__ = ("literal", "wide")

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.literal: dict[_Named, list[Policy]] = {}
        self.wide: dict[_Wide, list[tuple[Pattern, Policy]]] = {}
        for policy in policies:
            self.add(policy)

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
        for namespace in (target.namespace, EVERY_NAMESPACE):
            yield from self.literal.get((action, target.kind, namespace, target.name), ())
            for pattern, policy in self.wide.get((action, target.kind, namespace), ()):
                if pattern.matches(target.kind, target.name):
                    yield policy

    def allow_in(self, namespace: str) -> bool:
        """Whether one of them allows something in the namespace."""
        near = namespace, EVERY_NAMESPACE
        return any(
            policy.effect is Effect.ALLOW
            for (*_, where, _name), policies in self.literal.items()
            if where in near
            for policy in policies
        ) or any(
            policy.effect is Effect.ALLOW
            for (_, kind, where), found in self.wide.items()
            if where in near and kind is not Kind.CLUSTER
            for _, policy in found
        )

    def meeting(self, action: Action, target: Target) -> Iterable[tuple[bool, Policy]]:
        """Policies about some name that begins as `target` does, and whether about all of them."""
        for (wanted, kind, namespace, name), policies in self.literal.items():
            is_near = namespace in (target.namespace, EVERY_NAMESPACE)
            is_about = (wanted, kind) == (action, target.kind) and is_near
            if is_about and name.startswith(target.name):
                yield from ((False, policy) for policy in policies)
        for namespace in (target.namespace, EVERY_NAMESPACE):
            for pattern, policy in self.wide.get((action, target.kind, namespace), ()):
                if target.name.startswith(pattern.name):
                    yield True, policy
                elif pattern.name.startswith(target.name):
                    yield False, policy


class Evaluator:
    """Decides by the policies that it was made of, and by the roles of who asks."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.policies = tuple(policies)
        self._rules: dict[Subject, _Rules] = {}
        for policy in self.policies:
            self._rules.setdefault(policy.subject, _Rules()).add(policy)
        self._by_role: dict[Principal, _Rules] = {}

    def decide(self, principal: Principal, action: Action, target: Target) -> Decision:
        """Whether `principal` may do `action` to `target`, which need not exist."""
        if not _is_within(principal, target):
            return UNMENTIONED
        allowing: Policy | None = None
        for rules in self._rules_of(principal):
            for policy in rules.about(action, target):
                if policy.effect is Effect.DENY:
                    return Decision(is_allowed=False, policy=policy)
                allowing = allowing or policy
        return UNMENTIONED if allowing is None else Decision(is_allowed=True, policy=allowing)

    def covers(self, principal: Principal, action: Action, target: Target) -> bool:
        """Whether it may do so to every name that begins as `target` does: one policy allows all
        of them, and none denies any."""
        if not _is_within(principal, target):
            return False
        is_allowed = False
        for rules in self._rules_of(principal):
            for is_whole, policy in rules.meeting(action, target):
                if policy.effect is Effect.DENY:
                    return False
                is_allowed = is_allowed or is_whole
        return is_allowed

    def reaches(self, principal: Principal, namespace: str) -> bool:
        """Whether it may do anything in the namespace."""
        if principal.is_disabled or principal.namespace not in ("", namespace):
            return False
        return any(rules.allow_in(namespace) for rules in self._rules_of(principal))

    def _rules_of(self, principal: Principal) -> Iterable[_Rules]:
        by_role = self._by_role.get(principal)
        if by_role is None:
            if len(self._by_role) >= PRINCIPALS_MAX:
                self._by_role.clear()
            by_role = self._by_role[principal] = _Rules(principal.by_role)
        yield by_role
        for subject in principal.subjects:
            rules = self._rules.get(subject)
            if rules is not None:
                yield rules


def _is_within(principal: Principal, target: Target) -> bool:
    """Whether a principal may reach it at all: one that is bound to a namespace runs no nodes."""
    if principal.is_disabled:
        return False
    if not principal.namespace:
        return True
    return target.kind is not Kind.CLUSTER and target.namespace == principal.namespace
