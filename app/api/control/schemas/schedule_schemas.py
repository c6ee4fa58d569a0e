"""Shapes of schedules as JSON: bodies that name settings, documents."""

import base64
import binascii
from collections.abc import Mapping
from typing import Final, Self

from pydantic import Field, JsonValue, model_validator
from pydantic_core import to_json

from app.api.control.schemas.change_documents import ChangeMembers, with_changes
from app.api.control.schemas.names import TopicName
from app.api.control.schemas.schemas import AnswerModel, RequestModel
from app.api.control.schemas.setting_bodies import SettingsBody
from app.api.formats.decoding import JSON_CONTENT_TYPE, TEXT_CONTENT_TYPE, is_header_text
from app.api.formats.rendering import body_members
from app.broker.schedules.schedules import Schedules
from app.domain.changes.conditions import Changed
from app.domain.changes.merging import DEFAULT, DerivedPart, Named, Reset, TextsPart
from app.domain.errors import CurlewError
from app.domain.names import namespace_of
from app.domain.schedules import Missed, Schedule

_BODIES: Final = ("body", "text", "body_base64")
_DERIVED: Final = frozenset({None, JSON_CONTENT_TYPE, TEXT_CONTENT_TYPE})
"""Content types that bodies have by themselves."""
_MESSAGE_SETTINGS: Final = (
    *("body", "tag", "keys", "sharding_key", "properties", "content_type"),
    *("delay", "deliver_at_ms"),
)


def _content(body: JsonValue, text: str | None, packed: str | None) -> tuple[bytes, str | None]:
    """The bytes, and the content type that they have by themselves."""
    if text is not None:
        return text.encode(), TEXT_CONTENT_TYPE
    if packed is not None:
        try:
            return base64.b64decode(packed, validate=True), None
        except binascii.Error as error:
            raise ValueError(f"body_base64: {error}") from error
    return to_json(body), JSON_CONTENT_TYPE


def _check_content_type(content_type: str | None) -> None:
    if content_type is not None and not is_header_text(content_type):
        raise ValueError("content_type is empty or not printable ASCII")


class ScheduledMessageBody(RequestModel):
    """The message, whole. Exactly one of `body`, `text` and `body_base64` is given."""

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
        if sum(getattr(self, name) is not None for name in _BODIES) != 1:
            raise ValueError("exactly one of body, text and body_base64 is needed")
        _check_content_type(self.content_type)
        _content(self.body, self.text, self.body_base64)
        return self

    def named(self) -> Named:
        """All settings of the message."""
        body, own_type = _content(self.body, self.text, self.body_base64)
        return {
            "body": body,
            "tag": self.tag,
            "keys": tuple(self.keys),
            "sharding_key": self.sharding_key,
            "properties": self.properties,
            "content_type": own_type if self.content_type is None else self.content_type,
        }


class ScheduledMessagePatch(SettingsBody):
    """Some of the message. Another body has its own content type, unless one was chosen."""

    body: JsonValue = Field(default=None, description="any JSON but null")
    text: str | None = None
    body_base64: str | None = None
    tag: str | None = None
    keys: list[str] | None = None
    sharding_key: str | None = None
    properties: dict[str, str | None] | None = Field(
        default=None, description="some of them; null takes one out"
    )
    content_type: str | None = None

    @model_validator(mode="after")
    def _check_body(self) -> Self:
        if sum(getattr(self, name) is not None for name in _BODIES) > 1:
            raise ValueError("at most one of body, text and body_base64 can be given")
        _check_content_type(self.content_type)
        if self._has_body:
            _content(self.body, self.text, self.body_base64)
        return self

    @property
    def _has_body(self) -> bool:
        return any(getattr(self, name) is not None for name in _BODIES)

    def named(self) -> Named:
        """The settings that are named."""
        given = {name: value for name, value in self.given().items() if name not in _BODIES}
        if self.keys is not None:
            given["keys"] = tuple(self.keys)
        if self.properties is not None:
            texts: Mapping[str, str | Reset] = {
                name: DEFAULT if text is None else text for name, text in self.properties.items()
            }
            given["properties"] = TextsPart(texts)
        if self._has_body:
            given["body"], own_type = _content(self.body, self.text, self.body_base64)
            if self.content_type is None:
                is_named = "content_type" in self.model_fields_set
                given["content_type"] = own_type if is_named else DerivedPart(own_type, _DERIVED)
        elif self.model_fields_set.intersection(_BODIES):
            given["body"] = DEFAULT  # it has none, and the error says so
        return given


class _ScheduleFields(SettingsBody):
    """What `PUT` and `PATCH` have in common."""

    cron: str | None = Field(
        default=None, description="minute hour day month weekday; a new schedule needs it"
    )
    timezone: str | None = Field(default=None, description="of the IANA database; new: UTC")
    topic: TopicName | None = Field(default=None, description="a new schedule needs it")
    missed: Missed | None = Field(
        default=None,
        strict=False,
        description="what becomes of due times that passed while no node was up; new: fire_once",
    )
    paused: bool | None = Field(default=None, description="new: false")

    def named(self) -> Named:
        """What is named, by the names of the settings."""
        given = self.given()
        message = given.pop("message", {})
        if message is DEFAULT:
            given["body"] = DEFAULT  # it has none, and the error says so
        elif isinstance(message, (ScheduledMessageBody, ScheduledMessagePatch)):
            given.update(message.named())
        return given


class ScheduleBody(_ScheduleFields):
    """When, where to, and what. What is left out stays as it is; in a new schedule it has its
    default, and so has what is null. A message that is given replaces the one that was there."""

    message: ScheduledMessageBody | None = Field(
        default=None, description="a new schedule needs it"
    )


class SchedulePatch(_ScheduleFields):
    """Settings of a schedule to change, as a JSON merge patch (RFC 7396)."""

    message: ScheduledMessagePatch | None = None


def point_into_message(error: CurlewError) -> None:
    """Let an error about a setting of the message point to where bodies have it."""
    name = (error.pointer or "").removeprefix("/").partition("/")[0]
    if name == "body":
        error.pointer = "/message"
        error.detail = error.detail.replace("body", "message", 1)
    elif name in _MESSAGE_SETTINGS:
        error.pointer = f"/message{error.pointer}"


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
    namespace: str
    created_ms: int
    updated_ms: int
    version: int
    owner: str | None = Field(
        description="The principal that changed it last, by whose rights it is fired; null: a node "
        "that asks for no keys"
    )

    @classmethod
    def of(cls, schedule: Schedule, schedules: Schedules) -> Self:
        settings = schedule.settings
        _, text, body_base64 = body_members(settings.body, None, force_base64=False)
        return cls(
            name=schedule.name,
            namespace=namespace_of(schedule.name),
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
            owner=schedule.owner,
        )


class ScheduleChangeDocument(ChangeMembers, ScheduleDocument):
    """A schedule after a change; with `dry_run`, as it would be. It has no effects on others."""

    @classmethod
    def of_change(
        cls, changed: Changed[Schedule], schedules: Schedules, *, is_dry_run: bool
    ) -> Self:
        before = None
        if changed.before is not None:
            before = ScheduleDocument.of(changed.before, schedules)
        after = ScheduleDocument.of(changed.after, schedules)
        return cls.model_validate(with_changes(before, after, (), is_dry_run=is_dry_run))


class ScheduleList(AnswerModel):
    """Schedules by name; `next_page_token` is null on the last page."""

    schedules: list[ScheduleDocument]
    next_page_token: str | None
