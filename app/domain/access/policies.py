"""Policies: whom they are about, what they match, and whether they allow or deny. Pure.

A pattern is written `topic:orders` (that name), `topic:orders-*` (each that begins so), `topic:*`
(each), or `cluster`. It matches within one namespace: no prefix reaches over into another.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from typing_extensions import override

from app.domain.access.actions import Action, Kind
from app.domain.errors import InvalidRequest
from app.domain.limits import NAME_CHARS_MAX

_NAME: Final = re.compile(rf"[A-Za-z0-9_.:/@-]{{1,{NAME_CHARS_MAX}}}")
"""Of a topic, a group or a producer; the latter may have more characters than topics."""
_EVERY: Final = "*"

EVERY_NAMESPACE: Final = "*"
"""Of a policy: it holds in each."""
_NAMESPACE: Final = re.compile(rf"[A-Za-z0-9_-]{{0,{NAME_CHARS_MAX}}}")


class Effect(StrEnum):
    """What a policy says about what it matches."""

    ALLOW = "ALLOW"
    DENY = "DENY"


class Matching(StrEnum):
    """How a pattern compares names."""

    LITERAL = "literal"
    PREFIX = "prefix"
    ANY = "any"


class Pattern(NamedTuple):
    """Which resources a policy is about."""

    kind: Kind
    matching: Matching
    name: str = ""
    """The whole name, or the beginning of names; empty for any, and for the cluster."""

    def matches(self, kind: Kind, name: str) -> bool:
        """Whether it is about the resource of that name."""
        if kind is not self.kind:
            return False
        if self.matching is Matching.ANY:
            return True
        if self.matching is Matching.PREFIX:
            return name.startswith(self.name)
        return name == self.name

    @override
    def __str__(self) -> str:
        """As it is written."""
        if self.kind is Kind.CLUSTER:
            return str(self.kind)
        return f"{self.kind}:{self.name}{'' if self.matching is Matching.LITERAL else _EVERY}"


class SubjectKind(StrEnum):
    """Whom a policy is about: one principal, or all that have a role."""

    PRINCIPAL = "principal"
    ROLE = "role"


class Subject(NamedTuple):
    """A principal or a role, by its name."""

    kind: SubjectKind
    name: str

    @override
    def __str__(self) -> str:
        """As it is written: `principal:ci`, `role:viewer`."""
        return f"{self.kind}:{self.name}"


class Policy(NamedTuple):
    """One rule. What no policy allows is denied; what one denies, no other allows."""

    name: str
    subject: Subject
    effect: Effect
    actions: frozenset[Action]
    patterns: tuple[Pattern, ...]
    namespace: str = ""
    """Empty: the default one; `EVERY_NAMESPACE`."""

    def shown(self) -> dict[str, object]:
        """As it is written."""
        return {
            "name": self.name,
            "subject": str(self.subject),
            "effect": str(self.effect),
            "actions": sorted(map(str, self.actions)),
            "resources": [str(each) for each in self.patterns],
            "namespace": self.namespace,
        }


def read_pattern(text: str) -> Pattern:
    """The pattern that is written in `text`; `InvalidRequest` when it is none."""
    if text == Kind.CLUSTER:
        return Pattern(Kind.CLUSTER, Matching.ANY)
    kind, separator, name = text.partition(":")
    if not separator or kind not in (Kind.TOPIC, Kind.GROUP, Kind.PRODUCER):
        raise _illegal(text)
    return read_names(Kind(kind), name)


def read_names(kind: Kind, name: str) -> Pattern:
    """The pattern for names of one kind: `orders`, `orders-*` or `*`."""
    if name == _EVERY:
        return Pattern(kind, Matching.ANY)
    matching = Matching.PREFIX if name.endswith(_EVERY) else Matching.LITERAL
    bare = name.removesuffix(_EVERY)
    if not _NAME.fullmatch(bare):
        raise _illegal(f"{kind}:{name}")
    return Pattern(kind, matching, bare)


def read_subject(text: str) -> Subject:
    """The subject that is written in `text`; `InvalidRequest` when it is none."""
    kind, separator, name = text.partition(":")
    if not separator or kind not in {str(each) for each in SubjectKind} or not name:
        raise InvalidRequest(f"{text!r} is not a subject", hint="write principal:NAME or role:NAME")
    return Subject(SubjectKind(kind), name)


def check_namespace(name: str) -> str:
    """Return `name`, or raise `InvalidRequest` when no namespace may have it."""
    if name != EVERY_NAMESPACE and not _NAMESPACE.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is not a namespace",
            hint="a namespace has letters, digits, '_' and '-'; empty is the default one",
        )
    return name


def read_actions(names: Iterable[str]) -> frozenset[Action]:
    """The actions of those names; `InvalidRequest` for one that there is not, and for none."""
    given = list(names)
    unknown = [name for name in given if name not in Action.__members__]
    if unknown or not given:
        raise InvalidRequest(
            f"{unknown[0]!r} is not an action" if unknown else "a policy needs an action",
            hint=f"use {', '.join(Action)}",
        )
    return frozenset(map(Action, given))


def _illegal(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{text!r} is not a resource",
        hint="write topic:orders, topic:orders-* or topic:* (so for group and producer), "
        "or cluster; a name has letters, digits and _ - . : / @",
    )
