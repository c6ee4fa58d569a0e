"""Operations that store messages: send, batch, request and reply."""

from functools import partial
from typing import Final

from app.api.aims.across import Split
from app.api.aims.of_names import A_REPLY
from app.api.aims.of_sends import A_BATCH, A_MESSAGE
from app.api.dataplane.requesting import (
    REPLY_HEADERS,
    REPLY_PARAMETERS,
    REQUEST_HEADERS,
    REQUEST_PARAMETERS,
)
from app.api.dataplane.routes.paths_and_answers import APPLIED, TIMING, TOPIC_PATH, lines_of
from app.api.dataplane.sending import BATCH_PARAMETERS
from app.api.formats import media, wire
from app.api.formats.cloudevents import EVENT, EVENTS
from app.api.formats.mq_headers import BATCH_HEADERS, MESSAGE_HEADERS, SEND_PARAMETERS
from app.api.operations.answers import BINARY, EVENT_SCHEMA
from app.api.operations.operation import Action, Answer, Body, Json, Operation
from app.api.operations.parameters import (
    CONTENT_ENCODING,
    IDEMPOTENCY_KEY,
    INTEGER,
    PREFER,
    PREFER_WAIT,
    TEXT,
)

_DUPLICATE: Final[Json] = {
    "MQ-Duplicate": {"schema": TEXT, "description": "true: the result of an earlier request"},
}

_POSITION: Final[Json] = {
    "MQ-Message-Id": {"schema": TEXT},
    "MQ-Unique-Id": {"schema": TEXT, "description": "with Prefer: return=minimal"},
    "MQ-Stored-Encoding": {"schema": TEXT, "description": "how a body is kept packed"},
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
    **TIMING,
    **APPLIED,
}

_REPLY: Final[Json] = {
    "MQ-Correlation-Id": {"schema": TEXT},
    "MQ-Message-Id": {"schema": TEXT, "description": "of the request"},
    "MQ-Replied-Ms": {"schema": INTEGER},
    **{name: {"schema": TEXT} for name in ("MQ-Tag", "MQ-Keys", "MQ-Properties")},
    **{name: {"schema": TEXT} for name in ("traceparent", "tracestate")},
    **APPLIED,
}

_ENVELOPE: Final[dict[str, Json]] = {
    "JSON with a tag and a key": {"body": {"id": 17}, "tag": "created", "keys": ["order-17"]},
    "text of one customer in order": {"text": "paid", "sharding_key": "customer-4"},
}

_RAW: Final[dict[str, object]] = {"the message byte for byte": '{"id":17}'}

_MESSAGE: Final = Body(
    {media.OCTETS: BINARY, media.ENVELOPE: wire.Envelope, "*/*": BINARY},
    examples=_ENVELOPE,
    examples_by_kind={media.OCTETS: _RAW, "*/*": _RAW},
)

_ENTRIES: Final[list[Json]] = [
    {"id": "a", "body": {"id": 17}, "tag": "created"},
    {"id": "b", "text": "paid", "sharding_key": "customer-4"},
]

_send: Final = partial(Operation, needs={"topic": Action.PUB}, makes=("topic",), sends=True)

SEND_MESSAGE: Final = _send(
    operation_id="send_message",
    aim=A_MESSAGE,
    route=f"POST {TOPIC_PATH}/messages",
    summary="Send one message",
    description=(
        "The body is the message, byte for byte, whatever its Content-Type; only "
        f"`{media.ENVELOPE}` is read as an envelope and `{EVENT}` as a CloudEvent; with a "
        "`ce-specversion` header the body is the data of one. Its attributes are kept as "
        "properties `ce-<name>`, `partitionkey` also as the sharding key. Properties go in "
        "`MQ-Prop-<name>` headers "
        "(names in lower case), in `prop_<name>` parameters, or in MQ-Properties. What header, "
        "query alias and body say of the same thing must be the same."
    ),
    mq_headers=MESSAGE_HEADERS,
    headers=(PREFER, CONTENT_ENCODING, IDEMPOTENCY_KEY),
    query=SEND_PARAMETERS,
    body=Body(
        {
            media.OCTETS: BINARY,
            media.ENVELOPE: wire.Envelope,
            EVENT: EVENT_SCHEMA,
            "*/*": BINARY,
        },
        examples=_ENVELOPE,
        examples_by_kind={
            media.OCTETS: _RAW,
            "*/*": _RAW,
            EVENT: {
                "a CloudEvent": {
                    "specversion": "1.0",
                    "id": "17",
                    "source": "/shop",
                    "type": "order.created",
                    "data": {"id": 17},
                },
            },
        },
    ),
    answers={
        200: Answer(
            "It was stored before, by the same key or sequence; this is the first result",
            wire.SendAnswer,
            {**_POSITION, **_DUPLICATE},
        ),
        201: Answer("The message is stored", wire.SendAnswer, _POSITION),
        202: Answer(
            "With respond-async or `MQ-Durability: memory`: in the log, and on the medium at the "
            "next sync (`flush_interval_ms`); with MQ-Transaction: prepared; with MQ-One-Way: "
            "handed to the log, without a body",
            {media.JSON: (wire.SendAnswer, wire.PreparedAnswer)},
            {**_POSITION, "Location": {"schema": TEXT, "description": "of the transaction"}},
        ),
    },
    problems=(404, 409, 410, 422, 429, 504, 507),
    is_direct=True,
)

