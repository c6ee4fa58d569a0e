"""Schedules: messages that are sent again and again, by cron expressions."""

import base64
import binascii
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field, JsonValue, model_validator
from pydantic_core import to_json

from app.api.decoding import JSON_CONTENT_TYPE, TEXT_CONTENT_TYPE, is_header_text
from app.api.dependencies import IfVersion, WithServices, etag_of, json_body
from app.api.documentation import json_request, problem_responses
from app.api.rendering import body_members
from app.api.schemas import AnswerModel, RequestModel
from app.broker.schedules import Schedules
from app.domain.errors import IllegalPage
from app.domain.schedules import Missed, Schedule, ScheduleSettings

router = APIRouter(tags=["schedules"])
_ETAG_HEADER = {"ETag": {"description": "the version", "schema": {"type": "string"}}}


class ScheduledMessageBody(RequestModel):
    """The message. Exactly one of `json`, `text` and `body_base64` is given."""

    body: JsonValue = Field(default=None, description="any JSON but null")
    text: str | None = None
    body_base64: str | None = None
    tag: str | None = None
    keys: list[str] = Field(default_factory=list)
    sharding_key: str | None = None
    properties: dict[str, str] = Field(default_factory=dict)
    content_type: str | None = None

    @model_validator(mode="after")
    def _check_body(self) -> Self:
        given = [self.body is not None, self.text is not None, self.body_base64 is not None]
        if sum(given) != 1:
            raise ValueError("exactly one of body, text and body_base64 is needed")
        if self.content_type is not None and not is_header_text(self.content_type):
            raise ValueError("content_type is empty or not printable ASCII")
        self.content()
        return self

    def content(self) -> tuple[bytes, str | None]:
        """The bytes, and the content type that they have by themselves."""
        if self.text is not None:
            return self.text.encode(), TEXT_CONTENT_TYPE
        if self.body_base64 is not None:
            try:
                return base64.b64decode(self.body_base64, validate=True), None
            except binascii.Error as error:
                raise ValueError(f"body_base64: {error}") from error
        return to_json(self.body), JSON_CONTENT_TYPE


class ScheduleBody(RequestModel):
    """When, where to, and what."""

    cron: str = Field(description="minute hour day month weekday")
    timezone: str = Field(default="UTC", description="of the IANA database")
    topic: str
    message: ScheduledMessageBody
    missed: Missed = Field(
        default=Missed.FIRE_ONCE,
        strict=False,
        description="what becomes of due times that passed while no node was up",
    )
    paused: bool = False

    def settings(self) -> ScheduleSettings:
        message = self.message
        body, own_type = message.content()
        return ScheduleSettings(
            cron=self.cron,
            topic=self.topic,
            body=body,
            timezone=self.timezone,
            missed=self.missed,
            paused=self.paused,
            tag=message.tag,
            keys=tuple(message.keys),
            sharding_key=message.sharding_key,
            properties=message.properties,
            content_type=own_type if message.content_type is None else message.content_type,
        )


class ScheduledMessageDocument(AnswerModel):
    """The message of a schedule; one of the bodies is not null."""

    text: str | None
    body_base64: str | None
    tag: str | None
    keys: list[str]
    sharding_key: str | None
    properties: dict[str, str]
    content_type: str | None


class ScheduleDocument(AnswerModel):
    """A schedule. `next_due_times_ms` is empty while it is paused; `version` is also its ETag."""

    name: str
    cron: str
    timezone: str
    topic: str
    missed: Missed
    paused: bool
    message: ScheduledMessageDocument
    next_due_times_ms: list[int]
    created_ms: int
    updated_ms: int
    version: int

    @classmethod
    def of(cls, schedule: Schedule, schedules: Schedules) -> Self:
        settings = schedule.settings
        _, text, body_base64 = body_members(settings.body, None, force_base64=False)
        return cls(
            name=schedule.name,
            cron=settings.cron,
            timezone=settings.timezone,
            topic=settings.topic,
            missed=settings.missed,
            paused=settings.paused,
            message=ScheduledMessageDocument(
                text=text if isinstance(text, str) else None,
                body_base64=(
                    base64.b64encode(body_base64).decode()
                    if isinstance(body_base64, bytes)
                    else None
                ),
                tag=settings.tag,
                keys=list(settings.keys),
                sharding_key=settings.sharding_key,
                properties=dict(settings.properties),
                content_type=settings.content_type,
            ),
            next_due_times_ms=schedules.shown_due_times(schedule),
            created_ms=schedule.created_ms,
            updated_ms=schedule.updated_ms,
            version=schedule.version,
        )


class ScheduleList(AnswerModel):
    """Schedules by name; `next_page_token` is null on the last page."""

    schedules: list[ScheduleDocument]
    next_page_token: str | None


@router.put(
    "/v1/schedules/{name}",
    operation_id="put_schedule",
    summary="Create or replace a schedule",
    response_model=ScheduleDocument,
    responses={
        200: {"description": "The schedule was replaced", "headers": _ETAG_HEADER},
        201: {
            "description": "The schedule was made",
            "model": ScheduleDocument,
            "headers": _ETAG_HEADER,
        },
        **problem_responses(404, 409, 412, 413, 415, 431),
    },
    openapi_extra=json_request(ScheduleBody, required=True),
)
async def put_schedule(
    name: str,
    services: WithServices,
    body: Annotated[ScheduleBody, Depends(json_body(ScheduleBody))],
    if_version: IfVersion,
    response: Response,
) -> ScheduleDocument:
    """Due times are claimed five seconds ahead: a change comes too late for those."""
    schedules = services.broker.schedules
    schedule, created = await schedules.put(name, body.settings(), if_version=if_version)
    response.status_code = 201 if created else 200
    response.headers["ETag"] = etag_of(schedule.version)
    return ScheduleDocument.of(schedule, schedules)


@router.get(
    "/v1/schedules/{name}",
    operation_id="get_schedule",
    summary="Read a schedule and its next due times",
    responses={200: {"headers": _ETAG_HEADER}, **problem_responses(404)},
)
async def get_schedule(name: str, services: WithServices, response: Response) -> ScheduleDocument:
    """The schedule as it is kept."""
    schedule = await services.metadata.schedules.get(name)
    response.headers["ETag"] = etag_of(schedule.version)
    return ScheduleDocument.of(schedule, services.broker.schedules)


@router.get(
    "/v1/schedules",
    operation_id="list_schedules",
    summary="List schedules",
    responses=problem_responses(),
)
async def list_schedules(
    services: WithServices,
    page_size: Annotated[int, Query()] = 100,
    page_token: Annotated[str | None, Query(description="name of the last schedule seen")] = None,
) -> ScheduleList:
    """Schedules by name, a page at a time. Of large ones a page has fewer than `page_size`."""
    most = services.limits.page_size_max
    if not 1 <= page_size <= most:
        raise IllegalPage(
            f"page_size is {page_size}; it must be from 1 to {most}",
            fields={"parameter": "page_size", "max": most},
        )
    shown, has_more = await services.metadata.schedules.load(page_token or "", page_size)
    return ScheduleList(
        schedules=[ScheduleDocument.of(each, services.broker.schedules) for each in shown],
        next_page_token=shown[-1].name if has_more else None,
    )


@router.delete(
    "/v1/schedules/{name}",
    operation_id="delete_schedule",
    summary="Delete a schedule",
    status_code=204,
    responses=problem_responses(404),
)
async def delete_schedule(name: str, services: WithServices) -> Response:
    """What was claimed already is still sent."""
    await services.metadata.schedules.remove(name)
    return Response(status_code=204)
