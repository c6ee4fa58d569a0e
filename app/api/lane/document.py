"""What the lane's operations look like in the OpenAPI document. Pure; read by `openapi` only.

The schemas come from the wire structs; names of parameters and headers from the handlers' own
tables, so that none is forgotten. A test sends through the lane and validates against this.
"""

from typing import Any, Final

from app.api.cloudevents import EVENT, EVENTS
from app.api.documentation import (
    CACHE_HEADERS,
    EVENT_SCHEMA,
    QUOTA_HEADERS,
    RAW_MESSAGE_HEADERS,
    problem_responses,
)
from app.api.lane import media
from app.api.lane.browsing import BROWSE_PARAMETERS
from app.api.lane.metadata import (
    BATCH_HEADERS,
    MESSAGE_HEADERS,
    SEND_PARAMETERS,
    display_header,
)
from app.api.lane.operations import build_lane
from app.api.lane.pulling import PULL_PARAMETERS
from app.api.lane.receiving import RECEIVE_PARAMETERS
from app.api.lane.sending import BATCH_PARAMETERS
from app.api.lane.settling import RECEIPT_PARAMETERS
from app.api.lane.streaming import GROUP_STREAM_PARAMETERS, TOPIC_STREAM_PARAMETERS

Json = dict[str, Any]

_OCTETS: Final = "application/octet-stream"
_BINARY: Final[Json] = {"type": "string", "format": "binary"}
_TEXT: Final[Json] = {"type": "string"}
_INTEGER: Final[Json] = {"type": "integer", "minimum": 0}
_POSITIVE: Final[Json] = {"type": "integer", "minimum": 1}
_FLAG: Final[Json] = {"type": "boolean", "default": False}
_DURATION: Final[Json] = {"type": "string", "examples": ["30s"]}

_PARAMETERS: Final[dict[str, tuple[Json, str]]] = {
    "action": ({"type": "string", "enum": ["extend", "nack"]}, "what to do with the lease"),
    "at": (_TEXT, "where to start: earliest, latest (the default), or epoch milliseconds"),
    "attempt_id": (_TEXT, "the same id returns the same messages, so a lost answer loses nothing"),
    "body": (
        {"type": "string", "enum": ["auto", "base64"], "default": "auto"},
        "base64: the bytes, whatever they are",
    ),
    "born_time_ms": (_INTEGER, "when the message was made, by the producer's clock"),
    "clamp": (_FLAG, "move an offset outside the bounds to the nearest one, and say so"),
    "credit": (_POSITIVE, "at most so many unsettled messages at a time; default 16"),
    "cursor": (_TEXT, "where to go on: next_cursor of a page, or the cursor of a streamed message"),
    "delay": (_DURATION, "deliver no sooner than after this time; on a send also level:1 to 18"),
    "deliver_at_ms": (_TEXT, "deliver at this time: epoch milliseconds, or RFC 3339"),
    "delay_ms": (_INTEGER, "as delay, in milliseconds"),
    "duration": (_DURATION, "end the stream after so long"),
    "direction": (
        {"type": "string", "enum": ["forward", "backward"]},
        "forward: the oldest first; default: the cursor's, else backward",
    ),
    "durability": (
        {"type": "string", "enum": ["memory", "flushed"]},
        "answer after the write, or after the data is on the medium; default: the topic's",
    ),
    "filter": (
        _TEXT,
        "a tag expression (*, or tags separated by ||), or sql: and a condition over properties",
    ),
    "format": (
        {"type": "string", "enum": ["json", "raw"], "default": "json"},
        "raw: one message as the HTTP body, metadata in headers",
    ),
    "from_ms": (_INTEGER, "stored at this time or later"),
    "idempotency_key": (_TEXT, "a repeated request with the same key gets the first result"),
    "invisible": (_DURATION, "how long nobody else gets the message"),
    "invisible_ms": (_POSITIVE, "as invisible, in milliseconds"),
    "key": (_TEXT, "one of the message's keys, or the id that its producer gave"),
    "keys": (_TEXT, "look-up values, separated by spaces"),
    "max_bytes": (_POSITIVE, "at most so many bytes, but at least one message"),
    "max_messages": (_POSITIVE, "at most so many messages"),
    "min_messages": (_POSITIVE, "a waiting pull is answered as soon as there are so many"),
    "offset": (_INTEGER, "start at this offset"),
    "producer_group": (_TEXT, "who is asked when a transaction is not decided in time"),
    "page_size": (_POSITIVE, "at most so many messages"),
    "property": (
        {"type": "string", "pattern": "^[^=]+=", "examples": ["region=eu"]},
        "name=value of a property",
    ),
    "producer_epoch": (_INTEGER, "the producer's instance; a newer one fences older ones off"),
    "producer_id": (_TEXT, "with epoch and seq: store the messages once, in sequence"),
    "producer_seq": (_INTEGER, "number of the first message; from 0 on in each epoch"),
    "properties": (_TEXT, "a JSON object of texts"),
    "queue_id": (_INTEGER, "the queue; default: by sharding key, else in turn"),
    "reason": (_TEXT, "why the message is given back"),
    "sharding_key": (_TEXT, "messages with the same key go to the same queue, in order"),
    "spread": (_FLAG, "spread the batch over the queues instead of sending it to one"),
    "split": (
        {"type": "string", "enum": ["lines"]},
        "lines: every line of the body is a message, without its line feed; empty lines are none",
    ),
    "tag": (_TEXT, "the filter label"),
    "tail": (_INTEGER, "start so many messages before the end"),
    "text": (_TEXT, "part of the body; capitals count"),
    "timestamp_ms": (_INTEGER, "start at the first message stored at or after this time"),
    "transaction": (
        {**_TEXT, "examples": ["prepare; group=pg1; check-after=30s"]},
        "store the message invisibly until POST /v1/transactions/{id}:commit",
    ),
    "until_ms": (_INTEGER, "stored before this time"),
    "until_offset": (_INTEGER, "read below this offset only"),
    "until_timestamp_ms": (_INTEGER, "read only what was stored before this time"),
    "wait": (_TEXT, "how long to wait for messages: seconds, or a duration such as 20s"),
}
"""Query parameters, and headers by their alias."""

