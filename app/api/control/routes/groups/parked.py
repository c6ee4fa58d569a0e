"""Blocked keys of groups in order: list them, release them."""

from typing import Annotated, Self

from fastapi import Depends

from app.api.aims import merges
from app.api.aims.across import InEach, Together
from app.api.control.dependencies import WithAccess, WithServices, json_body
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.names import TopicName
from app.api.control.schemas.schemas import (
    AnswerModel,
    Count,
    DryRunMember,
    MergedModel,
    RequestModel,
)
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.operations.operation import Action, Body
from app.broker.failures.blocked_keys import BlockedKey, Release
from app.domain.access.actions import Kind
from app.domain.handles.receipt import RETRY_QUEUE_ID

router = OperationRouter("groups")


class ParkedDocument(AnswerModel):
    """A key that is blocked, and the message that blocks it. `queue_id` 4294967295 stands for the
    group's retries of the topic; `sharding_key` is null for messages without one."""

    topic: str
    queue_id: int
    queue_offset: int
    sharding_key: str | None
    attempts: int
    reason: str
    since_ms: int

    @classmethod
    def of(cls, parked: BlockedKey) -> Self:
        message = parked.message
        return cls(
            topic=parked.topic,
            queue_id=parked.queue_id,
            queue_offset=message.offset,
            sharding_key=message.key,
            attempts=message.attempts,
            reason=message.reason,
            since_ms=message.since_ms,
        )


class ReleasedDocument(DryRunMember, ParkedDocument):
    """What was released, or would be."""


class ParkedList(MergedModel):
    """All parked keys of a group."""

    parked: list[ParkedDocument]


class ReleaseBody(RequestModel):
    """Which message, and what becomes of it; with retry its attempts are counted anew."""

    topic: TopicName
    queue_id: Count
    queue_offset: Count
    action: Release


assert RETRY_QUEUE_ID == 4_294_967_295, "the text above names it"


@router.serve(
    "GET /v1/groups/{group}/parked",
    "Blocked keys of a group in order",
    needs={"group": Action.GET},
    across=Together(merges.parked),
)
async def list_parked(group: str, services: WithServices, access: WithAccess) -> ParkedList:
    """Keys whose message was delivered as often as it may be, with `on_exhausted: park`."""
    parked = services.broker.blocked_keys.parked(group)
    return ParkedList(
        parked=[ParkedDocument.of(each) for each in parked if access.sees_topic(each.topic)]
    )


@router.serve(
    "POST /v1/groups/{group}/parked:release",
    "Unblock a key of a group in order",
    needs={"group": Action.UPDATE, "topic": Action.GET},
    body=Body(
        ReleaseBody,
        required=True,
        examples={
            "try it again": {
                "topic": "orders",
                "queue_id": 0,
                "queue_offset": 41,
                "action": "retry",
            }
        },
    ),
    across=InEach(merges.any_of),
)
async def release_parked(
    group: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[ReleaseBody, Depends(json_body(ReleaseBody))],
    dry_run: WithDryRun = None,
) -> ReleasedDocument:
    """Let the key go on; the answer is what was parked."""
    access.require(Action.GET, Kind.TOPIC, body.topic)
    tries = is_dry_run(dry_run)
    released = await services.broker.blocked_keys.release(
        group, body.topic, body.queue_id, body.queue_offset, body.action, is_dry_run=tries
    )
    return ReleasedDocument(**ParkedDocument.of(released).model_dump(), dry_run=tries)
