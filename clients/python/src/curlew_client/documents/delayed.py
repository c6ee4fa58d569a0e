"""What the node says about delayed messages and schedules."""

from typing import Any, Literal, NotRequired, TypedDict

from curlew_client.documents.shared import Effect

Missed = Literal["fire_once", "skip"]


class ScheduledMessage(TypedDict):
    """The message of a schedule; one of the bodies is not null."""

    text: str | None
    body_base64: str | None
    tag: str | None
    keys: list[str]
    sharding_key: str | None
    properties: dict[str, str]
    content_type: str | None


class Schedule(TypedDict):
    """A schedule. `next_due_times_ms` is empty while it is paused; `version` is also its
    ETag."""

    name: str
    cron: str
    timezone: str
    topic: str
    missed: Missed
    paused: bool
    message: ScheduledMessage
    next_due_times_ms: list[int]
    namespace: str
    created_ms: int
    updated_ms: int
    version: int
    owner: str | None


class ScheduleList(TypedDict):
    """Schedules by name; `next_page_token` is null on the last page."""

    schedules: list[Schedule]
    next_page_token: str | None


class ScheduleChange(Schedule):
    """A schedule after a change; with `dry_run`, as it would be. It has no effects on
    others."""

    dry_run: bool
    changed: dict[str, list[Any]]
    effects: list[Effect]


class ScheduledMessageBody(TypedDict, total=False):
    """The message, whole. Exactly one of `body`, `text` and `body_base64` is given."""

    body: Any
    text: str | None
    body_base64: str | None
    tag: str | None
    keys: list[str]
    sharding_key: str | None
    properties: dict[str, str]
    content_type: str | None


class ScheduleSettings(TypedDict, total=False):
    """When, where to, and what. What is left out stays as it is; in a new schedule it has
    its default, and so has what is null. A message that is given replaces the one that was
    there."""

    cron: str | None
    timezone: str | None
    topic: str | None
    missed: Missed | None
    paused: bool | None
    message: ScheduledMessageBody | None


class Scheduled(TypedDict):
    """A delayed message that waits. The body is not shown before it is due."""

    message_id: str
    unique_id: str | None
    flag: int
    topic: str
    queue_id: int
    deliver_time_ms: int
    store_time_ms: int
    born_time_ms: int
    tag: str | None
    keys: list[str]
    sharding_key: str | None
    properties: dict[str, str]
    content_type: str | None
    body_bytes: int
    recall_handle: str


class ScheduledList(TypedDict):
    """Delayed messages by delivery time; `next_page_token` is null at the end. A page may
    be empty and not the last: `scanned` counts the waiting messages, of all topics, that
    were looked at for it."""

    messages: list[Scheduled]
    scanned: int
    next_page_token: str | None
    partial: NotRequired[list[str]]


class ScheduledAnswer(Scheduled):
    """A delayed message that was moved; or one that would be moved, cancelled or
    delivered."""

    dry_run: bool


class NewTime(TypedDict, total=False):
    """The new time: one of both."""

    delay: str | None
    deliver_at_ms: int | None