_TIMING_HEADER: Final[Json] = {
    "Server-Timing": {"schema": _TEXT, "description": "store;dur=…: milliseconds until stored"}
}
_APPLIED: Final[Json] = {
    "Preference-Applied": {
        "schema": _TEXT,
        "description": "of what was asked for, what was done",
    }
}
_POSITION_HEADERS: Final[Json] = {
    "MQ-Message-Id": {"schema": _TEXT},
    "MQ-Queue-Id": {"schema": _INTEGER, "description": "with Prefer: return=minimal"},
    "MQ-Queue-Offset": {"schema": _INTEGER, "description": "with Prefer: return=minimal"},
    "MQ-Recall-Handle": {
        "schema": _TEXT,
        "description": "with Prefer: return=minimal, of a delayed message",
    },
    "MQ-Deliver-Time-Ms": {
        "schema": _INTEGER,
        "description": "with Prefer: return=minimal, of a delayed message",
    },
    "MQ-Store-Time-Ms": {"schema": _INTEGER, "description": "with Prefer: return=minimal"},
    **_TIMING_HEADER,
    **_APPLIED,
}
_APPLIED_HEADER: Final[Json] = {
    **_APPLIED,
    **_TIMING_HEADER,
}
_DUPLICATE: Final[Json] = {
    "MQ-Duplicate": {"schema": _TEXT, "description": "true: the result of an earlier request"}
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
    schema = _INTEGER if name == "queue" else _TEXT
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(names: frozenset[str]) -> list[Json]:
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": _PARAMETERS[name][0],
            "description": _PARAMETERS[name][1],
        }
        for name in sorted(names)
    ]


def _headers(aliases: dict[bytes, str]) -> list[Json]:
    return [
        {
            "name": display_header(name),
            "in": "header",
            "required": False,
            "schema": _PARAMETERS[alias][0],
            "description": _PARAMETERS[alias][1] + f" (query: {alias})",
        }
        for name, alias in sorted(aliases.items())
    ]


