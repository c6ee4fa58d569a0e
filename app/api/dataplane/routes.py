"""The operations of the data plane: each described once, and routed to its handler."""

from functools import partial
from typing import Final

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.dataplane.browsing import BROWSE_PARAMETERS, Browsing
from app.api.dataplane.polling.poll_requests import POLL_PARAMETERS
from app.api.dataplane.polling.polling import Polling
from app.api.dataplane.polling.shapes import PollAnswer, PollBody
from app.api.dataplane.pulling import PULL_PARAMETERS, Pulling
from app.api.dataplane.receiving import RECEIVE_PARAMETERS, Receiving
from app.api.dataplane.requesting import (
    REPLY_HEADERS,
    REPLY_PARAMETERS,
    REQUEST_HEADERS,
    REQUEST_PARAMETERS,
    Requesting,
)
from app.api.dataplane.router import Router
from app.api.dataplane.sending import BATCH_PARAMETERS, Sending
from app.api.dataplane.settling import RECEIPT_PARAMETERS, Settling
from app.api.dataplane.streaming import GROUP_STREAM_PARAMETERS, TOPIC_STREAM_PARAMETERS, Streaming
from app.api.formats import media, wire
from app.api.formats.cloudevents import EVENT, EVENTS
from app.api.formats.mq_headers import BATCH_HEADERS, MESSAGE_HEADERS, SEND_PARAMETERS
from app.api.operations.answers import (
    BINARY,
    CACHE_HEADERS,
    EVENT_SCHEMA,
    NOT_KEPT,
    QUOTA_HEADERS,
    RAW_MESSAGE_HEADERS,
    STREAM_EVENT,
)
from app.api.operations.operation import Action, Answer, Body, Json, Operation, Resource
from app.api.operations.parameters import (
    CONTENT_ENCODING,
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    INTEGER,
    LAST_EVENT_ID,
    POSITIVE,
    PREFER,
    PREFER_WAIT,
    TEXT,
)
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.domain.limits import Limits

