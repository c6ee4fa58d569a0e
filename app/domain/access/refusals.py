"""Errors of who may do what. Codes and texts as in `domain.errors`; the tree is one."""

from typing import Final

from app.domain.errors import CurlewError, NotFound, StateConflict, TryAgain
from app.domain.names import in_audit

ADDRESS_NOT_ALLOWED: Final = "ADDRESS_NOT_ALLOWED"
"""What is noted of a right key that was shown from a wrong address. Its client is not told."""


class NotPermitted(CurlewError):
    """What the caller may not do, or what a browser was told to ask by a page that is not ours."""

    code = "FORBIDDEN"
    title = "The request is refused"
    resource = ""
    """What it was refused on, by its stored name, for the audit; empty: what its fields say."""


class QuotaExceeded(NotPermitted):
    """The principal owns as many topics or groups as it may."""

    code = "QUOTA_EXCEEDED"
    title = "The principal has as many as it may"


class Unauthorized(CurlewError):
    """A closed node, and no API key that it knows."""

    code = "UNAUTHORIZED"
    title = "An API key is needed"

    def __init__(self, detail: str, *, elsewhere: str | None = None) -> None:
        """`elsewhere`: the principal, of which only the address is wrong; for the audit alone."""
        self.elsewhere = elsewhere
        super().__init__(
            detail,
            hint="send the header `Authorization: Bearer <key>`, or `curl -u :<key>`; who has the "
            "node's settings makes a key with `curlew key create NAME --role admin`",
        )


def noted_of(error: NotPermitted | Unauthorized) -> tuple[str, str]:
    """The code and the resource that are noted of a denial: more than its client is told."""
    if isinstance(error, Unauthorized) and error.elsewhere is not None:
        return ADDRESS_NOT_ALLOWED, f"principal:{in_audit(error.elsewhere)}"
    own = error.resource if isinstance(error, NotPermitted) else ""
    return error.code, own or str(error.fields.get("resource", ""))


class PrincipalNotFound(NotFound):
    """A principal, or a key of one, that is not there."""

    code = "PRINCIPAL_NOT_FOUND"
    title = "The principal does not exist"


class PolicyNotFound(NotFound):
    """A policy that is not there."""

    code = "POLICY_NOT_FOUND"
    title = "The policy does not exist"


class PolicyRegressed(StateConflict):
    """The database knows fewer changes of keys and policies than the node: it is an old copy."""

    code = "POLICY_REGRESSED"
    title = "The database is an older copy"


class PolicyTooOld(TryAgain):
    """What the node knows of keys and policies is too old to decide by: the database is away."""

    code = "POLICY_TOO_OLD"
    title = "Keys and policies are not known well enough"
