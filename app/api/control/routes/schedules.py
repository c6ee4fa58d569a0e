"""Schedules: messages that are sent again and again, by cron expressions."""

from typing import Annotated

from fastapi import Depends, Query, Response

from app.api.control.dependencies import Services, WithAccess, WithPageSize, WithServices, json_body
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
from app.api.naming.request_namespace import current_namespace, shown, stored
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer, Body
from app.domain.access.actions import Kind
from app.domain.access.refusals import NotPermitted
from app.domain.changes.conditions import Changed, Terms
from app.domain.errors import CurlewError, StateConflict
from app.domain.schedules import Schedule, missing_schedule

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
    access: WithAccess,
    body: Annotated[ScheduleBody, Depends(json_body(ScheduleBody))],
    terms: WithTerms,
    response: Response,
) -> ScheduleChangeDocument:
    """Make the schedule, or merge the settings into those that it has; what is left out stays.

    Due times are claimed five seconds ahead: a change comes too late for those.
    """
    return await _change(services, access, name, body, terms, response)


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
    access: WithAccess,
    body: Annotated[SchedulePatch, Depends(json_body(SchedulePatch, require=require_merge_patch))],
    terms: WithPatchTerms,
    response: Response,
) -> ScheduleChangeDocument:
    """A JSON merge patch (RFC 7396), into the message, too; null is the default."""
    return await _change(services, access, name, body, terms, response)


async def _change(
    services: Services,
    access: WithAccess,
    name: str,
    body: ScheduleBody | SchedulePatch,
    terms: Terms,
    response: Response,
) -> ScheduleChangeDocument:
    schedules, named = services.broker.schedules, body.named()
    access.for_anybody()
    topic = named.get("topic")
    if isinstance(topic, str):
        access.require(Action.PUB, Kind.TOPIC, topic)
    if access.caller.is_of_token:
        raise NotPermitted(
            "a schedule fires with rights of a principal of this cluster, and a token has its own",
            hint="make or change it with an API key",
        )

    def check(present: Schedule | None) -> None:
        if present is not None and not _may(access, present):
            raise missing_schedule(name) if terms.must_exist else _taken(name)

    try:
        changed = await schedules.change(name, named, terms, owner=access.caller.name, check=check)
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
async def get_schedule(
    name: str, services: WithServices, access: WithAccess, response: Response
) -> ScheduleDocument:
    """The schedule as it is kept."""
    schedule = await _find(services, access, name)
    response.headers["ETag"] = etag_of(schedule.version)
    return ScheduleDocument.of(schedule, services.broker.schedules)


@router.serve(
    "HEAD /v1/schedules/{name}",
    "Whether the schedule is there, and its version",
    needs={"schedule": Action.PUB},
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def head_schedule(name: str, services: WithServices, access: WithAccess) -> Response:
    """The headers of `GET`."""
    view = await _find(services, access, name)
    return Response(headers={"ETag": etag_of(view.version)})


@router.serve(
    "GET /v1/schedules",
    "List schedules",
    needs={"schedule": Action.LIST},
)
async def list_schedules(
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    page_token: Annotated[str | None, Query(description="name of the last schedule seen")] = None,
) -> ScheduleList:
    """Schedules by name, a page at a time; those to whose topic the caller may send. Of large ones
    a page has fewer than `page_size`."""
    access.for_anybody()
    after = stored("schedule", page_token) if page_token else ""
    seen, has_more = await _seen_behind(services, access, after, page_size)
    if has_more:  # of those that the caller may know of
        has_more = bool((await _seen_behind(services, access, seen[-1].name, page_size))[0])
    return ScheduleList(
        schedules=[ScheduleDocument.of(each, services.broker.schedules) for each in seen],
        next_page_token=shown(seen[-1].name) if has_more else None,
    )


async def _seen_behind(
    services: Services, access: WithAccess, after: str, most: int
) -> tuple[list[Schedule], bool]:
    """The next that the caller may know of, and whether others follow, of whomever; without any
    there are no more of them."""
    seen: list[Schedule] = []
    has_more = True
    while has_more and not seen:
        found, has_more = await services.metadata.schedules.load(after, most, current_namespace())
        after = found[-1].name if found else after
        seen = [each for each in found if _may(access, each)]
    return seen, has_more


@router.serve(
    "DELETE /v1/schedules/{name}",
    "Delete a schedule",
    needs={"schedule": Action.PUB},
    status=204,
    answers={200: dry_run_answer(ScheduleChangeDocument)},
    problems=(412,),
)
async def delete_schedule(
    name: str, services: WithServices, access: WithAccess, terms: WithTerms
) -> Response:
    """What was claimed already is still sent."""
    access.for_anybody()

    def check(present: Schedule) -> None:
        if not _may(access, present):
            raise missing_schedule(name)

    removed = await services.metadata.schedules.remove(name, terms, check=check)
    unchanged: Changed[Schedule] = Changed(removed, removed)
    return deleted(
        ScheduleChangeDocument.of_change(
            unchanged, services.broker.schedules, is_dry_run=terms.is_dry_run
        )
    )


def _may(access: WithAccess, schedule: Schedule) -> bool:
    """Whether the caller may send what it sends."""
    return access.may(Action.PUB, Kind.TOPIC, schedule.settings.topic)


async def _find(services: Services, access: WithAccess, name: str) -> Schedule:
    """Looked up first: without the right it is not there."""
    access.for_anybody()
    found = await services.metadata.schedules.get(name)
    if not _may(access, found):
        raise missing_schedule(name)
    return found


def _taken(name: str) -> StateConflict:
    """All that a caller is told of a name that another's schedule has."""
    return StateConflict(f"the name {name!r} is taken", hint="choose another")
