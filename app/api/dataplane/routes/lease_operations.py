"""Operations that give messages to a group: receive, stream, poll."""

from typing import Final

from app.api.aims.across import InTurn, Leased, Polled
from app.api.dataplane.polling.poll_requests import POLL_PARAMETERS
from app.api.dataplane.polling.shapes import PollAnswer, PollBody
from app.api.dataplane.receiving import RECEIVE_PARAMETERS
from app.api.dataplane.routes.paths_and_answers import APPLIED, GROUP_PATH, SUB_GROUP, stream_of
from app.api.dataplane.streaming import GROUP_STREAM_PARAMETERS
from app.api.formats import media, wire
from app.api.operations.answers import (
    BINARY,
    QUOTA_HEADERS,
    RAW_MESSAGE_HEADERS,
)
from app.api.operations.operation import Answer, Body, Json, Operation
from app.api.operations.parameters import (
    CLIENT_ID,
    CONTENT_ENCODING,
    INTEGER,
    POSITIVE,
    PREFER_WAIT,
    TEXT,
)

_LEASE: Final[Json] = {
    "MQ-Receipt-Handle": {"schema": TEXT},
    "MQ-Delivery-Attempt": {"schema": POSITIVE},
    "MQ-Max-Attempts": {"schema": POSITIVE},
    "MQ-Invisible-Until-Ms": {"schema": INTEGER},
}

_PARTIAL: Final[Json] = {
    "MQ-Partial": {
        "schema": TEXT,
        "description": "format=raw: shards that could not be asked, as a list in JSON",
    }
}

RECEIVE_MESSAGES: Final = Operation(
    operation_id="receive_messages",
    waits="body",
    route=f"POST {GROUP_PATH}/messages:receive",
    summary="Lease messages for a group",
    needs=SUB_GROUP,
    makes=("group",),
    description=(
        "Each message is given to one consumer of the group, until it is settled or its "
        "invisible time ends. The body may be empty; query parameters win over it. One more "
        "parameter, `body=base64`, forces bytes; it is not listed, because generated clients "
        "call the request body `body`. A group whose members read the topic, or that commits "
        "offsets in it, leases nothing of it: 409 `CONSUMPTION_CONFLICT`."
    ),
    headers=(PREFER_WAIT, CLIENT_ID),
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
            wire.ReceiveAnswer,
            {**RAW_MESSAGE_HEADERS, **_LEASE, **_PARTIAL, **APPLIED, **QUOTA_HEADERS},
            when_asked={media.OCTETS: BINARY},
        ),
        204: Answer(
            "No message (format=raw)",
            headers={**_PARTIAL, **APPLIED, **QUOTA_HEADERS},
            is_asked_for=True,
        ),
    },
    problems=(404, 406, 409, 429, 507),
    reads=True,
    across=InTurn(),
)

STREAM_GROUP: Final = Operation(
    operation_id="stream_group",
    route=f"GET {GROUP_PATH}/stream",
    summary="Follow a topic as a group, with leases",
    needs=SUB_GROUP,
    makes=("group",),
    description=(
        "Messages are leased to this stream, at most `credit` unsettled ones at a time; "
        "settling them by the usual calls makes room. When the client leaves, what was not "
        "sent is given back at once; what was sent stays leased until its invisible time ends."
    ),
    headers=(CLIENT_ID,),
    query=GROUP_STREAM_PARAMETERS,
    answers={200: stream_of("DeliveredMessage")},
    problems=(404, 406, 409, 413, 429, 507),
    reads=True,
    leases_by_get=True,
    across=Leased(),
)

POLL: Final = Operation(
    operation_id="poll_queues",
    waits="body",
    route="POST /v1/groups/{group}/members:poll",
    summary="Stay a member, read all assigned queues, commit and hand back, in one request",
    needs=SUB_GROUP,
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
                    {"topic": "orders", "queue_id": 0, "offset": 120, "since_generation": 1},
                ],
                "hand_backs": [
                    {"topic": "orders", "queue_id": 0, "queue_offset": 117, "reason": "busy"},
                ],
            },
        },
    ),
    answers={
        200: Answer(
            f"The member's share, and messages or none; by `Accept: {media.FRAMES}` as a "
            "multipart/mixed of JSON and frames",
            PollAnswer,
            {
                **APPLIED,
                **QUOTA_HEADERS,
                "MQ-Store-Id": {"schema": TEXT, "description": "frames only"},
            },
            when_asked={
                "multipart/mixed": {**BINARY, "description": "JSON, then one frame for each queue"},
            },
        ),
    },
    problems=(404, 406, 409, 429, 507),
    reads=True,
    across=Polled(),
)