_TIMING: Final[Json] = {
    "Server-Timing": {"schema": TEXT, "description": "store;dur=…: milliseconds until stored"}
}
_APPLIED: Final[Json] = {
    "Preference-Applied": {"schema": TEXT, "description": "of what was asked for, what was done"}
}
_DUPLICATE: Final[Json] = {
    "MQ-Duplicate": {"schema": TEXT, "description": "true: the result of an earlier request"}
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
    **_TIMING,
    **_APPLIED,
}
_REPLY: Final[Json] = {
    "MQ-Correlation-Id": {"schema": TEXT},
    "MQ-Message-Id": {"schema": TEXT, "description": "of the request"},
    "MQ-Replied-Ms": {"schema": INTEGER},
    **{name: {"schema": TEXT} for name in ("MQ-Tag", "MQ-Keys", "MQ-Properties")},
    **{name: {"schema": TEXT} for name in ("traceparent", "tracestate")},
    **_APPLIED,
}
_PULL: Final[Json] = {
    **_APPLIED,
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
_BROWSE: Final[Json] = {
    **NOT_KEPT,
    "MQ-Next-Cursor": {"schema": TEXT, "description": "NDJSON only"},
    "MQ-Scanned": {"schema": INTEGER, "description": "NDJSON only"},
    "MQ-Gaps": {"schema": TEXT, "description": "NDJSON only; as `gaps`"},
}
_LEASE: Final[Json] = {
    "MQ-Receipt-Handle": {"schema": TEXT},
    "MQ-Delivery-Attempt": {"schema": POSITIVE},
    "MQ-Max-Attempts": {"schema": POSITIVE},
    "MQ-Invisible-Until-Ms": {"schema": INTEGER},
}
_STREAM: Final[Json] = {"Cache-Control": {"schema": TEXT}, "X-Accel-Buffering": {"schema": TEXT}}

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
_HANDLES: Final[Json] = {"receipt_handles": ["AgYHb3JkZXJzYmlsbGluZwAAAAA"]}
_HANDLE: Final = "AgYHb3JkZXJzYmlsbGluZwAAAAA"
_ENTRIES: Final[list[Json]] = [
    {"id": "a", "body": {"id": 17}, "tag": "created"},
    {"id": "b", "text": "paid", "sharding_key": "customer-4"},
]


def _lines_of(description: str) -> Json:
    return {**TEXT, "description": f"{description} as JSON per line"}


def _stream_of(view: str) -> Answer:
    content = {media.EVENT_STREAM: STREAM_EVENT, media.NDJSON: _lines_of(f"one {view}")}
    return Answer("Messages as they come", content, _STREAM)


_Named = NamedElsewhere | None
_TOPIC: Final = "/v1/topics/{topic}"
_GROUP: Final = _TOPIC + "/groups/{group}"
_SUB_GROUP: Final[dict[Resource, Action]] = {"topic": Action.SUB, "group": Action.SUB}

_send: Final = partial(Operation, needs={"topic": Action.PUB}, makes=("topic",), sends=True)

SEND_MESSAGE: Final = _send(
    operation_id="send_message",
    route=f"POST {_TOPIC}/messages",
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
                }
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
    route=f"POST {_TOPIC}/messages:batch",
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
            media.NDJSON: _lines_of("one BatchEntry"),
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
            "All are stored",
            {media.JSON: (wire.BatchAnswer, wire.FrameAnswer)},
            {**_APPLIED, **_TIMING, **_DUPLICATE},
        ),
        202: Answer("With MQ-One-Way: all are handed to the log; without a body"),
        207: Answer("Some are stored", wire.BatchAnswer, {**_APPLIED, **_TIMING}),
    },
    problems=(404, 409, 410, 422, 429, 504, 507),
)
REQUEST_REPLY: Final = _send(
    operation_id="request_reply",
    route=f"POST {_TOPIC}/messages:request",
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
            {media.JSON: wire.RequestAnswer, media.OCTETS: BINARY},
            _REPLY,
        )
    },
    problems=(404, 406, 409, 429, 504, 507),
)
REPLY_TO_REQUEST: Final = Operation(
    operation_id="reply_to_request",
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

_read: Final = partial(Operation, needs={"topic": Action.SUB}, reads=True)

BROWSE_MESSAGES: Final = _read(
    operation_id="browse_messages",
    route=f"GET {_TOPIC}/messages",
    summary="Look through the messages of all queues",
    description=(
        "In the order in which they were stored, newest first unless asked otherwise. All "
        "conditions that are given must hold. One request looks at so many messages; an empty "
        "page with `next_cursor` means: go on there. Nothing is leased or kept."
    ),
    query=BROWSE_PARAMETERS,
    answers={
        200: Answer(
            "Messages, or none",
            {media.JSON: wire.BrowseAnswer, media.NDJSON: _lines_of("one MessageView")},
            _BROWSE,
        )
    },
    problems=(406, 413),
)
PULL_MESSAGES: Final = _read(
    operation_id="pull_messages",
    route=f"GET {_TOPIC}/queues/{{queue}}/messages",
    summary="Read messages of a queue from an offset on",
    description=(
        "Nothing is leased; the caller keeps `next_offset`. Exactly one of offset, "
        "timestamp_ms and tail says where to start. A range that `offset` and `until_offset` "
        "name and that lies below the end never changes: its answer has an ETag and may be "
        "kept (its min_offset, max_offset and up_to_date are those of that moment)."
    ),
    headers=(PREFER_WAIT, IF_NONE_MATCH),
    query=PULL_PARAMETERS,
    answers={
        200: Answer(
            "Messages, or none",
            {
                media.JSON: wire.PullAnswer,
                media.NDJSON: _lines_of("one MessageView"),
                media.FRAMES: BINARY,
                EVENTS: {"type": "array", "items": EVENT_SCHEMA},
            },
            {**_PULL, **CACHE_HEADERS, **QUOTA_HEADERS},
        ),
        304: Answer("As `If-None-Match` has it", headers=CACHE_HEADERS),
    },
    problems=(406, 410, 413, 416, 429),
)
RECEIVE_MESSAGES: Final = Operation(
    operation_id="receive_messages",
    route=f"POST {_GROUP}/messages:receive",
    summary="Lease messages for a group",
    needs=_SUB_GROUP,
    makes=("group",),
    description=(
        "Each message is given to one consumer of the group, until it is settled or its "
        "invisible time ends. The body may be empty; query parameters win over it. One more "
        "parameter, `body=base64`, forces bytes; it is not listed, because generated clients "
        "call the request body `body`. A group whose members read the topic, or that commits "
        "offsets in it, leases nothing of it: 409 `CONSUMPTION_CONFLICT`."
    ),
    headers=(PREFER_WAIT,),
    query=RECEIVE_PARAMETERS,
    body=Body(
        wire.ReceiveBody,
        examples={
            "wait for up to ten messages": {"max_messages": 10, "wait": "20s"},
            "with a filter and longer leases": {"filter": "created || paid", "invisible": "5m"},
        },
    ),
    answers={
        200: Answer(
            "Messages, or none; with format=raw the body of one message",
            {media.JSON: wire.ReceiveAnswer, media.OCTETS: BINARY},
            {**RAW_MESSAGE_HEADERS, **_LEASE, **_APPLIED, **QUOTA_HEADERS},
        ),
        204: Answer("No message (format=raw)", headers={**_APPLIED, **QUOTA_HEADERS}),
    },
    problems=(404, 406, 409, 429),
    reads=True,
)
STREAM_TOPIC: Final = _read(
    operation_id="stream_topic",
    route=f"GET {_TOPIC}/stream",
    summary="Follow a topic without a group",
    description=(
        "Server-sent events, or lines of JSON, until something ends it; the `end` event or "
        "line says what. The id of an event is a cursor over all queues, to go on from with "
        "`cursor` or `Last-Event-ID`, which outweighs the query. Heartbeats are comments or "
        "empty lines. Without a start the stream begins at the end of the topic. With "
        "`clamp`, what retention took is reported as a gap instead of an error."
    ),
    headers=(LAST_EVENT_ID,),
    query=TOPIC_STREAM_PARAMETERS,
    answers={200: _stream_of("MessageView")},
    problems=(406, 410, 413, 416, 429),
)
STREAM_GROUP: Final = Operation(
    operation_id="stream_group",
    route=f"GET {_GROUP}/stream",
    summary="Follow a topic as a group, with leases",
    needs=_SUB_GROUP,
    makes=("group",),
    description=(
        "Messages are leased to this stream, at most `credit` unsettled ones at a time; "
        "settling them by the usual calls makes room. When the client leaves, what was not "
        "sent is given back at once; what was sent stays leased until its invisible time ends."
    ),
    query=GROUP_STREAM_PARAMETERS,
    answers={200: _stream_of("DeliveredMessage")},
    problems=(404, 406, 409, 413, 429),
    reads=True,
    leases_by_get=True,
)

_settle: Final = partial(
    Operation,
    needs=_SUB_GROUP,
    answers={
        200: Answer("All succeeded", wire.SettleAnswer),
        207: Answer("Some succeeded", wire.SettleAnswer),
    },
)

SETTLE_MESSAGES: Final = _settle(
    operation_id="settle_messages",
    route=f"POST {_GROUP}/messages:settle",
    summary="Ack, nack, extend, dead-letter and release messages, or ack and send",
    description=(
        "One result per handle. `releases` are handed back untouched: visible at once in their "
        "place, and no attempt is counted. Acks with `sends` are one atomic step: with one "
        "handle that is not live or one message that is not valid nothing is done, and the "
        "problem has the `results` and `sends` that say which. There a handle works once."
    ),
    body=Body(
        wire.SettleBody,
        required=True,
        examples={
            "one is done and one comes back": {
                "acks": [_HANDLE],
                "nacks": [{"receipt_handle": _HANDLE, "delay": "30s", "reason": "no stock"}],
            },
            "done and the next step sent in one": {
                "acks": [_HANDLE],
                "sends": [{"topic": "shipments", "body": {"id": 17}}],
            },
        },
    ),
    problems=(409, 410, 429, 507),
)
ACK_MESSAGES: Final = _settle(
    operation_id="ack_messages",
    route=f"POST {_GROUP}/messages:ack",
    summary="Acknowledge messages",
    body=Body(wire.AckBody, required=True, examples={"all are done": _HANDLES}),
    problems=(410,),
)
NACK_MESSAGES: Final = _settle(
    operation_id="nack_messages",
    route=f"POST {_GROUP}/messages:nack",
    summary="Give messages back",
    body=Body(
        wire.NackBody,
        required=True,
        examples={"again in half a minute": {**_HANDLES, "delay": "30s", "reason": "no stock"}},
    ),
    problems=(410,),
)
EXTEND_MESSAGES: Final = _settle(
    operation_id="extend_messages",
    route=f"POST {_GROUP}/messages:extend",
    summary="Keep messages longer",
    body=Body(
        wire.ExtendBody, required=True, examples={"a minute more": {**_HANDLES, "invisible": "60s"}}
    ),
    problems=(410,),
)
DEAD_LETTER_MESSAGES: Final = _settle(
    operation_id="dead_letter_messages",
    route=f"POST {_GROUP}/messages:dead-letter",
    summary="Give messages up",
    body=Body(
        wire.DeadLetterBody,
        required=True,
        examples={"nobody can handle these": {**_HANDLES, "reason": "no such customer"}},
    ),
    problems=(410,),
)
ACK_RECEIPT: Final = Operation(
    operation_id="ack_receipt",
    route="DELETE /v1/receipts/{handle}",
    summary="Acknowledge one message",
    needs={"receipt": Action.SUB},
    answers={204: Answer("Acknowledged")},
    problems=(410,),
)
CHANGE_RECEIPT: Final = Operation(
    operation_id="change_receipt",
    route="PATCH /v1/receipts/{handle}",
    summary="Extend, nack, dead-letter or release one message",
    needs={"receipt": Action.SUB},
    description="Query parameters win over the body, which may be empty.",
    query=RECEIPT_PARAMETERS,
    body=Body(
        wire.ReceiptChange,
        examples={
            "a minute more": {"action": "extend", "invisible": "60s"},
            "again in half a minute": {"action": "nack", "delay": "30s"},
        },
    ),
    answers={200: Answer("Done", wire.ReceiptAnswer)},
    problems=(410,),
)

POLL: Final = Operation(
    operation_id="poll_queues",
    route="POST /v1/groups/{group}/members:poll",
    summary="Stay a member, read all assigned queues, commit and hand back, in one request",
    needs=_SUB_GROUP,
    makes=("group",),
    tag="members",
    description=(
        "For groups whose members share the queues and read them by offset. One poll is a "
        "heartbeat, tells of rebalances, reads every assigned queue from its position on, commits "
        "offsets, and hands back what could not be dealt with; what was handed back comes as "
        "`retries` with receipt handles, which `settles` settles. An entry that cannot be done is "
        "in `refused` with its code, and the poll is 200. 409 `STALE_GENERATION`: the client is no "
        "member any more; drop everything and poll with generation 0. With `Accept: "
        f"{media.FRAMES}` the answer is `multipart/mixed`: the JSON without messages, then one "
        "frame for each queue, with `MQ-Topic` and `MQ-Queue-Id`. One more parameter, "
        "`body=base64`, forces bytes in JSON; it is not listed, because generated clients call the "
        "request body `body`."
    ),
    headers=(PREFER_WAIT, CONTENT_ENCODING),
    query=POLL_PARAMETERS,
    body=Body(
        PollBody,
        required=True,
        examples={
            "join and read": {
                "client_id": "worker-1",
                "subscriptions": [{"topic": "orders"}],
                "generation": 0,
                "wait": "20s",
            },
            "go on, commit and hand back": {
                "client_id": "worker-1",
                "subscriptions": [{"topic": "orders"}],
                "generation": 3,
                "assignment_id": "3-2b1f0c9a",
                "wait": "20s",
                "max_poll_interval": "2m",
                "positions": [{"topic": "orders", "queue_id": 0, "offset": 132}],
                "commits": [
                    {"topic": "orders", "queue_id": 0, "offset": 120, "since_generation": 1}
                ],
                "hand_backs": [
                    {"topic": "orders", "queue_id": 0, "queue_offset": 117, "reason": "busy"}
                ],
            },
        },
    ),
    answers={
        200: Answer(
            "The member's share, and messages or none",
            {
                media.JSON: PollAnswer,
                "multipart/mixed": {**BINARY, "description": "JSON, then one frame for each queue"},
            },
            {
                **_APPLIED,
                **QUOTA_HEADERS,
                "MQ-Store-Id": {"schema": TEXT, "description": "frames only"},
            },
        )
    },
    problems=(404, 406, 409, 429),
    reads=True,
)

OPERATIONS: Final = (
    *(SEND_MESSAGE, SEND_BATCH, REQUEST_REPLY, REPLY_TO_REQUEST),
    *(BROWSE_MESSAGES, PULL_MESSAGES, RECEIVE_MESSAGES, STREAM_TOPIC, STREAM_GROUP),
    *(SETTLE_MESSAGES, ACK_MESSAGES, NACK_MESSAGES, EXTEND_MESSAGES, DEAD_LETTER_MESSAGES),
    *(ACK_RECEIPT, CHANGE_RECEIPT, POLL),
)


def build_router(
    broker: Broker, limits: Limits, traffic: RequestMetrics | None = None, named: _Named = None
) -> Router:
    """The routes to handlers, which count in `traffic`; `named` asks for what paths do not name."""
    parts = broker, limits, traffic or RequestMetrics()
    more = *parts, named or NamedElsewhere(None, None)
    sending, requesting, browsing = Sending(*parts), Requesting(*parts), Browsing(*parts)
    pulling, receiving, streaming = Pulling(*parts), Receiving(*more), Streaming(*more)
    settling, polling = Settling(*more), Polling(*more)
    return Router(
        {
            SEND_MESSAGE: sending.send,
            SEND_BATCH: sending.send_batch,
            REQUEST_REPLY: requesting.request,
            REPLY_TO_REQUEST: requesting.reply,
            BROWSE_MESSAGES: browsing.browse,
            PULL_MESSAGES: pulling.pull,
            RECEIVE_MESSAGES: receiving.receive,
            STREAM_TOPIC: streaming.stream_topic,
            STREAM_GROUP: streaming.stream_group,
            SETTLE_MESSAGES: settling.settle,
            ACK_MESSAGES: settling.ack,
            NACK_MESSAGES: settling.nack,
            EXTEND_MESSAGES: settling.extend,
            DEAD_LETTER_MESSAGES: settling.dead_letter,
            ACK_RECEIPT: settling.delete_receipt,
            CHANGE_RECEIPT: settling.change_receipt,
            POLL: polling.poll,
        }
    )
