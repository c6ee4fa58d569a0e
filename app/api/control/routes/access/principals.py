"""Principals and their API keys."""

from typing import Annotated, Self

from fastapi import Depends, Response
from pydantic import Field

from app.api.control.dependencies import (
    Services,
    WithAccess,
    WithPageSize,
    WithServices,
    json_body,
)
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.schemas import AnswerModel, DryRunMember, RequestModel
from app.api.http.conditions import WithDryRun, WithTerms, etag_of, is_dry_run
from app.api.http.request_context import NOT_KEPT, RequestContext
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer, Body
from app.domain.access.accounts import (
    Account,
    ListedKey,
    PrincipalSettings,
    fence_of,
    read_networks,
)
from app.domain.access.policies import Subject, SubjectKind, check_namespace, read_pattern
from app.domain.access.policy_warnings import AccessFacts
from app.domain.access.roles import Role
from app.domain.durations import parse_duration_ms
from app.domain.errors import InvalidRequest
from app.domain.limits import (
    KEY_EXPIRES_MS_MAX,
    KEYS_OF_A_PRINCIPAL_MAX,
    NETWORKS_OF_A_PRINCIPAL_MAX,
    PATTERNS_OF_A_PRINCIPAL_MAX,
    ROLES_OF_A_PRINCIPAL_MAX,
)
from app.domain.positions import TimestampMs

router = OperationRouter("access")


class PrincipalBody(RequestModel):
    """What a principal may: all of it is replaced."""

    roles: list[str] = Field(
        default_factory=list,
        max_length=ROLES_OF_A_PRINCIPAL_MAX,
        description="admin, operator, producer, consumer, viewer; or a role that policies name",
    )
    resources: list[str] = Field(
        default_factory=list,
        max_length=PATTERNS_OF_A_PRINCIPAL_MAX,
        description="what the roles are kept to: topic:orders, topic:orders-*, group:…, "
        "producer:…; none: all names. A kind that is not named is denied",
    )
    namespace: str = Field(
        default="", description="the namespace that it is bound to; empty: to none"
    )
    disabled: bool = Field(default=False, description="its keys do not work, and stay")
    allowed_from: list[str] = Field(
        default_factory=list,
        max_length=NETWORKS_OF_A_PRINCIPAL_MAX,
        description="networks or addresses that it is let in from, as the node sees its clients: "
        "10.0.0.0/8, 2001:db8::/32, 192.0.2.7; none: anywhere",
    )

    def settings(self) -> PrincipalSettings:
        """Raises `InvalidRequest` for what is written wrongly."""
        return PrincipalSettings(
            tuple(dict.fromkeys(self.roles)),
            tuple(map(read_pattern, dict.fromkeys(self.resources))),
            check_namespace(self.namespace),
            self.disabled,
            read_networks(self.allowed_from),
        )


class KeyBody(RequestModel):
    """How long the key works, and when it is made."""

    expires: str | None = Field(
        default=None, description="a duration from now on, like 90d; without one it never expires"
    )
    known_keys: list[str] | None = Field(
        default=None,
        max_length=KEYS_OF_A_PRINCIPAL_MAX,
        description="Ids of all keys that it has; when it has others, none is made and 412 "
        "answers: so a request that is sent twice, to any nodes, makes one key",
    )


class KeyDocument(AnswerModel):
    """A key, without its secret."""

    id: str = Field(description="Its public part", examples=["0JDEHv3a6Xr4k"])
    created_ms: int = Field(description="When it was made, epoch milliseconds")
    expires_ms: int | None = Field(description="null: never")
    last_used_ms: int | None = Field(description="to the minute; null: not yet")

    @classmethod
    def of(cls, key: ListedKey) -> Self:
        return cls(
            id=key.key_id,
            created_ms=key.created_ms,
            expires_ms=key.expires_ms,
            last_used_ms=key.last_used_ms,
        )


class IssuedKeyDocument(AnswerModel):
    """A key, with its secret: shown this once."""

    id: str = Field(description="Its public part", examples=["0JDEHv3a6Xr4k"])
    key: str = Field(description="send it as `Authorization: Bearer <key>`; kept nowhere")
    expires_ms: int | None = Field(description="null: never")


class TriedKeyDocument(DryRunMember):
    """A key that would be made; it has no id yet."""

    expires_ms: int | None = Field(description="null: never")


