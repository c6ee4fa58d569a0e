"""What is allowed and does not look intended: patterns that match nothing, and prefixes that begin
another's names. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from app.domain.access.actions import Kind
from app.domain.access.caller import target_of
from app.domain.access.evaluator import Principal
from app.domain.access.policies import EVERY_NAMESPACE, Matching, Pattern

_SEPARATORS: Final = "-_.:/"
"""A prefix that ends in one of these means the names of one team."""


def warnings_of(
    patterns: Sequence[Pattern],
    namespace: str,
    subject: str,
    topics: Collection[str],
    groups: Collection[str],
    others: Iterable[Principal],
) -> list[str]:
    """Sentences about the patterns that `subject` is given, with what there is now."""
    found = [
        f"{pattern} matches nothing that there is now"
        for pattern in patterns
        if pattern.kind in (Kind.TOPIC, Kind.GROUP)
        and not _matches_any(pattern, namespace, topics if pattern.kind is Kind.TOPIC else groups)
    ]
    known = [
        (each, f"principal:{other.name}")
        for other in others
        if other.namespace == namespace and f"principal:{other.name}" != subject
        for each in other.patterns
    ]
    for pattern in patterns:
        if pattern.matching is Matching.PREFIX and pattern.name[-1] not in _SEPARATORS:
            theirs = next((pair for pair in known if _begins(pattern, pair[0])), None)
            if theirs is not None:
                found.append(f"{pattern} also begins {theirs[0]} of {theirs[1]}")
    return found


def unknown_roles(roles: Iterable[str], known: Collection[str]) -> list[str]:
    """Sentences about roles that allow nothing."""
    return [f"role {role!r} is named by no policy" for role in roles if role not in known]


def _matches_any(pattern: Pattern, namespace: str, names: Iterable[str]) -> bool:
    targets = (target_of(pattern.kind, name) for name in names)
    return any(
        pattern.matches(each.kind, each.name)
        for each in targets
        if namespace in (EVERY_NAMESPACE, each.namespace)
    )


def _begins(pattern: Pattern, other: Pattern) -> bool:
    """Whether a prefix reaches into names that are meant to be another's."""
    return (
        other.kind is pattern.kind
        and other.matching is not Matching.ANY
        and other.name.startswith(pattern.name)
        and other.name != pattern.name
        and other.name[len(pattern.name)] not in _SEPARATORS
    )
