"""Roles, and policies: who may or may not do what to which names."""

from typing import Annotated, Literal, Self

from fastapi import Depends, Response
from pydantic import Field

from app.api.control.dependencies import Services, WithAccess, WithPageSize, WithServices, json_body
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.schemas import AnswerModel, DryRunMember, RequestModel
from app.api.http.conditions import WithTerms, etag_of
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer, Body
from app.domain.access.accounts import StoredPolicy
from app.domain.access.policies import (
    Effect,
    Policy,
    SubjectKind,
    check_namespace,
    read_actions,
    read_pattern,
    read_subject,
)
from app.domain.access.policy_warnings import AccessFacts
from app.domain.access.roles import RIGHTS, ROLES
from app.domain.limits import PATTERNS_OF_A_PRINCIPAL_MAX
from app.domain.names import check_name

router = OperationRouter("access")


class PolicyBody(RequestModel):
    """A policy: all of it is replaced."""

    subject: str = Field(description="whom it is about: principal:NAME or role:NAME")
    effect: Literal["ALLOW", "DENY"] = Field(
        default="ALLOW", description="what a DENY matches no ALLOW allows"
    )
    actions: list[str] = Field(
        min_length=1, description="of PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST, ADMIN"
    )
    resources: list[str] = Field(
        min_length=1,
        max_length=PATTERNS_OF_A_PRINCIPAL_MAX,
        description="topic:orders, topic:orders-*, topic:*; so for group and producer; cluster",
    )
    namespace: str = Field(
        default="", description="where the names are; empty: the default one, `*`: in each"
    )

    def policy(self, name: str) -> Policy:
        """Raises `InvalidRequest` for what is written wrongly."""
        return Policy(
            check_name("policy", name),
            read_subject(self.subject),
            Effect(self.effect),
            read_actions(self.actions),
            tuple(map(read_pattern, dict.fromkeys(self.resources))),
            check_namespace(self.namespace),
        )


class PolicyDocument(AnswerModel):
    """A policy. `version` is also its ETag."""

    name: str = Field(description="Its name", examples=["billing-sends"])
    subject: str = Field(description="Whom it is about", examples=["principal:billing"])
    effect: Effect = Field(description="What a DENY matches no ALLOW allows")
    actions: list[str] = Field(description="What it is about", examples=[["PUB"]])
    resources: list[str] = Field(description="On what", examples=[["topic:payments-*"]])
    namespace: str = Field(description="Where the names are; empty: the default one; `*`: in each")
    created_ms: int = Field(description="When it was made, epoch milliseconds")
    version: int = Field(description="of who may do what, at its last change")

    @classmethod
    def of(cls, stored: StoredPolicy) -> Self:
        shown = {"created_ms": stored.created_ms, "version": stored.version}
        return cls.model_validate({**stored.policy.shown(), **shown})


class PolicyChangeDocument(DryRunMember, PolicyDocument):
    """A policy after a change, or as it would be."""

    warnings: list[str] = Field(description="What is allowed and does not look intended")

    @classmethod
    def of_change(
        cls, stored: StoredPolicy, warnings: list[str], *, is_dry_run: bool
    ) -> "PolicyChangeDocument":
        document = PolicyDocument.of(stored).model_dump()
        return cls(**document, warnings=warnings, dry_run=is_dry_run)


class PolicyList(AnswerModel):
    """A page of policies by name."""

    policies: list[PolicyDocument] = Field(description="By name")
    next_page_token: str | None = Field(description="For the next page; null on the last one")


class RoleDocument(AnswerModel):
    """A role, and what it allows by kind of resource."""

    name: str = Field(description="Its name", examples=["producer"])
    rights: dict[str, list[str]] = Field(description="Actions by kind of resource")


class RoleList(AnswerModel):
    """The roles that are there without any policy."""

    roles: list[RoleDocument] = Field(description="All of them")