class PrincipalDocument(AnswerModel):
    """A principal with its keys. `version` is also its ETag."""

    name: str = Field(description="Whom the keys belong to", examples=["shop"])
    roles: list[str] = Field(description="What it may, by role", examples=[["producer"]])
    resources: list[str] = Field(description="what the roles are kept to; none: all names")
    namespace: str = Field(description="the one that it is bound to; empty: none")
    created_ms: int = Field(description="When it was made, epoch milliseconds")
    disabled: bool = Field(description="Its keys do not work")
    allowed_from: list[str] = Field(
        description="networks that it is let in from; none: anywhere", examples=[["10.0.0.0/8"]]
    )
    version: int = Field(description="of who may do what, at its last change")
    keys: list[KeyDocument] = Field(description="Its keys, without secrets")

    @classmethod
    def of(cls, account: Account) -> Self:
        settings = account.settings
        return cls(
            name=account.name,
            roles=list(settings.roles),
            resources=[str(each) for each in settings.patterns],
            namespace=settings.namespace,
            created_ms=account.created_ms,
            disabled=settings.is_disabled,
            allowed_from=list(settings.allowed_from),
            version=account.version,
            keys=[KeyDocument.of(each) for each in account.keys],
        )


class PrincipalChangeDocument(DryRunMember, PrincipalDocument):
    """A principal after a change, or as it would be."""

    warnings: list[str] = Field(description="What is allowed and does not look intended")

    @classmethod
    def of_change(
        cls, account: Account, warnings: list[str], *, is_dry_run: bool
    ) -> "PrincipalChangeDocument":
        document = PrincipalDocument.of(account).model_dump()
        return cls(**document, warnings=warnings, dry_run=is_dry_run)


class DeletedKeyDocument(DryRunMember):
    """A key that would be revoked."""

    id: str = Field(description="Its public part")


class PrincipalList(AnswerModel):
    """A page of principals by name."""

    principals: list[PrincipalDocument] = Field(description="By name")
    next_page_token: str | None = Field(description="For the next page; null on the last one")


@router.serve(
    "GET /v1/principals",
    "List principals",
    needs={"cluster": Action.ADMIN},
    by_each_node=True,
)
async def list_principals(
    services: WithServices, page_size: WithPageSize, prefix: str = "", page_token: str | None = None
) -> PrincipalList:
    """Principals by name with their keys, without secrets, a page at a time."""
    page = await services.metadata.principals.listed(
        prefix=prefix, page_size=page_size, page_token=page_token
    )
    found = [PrincipalDocument.of(each) for each in page.items]
    return PrincipalList(principals=found, next_page_token=page.next_page_token)


@router.serve(
    "GET /v1/principals/{name}",
    "Read a principal",
    needs={"cluster": Action.ADMIN},
    answers={200: Answer(headers=ETAG_HEADER)},
    by_each_node=True,
)
async def get_principal(name: str, services: WithServices, response: Response) -> PrincipalDocument:
    """The principal with its keys, without secrets."""
    found = await services.metadata.principals.get(name)
    response.headers["ETag"] = etag_of(found.version)
    return PrincipalDocument.of(found)


@router.serve(
    "PUT /v1/principals/{name}",
    "Make a principal, or say what it may",
    needs={"cluster": Action.ADMIN},
    body=Body(
        PrincipalBody,
        required=True,
        examples={
            "a service that sends": {"roles": ["producer"], "resources": ["topic:orders-*"]},
            "a colleague who looks": {"roles": ["viewer"]},
        },
    ),
    answers={
        200: Answer("It was there", headers=ETAG_HEADER),
        201: Answer("It was made", PrincipalChangeDocument, ETAG_HEADER),
    },
    problems=(409, 412),
    by_each_node=True,
)
async def put_principal(
    name: str,
    services: WithServices,
    body: Annotated[PrincipalBody, Depends(json_body(PrincipalBody))],
    terms: WithTerms,
    response: Response,
    access: WithAccess,
) -> PrincipalChangeDocument:
    """It has no key yet: POST …/keys makes one. The first principal closes the node: make its key
    with `curlew init`. The last administrator that has a key that works stays one. `warnings` has
    it when `allowed_from` shuts an administrator out from where this request comes: try it with
    `dry_run`."""
    settings = body.settings()
    changed = await services.metadata.principals.put(name, settings, terms)
    if not terms.is_dry_run:
        response.status_code = 201 if changed.is_made else 200
        response.headers["ETag"] = etag_of(changed.after.version)
    warnings = _warnings(services, name, settings) + _shut_out(access, name, settings)
    return PrincipalChangeDocument.of_change(changed.after, warnings, is_dry_run=terms.is_dry_run)


