"""Paths, answers and headers that several operations of the data plane have."""

from typing import Final

from app.api.formats import media
from app.api.operations.answers import STREAM_EVENT
from app.api.operations.operation import Action, Answer, Json, Resource
from app.api.operations.parameters import TEXT

TIMING: Final[Json] = {
    "Server-Timing": {"schema": TEXT, "description": "store;dur=…: milliseconds until stored"},
}

APPLIED: Final[Json] = {
    "Preference-Applied": {"schema": TEXT, "description": "of what was asked for, what was done"},
}

_STREAM: Final[Json] = {
    "Cache-Control": {"schema": TEXT},
    "X-Accel-Buffering": {"schema": TEXT},
    "MQ-Partial": {
        "schema": TEXT,
        "description": "shards whose messages do not come, as a list in JSON: follow their nodes",
    },
}


def lines_of(description: str) -> Json:
    """The schema of lines of JSON; `description`: what one line is."""
    return {**TEXT, "description": f"{description} as JSON per line"}


def stream_of(view: str) -> Answer:
    """The answer of a stream whose events have the schema `view`."""
    return Answer(
        f"Messages as they come; lines of JSON by `Accept: {media.NDJSON}`",
        {media.EVENT_STREAM: STREAM_EVENT},
        _STREAM,
        when_asked={media.NDJSON: lines_of(f"one {view}")},
    )


TOPIC_PATH: Final = "/v1/topics/{topic}"

GROUP_PATH: Final = TOPIC_PATH + "/groups/{group}"

SUB_GROUP: Final[dict[Resource, Action]] = {"topic": Action.SUB, "group": Action.SUB}