@router.serve(
    "GET /v1/roles",
    "The roles that are there, and what each allows",
    needs={"service": Action.GET},
    by_each_node=True,
)
async def list_roles(access: WithAccess) -> RoleList:
    """Whoever has a role may do this to all names, or to those that it was given."""
    access.for_anybody()
    return RoleList(
        roles=[
            RoleDocument(
                name=name,
                rights={
                    str(kind): [str(each) for each in Action if each in actions]
                    for kind, actions in RIGHTS[role].items()
                },
            )
            for name, role in ROLES.items()
        ]
    )


@router.serve(
    "GET /v1/policies", "List policies", needs={"cluster": Action.ADMIN}, by_each_node=True
)
async def list_policies(
    services: WithServices, page_size: WithPageSize, prefix: str = "", page_token: str | None = None
) -> PolicyList:
    """Policies by name, a page at a time."""
    page = await services.metadata.policies.listed(
        prefix=prefix, page_size=page_size, page_token=page_token
    )
    found = [PolicyDocument.of(each) for each in page.items]
    return PolicyList(policies=found, next_page_token=page.next_page_token)


@router.serve(
    "GET /v1/policies/{name}",
    "Read a policy",
    needs={"cluster": Action.ADMIN},
    answers={200: Answer(headers=ETAG_HEADER)},
    by_each_node=True,
)
async def get_policy(name: str, services: WithServices, response: Response) -> PolicyDocument:
    """The policy."""
    found = await services.metadata.policies.get(name)
    response.headers["ETag"] = etag_of(found.version)
    return PolicyDocument.of(found)


@router.serve(
    "PUT /v1/policies/{name}",
    "Make a policy, or replace it",
    needs={"cluster": Action.ADMIN},
    body=Body(
        PolicyBody,
        required=True,
        examples={
            "let a team send": {
                "subject": "principal:billing",
                "actions": ["PUB"],
                "resources": ["topic:payments-*"],
            },
            "keep a topic from everybody with a role": {
                "subject": "role:viewer",
                "effect": "DENY",
                "actions": ["GET", "LIST"],
                "resources": ["topic:payroll"],
            },
        },
    ),
    answers={
        200: Answer("It was there", headers=ETAG_HEADER),
        201: Answer("It was made", PolicyChangeDocument, ETAG_HEADER),
    },
    problems=(409, 412),
    by_each_node=True,
)
async def put_policy(
    name: str,
    services: WithServices,
    body: Annotated[PolicyBody, Depends(json_body(PolicyBody))],
    terms: WithTerms,
    response: Response,
) -> PolicyChangeDocument:
    """In force on this node at once, on all within two seconds. One that keeps the last
    administrator from being one is refused."""
    policy = body.policy(name)
    changed = await services.metadata.policies.put(policy, terms)
    if not terms.is_dry_run:
        response.status_code = 201 if changed.is_made else 200
        response.headers["ETag"] = etag_of(changed.after.version)
    warnings = _warnings(services, policy)
    return PolicyChangeDocument.of_change(changed.after, warnings, is_dry_run=terms.is_dry_run)


def _warnings(services: Services, policy: Policy) -> list[str]:
    principals = services.metadata.principals.keyring.principals
    found = []
    if policy.subject.kind is SubjectKind.PRINCIPAL and policy.subject.name not in principals:
        found.append(f"there is no principal {policy.subject.name!r}")
    elif policy.subject.kind is SubjectKind.ROLE and not any(
        policy.subject.name in each.roles for each in principals.values()
    ):
        found.append(f"no principal has the role {policy.subject.name!r}")
    denies = policy.effect is Effect.DENY
    return found + AccessFacts.of(
        services.metadata.snapshot, services.metadata.principals.keyring
    ).warnings_of(policy.patterns, policy.namespace, policy.subject, denies=denies)


@router.serve(
    "DELETE /v1/policies/{name}",
    "Take a policy away",
    needs={"cluster": Action.ADMIN},
    status=204,
    answers={200: dry_run_answer(PolicyChangeDocument)},
    problems=(409, 412),
    by_each_node=True,
)
async def delete_policy(name: str, services: WithServices, terms: WithTerms) -> Response:
    """In force on this node at once, on all within two seconds."""
    removed = await services.metadata.policies.remove(name, terms)
    return deleted(PolicyChangeDocument.of_change(removed, [], is_dry_run=terms.is_dry_run))
