"""Who the caller is, and whether it may do something, with the policy that says so."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from app.api.control.dependencies import WithAccess
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.names import GroupName, ProducerName, TopicName
from app.api.control.schemas.schemas import AnswerModel
from app.api.operations.operation import Action
from app.domain.access.actions import CLUSTER, Kind, Target
from app.domain.access.caller import target_of
from app.domain.errors import InvalidRequest

router = OperationRouter("access")


class RuleDocument(AnswerModel):
    """The policy that decides."""

    policy: str = Field(description="its name; `role:principal:kind` of what a role allows")
    effect: str = Field(description="ALLOW or DENY")


class WhoAmI(AnswerModel):
    """The caller. `allowed` and `rule` answer what was asked; null without a question."""

    principal: str | None = Field(description="null: this node asks nobody for a name")
    roles: list[str] = Field(description="Its roles")
    namespace: str = Field(description="the one that it is bound to; empty: none")
    allowed: bool | None = Field(description="Whether it may; null: nothing was asked")
    rule: RuleDocument | None = Field(
        description="null: no policy is about it, which is a denial; or nobody is asked"
    )


@router.serve(
    "GET /v1/whoami",
    "Who the caller is, and whether it may do something",
    needs={"service": Action.GET},
)
async def get_whoami(
    access: WithAccess,
    action: Annotated[
        Action | None, Query(description="may I? With topic, group, producer, or none: the cluster")
    ] = None,
    topic: TopicName | None = None,
    group: GroupName | None = None,
    producer: ProducerName | None = None,
) -> WhoAmI:
    """With `action` and at most one of topic, group and producer: whether the caller may."""
    access.for_anybody()
    caller = access.caller
    principal = caller.principal
    named = {Kind.TOPIC: topic, Kind.GROUP: group, Kind.PRODUCER: producer}
    given = {kind: name for kind, name in named.items() if name is not None}
    if len(given) > 1 or (given and action is None):
        raise InvalidRequest(
            "one question at a time: an action, and one of topic, group and producer",
            hint="for instance ?action=PUB&topic=orders",
        )
    allowed, rule = None, None
    if action is not None:
        targets: list[Target] = [target_of(kind, name) for kind, name in given.items()]
        decision = caller.decide(action, targets[0] if targets else CLUSTER)
        allowed = decision.is_allowed
        if decision.policy is not None:
            rule = RuleDocument(policy=decision.policy.name, effect=str(decision.policy.effect))
    return WhoAmI(
        principal=caller.name,
        roles=[] if principal is None else list(principal.roles),
        namespace="" if principal is None else principal.namespace,
        allowed=allowed,
        rule=rule,
    )
