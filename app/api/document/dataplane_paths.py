"""What the lane's operations look like in the OpenAPI document. Pure; read by `openapi` only.

The schemas come from the wire structs; names of parameters and headers from the handlers' own
tables, so that none is forgotten. A test sends through the lane and validates against this.
"""

from typing import Final

from app.api.control.documentation import (
    CACHE_HEADERS,
    EVENT_SCHEMA,
    NOT_KEPT,
    QUOTA_HEADERS,
    RAW_MESSAGE_HEADERS,
    problem_responses,
)
from app.api.dataplane.browsing import BROWSE_PARAMETERS
from app.api.dataplane.pulling import PULL_PARAMETERS
from app.api.dataplane.receiving import RECEIVE_PARAMETERS
from app.api.dataplane.requesting import (
    REPLY_HEADERS,
    REPLY_PARAMETERS,
    REQUEST_HEADERS,
    REQUEST_PARAMETERS,
)
from app.api.dataplane.routes import build_lane
from app.api.dataplane.sending import BATCH_PARAMETERS
from app.api.dataplane.settling import RECEIPT_PARAMETERS
from app.api.dataplane.streaming import GROUP_STREAM_PARAMETERS, TOPIC_STREAM_PARAMETERS
from app.api.document.parameter_table import INTEGER, PARAMETERS, POSITIVE, TEXT, Json
from app.api.formats import media
from app.api.formats.cloudevents import EVENT, EVENTS
from app.api.formats.mq_headers import (
    BATCH_HEADERS,
    MESSAGE_HEADERS,
    SEND_PARAMETERS,
    display_header,
)

_OCTETS: Final = "application/octet-stream"
_BINARY: Final[Json] = {"type": "string", "format": "binary"}

_TIMING_HEADER: Final[Json] = {
    "Server-Timing": {"schema": TEXT, "description": "store;dur=…: milliseconds until stored"}
}
_APPLIED: Final[Json] = {
    "Preference-Applied": {
        "schema": TEXT,
        "description": "of what was asked for, what was done",
    }
}
_POSITION_HEADERS: Final[Json] = {
    "MQ-Message-Id": {"schema": TEXT},
    "MQ-Queue-Id": {"schema": INTEGER, "description": "with Prefer: return=minimal"},
    "MQ-Queue-Offset": {"schema": INTEGER, "description": "with Prefer: return=minimal"},
    "MQ-Recall-Handle": {
        "schema": TEXT,
        "description": "with Prefer: return=minimal, of a delayed message",
    },
    "MQ-Deliver-Time-Ms": {
        "schema": INTEGER,
        "description": "with Prefer: return=minimal, of a delayed message",
    },
    "MQ-Store-Time-Ms": {"schema": INTEGER, "description": "with Prefer: return=minimal"},
    **_TIMING_HEADER,
    **_APPLIED,
}
_APPLIED_HEADER: Final[Json] = {
    **_APPLIED,
    **_TIMING_HEADER,
}
_DUPLICATE: Final[Json] = {
    "MQ-Duplicate": {"schema": TEXT, "description": "true: the result of an earlier request"}
}
_TOPIC_ERRORS: Final = (404, 429, 507)


def lane_paths() -> Json:
    """The `paths` of the lane's operations."""
    paths: Json = {}
    for operation in build_lane(None, None).operations:  # type: ignore[arg-type]  # not called
        entry = _OPERATIONS[operation.operation_id]
        names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
        described = {
            "tags": ["messages"],
            "operationId": operation.operation_id,
            **entry,
            "parameters": [*map(_path_parameter, names), *entry.get("parameters", ())],
        }
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return paths


def _path_parameter(name: str) -> Json:
    schema = INTEGER if name == "queue" else TEXT
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(names: frozenset[str]) -> list[Json]:
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": PARAMETERS[name][0],
            "description": PARAMETERS[name][1],
        }
        for name in sorted(names)
    ]


