"""What is to be remembered of who did what: changes, and denials. Pure values and two ports.

A change is written in the transaction that makes it, so no change is without its entry; a denial,
and what a consumer forces, are only noted, since nothing must wait for them. None holds a key, or
what a key could be made of.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol, TypeVar

from app.domain.access.actions import Action

_Transaction_contra = TypeVar("_Transaction_contra", contravariant=True)

Shown = Mapping[str, object]
"""A thing as it is shown to operators, in what JSON has."""


class Actor(NamedTuple):
    """Who did it, from where, and in which request."""

    principal: str | None = None
    """None: nobody was asked for a name, or the node itself did it."""
    address: str | None = None
    request_id: str | None = None
    """Ours."""
    client_request_id: str | None = None
    """As the client calls it: its word only."""


ACTOR: Final[ContextVar[Actor]] = ContextVar("actor", default=Actor())  # noqa: B039  # immutable
"""Whoever the running request is of. Set by the gateway for the control plane, and by commands."""


class Change(NamedTuple):
    """One thing that was made, changed or removed."""

    action: Action
    resource: str
    """As `Target` is written: `topic:orders`, `principal:ci`, `key:ci/0JDEHv3a6Xr4k`."""
    before: Shown | None
    """None: it was made."""
    after: Shown | None
    """None: it was removed."""


class Denial(NamedTuple):
    """Something that was refused."""

    actor: Actor
    action: str
    """An action, or the method of a request that had no key."""
    resource: str
    code: str
    """Of the problem, `FORBIDDEN` or `UNAUTHORIZED`; or `ADDRESS_NOT_ALLOWED`, which no client is
    told."""


class Forced(NamedTuple):
    """What a consumer has ended or replaced of others in its group, since it said so."""

    actor: Actor
    resource: str
    """Of the group."""
    before: Shown
    after: Shown


ForcedLog = Callable[[Forced], None]
"""Takes them. Called in requests, so it returns at once, is bounded and never raises."""


def forget_forced(_forced: Forced) -> None:
    """Of who keeps no audit."""


class AuditLog(Protocol):
    """Takes denials. Called in requests, so it returns at once, is bounded and never raises."""

    def denied(self, denial: Denial) -> None: ...


class ChangeLog(Protocol[_Transaction_contra]):
    """Takes changes, within their transaction: what it raises undoes the change."""

    async def changed(self, transaction: _Transaction_contra, change: Change) -> None: ...
