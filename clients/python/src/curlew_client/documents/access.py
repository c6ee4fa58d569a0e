"""What the node says about principals, their keys, roles, policies, and the audit."""

from typing import Any, Literal, NotRequired, TypedDict


class AuditEntry(TypedDict):
    """One entry. Those of one node are a chain."""

    node_id: str
    seq: int
    at_ms: int
    principal: str | None
    address: str | None
    request_id: str | None
    client_request_id: str | None
    action: str
    resource: str
    outcome: str
    before: Any
    after: Any
    signed_with: str | None


class AuditHead(TypedDict):
    """The newest entry of a chain. Who keeps it can tell later whether entries were cut
    off."""

    node_id: str
    seq: int
    link: str


class Audit(TypedDict):
    """Entries by time."""

    entries: list[AuditEntry]
    next_page_token: str | None
    previous_page_token: str | None
    heads: list[AuditHead]


PolicyEffect = Literal["ALLOW", "DENY"]


class Policy(TypedDict):
    """A policy. `version` is also its ETag."""

    name: str
    subject: str
    effect: PolicyEffect
    actions: list[str]
    resources: list[str]
    namespace: str
    created_ms: int
    version: int


class PolicyList(TypedDict):
    """A page of policies by name."""

    policies: list[Policy]
    next_page_token: str | None


class PolicyChange(Policy):
    """A policy after a change, or as it would be."""

    dry_run: bool
    warnings: list[str]


class PolicySettings(TypedDict):
    """A policy: all of it is replaced."""

    subject: str
    effect: NotRequired[Literal["ALLOW", "DENY"]]
    actions: list[str]
    resources: list[str]
    namespace: NotRequired[str]


class Key(TypedDict):
    """A key, without its secret."""

    id: str
    created_ms: int
    expires_ms: int | None
    last_used_ms: int | None


class Principal(TypedDict):
    """A principal with its keys. `version` is also its ETag."""

    name: str
    roles: list[str]
    resources: list[str]
    namespace: str
    created_ms: int
    disabled: bool
    allowed_from: list[str]
    version: int
    keys: list[Key]


class PrincipalList(TypedDict):
    """A page of principals by name."""

    principals: list[Principal]
    next_page_token: str | None


class PrincipalChange(Principal):
    """A principal after a change, or as it would be."""

    dry_run: bool
    warnings: list[str]


class PrincipalSettings(TypedDict, total=False):
    """What a principal may: all of it is replaced."""

    roles: list[str]
    resources: list[str]
    namespace: str
    disabled: bool
    allowed_from: list[str]


class NewKey(TypedDict):
    """A key, with its secret: shown this once."""

    id: str
    key: str
    expires_ms: int | None


class KeySettings(TypedDict, total=False):
    """How long the key works, and when it is made."""

    expires: str | None
    known_keys: list[str] | None


class DeletedKey(TypedDict):
    """A key that would be revoked."""

    dry_run: bool
    id: str


class Role(TypedDict):
    """A role, and what it allows by kind of resource."""

    name: str
    rights: dict[str, list[str]]


class RoleList(TypedDict):
    """The roles that are there without any policy."""

    roles: list[Role]


class Rule(TypedDict):
    """The policy that decides."""

    policy: str
    effect: str


class WhoAmI(TypedDict):
    """The caller. `allowed` and `rule` answer what was asked; null without a question."""

    principal: str | None
    roles: list[str]
    resources: list[str]
    namespace: str
    allowed_from: list[str]
    allowed: bool | None
    rule: Rule | None