def _headers(aliases: dict[bytes, str]) -> list[Json]:
    return [
        {
            "name": display_header(name),
            "in": "header",
            "required": False,
            "schema": PARAMETERS[alias][0],
            "description": PARAMETERS[alias][1] + f" (query: {alias})",
        }
        for name, alias in sorted(aliases.items())
    ]


_PREFER: Final[Json] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "schema": TEXT,
    "description": (
        "RFC 7240: return=minimal; respond-async to be answered before the data is on the medium; "
        "on batches handling=strict for all or nothing"
    ),
}
_PREFER_WAIT: Final[Json] = {
    **_PREFER,
    "description": "RFC 7240: wait=<seconds>, as `wait`; what was made of it is in the answer",
}
_ENCODING: Final[Json] = {
    "name": "Content-Encoding",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "enum": ["gzip", "zstd", "identity"]},
    "description": "the body is unpacked before it is read; size and ratio are bounded",
}

_IDEMPOTENCY_KEY: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": TEXT,
    "description": (
        "a text in quotes, unique to the request: a repetition gets the first result for "
        "`idempotency_window_ms` (`GET /v1/limits`), also after a crash of the node"
    ),
}
_SEND_HEADERS: Final = (_PREFER, _ENCODING, _IDEMPOTENCY_KEY)


def _reference(name: str) -> Json:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}


def _body(content: Json, *, required: bool) -> Json:
    return {"required": required, "content": content}


def _json_body(name: str, *, required: bool = True) -> Json:
    return _body({media.JSON: _reference(name)}, required=required)


def _answer(description: str, content: Json, headers: Json | None = None) -> Json:
    return {"description": description, "content": content, "headers": headers or {}}


_IF_NONE_MATCH: Final[Json] = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": TEXT,
    "description": "the ETag of an answer that is there already: 304 when it is still this one",
}
_LAST_EVENT_ID: Final[Json] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": TEXT,
    "description": "the cursor of the last message that was seen; browsers send it by themselves",
}


def _stream(view: str) -> Json:
    return _answer(
        "Messages as they come",
        {
            media.EVENT_STREAM: {
                "schema": {
                    "type": "object",
                    "description": f"an event; without a name its data is a {view} as JSON",
                    "required": ["data"],
                    "properties": {
                        "event": {"type": "string", "enum": ["message", "gap", "end"]},
                        "id": {"type": "string", "description": "a cursor"},
                        "data": {"type": "string", "contentMediaType": media.JSON},
                    },
                }
            },
            media.NDJSON: {"schema": {**TEXT, "description": f"one {view} as JSON per line"}},
        },
        {"Cache-Control": {"schema": TEXT}, "X-Accel-Buffering": {"schema": TEXT}},
    )


def _settle(name: str, summary: str, *statuses: int) -> Json:
    return {
        "summary": summary,
        "requestBody": _json_body(name),
        "responses": {
            "200": _answer("All succeeded", {media.JSON: _reference("SettleAnswer")}),
            "207": _answer("Some succeeded", {media.JSON: _reference("SettleAnswer")}),
            **_problems(404, 410, 413, 415, *statuses),
        },
    }


def _problems(*statuses: int) -> Json:
    return {str(status): answer for status, answer in problem_responses(*statuses).items()}


_PULL_HEADERS: Final[Json] = {
    **_APPLIED,
    "MQ-Pull-Status": {"schema": {"type": "string"}},
    "MQ-Next-Offset": {"schema": INTEGER},
    "MQ-Min-Offset": {"schema": INTEGER},
    "MQ-Max-Offset": {"schema": INTEGER},
    "MQ-Up-To-Date": {"schema": {"type": "boolean"}},
    "MQ-Scanned": {"schema": INTEGER},
    "MQ-Store-Id": {
        "schema": TEXT,
        "description": "frames only: 8 hex digits, part of ids derived from positions",
    },
    "MQ-Clamped": {"schema": {"type": "boolean"}},
    "MQ-Gaps": {"schema": TEXT, "description": "JSON, as `gaps` of the JSON answer"},
}

