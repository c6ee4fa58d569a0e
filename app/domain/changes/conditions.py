"""On which terms a change is asked for, and what came of it. Pure.

Conditions are judged under the lock of whoever keeps the thing, on the version that is there then.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from app.domain.errors import PreconditionFailed

View_co = TypeVar("View_co", covariant=True)

Versions = AbstractSet[int] | Literal["*"]
"""Some versions, or any that there is."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must hold of the version for a change to be made (RFC 9110, section 13.2.2)."""

    if_match: Versions | None = None
    if_none_match: Versions | None = None

    @classmethod
    def at(cls, version: int | None) -> "Conditions":
        """That it is at the version; 0: that there is nothing; None: nothing is asked."""
        if version == 0:
            return cls(if_none_match="*")
        return cls() if version is None else cls(if_match=frozenset({version}))

    def check(self, what: str, present: int) -> None:
        """Raise `PreconditionFailed` unless all holds. What does not exist has version 0."""
        if self.if_match is not None and not _includes(self.if_match, present):
            raise _unlike(what, present, _words(self.if_match))
        if self.if_none_match is not None and _includes(self.if_none_match, present):
            is_any = self.if_none_match == "*"
            wanted = "that it does not exist" if is_any else f"not {_words(self.if_none_match)}"
            raise _unlike(what, present, wanted)


def _includes(versions: Versions, present: int) -> bool:
    return present > 0 and (versions == "*" or present in versions)


def _words(versions: Versions) -> str:
    if versions == "*":
        return "that it exists"
    numbers = " or ".join(str(each) for each in sorted(map(int, versions)))
    return f"version {numbers}" if numbers else "a version that it never had"


def _unlike(what: str, present: int, wanted: str) -> PreconditionFailed:
    state = f"is at version {present}" if present else "does not exist"
    return PreconditionFailed(
        f"{what} {state}; the request asks for {wanted}",
        hint="read it again, apply your change to what you find, and send its version",
        fields={"version": present},
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a change is asked for."""

    conditions: Conditions = field(default_factory=Conditions)
    must_exist: bool = False
    """Change only; make nothing."""
    is_dry_run: bool = False
    """Check everything and say what would be; change nothing."""
    generation: int = 0
    """Of a thing that is made; 0: a new one."""


@dataclass(frozen=True, slots=True)
class Changed(Generic[View_co]):
    """A thing before and after a change. `before` is None when it was made."""

    before: View_co | None
    after: View_co

    @property
    def is_made(self) -> bool:
        return self.before is None
