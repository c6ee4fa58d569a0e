"""Operations that read messages without a group: pull, browse, stream."""

from functools import partial
from typing import Final

from app.api.aims.across import Followed, InOrder
from app.api.aims.of_names import A_QUEUE, A_QUEUE_IN_QUERY
from app.api.dataplane.browsing import BROWSE_PARAMETERS
from app.api.dataplane.pulls.pulling import PULL_PARAMETERS
from app.api.dataplane.pulls.read_choice import READ_HEADERS
from app.api.dataplane.routes.paths_and_answers import APPLIED, TOPIC_PATH, lines_of, stream_of
from app.api.dataplane.streaming import TOPIC_STREAM_PARAMETERS
from app.api.formats import media, wire
from app.api.formats.cloudevents import EVENTS
from app.api.operations.answers import (
    BINARY,
    CACHE_HEADERS,
    EVENT_SCHEMA,
    NOT_KEPT,
    QUOTA_HEADERS,
)
from app.api.operations.operation import Action, Answer, Json, Operation
from app.api.operations.parameters import (
    IF_NONE_MATCH,
    INTEGER,
    LAST_EVENT_ID,
    PREFER_WAIT,
    TEXT,
)

_PULL: Final[Json] = {
    **APPLIED,
    "MQ-Pull-Status": {"schema": TEXT},
    **{f"MQ-{name}-Offset": {"schema": INTEGER} for name in ("Next", "Min", "Max")},
    "MQ-Up-To-Date": {"schema": {"type": "boolean"}},
    "MQ-Scanned": {"schema": INTEGER},
    "MQ-Store-Id": {
        "schema": TEXT,
        "description": "frames only: 8 hex digits, part of ids derived from positions",
    },
    "MQ-Clamped": {"schema": {"type": "boolean"}},
    "MQ-Gaps": {"schema": TEXT, "description": "JSON, as `gaps` of the JSON answer"},
}

_OF_REPLICAS: Final[Json] = {
    "MQ-Stale": {
        "schema": {"type": "boolean"},
        "description": "true: nobody leads the shard; a replica has answered, of what it knows to"
        " be confirmed",
    },
    "MQ-Suggest-Read": {
        "schema": {"type": "string", "enum": ["any"]},
        "description": "the messages came from the leader's disk, far behind: read on with"
        " `MQ-Read: any`",
    },
}

_BROWSE: Final[Json] = {
    **NOT_KEPT,
    "MQ-Next-Cursor": {"schema": TEXT, "description": "NDJSON only"},
    "MQ-Scanned": {"schema": INTEGER, "description": "NDJSON only"},
    "MQ-Gaps": {"schema": TEXT, "description": "NDJSON only; as `gaps`"},
}

_read: Final = partial(Operation, needs={"topic": Action.SUB}, reads=True)

BROWSE_MESSAGES: Final = _read(
    operation_id="browse_messages",
    across=InOrder("messages", cursor="cursor", following="next_cursor"),
    route=f"GET {TOPIC_PATH}/messages",
    summary="Look through the messages of all queues",
    description=(
        "In the order in which they were stored, newest first unless asked otherwise. All "
        "conditions that are given must hold. One request looks at so many messages; an empty "
        "page with `next_cursor` means: go on there. Nothing is leased or kept."
    ),
    query=BROWSE_PARAMETERS,
    answers={
        200: Answer(
            f"Messages, or none; lines of JSON by `Accept: {media.NDJSON}`",
            wire.BrowseAnswer,
            _BROWSE,
            when_asked={media.NDJSON: lines_of("one MessageView")},
        ),
    },
    problems=(406, 413),
)

PULL_MESSAGES: Final = _read(
    operation_id="pull_messages",
    waits="head",
    may_be_stale=True,
    aim=A_QUEUE,
    route=f"GET {TOPIC_PATH}/queues/{{queue}}/messages",
    summary="Read messages of a queue from an offset on",
    description=(
        "Nothing is leased; the caller keeps `next_offset`. Exactly one of offset, "
        "timestamp_ms and tail says where to start. A range that `offset` and `until_offset` "
        "name and that lies below the end never changes: its answer has an ETag and may be "
        "kept (its min_offset, max_offset and up_to_date are those of that moment)."
    ),
    mq_headers=READ_HEADERS,
    headers=(PREFER_WAIT, IF_NONE_MATCH),
    query=PULL_PARAMETERS,
    answers={
        200: Answer(
            f"Messages, or none; by `Accept` also {media.NDJSON}, {media.FRAMES} and {EVENTS}",
            wire.PullAnswer,
            {**_PULL, **_OF_REPLICAS, **CACHE_HEADERS, **QUOTA_HEADERS},
            when_asked={
                media.NDJSON: lines_of("one MessageView"),
                media.FRAMES: BINARY,
                EVENTS: {"type": "array", "items": EVENT_SCHEMA},
            },
        ),
        304: Answer("As `If-None-Match` has it", headers=CACHE_HEADERS),
    },
    problems=(406, 410, 413, 416, 429),
)

STREAM_TOPIC: Final = _read(
    aim=A_QUEUE_IN_QUERY,
    across=Followed(),
    operation_id="stream_topic",
    route=f"GET {TOPIC_PATH}/stream",
    summary="Follow a topic without a group",
    description=(
        "Server-sent events, or lines of JSON, until something ends it; the `end` event or "
        "line says what. The id of an event is a cursor over all queues, to go on from with "
        "`cursor` or `Last-Event-ID`, which outweighs the query. Heartbeats are comments or "
        "empty lines. Without a start the stream begins at the end of the topic. With "
        "`clamp`, what retention took is reported as a gap instead of an error. In a cluster it "
        "has the messages of all shards; a `partial` event or line names those of which nothing "
        "comes, each time that this changes."
    ),
    headers=(LAST_EVENT_ID,),
    query=TOPIC_STREAM_PARAMETERS,
    answers={200: stream_of("MessageView")},
    problems=(406, 410, 413, 416, 429),
)