SEND_BATCH: Final = _send(
    operation_id="send_batch",
    aim=A_BATCH,
    across=Split(("messages",)),
    route=f"POST {TOPIC_PATH}/messages:batch",
    summary="Send many messages",
    description=(
        "Results come in request order. 200: all stored; 207: some; a problem with `results` "
        "when none. A batch without sharding keys goes to one queue unless `spread`. "
        f"An array of CloudEvents is taken as `{EVENTS}`, lines of text with `split=lines`."
    ),
    mq_headers=BATCH_HEADERS,
    headers=(PREFER, CONTENT_ENCODING, IDEMPOTENCY_KEY),
    query=BATCH_PARAMETERS,
    body=Body(
        {
            media.JSON: wire.BatchRequest,
            media.NDJSON: lines_of("one BatchEntry"),
            media.FRAMES: BINARY,
            # CloudEvents are in the description: a body that may be an array makes some
            # generators write Python that does not run (isinstance with list[...]).
        },
        required=True,
        examples={"two messages": {"messages": _ENTRIES}},
        examples_by_kind={
            media.NDJSON: {"a message per line": '{"body":{"id":17}}\n{"text":"paid"}\n'},
            media.FRAMES: {"a frame as the page of batch frames has it": "CRLW…"},
        },
    ),
    answers={
        200: Answer(
            "All are stored; of a frame, which came as one, its place (`FrameAnswer`)",
            wire.BatchAnswer,
            {**APPLIED, **TIMING, **_DUPLICATE},
            when_asked=wire.FrameAnswer,
        ),
        202: Answer(
            "With MQ-One-Way: all are handed to the log; without a body", is_asked_for=True
        ),
        207: Answer("Some are stored", wire.BatchAnswer, {**APPLIED, **TIMING}),
    },
    problems=(404, 409, 410, 422, 429, 504, 507),
)

REQUEST_REPLY: Final = _send(
    operation_id="request_reply",
    waits="always",
    aim=A_MESSAGE,
    route=f"POST {TOPIC_PATH}/messages:request",
    summary="Send a message and wait for the reply to it",
    description=(
        "The request is stored and delivered like any message; its consumer finds "
        "`correlation_id` in it and answers with `POST /v1/replies/{correlation_id}`. Without "
        "a reply in time: 504, with `outcome: stored`. One more parameter, `body=base64`, "
        "forces bytes in a JSON answer; it is not listed, because generated clients call the "
        "request body `body`."
    ),
    mq_headers=REQUEST_HEADERS,
    headers=(PREFER_WAIT, CONTENT_ENCODING),
    query=REQUEST_PARAMETERS,
    body=_MESSAGE,
    answers={
        200: Answer(
            "The reply, as JSON; with format=raw its body",
            wire.RequestAnswer,
            _REPLY,
            when_asked={media.OCTETS: BINARY},
        ),
    },
    problems=(404, 406, 409, 429, 504, 507),
)

REPLY_TO_REQUEST: Final = Operation(
    operation_id="reply_to_request",
    aim=A_REPLY,
    route="POST /v1/replies/{correlation_id}",
    summary="Answer a request",
    needs={"request": Action.SUB},
    description=(
        "The body is the reply, or an envelope with it. It goes to the request that waits, and "
        "is not stored: 410 when no request waits for it any more."
    ),
    mq_headers=REPLY_HEADERS,
    headers=(CONTENT_ENCODING,),
    query=REPLY_PARAMETERS,
    body=_MESSAGE,
    answers={200: Answer("Handed over", wire.ReplyAnswer)},
    problems=(410,),
)
