"""Pieces of the OpenAPI document that routes and lane share: problem answers, JSON bodies. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel

PROBLEM: Final = "application/problem+json"
PROBLEM_REF: Final = "#/components/schemas/Problem"
ALWAYS: Final = (400, 403, 408, 414, 417, 431, 500, 503)
"""What any operation may answer: bad input, foreign Host or Origin, too slow, too large, faults."""

_REASONS: Final = {
    400: "The request is not valid",
    403: "Host or Origin is refused",
    404: "Something named in the path does not exist",
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
    422: "The idempotency key came with another request before",
    429: "A bound on work in flight is reached; see Retry-After",
    431: "The header block or the message properties are too large",
    500: "The node failed",
    503: "The service cannot answer now; see Retry-After",
    504: "No reply came in time; the request is stored",
    507: "The disk is full",
}

Json = dict[str, Any]

_TEXT: Final[Json] = {"schema": {"type": "string"}}
_INTEGER: Final[Json] = {"schema": {"type": "integer", "minimum": 0}}

CACHE_HEADERS: Final[Json] = {
    "ETag": {"schema": {"type": "string"}, "description": "of what will not change"},
    "Cache-Control": _TEXT,
    "Vary": _TEXT,
}
"""What `validators` gives."""

EVENT_SCHEMA: Final[Json] = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "description": "a CloudEvent 1.0 in the JSON format",
}

RAW_MESSAGE_HEADERS: Final[Json] = {
    "MQ-Message-Id": _TEXT,
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
"""What `lane.raw_message.raw_headers` gives beside `MQ-Prop-<name>`, which no document can list."""


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


def problem_responses(*statuses: int) -> dict[int | str, Json]:
    """The error answers of an operation: its own and those that any has."""
    return {status: _problem_response(status) for status in sorted({*statuses, *ALWAYS})}


def problem_components() -> Json:
    """Every answer that `problem_responses` gives, by its name among the document's components."""
    return {f"Problem{status}": _problem_response(status) for status in _REASONS}


def _problem_response(status: int) -> Json:
    return {
        "description": _REASONS[status],
        "content": {PROBLEM: {"schema": {"$ref": PROBLEM_REF}}},
        "headers": NOT_KEPT | (QUOTA_HEADERS if status in _WITH_QUOTA else {}),
    }


def json_request(
    model: type[BaseModel],
    *,
    required: bool = False,
    media_types: Iterable[str] = ("application/json",),
    examples: Mapping[str, Json] | None = None,
) -> Json:
    """The `openapi_extra` of a route whose body `dependencies.json_body` reads.

    `examples`: bodies by what they do.
    """
    content: Json = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
    if examples:
        content["examples"] = {
            summary.replace(" ", "_"): {"summary": summary, "value": value}
            for summary, value in examples.items()
        }
    return {
        "requestBody": {
            "required": required,
            "content": dict.fromkeys(media_types, content),
        }
    }


def schemas_of(models: Iterable[type[BaseModel]]) -> Json:
    """Component schemas of request models, by name."""
    from pydantic.json_schema import models_json_schema

    _, document = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    schemas: Json = document["$defs"]
    return schemas
