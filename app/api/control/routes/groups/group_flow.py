"""Pausing and resuming consumer groups."""

from app.api.control.dependencies import WithAccess, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import GroupChangeDocument
from app.api.control.schemas.group_documents import consumption_states
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.operations.operation import Action

router = OperationRouter("groups")


@router.serve(
    "POST /v1/groups/{group}:pause",
    "Hand out nothing to a group",
    needs={"group": Action.UPDATE},
)
async def pause_group(
    group: str, services: WithServices, access: WithAccess, dry_run: WithDryRun = None
) -> GroupChangeDocument:
    """Receives of the group get nothing, and say so, until it is resumed; settling goes on."""
    change = await services.broker.group_pause.pause(group, is_dry_run=is_dry_run(dry_run))
    return GroupChangeDocument.of_change(change, consumption_states(services, access, group))


@router.serve(
    "POST /v1/groups/{group}:resume",
    "Go on with a paused group",
    needs={"group": Action.UPDATE},
)
async def resume_group(
    group: str, services: WithServices, access: WithAccess, dry_run: WithDryRun = None
) -> GroupChangeDocument:
    """Receives that wait get messages at once."""
    change = await services.broker.group_pause.resume(group, is_dry_run=is_dry_run(dry_run))
    return GroupChangeDocument.of_change(change, consumption_states(services, access, group))
