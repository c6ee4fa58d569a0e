"""Who the caller is, and whether it may do something, with the policy that says so."""

from functools import partial
from typing import Annotated

from fastapi import Query
from pydantic import Field

from app.api.control.dependencies import WithAccess, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.names import GroupName, ProducerName, TopicName
from app.api.control.schemas.schemas import AnswerModel
from app.api.operations.operation import Action
from app.domain.access.actions import CLUSTER, Kind, Target
from app.domain.access.caller import target_of
from app.domain.access.evaluator import Principal
from app.domain.errors import InvalidRequest

router = OperationRouter("access")


class RuleDocument(AnswerModel):
    """The policy that decides."""

    policy: str = Field(description="its name; `role:principal:kind` of what a role allows")
    effect: str = Field(description="ALLOW or DENY")


class WhoAmI(AnswerModel):
    """The caller, or whom it asks about. `allowed` and `rule` answer what was asked; null without a
    question."""

    principal: str | None = Field(description="null: this node asks nobody for a name")
    roles: list[str] = Field(description="Its roles")
    resources: list[str] = Field(description="what the roles are kept to; none: all names")
    namespace: str = Field(description="the one that it is bound to; empty: none")
    allowed_from: list[str] = Field(
        description="networks that it is let in from; none: anywhere", examples=[["10.0.0.0/8"]]
    )
    allowed: bool | None = Field(description="Whether it may; null: nothing was asked")
    rule: RuleDocument | None = Field(
        description="null: no policy is about it, which is a denial; or nobody is asked"
    )


@router.serve(
    "GET /v1/whoami",
    "Who the caller is, and whether it may do something",
    needs={"service": Action.GET},
    by_each_node=True,
)
async def get_whoami(
    access: WithAccess,
    services: WithServices,
    action: Annotated[
        Action | None, Query(description="may I? With topic, group, producer, or none: the cluster")
    ] = None,
    topic: TopicName | None = None,
    group: GroupName | None = None,
    producer: ProducerName | None = None,
    principal: Annotated[
        str | None, Query(description="ask about this one, as an administrator")
    ] = None,
) -> WhoAmI:
    """With `action` and at most one of topic, group and producer: whether the caller may, or the
    principal that an administrator names."""
    access.for_anybody()
    keyring = services.metadata.principals.keyring
    name, known = access.caller.name, access.caller.principal
    decide = access.caller.decide
    if principal is not None:
        access.require(Action.ADMIN, Kind.CLUSTER, "")
        if principal not in keyring.principals:
            await services.metadata.principals.get(principal)  # raises when there is none
        known = keyring.principals.get(principal) or Principal(principal)
        name, decide = principal, partial(keyring.evaluator.decide, known)
    named = {Kind.TOPIC: topic, Kind.GROUP: group, Kind.PRODUCER: producer}
    given = {kind: text for kind, text in named.items() if text is not None}
    if len(given) > 1 or (given and action is None):
        raise InvalidRequest(
            "one question at a time: an action, and one of topic, group and producer",
            hint="for instance ?action=PUB&topic=orders",
        )
    allowed, rule = None, None
    if action is not None:
        targets: list[Target] = [target_of(kind, text) for kind, text in given.items()]
        decision = decide(action, targets[0] if targets else CLUSTER)
        allowed = decision.is_allowed
        if decision.policy is not None:
            rule = RuleDocument(policy=decision.policy.name, effect=str(decision.policy.effect))
    return WhoAmI(
        principal=name,
        roles=[] if known is None else list(known.roles),
        resources=[] if known is None else [str(each) for each in known.patterns],
        namespace="" if known is None else known.namespace,
        allowed_from=[] if known is None else list(known.allowed_from),
        allowed=allowed,
        rule=rule,
    )
