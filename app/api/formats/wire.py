"""Shapes of the data plane as JSON: what clients write, what they read. msgspec structs only.

Not here: how they are decoded (`decoding`) and filled (`rendering`), headers (`mq_headers`), query
parameters (`app.api.http.parameters`), the control plane (`app.api.control.schemas`). The
OpenAPI document takes the schemas of the hot operations from these structs, so a field added here
is documented by itself. Requests refuse unknown fields; answers may grow.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import force_setattr

from app.api.http.errors import EntryProblem
from app.api.naming.request_namespace import current_namespace, shown
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.handles.receipt import HANDLE_CHARS_MAX
from app.domain.limits import (
    ATTEMPT_ID_CHARS_MAX,
    CLIENT_ID_CHARS_MAX,
    CONTENT_TYPE_BYTES_MAX,
    DURATION_CHARS_MAX,
    ENTRY_ID_CHARS_MAX,
    FILTER_CHARS_MAX,
    KEY_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    NAME_CHARS_MAX,
    SHARDING_KEY_BYTES_MAX,
)
from app.domain.message import FLAG_MAX, FLAG_MIN

INT64_MAX: Final = 2**63 - 1

Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
EpochMs = Annotated[int, Meta(ge=0, le=INT64_MAX, description="epoch milliseconds")]
Duration = Annotated[
    str,
    Meta(
        max_length=DURATION_CHARS_MAX,
        description="a number and a unit: 250ms, 30s, 5m, 2h, 3d",
    ),
]
Delay = Annotated[
    str,
    Meta(
        max_length=DURATION_CHARS_MAX,
        description="30s, 2h, or level:3 for RocketMQ's third level",
    ),
]
Wait = Annotated[
    int | float | Annotated[str, Meta(max_length=DURATION_CHARS_MAX)],
    Meta(description="seconds, or a duration such as 20s"),
]

# Texts whose bounds others hold them to, by bytes where the description says so: `check_message`,
# names, filters, handles. Here they are said.
BodyText = Annotated[str, Meta(description="at most `body_bytes_max` bytes, of `GET /v1/limits`")]
TagText = Annotated[
    str,
    Meta(description="at most `tag_bytes_max` bytes", extra_json_schema={"maxLength": 128}),
]
KeyText = Annotated[
    str,
    Meta(
        description="at most `key_bytes_max` bytes",
        extra_json_schema={"maxLength": KEY_BYTES_MAX},
    ),
]
ShardingKeyText = Annotated[
    str,
    Meta(
        description="at most `sharding_key_bytes_max` bytes",
        extra_json_schema={"maxLength": SHARDING_KEY_BYTES_MAX},
    ),
]
ContentTypeText = Annotated[
    str,
    Meta(
        description="at most `content_type_bytes_max` bytes",
        extra_json_schema={"maxLength": CONTENT_TYPE_BYTES_MAX},
    ),
]
UniqueIdText = Annotated[
    str,
    Meta(
        description="the producer's own id of the message, visible ASCII",
        extra_json_schema={"minLength": 1, "maxLength": MESSAGE_ID_BYTES_MAX},
    ),
]
Flag = Annotated[
    int,
    Meta(ge=FLAG_MIN, le=FLAG_MAX, description="the producer's own number, which nobody looks at"),
]
PropertyText = Annotated[
    str,
    Meta(description="names and values together have at most `properties_bytes_max` bytes"),
]
ReasonText = Annotated[
    str, Meta(description="what is beyond `reason_bytes_max` bytes is cut; it is for people")
]
TopicText = Annotated[str, Meta(extra_json_schema={"maxLength": NAME_CHARS_MAX})]
ClientIdText = Annotated[str, Meta(extra_json_schema={"maxLength": CLIENT_ID_CHARS_MAX})]
FilterText = Annotated[str, Meta(extra_json_schema={"maxLength": FILTER_CHARS_MAX})]
CountAttempt = Annotated[
    bool,
    Meta(description="false, in a group in order: the message waits, and this is no attempt"),
]
HandleText = Annotated[str, Meta(extra_json_schema={"maxLength": HANDLE_CHARS_MAX})]
EntryId = Annotated[str, Meta(max_length=ENTRY_ID_CHARS_MAX)]
AttemptId = Annotated[str, Meta(max_length=ATTEMPT_ID_CHARS_MAX)]

_encode: Final = msgspec.json.Encoder().encode
_NAMES: Final = ("topic", "producer_group")
"""Fields of answers that are stored names."""


def encode(value: object) -> bytes:
    """`value` as JSON, with names as the request's own clients call them."""
    return _encode(_with_shown_names(value) if current_namespace() else value)


