"""Schedules: messages that are sent again and again, by cron expressions."""

from typing import Annotated

from fastapi import Depends, Query, Response

from app.api.control.dependencies import Services, WithServices, json_body
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.schedule_schemas import (
    ScheduleBody,
    ScheduleChangeDocument,
    ScheduleDocument,
    ScheduleList,
    SchedulePatch,
    point_into_message,
)
from app.api.formats.media import JSON, MERGE_PATCH, require_merge_patch
from app.api.http.conditions import WithPatchTerms, WithTerms, etag_of
from app.api.http.parameters import check_page_size
from app.api.naming.request_namespace import current_namespace, shown, stored
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer, Body
from app.domain.changes.conditions import Changed, Terms
from app.domain.errors import CurlewError
from app.domain.schedules import Schedule

router = OperationRouter("schedules")


@router.serve(
    "PUT /v1/schedules/{name}",
    "Make a schedule, or change what is named of it",
    needs={"topic": Action.PUB, "schedule": Action.PUB},
    body=Body(
        ScheduleBody,
        examples={
            "make a schedule": {
                "cron": "0 3 * * MON-FRI",
                "timezone": "Europe/Berlin",
                "topic": "orders",
                "message": {"body": {"job": "report"}, "tag": "nightly"},
            },
            "another time": {"cron": "30 3 * * *"},
        },
    ),
    answers={
        200: Answer("The schedule was there; see `changed`", headers=ETAG_HEADER),
        201: Answer("The schedule was made", ScheduleChangeDocument, ETAG_HEADER),
    },
    problems=(409, 412, 431),
)
async def put_schedule(
    name: str,
    services: WithServices,
    body: Annotated[ScheduleBody, Depends(json_body(ScheduleBody))],
    terms: WithTerms,
    response: Response,
) -> ScheduleChangeDocument:
    """Make the schedule, or merge the settings into those that it has; what is left out stays.

    Due times are claimed five seconds ahead: a change comes too late for those.
    """
    return await _change(services, name, body, terms, response)


@router.serve(
    "PATCH /v1/schedules/{name}",
    "Change what is named of a schedule",
    needs={"topic": Action.PUB, "schedule": Action.PUB},
    body=Body(
        {MERGE_PATCH: SchedulePatch, JSON: SchedulePatch},
        examples={
            "pause it": {"paused": True},
            "another tag of its message": {"message": {"tag": "weekly"}},
        },
    ),
    answers={200: Answer("The schedule; see `changed`", headers=ETAG_HEADER)},
    problems=(409, 412, 431),
)
async def patch_schedule(
    name: str,
    services: WithServices,
    body: Annotated[SchedulePatch, Depends(json_body(SchedulePatch, require=require_merge_patch))],
    terms: WithPatchTerms,
    response: Response,
) -> ScheduleChangeDocument:
    """A JSON merge patch (RFC 7396), into the message, too; null is the default."""
    return await _change(services, name, body, terms, response)


async def _change(
    services: Services,
    name: str,
    body: ScheduleBody | SchedulePatch,
    terms: Terms,
    response: Response,
) -> ScheduleChangeDocument:
    schedules = services.broker.schedules
    try:
        changed = await schedules.change(name, body.named(), terms)
    except CurlewError as error:
        point_into_message(error)
        raise
    if not terms.is_dry_run:
        response.status_code = 201 if changed.is_made else 200
        response.headers["ETag"] = etag_of(changed.after.version)
    return ScheduleChangeDocument.of_change(changed, schedules, is_dry_run=terms.is_dry_run)


@router.serve(
    "GET /v1/schedules/{name}",
    "Read a schedule and its next due times",
    needs={"schedule": Action.PUB},
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def get_schedule(name: str, services: WithServices, response: Response) -> ScheduleDocument:
    """The schedule as it is kept."""
    schedule = await services.metadata.schedules.get(name)
    response.headers["ETag"] = etag_of(schedule.version)
    return ScheduleDocument.of(schedule, services.broker.schedules)


@router.serve(
    "HEAD /v1/schedules/{name}",
    "Whether the schedule is there, and its version",
    needs={"schedule": Action.PUB},
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def head_schedule(name: str, services: WithServices) -> Response:
    """The headers of `GET`."""
    view = await services.metadata.schedules.get(name)
    return Response(headers={"ETag": etag_of(view.version)})


@router.serve(
    "GET /v1/schedules",
    "List schedules",
    needs={"schedule": Action.LIST},
)
async def list_schedules(
    services: WithServices,
    page_size: Annotated[int, Query()] = 100,
    page_token: Annotated[str | None, Query(description="name of the last schedule seen")] = None,
) -> ScheduleList:
    """Schedules by name, a page at a time. Of large ones a page has fewer than `page_size`."""
    check_page_size(page_size, services.limits)
    after = stored("schedule", page_token) if page_token else ""
    found, has_more = await services.metadata.schedules.load(after, page_size, current_namespace())
    return ScheduleList(
        schedules=[ScheduleDocument.of(each, services.broker.schedules) for each in found],
        next_page_token=shown(found[-1].name) if has_more else None,
    )


@router.serve(
    "DELETE /v1/schedules/{name}",
    "Delete a schedule",
    needs={"schedule": Action.PUB},
    status=204,
    answers={200: dry_run_answer(ScheduleChangeDocument)},
    problems=(412,),
)
async def delete_schedule(name: str, services: WithServices, terms: WithTerms) -> Response:
    """What was claimed already is still sent."""
    removed = await services.metadata.schedules.remove(name, terms)
    unchanged: Changed[Schedule] = Changed(removed, removed)
    return deleted(
        ScheduleChangeDocument.of_change(
            unchanged, services.broker.schedules, is_dry_run=terms.is_dry_run
        )
    )
