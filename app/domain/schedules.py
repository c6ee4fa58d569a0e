"""Schedules: a message that is sent again and again, and when. Values and their rules, pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, NamedTuple

from app.domain.errors import IllegalSetting, ScheduleNotFound
from app.domain.message import Message

CRON_CHARS_MAX: Final = 256
TIMEZONE_CHARS_MAX: Final = 64
SCHEDULED_ID_PREFIX: Final = "schedule:"
"""Of the ids of messages that schedules send."""


class Missed(StrEnum):
    """What becomes of due times that passed while no node could fire."""

    FIRE_ONCE = "fire_once"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """What a client may set on a schedule."""

    cron: str
    topic: str
    body: bytes
    timezone: str = "UTC"
    missed: Missed = Missed.FIRE_ONCE
    paused: bool = False
    tag: str | None = None
    keys: tuple[str, ...] = ()
    sharding_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None

    def message(self, message_id: str | None = None) -> Message:
        """The message that is sent."""
        return Message(
            self.body,
            tag=self.tag,
            keys=self.keys,
            sharding_key=self.sharding_key,
            properties=self.properties,
            content_type=self.content_type,
            message_id=message_id,
        )


_OPEN: Final = ScheduleSettings(cron="", topic="", body=b"")

SCHEDULE_DEFAULTS: Final[Mapping[str, object]] = {
    each.name: getattr(_OPEN, each.name)
    for each in fields(ScheduleSettings)
    if each.name not in {"cron", "topic", "body"}
}
"""What is left open in a new schedule; the rest of its settings has to be named."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is kept. `next_due_ms` is None while it is paused."""

    name: str
    settings: ScheduleSettings
    next_due_ms: int | None
    created_ms: int
    updated_ms: int
    version: int
    owner: str | None = None
    """The principal that changed it last, by whose rights it is fired; None: nobody was asked for a
    name then."""

    def next_due_after(self, settings: ScheduleSettings, next_due_ms: int | None) -> int | None:
        """When it is due next with other settings; `next_due_ms` is what these say from now on.

        What says when it is due may be as it was: then it goes on where it is. For a due time is
        claimed some seconds ahead, and no other node may claim it again.
        """
        is_moved = (settings.cron, settings.timezone) != (
            self.settings.cron,
            self.settings.timezone,
        )
        if is_moved or next_due_ms is None or self.next_due_ms is None:
            return next_due_ms
        return self.next_due_ms


class Firing(NamedTuple):
    """A due time that a node has taken upon itself: it sends the message exactly once."""

    schedule: str
    due_ms: int
    settings: ScheduleSettings
    owner: str | None = None
    """As of the schedule."""

    @property
    def message_id(self) -> str:
        """By it the node knows whether it has sent the message already."""
        return f"{SCHEDULED_ID_PREFIX}{self.schedule}:{self.due_ms}"


def missing_schedule(name: str) -> ScheduleNotFound:
    """What is said of one that is not there, or that the caller must not know of."""
    return ScheduleNotFound(f"schedule {name!r} does not exist", hint="PUT makes it")


def illegal_cron(cron: str, why: str) -> IllegalSetting:
    """The refusal of a cron expression."""
    return IllegalSetting(
        f"cron {cron!r}: {why}",
        hint="write five fields: minute hour day month weekday, for instance */15 8-18 * * MON-FRI",
        pointer="/cron",
    )