_LEASE_HEADERS: Final[Json] = {
    "MQ-Receipt-Handle": {"schema": TEXT},
    "MQ-Delivery-Attempt": {"schema": POSITIVE},
    "MQ-Max-Attempts": {"schema": POSITIVE},
    "MQ-Invisible-Until-Ms": {"schema": INTEGER},
}

_OPERATIONS: Final[dict[str, Json]] = {
    "send_message": {
        "summary": "Send one message",
        "description": (
            "The body is the message, byte for byte, whatever its Content-Type; only "
            f"`{media.ENVELOPE}` is read as an envelope and `{EVENT}` as a CloudEvent; with a "
            "`ce-specversion` header the body is the data of one. Its attributes are kept as "
            "properties `ce-<name>`, `partitionkey` also as the sharding key. Properties go in "
            "`MQ-Prop-<name>` headers "
            "(names in lower case), in `prop_<name>` parameters, or in MQ-Properties. What header, "
            "query alias and body say of the same thing must be the same."
        ),
        "parameters": [*_headers(MESSAGE_HEADERS), *_SEND_HEADERS, *_query(SEND_PARAMETERS)],
        "requestBody": _body(
            {
                _OCTETS: {"schema": _BINARY},
                media.ENVELOPE: _reference("Envelope"),
                EVENT: {"schema": EVENT_SCHEMA},
                "*/*": {"schema": _BINARY},
            },
            required=False,
        ),
        "responses": {
            "200": _answer(
                "It was stored before, by the same key or sequence; this is the first result",
                {media.JSON: _reference("SendAnswer")},
                {**_POSITION_HEADERS, **_DUPLICATE},
            ),
            "201": _answer(
                "The message is stored", {media.JSON: _reference("SendAnswer")}, _POSITION_HEADERS
            ),
            "202": _answer(
                "With respond-async: in the log, and on the medium within half a second; with "
                "MQ-Transaction: prepared",
                {
                    media.JSON: {
                        "schema": {
                            "anyOf": [
                                _reference("SendAnswer")["schema"],
                                _reference("PreparedAnswer")["schema"],
                            ]
                        }
                    }
                },
                {
                    **_POSITION_HEADERS,
                    "Location": {"schema": TEXT, "description": "of the transaction"},
                },
            ),
            **_problems(*_TOPIC_ERRORS, 409, 410, 413, 415, 422),
        },
    },
    "send_batch": {
        "summary": "Send many messages",
        "description": (
            "Results come in request order. 200: all stored; 207: some; a problem with `results` "
            "when none. A batch without sharding keys goes to one queue unless `spread`. "
            f"An array of CloudEvents is taken as `{EVENTS}`, lines of text with `split=lines`."
        ),
        "parameters": [*_headers(BATCH_HEADERS), *_SEND_HEADERS, *_query(BATCH_PARAMETERS)],
        "requestBody": _body(
            {
                media.JSON: _reference("BatchRequest"),
                media.NDJSON: {
                    "schema": {**TEXT, "description": "one BatchEntry as JSON per line"}
                },
                media.FRAMES: {"schema": _BINARY},
                # CloudEvents are in the description: a body that may be an array makes some
                # generators write Python that does not run (isinstance with list[...]).
            },
            required=True,
        ),
        "responses": {
            "200": _answer(
                "All are stored",
                {
                    media.JSON: {
                        "schema": {
                            "anyOf": [
                                _reference("BatchAnswer")["schema"],
                                _reference("FrameAnswer")["schema"],
                            ]
                        }
                    }
                },
                {**_APPLIED_HEADER, **_DUPLICATE},
            ),
            "207": _answer(
                "Some are stored", {media.JSON: _reference("BatchAnswer")}, _APPLIED_HEADER
            ),
            **_problems(*_TOPIC_ERRORS, 409, 410, 413, 415, 422),
        },
    },
    "request_reply": {
        "summary": "Send a message and wait for the reply to it",
        "description": (
            "The request is stored and delivered like any message; its consumer finds "
            "`correlation_id` in it and answers with `POST /v1/replies/{correlation_id}`. Without "
            "a reply in time: 504, with `outcome: stored`. One more parameter, `body=base64`, "
            "forces bytes in a JSON answer; it is not listed, because generated clients call the "
            "request body `body`."
        ),
        "parameters": [
            *_headers(REQUEST_HEADERS),
            _PREFER_WAIT,
            _ENCODING,
            *_query(REQUEST_PARAMETERS - {"body"}),
        ],
        "requestBody": _body(
            {
                _OCTETS: {"schema": _BINARY},
                media.ENVELOPE: _reference("Envelope"),
                "*/*": {"schema": _BINARY},
            },
            required=False,
        ),
        "responses": {
            "200": _answer(
                "The reply, as JSON; with format=raw its body",
                {media.JSON: _reference("RequestAnswer"), _OCTETS: {"schema": _BINARY}},
                {
                    "MQ-Correlation-Id": {"schema": TEXT},
                    "MQ-Message-Id": {"schema": TEXT, "description": "of the request"},
                    "MQ-Replied-Ms": {"schema": INTEGER},
                    "MQ-Tag": {"schema": TEXT},
                    "MQ-Keys": {"schema": TEXT},
                    "MQ-Properties": {"schema": TEXT},
                    "traceparent": {"schema": TEXT},
                    "tracestate": {"schema": TEXT},
                    **_APPLIED,
                },
            ),
            **_problems(*_TOPIC_ERRORS, 406, 409, 413, 415, 504),
        },
    },
    "reply_to_request": {
        "summary": "Answer a request",
        "description": (
            "The body is the reply, or an envelope with it. It goes to the request that waits, and "
            "is not stored: 410 when nobody waits for it any more."
        ),
        "parameters": [*_headers(REPLY_HEADERS), _ENCODING, *_query(REPLY_PARAMETERS)],
        "requestBody": _body(
            {
                _OCTETS: {"schema": _BINARY},
                media.ENVELOPE: _reference("Envelope"),
                "*/*": {"schema": _BINARY},
            },
            required=False,
        ),
        "responses": {
            "200": _answer("Handed over", {media.JSON: _reference("ReplyAnswer")}),
            **_problems(404, 410, 413, 415),
        },
    },
    "browse_messages": {
        "summary": "Look through the messages of all queues",
        "description": (
            "In the order in which they were stored, newest first unless asked otherwise. All "
            "conditions that are given must hold. One request looks at so many messages; an empty "
            "page with `next_cursor` means: go on there. Nothing is leased or kept."
        ),
        "parameters": _query(BROWSE_PARAMETERS),
        "responses": {
            "200": _answer(
                "Messages, or none",
                {
                    media.JSON: _reference("BrowseAnswer"),
                    media.NDJSON: {
                        "schema": {**TEXT, "description": "one MessageView as JSON per line"}
                    },
                },
                {
                    **NOT_KEPT,
                    "MQ-Next-Cursor": {"schema": TEXT, "description": "NDJSON only"},
                    "MQ-Scanned": {"schema": INTEGER, "description": "NDJSON only"},
                    "MQ-Gaps": {"schema": TEXT, "description": "NDJSON only; as `gaps`"},
                },
            ),
            **_problems(404, 406, 413),
        },
    },
    "pull_messages": {
        "summary": "Read messages of a queue from an offset on",
        "description": (
            "Nothing is leased; the caller keeps `next_offset`. Exactly one of offset, "
            "timestamp_ms and tail says where to start. A range that `offset` and `until_offset` "
            "name and that lies below the end never changes: its answer has an ETag and may be "
            "kept (its min_offset, max_offset and up_to_date are those of that moment)."
        ),
        "parameters": [_PREFER_WAIT, _IF_NONE_MATCH, *_query(PULL_PARAMETERS)],
        "responses": {
            "200": _answer(
                "Messages, or none",
                {
                    media.JSON: _reference("PullAnswer"),
                    media.NDJSON: {
                        "schema": {**TEXT, "description": "one MessageView as JSON per line"}
                    },
                    media.FRAMES: {"schema": _BINARY},
                    EVENTS: {"schema": {"type": "array", "items": EVENT_SCHEMA}},
                },
                {**_PULL_HEADERS, **CACHE_HEADERS, **QUOTA_HEADERS},
            ),
            "304": {"description": "As `If-None-Match` has it", "headers": CACHE_HEADERS},
            **_problems(404, 406, 410, 413, 416, 429),
        },
    },
    "receive_messages": {
        "summary": "Lease messages for a group",
        "description": (
            "Each message is given to one consumer of the group, until it is settled or its "
            "invisible time ends. The body may be empty; query parameters win over it. One more "
            "parameter, `body=base64`, forces bytes; it is not listed, because generated clients "
            "call the request body `body`. A group whose members read the topic, or that commits "
            "offsets in it, leases nothing of it: 409 `CONSUMPTION_CONFLICT`."
        ),
        "parameters": [_PREFER_WAIT, *_query(RECEIVE_PARAMETERS - {"body"})],
        "requestBody": _json_body("ReceiveBody", required=False),
        "responses": {
            "200": _answer(
                "Messages, or none; with format=raw the body of one message",
                {media.JSON: _reference("ReceiveAnswer"), _OCTETS: {"schema": _BINARY}},
                {**RAW_MESSAGE_HEADERS, **_LEASE_HEADERS, **_APPLIED, **QUOTA_HEADERS},
            ),
            "204": {
                "description": "No message (format=raw)",
                "headers": {**_APPLIED, **QUOTA_HEADERS},
            },
            **_problems(404, 406, 409, 413, 415, 429),
        },
    },
    "stream_topic": {
        "summary": "Follow a topic without a group",
        "description": (
            "Server-sent events, or lines of JSON, until something ends it; the `end` event or "
            "line says what. The id of an event is a cursor over all queues, to go on from with "
            "`cursor` or `Last-Event-ID`, which outweighs the query. Heartbeats are comments or "
            "empty lines. Without a start the stream begins at the end of the topic. With "
            "`clamp`, what retention took is reported as a gap instead of an error."
        ),
        "parameters": [_LAST_EVENT_ID, *_query(TOPIC_STREAM_PARAMETERS)],
        "responses": {
            "200": _stream("MessageView"),
            **_problems(404, 406, 410, 413, 416, 429),
        },
    },
    "stream_group": {
        "summary": "Follow a topic as a group, with leases",
        "description": (
            "Messages are leased to this stream, at most `credit` unsettled ones at a time; "
            "settling them by the usual calls makes room. When the client leaves, what was not "
            "sent is given back at once; what was sent stays leased until its invisible time ends."
        ),
        "parameters": _query(GROUP_STREAM_PARAMETERS),
        "responses": {
            "200": _stream("DeliveredMessage"),
            **_problems(404, 406, 409, 413, 429),
        },
    },
    "settle_messages": {
        **_settle(
            "SettleBody",
            "Ack, nack, extend and dead-letter messages, or ack and send",
            *_TOPIC_ERRORS,
            409,
        ),
        "description": (
            "One result per handle. Acks with `sends` are one atomic step: with one handle that is "
            "not live or one message that is not valid nothing is done, and the problem has the "
            "`results` and `sends` that say which. There a handle works once."
        ),
    },
    "ack_messages": _settle("AckBody", "Acknowledge messages"),
    "nack_messages": _settle("NackBody", "Give messages back"),
    "extend_messages": _settle("ExtendBody", "Keep messages longer"),
    "dead_letter_messages": _settle("DeadLetterBody", "Give messages up"),
    "ack_receipt": {
        "summary": "Acknowledge one message",
        "responses": {"204": {"description": "Acknowledged"}, **_problems(404, 410)},
    },
    "change_receipt": {
        "summary": "Extend, nack or dead-letter one message",
        "description": "Query parameters win over the body, which may be empty.",
        "parameters": _query(RECEIPT_PARAMETERS),
        "requestBody": _json_body("ReceiptChange", required=False),
        "responses": {
            "200": _answer("Done", {media.JSON: _reference("ReceiptAnswer")}),
            **_problems(404, 410, 413, 415),
        },
    },
}
