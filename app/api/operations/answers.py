"""Answers that operations of both planes have in common: problems, and headers. Pure."""

from typing import Final

from app.api.operations.operation import Json, Operation

PROBLEM: Final = "application/problem+json"
PROBLEM_REF: Final = "#/components/schemas/Problem"
ALWAYS: Final = (400, 401, 403, 404, 408, 414, 417, 431, 500, 503)
"""What every operation may answer: bad input, foreign Host or Origin, a namespace or another name
that does not exist, too slow or large, faults."""

_REASONS: Final = {
    400: "The request is not valid",
    401: "The node is closed, and no API key that it knows was sent",
    403: "Host or Origin is refused, or the permission of the topic forbids it",
    404: "The namespace, or something that the request names, does not exist",
    405: "The method is not allowed here; see Allow",
    406: "No media type in Accept can be given",
    408: "The request did not come in time; the connection is closed",
    409: "The state of the resource forbids it",
    410: "It was there and is gone",
    412: "The resource has another version",
    413: "The body is too large",
    414: "The path and query are too long",
    415: "The content type is not taken",
    416: "The offset is beyond the end of the queue",
    417: "Expect is something else than 100-continue",
    421: "Another node leads the shard, and `MQ-Forward: no` says not to ask it",
    422: "The idempotency key came with another request before",
    429: "A bound on work in flight is reached; see Retry-After",
    431: "The header block or the message properties are too large",
    500: "The node failed",
    502: "The connection to the node that leads the shard ended; it is not known what was done",
    503: "The service cannot answer now; see Retry-After",
    504: "It took too long: the message is written and not safe yet, or stored without a reply",
    507: "The disk is full, or the topic holds as much as it may",
}

_TEXT: Final[Json] = {"schema": {"type": "string"}}
_INTEGER: Final[Json] = {"schema": {"type": "integer", "minimum": 0}}

CACHE_HEADERS: Final[Json] = {
    "ETag": {"schema": {"type": "string"}, "description": "of what will not change"},
    "Cache-Control": _TEXT,
    "Vary": _TEXT,
}
"""What `entity_tags` gives."""

BINARY: Final[Json] = {"type": "string", "format": "binary"}
EVENT_SCHEMA: Final[Json] = {"$ref": "#/components/schemas/CloudEvent"}
STREAM_EVENT: Final[Json] = {"$ref": "#/components/schemas/StreamEvent"}


def _described(description: str, **schema: object) -> Json:
    return {"type": "string", **schema, "description": description}


SHARED_SCHEMAS: Final[Json] = {
    "JsonValue": {"description": "Any JSON value"},
    "CloudEvent": {
        "type": "object",
        "description": "A CloudEvent 1.0 in the JSON format; further attributes may be present.",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": _described("The version of the specification", examples=["1.0"]),
            "id": _described("Names the event within its source"),
            "source": _described("Where it happened, a URI reference"),
            "type": _described("What happened"),
            "datacontenttype": _described("Media type of the data"),
            "data": {"description": "The data, when it is JSON or text"},
            "data_base64": _described("The data as Base64"),
        },
    },
    "StreamEvent": {
        "type": "object",
        "description": "A server-sent event. Without a name its data is a message: a MessageView "
        "in a topic's stream, a DeliveredMessage in a group's.",
        "required": ["data"],
        "properties": {
            "event": _described("What it is", enum=["message", "gap", "effects", "end"]),
            "id": _described("A cursor, to go on from here"),
            "data": _described("JSON", contentMediaType="application/json"),
        },
    },
}
"""Of what no model of ours is made of."""

RAW_MESSAGE_HEADERS: Final[Json] = {
    "MQ-Message-Id": _TEXT,
    "MQ-Unique-Id": _TEXT,
    "MQ-Flag": {"schema": {"type": "integer"}},
    "MQ-Topic": _TEXT,
    "MQ-Queue-Id": _INTEGER,
    "MQ-Queue-Offset": _INTEGER,
    "MQ-Tag": _TEXT,
    "MQ-Keys": _TEXT,
    "MQ-Sharding-Key": _TEXT,
    "MQ-Properties": _TEXT,
    "MQ-Born-Time-Ms": _INTEGER,
    "MQ-Store-Time-Ms": _INTEGER,
    "MQ-Correlation-Id": _TEXT,
    "MQ-Reply-Until-Ms": _INTEGER,
    "traceparent": _TEXT,
    "tracestate": _TEXT,
}
"""What `raw_message.raw_headers` gives beside `MQ-Prop-<name>`, which no document can list."""


ETAG_HEADER: Final[Json] = {"ETag": {"description": "the version", "schema": {"type": "string"}}}

NOT_KEPT: Final[Json] = {"Cache-Control": {**_TEXT, "description": "no-store"}}
QUOTA_HEADERS: Final[Json] = {
    "Retry-After": {**_INTEGER, "description": "seconds"},
    "RateLimit-Policy": {
        **_TEXT,
        "description": "draft-ietf-httpapi-ratelimit-headers-11: the bound on what is in flight",
    },
    "RateLimit": {**_TEXT, "description": "how much of it is left"},
}
_WITH_QUOTA: Final = (429, 503)


def answers_of(operation: Operation) -> dict[int, Json]:
    """All answers as OpenAPI has them, by status: its own, and the problems that it may have."""
    statuses = {*ALWAYS, *operation.problems}
    if operation.body is not None:
        statuses |= {413, 415}
    if operation.aim is not None:
        statuses |= {421, 502}
    problems = {status: _problem(status) for status in statuses}
    own = {status: answer.rendered() for status, answer in operation.answers.items()}
    return dict(sorted((problems | own).items()))


def problem_components() -> Json:
    """Every problem that `answers_of` gives, by its name among the document's components."""
    return {f"Problem{status}": _problem(status) for status in _REASONS}


def _problem(status: int) -> Json:
    return {
        "description": _REASONS[status],
        "content": {PROBLEM: {"schema": {"$ref": PROBLEM_REF}}},
        "headers": NOT_KEPT | (QUOTA_HEADERS if status in _WITH_QUOTA else {}),
    }
