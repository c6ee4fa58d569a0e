"""Pausing and resuming consumer groups."""

from fastapi import APIRouter

from app.api.dependencies import WithServices
from app.api.documentation import problem_responses
from app.api.schemas import GroupDocument

router = APIRouter(tags=["groups"])


@router.post(
    "/v1/groups/{group}:pause",
    operation_id="pause_group",
    summary="Hand out nothing to a group",
    responses=problem_responses(404),
)
async def pause_group(group: str, services: WithServices) -> GroupDocument:
    """Receives of the group get nothing, and say so, until it is resumed; settling goes on."""
    return GroupDocument.of(await services.broker.flow.pause(group))


@router.post(
    "/v1/groups/{group}:resume",
    operation_id="resume_group",
    summary="Go on with a paused group",
    responses=problem_responses(404),
)
async def resume_group(group: str, services: WithServices) -> GroupDocument:
    """Receives that wait get messages at once."""
    return GroupDocument.of(await services.broker.flow.resume(group))