_PREFER: Final[Json] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "schema": _TEXT,
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
    "schema": _TEXT,
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
    "schema": _TEXT,
    "description": "the ETag of an answer that is there already: 304 when it is still this one",
}
_LAST_EVENT_ID: Final[Json] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": _TEXT,
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
            media.NDJSON: {"schema": {**_TEXT, "description": f"one {view} as JSON per line"}},
        },
        {"Cache-Control": {"schema": _TEXT}, "X-Accel-Buffering": {"schema": _TEXT}},
    )


def _settle(name: str, summary: str) -> Json:
    return {
        "summary": summary,
        "requestBody": _json_body(name),
        "responses": {
            "200": _answer("All succeeded", {media.JSON: _reference("SettleAnswer")}),
            "207": _answer("Some succeeded", {media.JSON: _reference("SettleAnswer")}),
            **_problems(404, 410, 413, 415),
        },
    }


def _problems(*statuses: int) -> Json:
    return {str(status): answer for status, answer in problem_responses(*statuses).items()}


_PULL_HEADERS: Final[Json] = {
    **_APPLIED,
    "MQ-Pull-Status": {"schema": {"type": "string"}},
    "MQ-Next-Offset": {"schema": _INTEGER},
    "MQ-Min-Offset": {"schema": _INTEGER},
    "MQ-Max-Offset": {"schema": _INTEGER},
    "MQ-Up-To-Date": {"schema": {"type": "boolean"}},
    "MQ-Scanned": {"schema": _INTEGER},
    "MQ-Store-Id": {
        "schema": _TEXT,
        "description": "frames only: 8 hex digits, part of ids derived from positions",
    },
    "MQ-Clamped": {"schema": {"type": "boolean"}},
    "MQ-Gaps": {"schema": _TEXT, "description": "JSON, as `gaps` of the JSON answer"},
}

_LEASE_HEADERS: Final[Json] = {
    "MQ-Receipt-Handle": {"schema": _TEXT},
    "MQ-Delivery-Attempt": {"schema": _POSITIVE},
    "MQ-Max-Attempts": {"schema": _POSITIVE},
    "MQ-Invisible-Until-Ms": {"schema": _INTEGER},
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
            "(names in lower case), in `prop_<name>` parameters, or in MQ-Properties. Of a header "
            "and its query alias the alias wins."
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
                    "Location": {"schema": _TEXT, "description": "of the transaction"},
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
                    "schema": {**_TEXT, "description": "one BatchEntry as JSON per line"}
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
                        "schema": {**_TEXT, "description": "one MessageView as JSON per line"}
                    },
                },
                {
                    "MQ-Next-Cursor": {"schema": _TEXT, "description": "NDJSON only"},
                    "MQ-Scanned": {"schema": _INTEGER, "description": "NDJSON only"},
                    "MQ-Gaps": {"schema": _TEXT, "description": "NDJSON only; as `gaps`"},
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
                        "schema": {**_TEXT, "description": "one MessageView as JSON per line"}
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
            "call the request body `body`."
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
            **_problems(404, 413, 415, 429),
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
            **_problems(404, 406, 413, 429),
        },
    },
    "settle_messages": _settle("SettleBody", "Ack, nack and extend messages"),
    "ack_messages": _settle("AckBody", "Acknowledge messages"),
    "nack_messages": _settle("NackBody", "Give messages back"),
    "extend_messages": _settle("ExtendBody", "Keep messages longer"),
    "ack_receipt": {
        "summary": "Acknowledge one message",
        "responses": {"204": {"description": "Acknowledged"}, **_problems(404, 410)},
    },
    "change_receipt": {
        "summary": "Extend or nack one message",
        "description": "Query parameters win over the body, which may be empty.",
        "parameters": _query(RECEIPT_PARAMETERS),
        "requestBody": _json_body("ReceiptChange", required=False),
        "responses": {
            "200": _answer("Done", {media.JSON: _reference("ReceiptAnswer")}),
            **_problems(404, 410, 413, 415),
        },
    },
}
