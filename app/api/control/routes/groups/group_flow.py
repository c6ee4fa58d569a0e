"""Pausing and resuming consumer groups."""

from fastapi import Response

from app.api.control.dependencies import Services, WithAccess, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import GroupChangeDocument
from app.api.control.schemas.group_documents import consumption_states
from app.api.http.conditions import WithPatchTerms, etag_of
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer
from app.broker.ports import Group
from app.domain.changes.effects import SettingsChange

router = OperationRouter("groups")


@router.serve(
    "POST /v1/groups/{group}:pause",
    "Hand out nothing to a group",
    needs={"group": Action.UPDATE},
    answers={200: Answer(headers=ETAG_HEADER)},
    problems=(412,),
)
async def pause_group(
    group: str,
    services: WithServices,
    access: WithAccess,
    terms: WithPatchTerms,
    response: Response,
) -> GroupChangeDocument:
    """Receives of the group get nothing, and say so, until it is resumed; settling goes on."""
    change = await services.broker.group_pause.pause(group, terms)
    return _answer(change, services, access, response)


@router.serve(
    "POST /v1/groups/{group}:resume",
    "Go on with a paused group",
    needs={"group": Action.UPDATE},
    answers={200: Answer(headers=ETAG_HEADER)},
    problems=(412,),
)
async def resume_group(
    group: str,
    services: WithServices,
    access: WithAccess,
    terms: WithPatchTerms,
    response: Response,
) -> GroupChangeDocument:
    """Receives that wait get messages at once."""
    change = await services.broker.group_pause.resume(group, terms)
    return _answer(change, services, access, response)


def _answer(
    change: SettingsChange[Group], services: Services, access: WithAccess, response: Response
) -> GroupChangeDocument:
    if not change.is_dry_run:
        response.headers["ETag"] = etag_of(change.after.version)
    states = consumption_states(services, access, change.after.name)
    return GroupChangeDocument.of_change(change, states)
