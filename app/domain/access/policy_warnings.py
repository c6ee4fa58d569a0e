"""What is allowed and does not look intended: patterns that match nothing, and prefixes that begin
another's names. Pure."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

from app.domain.access.actions import Kind
from app.domain.access.caller import target_of
from app.domain.access.evaluator import Principal
from app.domain.access.keyring import Keyring
from app.domain.access.policies import (
    EVERY_NAMESPACE,
    Effect,
    Matching,
    Pattern,
    Policy,
    Subject,
    SubjectKind,
)
from app.domain.access.roles import ROLES

_OF_NAMES: Final = (Kind.TOPIC, Kind.GROUP)


class Names(Protocol):
    """Of what there is, as it is stored."""

    @property
    def topics(self) -> Collection[str]: ...

    @property
    def groups(self) -> Collection[str]: ...

    @property
    def namespaces(self) -> Collection[str]: ...


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """What there is: names as they are stored, and who has rights on which."""

    topics: Collection[str]
    groups: Collection[str]
    namespaces: Collection[str]
    principals: Collection[Principal]
    policies: Collection[Policy]

    @classmethod
    def of(cls, names: Names, keyring: Keyring) -> Self:
        """By what is known at this moment."""
        principals, policies = tuple(keyring.principals.values()), keyring.evaluator.policies
        return cls(names.topics, names.groups, names.namespaces, principals, policies)

    def warnings_of(
        self, patterns: Sequence[Pattern], namespace: str, subject: Subject, *, denies: bool = False
    ) -> list[str]:
        """Sentences about the patterns that `subject` is given, or which it is denied."""
        found = []
        if namespace not in ("", EVERY_NAMESPACE) and namespace not in self.namespaces:
            found.append(f"there is no namespace {namespace!r}")
        found += self._without_a_match(patterns, namespace)
        prefixes = [pattern for pattern in patterns if pattern.matching is Matching.PREFIX]
        if not denies and prefixes:
            found += self._over_others(prefixes, namespace, subject)
        return found

    def of_roles(self, roles: Iterable[str]) -> list[str]:
        """Sentences about roles that allow nothing."""
        named = {*ROLES, *(policy.subject.name for policy in self.policies)}
        return [f"role {role!r} is named by no policy" for role in roles if role not in named]

    def _without_a_match(self, patterns: Sequence[Pattern], namespace: str) -> Iterator[str]:
        kinds = {pattern.kind for pattern in patterns}
        names = {kind: self._names_in(namespace, kind) for kind in _OF_NAMES if kind in kinds}
        for pattern in patterns:
            if pattern.kind in names and not _matches_any(pattern, names[pattern.kind]):
                yield f"{pattern} matches nothing that there is now"

    def _names_in(self, namespace: str, kind: Kind) -> list[str]:
        """In their order, without the namespace."""
        targets = (target_of(kind, name) for name in self._stored(kind))
        is_in_each = namespace == EVERY_NAMESPACE
        return sorted(each.name for each in targets if is_in_each or each.namespace == namespace)

    def _stored(self, kind: Kind) -> Collection[str]:
        return self.topics if kind is Kind.TOPIC else self.groups

    def _over_others(
        self, prefixes: Sequence[Pattern], namespace: str, subject: Subject
    ) -> Iterator[str]:
        """Prefixes that reach over names that are meant to be another's; the very pattern of
        another is shared on purpose."""
        others = list(self._of_others(subject, namespace))
        for kind in Kind:
            mine = [prefix for prefix in prefixes if prefix.kind is kind]
            if not mine:
                continue
            owned: dict[str, tuple[Pattern, Subject]] = {}
            for pattern, other in others:
                if pattern.kind is kind and pattern.matching is not Matching.ANY:
                    owned.setdefault(_written(pattern), (pattern, other))
            in_order = sorted(owned)
            for prefix in mine:
                theirs = _first_beyond(prefix, in_order)
                if theirs is not None:
                    pattern, other = owned[theirs]
                    yield f"{prefix} also begins {pattern} of {other}"

    def _of_others(self, subject: Subject, namespace: str) -> Iterable[tuple[Pattern, Subject]]:
        """The patterns that others than the subject are given, each with whose it is."""
        for principal in self.principals:
            other = Subject(SubjectKind.PRINCIPAL, principal.name)
            is_of_it = subject.kind is SubjectKind.ROLE and subject.name in principal.roles
            if other == subject or is_of_it or not _meet(namespace, principal.namespace):
                continue
            for pattern in principal.patterns:
                yield pattern, other
        for policy in self.policies:
            is_of_it = policy.subject == subject or policy.subject.kind is SubjectKind.ROLE
            if is_of_it or policy.effect is Effect.DENY or not _meet(namespace, policy.namespace):
                continue
            for pattern in policy.patterns:
                yield pattern, policy.subject


def _meet(one: str, other: str) -> bool:
    return one == other or EVERY_NAMESPACE in (one, other)


def _matches_any(pattern: Pattern, names: Sequence[str]) -> bool:
    """`names` are in their order."""
    if pattern.matching is Matching.ANY:
        return bool(names)
    at = bisect_left(names, pattern.name)
    return at < len(names) and pattern.matches(pattern.kind, names[at])


def _written(pattern: Pattern) -> str:
    """Without its kind; no name has an asterisk."""
    return f"{pattern.name}*" if pattern.matching is Matching.PREFIX else pattern.name


def _first_beyond(prefix: Pattern, written: Sequence[str]) -> str | None:
    """The first that begins so, and is not the prefix itself. `written` are in their order."""
    for at in range(bisect_left(written, prefix.name), len(written)):
        text = written[at]
        if not text.startswith(prefix.name):
            return None
        if text != _written(prefix):
            return text
    return None