def _warnings(services: Services, name: str, settings: PrincipalSettings) -> list[str]:
    known = AccessFacts.of(services.metadata.snapshot, services.metadata.principals.keyring)
    subject = Subject(SubjectKind.PRINCIPAL, name)
    return known.of_roles(settings.roles) + known.warnings_of(
        settings.patterns, settings.namespace, subject
    )


def _shut_out(access: RequestContext, name: str, settings: PrincipalSettings) -> list[str]:
    """That who asks, or an administrator, is not let in from where the request comes."""
    fence, client = fence_of(settings.allowed_from), access.scope.get("client")
    address = client[0] if client else ""
    is_of_caller = name == access.caller.name or str(Role.ADMIN) in settings.roles
    if fence is None or not is_of_caller or fence.has(address):
        return []
    return [f"{name} is not let in from {address or 'here'}, where this request comes from"]


@router.serve(
    "DELETE /v1/principals/{name}",
    "Take a principal away, with all its keys",
    needs={"cluster": Action.ADMIN},
    status=204,
    answers={200: dry_run_answer(PrincipalChangeDocument)},
    problems=(409, 412),
    by_each_node=True,
)
async def delete_principal(name: str, services: WithServices, terms: WithTerms) -> Response:
    """Its keys work no more, on this node at once, on all within two seconds."""
    removed = await services.metadata.principals.remove(name, terms)
    return deleted(PrincipalChangeDocument.of_change(removed, [], is_dry_run=terms.is_dry_run))


@router.serve(
    "POST /v1/principals/{name}/keys",
    "Make an API key",
    needs={"cluster": Action.ADMIN},
    status=201,
    body=Body(KeyBody, examples={"for three months": {"expires": "90d"}}),
    answers={
        200: dry_run_answer(TriedKeyDocument),
        201: Answer("It was made", IssuedKeyDocument),
    },
    problems=(409, 412),
    by_each_node=True,
)
async def make_key(
    name: str,
    services: WithServices,
    body: Annotated[KeyBody, Depends(json_body(KeyBody))],
    response: Response,
    dry_run: WithDryRun = None,
) -> IssuedKeyDocument | TriedKeyDocument:
    """The answer has the key, this once. A principal has at most two, so that one can take the
    place of the other: make the second, give it out, revoke the first."""
    expires_ms = _expiry(body.expires, services.metadata.principals.now_ms())
    tries = is_dry_run(dry_run)
    key = await services.metadata.principals.rotate(
        name, expires_ms, known_keys=body.known_keys, is_dry_run=tries
    )
    if tries:
        response.status_code = 200
        return TriedKeyDocument(expires_ms=expires_ms, dry_run=True)
    await services.metadata.principals.refresh()
    response.raw_headers.append(NOT_KEPT)
    return IssuedKeyDocument(id=key.key_id, key=key.text, expires_ms=expires_ms)


@router.serve(
    "DELETE /v1/principals/{name}/keys/{key_id}",
    "Revoke an API key",
    needs={"cluster": Action.ADMIN},
    status=204,
    answers={200: dry_run_answer(DeletedKeyDocument)},
    problems=(409,),
    by_each_node=True,
)
async def revoke_key(
    name: str, key_id: str, services: WithServices, dry_run: WithDryRun = None
) -> Response:
    """It works no more, on this node at once, on all within two seconds; also in requests that wait
    and in streams."""
    tries = is_dry_run(dry_run)
    await services.metadata.principals.revoke(name, key_id, is_dry_run=tries)
    if not tries:
        await services.metadata.principals.refresh()
    return deleted(DeletedKeyDocument(id=key_id, dry_run=tries))


def _expiry(text: str | None, now_ms: int) -> TimestampMs | None:
    if text is None:
        return None
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequest(f"expires: {error}", pointer="/expires") from None
    if not 0 < duration_ms <= KEY_EXPIRES_MS_MAX:
        raise InvalidRequest("a key works for more than 0 and at most 10 years", pointer="/expires")
    return TimestampMs(now_ms + duration_ms)
