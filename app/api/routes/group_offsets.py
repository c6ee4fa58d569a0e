"""Offsets of consumer groups: read, commit, reset, forget, and named snapshots of them."""

from typing import Annotated

from fastapi import APIRouter, Depends

from app.api.dependencies import WithServices, json_body
from app.api.documentation import json_request, problem_responses
from app.api.offset_schemas import (
    AllGroupOffsets,
    CommitBody,
    ResetAnswer,
    ResetBody,
    RestoreBody,
    SnapshotDocument,
    SnapshotList,
    TopicQueueOffset,
)
from app.api.schemas import GroupOffsets
from app.broker.results import QueuePosition

router = APIRouter(tags=["offsets"])


@router.get(
    "/v1/groups/{group}/offsets",
    operation_id="list_group_offsets",
    summary="Committed offsets of a group in all topics",
    responses=problem_responses(404),
)
async def list_group_offsets(group: str, services: WithServices) -> AllGroupOffsets:
    """Per topic and queue, the offset below which everything is done for the group."""
    rows = await services.broker.group_positions.all_committed(group)
    return AllGroupOffsets(group=group, offsets=[TopicQueueOffset.at(row) for row in rows])


@router.get(
    "/v1/groups/{group}/offsets/{topic}",
    operation_id="get_group_offsets",
    summary="Committed offsets of a group in a topic",
    responses=problem_responses(404),
)
async def get_group_offsets(group: str, topic: str, services: WithServices) -> GroupOffsets:
    """Per queue, the offset below which everything is done for the group."""
    return GroupOffsets.of(
        group, topic, await services.broker.group_positions.committed(group, topic)
    )


@router.put(
    "/v1/groups/{group}/offsets/{topic}",
    operation_id="commit_group_offsets",
    summary="Commit offsets of a group in a topic",
    responses=problem_responses(404, 409, 413, 415, 416),
    openapi_extra=json_request(CommitBody, required=True),
)
async def commit_group_offsets(
    group: str,
    topic: str,
    services: WithServices,
    body: Annotated[CommitBody, Depends(json_body(CommitBody))],
) -> GroupOffsets:
    """Commit, and answer what is committed now. Offsets never go back unless `force` says so.

    Queues that a member owns are committed by that member only, at the present generation.
    """
    rows = [QueuePosition(entry.queue_id, entry.offset) for entry in body.offsets]
    committed = await services.broker.commit_offsets(
        group, topic, rows, force=body.force, committer=body.committer
    )
    return GroupOffsets.of(group, topic, committed)


@router.delete(
    "/v1/groups/{group}/offsets/{topic}",
    operation_id="delete_group_offsets",
    summary="Forget a group's offsets in a topic",
    status_code=204,
    responses=problem_responses(404, 409),
)
async def delete_group_offsets(group: str, topic: str, services: WithServices) -> None:
    """For a subscription that nobody uses any more; refused while a member reads the topic."""
    await services.broker.group_positions.delete(group, topic)


@router.post(
    "/v1/groups/{group}/offsets/{topic}:reset",
    operation_id="reset_group_offsets",
    summary="Set a group's offsets in a topic",
    responses=problem_responses(404, 409, 413, 415),
    openapi_extra=json_request(ResetBody, required=True),
)
async def reset_group_offsets(
    group: str,
    topic: str,
    services: WithServices,
    body: Annotated[ResetBody, Depends(json_body(ResetBody))],
) -> ResetAnswer:
    """Backwards or forwards, also while the group is at work: leases end, members are told."""
    result = await services.broker.group_positions.reset(group, topic, body.request())
    return ResetAnswer.of(group, body.dry_run, result)


@router.post(
    "/v1/groups/{group}/offsets:reset",
    operation_id="reset_all_group_offsets",
    summary="Set a group's offsets in all its topics",
    responses=problem_responses(404, 409, 413, 415),
    openapi_extra=json_request(ResetBody, required=True),
)
async def reset_all_group_offsets(
    group: str,
    services: WithServices,
    body: Annotated[ResetBody, Depends(json_body(ResetBody))],
) -> ResetAnswer:
    """As for one topic, in every topic where the group has offsets or members."""
    result = await services.broker.group_positions.reset(group, None, body.request())
    return ResetAnswer.of(group, body.dry_run, result)


# --- snapshots


@router.put(
    "/v1/groups/{group}/snapshots/{name}",
    operation_id="put_snapshot",
    summary="Keep the group's offsets under a name",
    status_code=201,
    responses=problem_responses(404, 409),
)
async def put_snapshot(group: str, name: str, services: WithServices) -> SnapshotDocument:
    """A name is used once: a snapshot never changes. At most `offset_snapshots_per_group_max`."""
    return SnapshotDocument.of(await services.broker.group_positions.take_snapshot(group, name))


@router.get(
    "/v1/groups/{group}/snapshots",
    operation_id="list_snapshots",
    summary="Snapshots of a group's offsets",
    responses=problem_responses(404),
)
async def list_snapshots(group: str, services: WithServices) -> SnapshotList:
    """All of them, by name."""
    return SnapshotList.of(group, await services.broker.group_positions.snapshots(group))


@router.get(
    "/v1/groups/{group}/snapshots/{name}",
    operation_id="get_snapshot",
    summary="One snapshot of a group's offsets",
    responses=problem_responses(404),
)
async def get_snapshot(group: str, name: str, services: WithServices) -> SnapshotDocument:
    """The offsets as they were."""
    return SnapshotDocument.of(await services.broker.group_positions.snapshot(group, name))


@router.post(
    "/v1/groups/{group}/snapshots/{name}:restore",
    operation_id="restore_snapshot",
    summary="Set a group's offsets to a snapshot",
    responses=problem_responses(404, 409, 413, 415),
    openapi_extra=json_request(RestoreBody),
)
async def restore_snapshot(
    group: str,
    name: str,
    services: WithServices,
    body: Annotated[RestoreBody, Depends(json_body(RestoreBody))],
) -> ResetAnswer:
    """A reset to what was; queues that the snapshot does not have stay as they are."""
    result = await services.broker.group_positions.restore(group, name, is_dry_run=body.dry_run)
    return ResetAnswer.of(group, body.dry_run, result)


@router.delete(
    "/v1/groups/{group}/snapshots/{name}",
    operation_id="delete_snapshot",
    summary="Forget a snapshot of a group's offsets",
    status_code=204,
    responses=problem_responses(404),
)
async def delete_snapshot(group: str, name: str, services: WithServices) -> None:
    """The offsets themselves stay as they are."""
    await services.broker.group_positions.delete_snapshot(group, name)