def encode_line(value: object) -> bytes:
    """`encode`, and a line feed: in a terminal the prompt comes on a line of its own. Written out,
    because each send and each settle ends here."""
    return _encode(_with_shown_names(value) if current_namespace() else value) + b"\n"


def _with_shown_names(value: object) -> object:
    """An answer, which is nobody else's, changed in place."""
    if isinstance(value, Struct):
        for field in value.__struct_fields__:
            inner = getattr(value, field)
            if field in _NAMES and isinstance(inner, str):
                force_setattr(value, field, shown(inner))
            elif isinstance(inner, list | Struct):
                _with_shown_names(inner)
    elif isinstance(value, list):
        for each in value:
            _with_shown_names(each)
    return value


# --- requests -------------------------------------------------------------------------------


class Envelope(Struct, forbid_unknown_fields=True, kw_only=True):
    """A message as JSON. Exactly one of `body` (any JSON), `text` and `body_base64` is given."""

    body: Raw | UnsetType = UNSET
    text: BodyText | None = None
    body_base64: bytes | None = None
    tag: TagText | None = None
    keys: list[KeyText] | None = None
    sharding_key: ShardingKeyText | None = None
    queue_id: Count | None = None
    properties: dict[str, PropertyText] | None = None
    content_type: ContentTypeText | None = None
    born_time_ms: EpochMs | None = None
    delay: Delay | None = None
    deliver_at_ms: EpochMs | None = None
    unique_id: UniqueIdText | None = None
    flag: Flag | None = None


class BatchEntry(Envelope, forbid_unknown_fields=True, kw_only=True):
    """One message of a batch. `id` is the caller's own and comes back in the result."""

    id: EntryId | None = None


class SendEntry(BatchEntry, forbid_unknown_fields=True, kw_only=True):
    """One message that is sent with acks, to a topic of its own."""

    topic: TopicText


class BatchRequest(Struct, forbid_unknown_fields=True):
    """The JSON form of a batch."""

    messages: list[BatchEntry]


class ReceiveBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What to lease. Every field has a query alias; given both ways they must say the same."""

    max_messages: Positive | None = None
    max_bytes: Positive | None = None
    min_messages: Positive | None = None
    wait: Wait | None = None
    invisible: Duration | None = None
    invisible_ms: Positive | None = None
    filter: FilterText | None = None
    attempt_id: AttemptId | None = None
    client_id: ClientIdText | None = None


class NackEntry(Struct, forbid_unknown_fields=True, kw_only=True):
    """Give one message back, to be delivered again after `delay` (default: the group's policy)."""

    receipt_handle: HandleText
    delay: Duration | None = None
    delay_ms: Count | None = None
    reason: ReasonText | None = None
    count_attempt: CountAttempt = True


class DeadLetterEntry(Struct, forbid_unknown_fields=True, kw_only=True):
    """Give one message up: it goes to the group's dead letters at once."""

    receipt_handle: HandleText
    reason: ReasonText | None = None


class ExtendEntry(Struct, forbid_unknown_fields=True, kw_only=True):
    """Keep one message for another invisible time, counted from now."""

    receipt_handle: HandleText
    invisible: Duration | None = None
    invisible_ms: Positive | None = None


class SettleBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Acks, nacks, extends, dead letters and releases by receipt handle, mixed; or acks and
    `sends`, which are stored in one atomic step with the acks: all or nothing."""

    acks: list[HandleText] = []
    nacks: list[NackEntry] = []
    extends: list[ExtendEntry] = []
    dead_letters: list[DeadLetterEntry] = []
    releases: Annotated[
        list[HandleText],
        Meta(description="handed back untouched: visible at once, no attempt counted"),
    ] = []
    sends: list[SendEntry] = []


class AckBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Handles to acknowledge."""

    receipt_handles: list[HandleText]


class NackBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Handles to give back, all with the same delay and reason."""

    receipt_handles: list[HandleText]
    delay: Duration | None = None
    delay_ms: Count | None = None
    reason: ReasonText | None = None
    count_attempt: CountAttempt = True


class DeadLetterBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Handles to give up, all for the same reason."""

    receipt_handles: list[HandleText]
    reason: ReasonText | None = None


class ExtendBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Handles to keep for the same further time."""

    receipt_handles: list[HandleText]
    invisible: Duration | None = None
    invisible_ms: Positive | None = None


class ReceiptChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """What to do with one lease. Every field has a query alias, to the same effect."""

    action: Literal["extend", "nack", "dead_letter", "release"] | None = None
    invisible: Duration | None = None
    invisible_ms: Positive | None = None
    delay: Duration | None = None
    delay_ms: Count | None = None
    reason: ReasonText | None = None
    count_attempt: CountAttempt | None = None


# --- answers --------------------------------------------------------------------------------


class SendAnswer(Struct, frozen=True, gc=False):
    """Where a message was stored. A delayed one has a recall handle, and no offset yet."""

    status: Literal["SEND_OK"]
    message_id: str
    topic: str
    queue_id: int
    queue_offset: int | UnsetType
    store_time_ms: int
    deliver_time_ms: int | UnsetType = UNSET
    recall_handle: str | UnsetType = UNSET
    unique_id: str | UnsetType = UNSET


class PreparedAnswer(Struct, frozen=True, gc=False):
    """A half message was stored: invisible until its transaction is committed."""

    status: Literal["SEND_OK"]
    transaction_id: str
    message_id: str
    state: Literal["PREPARED"]
    topic: str
    check_time_ms: int
    unique_id: str | UnsetType = UNSET


class BatchResult(Struct, frozen=True, omit_defaults=True):
    """The result of one message of a batch, `index` counting from 0 in request order."""

    index: int
    status: int
    id: str | None = None
    message_id: str | UnsetType = UNSET
    queue_id: int | UnsetType = UNSET
    queue_offset: int | UnsetType = UNSET
    store_time_ms: int | UnsetType = UNSET
    error: EntryProblem | UnsetType = UNSET
    deliver_time_ms: int | UnsetType = UNSET
    recall_handle: str | UnsetType = UNSET
    unique_id: str | UnsetType = UNSET


class BatchAnswer(Struct, frozen=True):
    """One result per message, in request order."""

    results: list[BatchResult]
    succeeded: int
    failed: int


class FrameAnswer(Struct, frozen=True, omit_defaults=True):
    """Where the records of a batch frame were stored: consecutive offsets of one queue."""

    status: Literal["SEND_OK"]
    topic: str
    queue_id: int
    first_queue_offset: int | UnsetType
    count: int
    store_time_ms: int
    delayed_count: Annotated[
        int,
        Meta(description="records that are delivered later; with all of them there is no offset"),
    ] = 0
    message_ids: list[str] | UnsetType = UNSET


class MessageView(Struct, frozen=True, gc=False):
    """A stored message. One of `body` (JSON), `text` (UTF-8) and `body_base64` is present.

    A request has a `correlation_id`, to which a reply is taken until `reply_until_ms`. `unique_id`
    and `flag` are the producer's own; a flag of 0 is left out.
    """

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    born_time_ms: int
    store_time_ms: int
    keys: tuple[str, ...]
    properties: dict[str, str]
    tag: str | UnsetType = UNSET
    sharding_key: str | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    body: Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    correlation_id: str | UnsetType = UNSET
    reply_until_ms: int | UnsetType = UNSET
    unique_id: str | UnsetType = UNSET
    flag: int | UnsetType = UNSET


class ReplyView(Struct, frozen=True):
    """A reply. One of `body` (JSON), `text` (UTF-8) and `body_base64` is present."""

    replied_ms: int
    keys: tuple[str, ...]
    properties: dict[str, str]
    tag: str | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    body: Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET


class RequestAnswer(Struct, frozen=True):
    """Where a request was stored, and the reply to it."""

    status: Literal["REPLIED"]
    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    store_time_ms: int
    correlation_id: str
    reply: ReplyView


class ReplyAnswer(Struct, frozen=True):
    """The reply was handed to the request that waited for it."""

    status: Literal["DELIVERED"]
    correlation_id: str


class DeliveredMessage(MessageView, frozen=True, gc=False, kw_only=True):
    """A leased message: settle it by its handle before `invisible_until_ms`."""

    receipt_handle: str
    delivery_attempt: int
    max_attempts: int
    invisible_until_ms: int


class DeadLetterView(MessageView, frozen=True, gc=False, kw_only=True):
    """A dead letter: the original message in its place, and what became of it.

    `offset` names the letter within its group, on a cluster within the `shard` that has it.
    `attempts` counts the deliveries that failed.
    """

    offset: int
    attempts: int
    dead_since_ms: int
    reason: str | UnsetType = UNSET
    shard: Annotated[str | UnsetType, Meta(description="on a cluster, where the letter is")] = UNSET


class DeadLetterList(Struct, frozen=True):
    """A page of dead letters, the oldest first; `next_cursor` is absent at the end.

    `scanned` counts the letters that were looked at, whether the conditions chose them or not.
    """

    messages: list[DeadLetterView]
    scanned: int
    next_cursor: str | UnsetType = UNSET
    partial: Annotated[
        list[str] | UnsetType, Meta(description="shards that did not answer; left out: none")
    ] = UNSET


class CheckView(Struct, frozen=True, gc=False):
    """A question to a producer group: commit this message, or roll it back?

    `checks` counts the questions so far, this one included.
    """

    transaction_id: str
    producer_group: str
    checks: int
    prepared_ms: int
    message: MessageView


class CheckList(Struct, frozen=True):
    """Transactions that their producer group should decide now."""

    transactions: list[CheckView]
    partial: Annotated[
        list[str] | UnsetType,
        Meta(description="shards that did not answer; left out: none"),
    ] = UNSET


class GapView(Struct, frozen=True, rename={"from_": "from"}):
    """Offsets that damage or retention made unreadable; `to` is one past the last."""

    from_: int
    to: int
    reason: str


class PullAnswer(Struct, frozen=True, kw_only=True):
    """Messages from an offset on. Continue at `next_offset`."""

    status: Literal["FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG"]
    messages: list[MessageView]
    next_offset: int
    min_offset: int
    max_offset: int
    up_to_date: bool
    scanned: int
    clamped: bool | UnsetType = UNSET
    gaps: list[GapView] | UnsetType = UNSET


class BrowseGapView(Struct, frozen=True, rename={"from_": "from"}):
    """Offsets of a queue that damage made unreadable; `to` is one past the last."""

    queue_id: int
    from_: int
    to: int
    reason: str


class BrowseAnswer(Struct, frozen=True):
    """A page of a topic's messages, over all queues in the order in which they were stored.

    `scanned` counts the messages that were looked at. With `next_cursor` there may be more, also
    when the page is empty; without it this was the end.
    """

    messages: list[MessageView]
    scanned: int
    next_cursor: str | UnsetType = UNSET
    gaps: list[BrowseGapView] | UnsetType = UNSET
    partial: Annotated[
        list[str] | UnsetType, Meta(description="shards that did not answer; left out: none")
    ] = UNSET


class ReceiveAnswer(Struct, frozen=True):
    """Leased messages; `backlog` counts those of the group that are still to be delivered.

    `paused` is there, and true, while an operator has paused the group.
    """

    messages: list[DeliveredMessage]
    backlog: int
    paused: bool | UnsetType = UNSET
    effects: list[ConsumptionEffect] | UnsetType = UNSET
    """With `force`: what it has ended because members of the group read the topic."""
    partial: Annotated[
        list[str] | UnsetType, Meta(description="shards that could not be asked; left out: none")
    ] = UNSET


class SettleResult(Struct, frozen=True):
    """What became of one handle. After an extend, `new_receipt_handle` replaces it."""

    receipt_handle: str
    action: Literal["ack", "nack", "extend", "dead_letter", "release"]
    status: int
    new_receipt_handle: str | UnsetType = UNSET
    invisible_until_ms: int | UnsetType = UNSET
    error: EntryProblem | UnsetType = UNSET


class SettleAnswer(Struct, frozen=True):
    """One result per handle: acks, nacks, extends, dead letters, releases, each in request order.

    `sends` has one result per message that was sent with the acks.
    """

    results: list[SettleResult]
    succeeded: int
    failed: int
    sends: list[BatchResult] | UnsetType = UNSET


_ACKED_NEXT: Final = '","action":"ack","status":200},{"receipt_handle":"'


def all_acked(handles: Sequence[str]) -> bytes:
    """The `SettleAnswer` to acks that all succeeded, by far the most frequent one, as a line.

    Only for handles of ours, which JSON has as they are: they are Base64.
    """
    results = '{"receipt_handle":"' + _ACKED_NEXT.join(handles) + '","action":"ack","status":200}'
    return f'{{"results":[{results}],"succeeded":{len(handles)},"failed":0}}\n'.encode()


class ReceiptAnswer(Struct, frozen=True):
    """The lease after a change."""

    receipt_handle: str
    action: Literal["extend", "nack", "dead_letter", "release"]
    invisible_until_ms: int | UnsetType = UNSET
