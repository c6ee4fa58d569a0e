"""Pausing and resuming consumer groups."""

from fastapi import APIRouter

from app.api.control.dependencies import WithServices
from app.api.control.documentation import problem_responses
from app.api.control.schemas.change_documents import GroupChangeDocument
from app.api.control.schemas.group_documents import consumption_states
from app.api.http.conditions import WithDryRun, is_dry_run

router = APIRouter(tags=["groups"])


@router.post(
    "/v1/groups/{group}:pause",
    operation_id="pause_group",
    summary="Hand out nothing to a group",
    responses=problem_responses(404),
)
async def pause_group(
    group: str, services: WithServices, dry_run: WithDryRun = None
) -> GroupChangeDocument:
    """Receives of the group get nothing, and say so, until it is resumed; settling goes on."""
    change = await services.broker.group_pause.pause(group, is_dry_run=is_dry_run(dry_run))
    return GroupChangeDocument.of_change(change, consumption_states(services, group))


@router.post(
    "/v1/groups/{group}:resume",
    operation_id="resume_group",
    summary="Go on with a paused group",
    responses=problem_responses(404),
)
async def resume_group(
    group: str, services: WithServices, dry_run: WithDryRun = None
) -> GroupChangeDocument:
    """Receives that wait get messages at once."""
    change = await services.broker.group_pause.resume(group, is_dry_run=is_dry_run(dry_run))
    return GroupChangeDocument.of_change(change, consumption_states(services, group))
