"""Principals, their keys and policies as administrators see and set them. Pure."""

from typing import NamedTuple

from app.domain.access.audit import Shown
from app.domain.access.policies import Pattern, Policy
from app.domain.positions import TimestampMs


class PrincipalSettings(NamedTuple):
    """What is set on a principal."""

    roles: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    """The names that its roles are kept to; none: all."""
    namespace: str = ""
    """The one that it is bound to; empty: none."""
    is_disabled: bool = False
    """Its keys work no more; it keeps them."""

    def shown(self) -> Shown:
        """For the audit."""
        return {
            "roles": list(self.roles),
            "resources": [str(each) for each in self.patterns],
            "namespace": self.namespace,
            "disabled": self.is_disabled,
        }


class ListedKey(NamedTuple):
    """A key as operators see it."""

    key_id: str
    created_ms: TimestampMs
    expires_ms: TimestampMs | None
    """None: never."""
    last_used_ms: TimestampMs | None
    """To the minute; None: not yet, as far as is written down."""
    is_live: bool


class Account(NamedTuple):
    """A principal with its keys."""

    name: str
    settings: PrincipalSettings
    keys: tuple[ListedKey, ...]
    created_ms: TimestampMs
    version: int
    """Of all that says who may do what, at its last change."""


class StoredPolicy(NamedTuple):
    """A policy as it is kept."""

    policy: Policy
    created_ms: TimestampMs
    version: int
