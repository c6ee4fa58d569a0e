"""What Schemathesis may not hold against the server, one rule each, with its reason.

Loaded by Schemathesis itself (`SCHEMATHESIS_HOOKS`), in the process that the test starts.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response, SerializationContext
from schemathesis.core.failures import AcceptedNegativeData, Failure, ServerError
from schemathesis.openapi.checks import JsonSchemaError

STREAMS = "/stream"
LONG = "30s"
"""The example in the document."""
LONG_WAIT = "20s"
"""The same of requests that wait for messages."""
SHORT = "20ms"


@schemathesis.serializer("application/x-ndjson")
def lines(context: SerializationContext, value: Any) -> bytes:
    """An example of lines is written as it is in the document."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


@schemathesis.serializer("application/vnd.curlew.batch")
def frame(context: SerializationContext, value: Any) -> bytes:
    """The document's example of a frame is text that says what a frame is, and is none."""
    return b"" if isinstance(value, str) else bytes(value)


WITHOUT_A_KEY: Final = "SCHEMATHESIS_WITHOUT_A_KEY"
"""Set for a run against a closed node: a check that is there is part of each run."""
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""What a closed node answers to anybody."""


@schemathesis.check
def only_who_shows_a_key(_: CheckContext, response: Response, case: Case[Any]) -> None:
    """Of a closed node, asked without a key: 401, whatever is asked, and it says how to ask."""
    if WITHOUT_A_KEY not in os.environ:
        return
    if case.operation.path in OPEN_PATHS and response.status_code == 200:
        return
    asked = f"{case.method} {case.path}: {response.status_code}"
    assert response.status_code == 401, asked
    assert response.headers["www-authenticate"] == ["Bearer"], asked


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Streams and requests without a reply end when they are told to; Schemathesis waits. All is of
    the default namespace: in one that does not exist every request is 404."""
    headers: Any = case.headers
    headers.pop("MQ-Namespace", None)
    if case.operation.path.endswith(STREAMS):
        query: dict[str, Any] = case.query or {}
        if query.get("duration", LONG) == LONG:
            query["duration"] = SHORT
        case.query = query
    body: Any = case.body
    if isinstance(body, dict) and body.get("wait") == LONG_WAIT:
        case.body = {**body, "wait": SHORT}
    if case.operation.path.endswith(":request"):
        case.query = {"wait": SHORT, **(case.query or {})}


@schemathesis.hook
def filter_failure(
    context: HookContext, failure: Failure, case: Case[Any], response: Response
) -> bool:
    """Whether the failure stands."""
    if isinstance(failure, JsonSchemaError) and _is_raw(case):
        # With format=raw the answer is the message, which may be of any content type: a message of
        # application/json is no MessageView.
        return False
    if isinstance(failure, AcceptedNegativeData):
        # HTTP lets a request carry headers that the server does not know. A text that makes the
        # request's target too long is refused before anybody reads it. The document says texts for
        # waits, so that they have one type everywhere; numbers of seconds are taken as well.
        return (
            response.status_code != 414 and not _only_adds_headers(case) and not _has_seconds(case)
        )
    if isinstance(failure, ServerError) and case.operation.path.endswith(":request"):
        # Nobody replies here, and 504 is the documented answer to that.
        return response.status_code != 504
    return True


def _is_raw(case: Case[Any]) -> bool:
    query: object = case.query
    return isinstance(query, Mapping) and query.get("format") == "raw"


def _has_seconds(case: Case[Any]) -> bool:
    body: object = case.body
    return isinstance(body, Mapping) and isinstance(body.get("wait"), int | float)


def _only_adds_headers(case: Case[Any]) -> bool:
    phase = None if case.meta is None else case.meta.phase.data
    location = getattr(phase, "parameter_location", None)
    text = str(getattr(phase, "description", None))
    return location == "header" and "unexpected properties" in text
