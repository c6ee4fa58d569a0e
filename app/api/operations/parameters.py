"""Parameters of the data plane's operations as OpenAPI has them: shape and meaning. Pure.

One name means one thing in every operation; `Operation.query` says which operation takes it.
"""

from collections.abc import Mapping
from typing import Final

from app.api.formats.mq_headers import display_header
from app.api.operations.operation import Json, Operation
from app.domain.limits import (
    ATTEMPT_ID_CHARS_MAX,
    CLIENT_ID_CHARS_MAX,
    DURATION_CHARS_MAX,
    FILTER_CHARS_MAX,
    MESSAGE_ID_BYTES_MAX,
    NAME_CHARS_MAX,
    SHARDING_KEY_BYTES_MAX,
    Limits,
)
from app.domain.message import FLAG_MAX, FLAG_MIN

_DEFAULTS: Final = Limits()

TEXT: Final[Json] = {"type": "string"}
INTEGER: Final[Json] = {"type": "integer", "minimum": 0}
POSITIVE: Final[Json] = {"type": "integer", "minimum": 1}
FLAG: Final[Json] = {"type": "boolean", "default": False}
DURATION: Final[Json] = {
    "type": "string",
    "examples": ["30s"],
    "maxLength": DURATION_CHARS_MAX,
}


def _text(chars_max: int) -> Json:
    """A text with a bound of its own; all others are bounded by the request target's."""
    return {"type": "string", "maxLength": chars_max}


PARAMETERS: Final[dict[str, tuple[Json, str]]] = {
    "action": (
        {"type": "string", "enum": ["extend", "nack", "dead_letter", "release"]},
        "what to do with the lease",
    ),
    "at": (TEXT, "where to start: earliest, latest (the default), or epoch milliseconds"),
    "client_id": (
        _text(CLIENT_ID_CHARS_MAX),
        "what the client calls itself: for lists, traces and max_in_flight_per_member",
    ),
    "attempt_id": (
        _text(ATTEMPT_ID_CHARS_MAX),
        "the same id returns the same messages, so a lost answer loses nothing",
    ),
    "body": (
        {"type": "string", "enum": ["auto", "base64"], "default": "auto"},
        "base64: the bytes, whatever they are",
    ),
    "born_time_ms": (INTEGER, "when the message was made, by the producer's clock"),
    "checksum": (
        {"type": "string", "enum": ["crc32c", "crc32", "crc32-verified"], "default": "crc32c"},
        "of frames; crc32: what was found good before may come without another look, so check it;"
        " crc32-verified: the node looks at each record",
    ),
    "read": (
        {"type": "string", "enum": ["leader", "any"], "default": "leader"},
        "any: a replica in sync of the shard may answer, with messages that it has; others, and "
        "where the queue ends, are asked of the leader",
    ),
    "clamp": (FLAG, "move an offset outside the bounds to the nearest one, and say so"),
    "credit": (POSITIVE, "at most so many unsettled messages at a time; default 16"),
    "cursor": (TEXT, "where to go on: next_cursor of a page, or the cursor of a streamed message"),
    "delay": (DURATION, "deliver no sooner than after this time; on a send also level:1 to 18"),
    "deliver_at_ms": (INTEGER, "deliver at this time, epoch milliseconds"),
    "delay_ms": (INTEGER, "as delay, in milliseconds"),
    "encodings": (
        {**TEXT, "examples": ["zstd,deflate"]},
        "of frames: the reader unpacks bodies itself that were stored in these encodings (zstd, "
        "deflate, lz4; separated by commas), as the system flag of the record says; others are "
        "unpacked by the node",
    ),
    "duration": (DURATION, "end the stream after so long"),
    "direction": (
        {"type": "string", "enum": ["forward", "backward"]},
        "forward: the oldest first; default: the cursor's, else backward",
    ),
    "durability": (
        {"type": "string", "enum": ["memory", "flushed"]},
        "answer after the write, or after the data is on the medium; default: the topic's",
    ),
    "filter": (
        _text(FILTER_CHARS_MAX),
        "a tag expression (*, or tags separated by ||), or sql: and a condition over properties",
    ),
    "flag": (
        {"type": "integer", "minimum": FLAG_MIN, "maximum": FLAG_MAX},
        "the producer's own number, which nobody looks at; it comes back",
    ),
    "force": (
        FLAG,
        "lease although members of the group read the topic: they lose it, and effects says so",
    ),
    "count_attempt": (
        {"type": "boolean", "default": True},
        "with action=nack in a group in order: false lets the message wait without an attempt",
    ),
    "replace_subscription": (
        FLAG,
        "read with this filter although the group reads the topic with another one: it is the "
        "group's from now on",
    ),
    "format": (
        {"type": "string", "enum": ["json", "raw"], "default": "json"},
        "raw: one message as the HTTP body, metadata in headers",
    ),
    "from_ms": (INTEGER, "stored at this time or later"),
    "idempotency_key": (
        _text(_DEFAULTS.idempotency_key_chars_max),
        "a repeated request with the same key gets the first result",
    ),
    "invisible": (DURATION, "how long no other consumer gets the message"),
    "invisible_ms": (POSITIVE, "as invisible, in milliseconds"),
    "keep_encoding": (
        FLAG,
        "store the body as it came with Content-Encoding zstd or deflate; who does not say that it "
        "takes it so is given it unpacked",
    ),
    "key": (TEXT, "one of the message's keys, or the id that its producer gave"),
    "keys": (TEXT, "look-up values, separated by spaces"),
    "max_bytes": (POSITIVE, "at most so many bytes, but at least one message"),
    "max_messages": (POSITIVE, "at most so many messages"),
    "min_messages": (POSITIVE, "a waiting request is answered as soon as there are so many"),
    "offset": (INTEGER, "start at this offset"),
    "one_way": (
        FLAG,
        "answer 202 without a body once names, topic and limits are decided and the message is "
        "handed to the log; what fails later is only counted (`curlew_one_way_dropped_total`)",
    ),
    "producer_group": (
        _text(NAME_CHARS_MAX),
        "who is asked when a transaction is not decided in time",
    ),
    "page_size": (POSITIVE, "at most so many messages"),
    "property": (
        {"type": "string", "pattern": "^[^=]+=", "examples": ["region=eu"]},
        "name=value of a property",
    ),
    "producer_epoch": (INTEGER, "the producer's instance; a newer one fences older ones off"),
    "producer_id": (
        _text(CLIENT_ID_CHARS_MAX),
        "with epoch and seq: store the messages once, in sequence",
    ),
    "producer_seq": (INTEGER, "number of the first message; from 0 on in each epoch"),
    "properties": (TEXT, "a JSON object of texts"),
    "queue_id": (INTEGER, "the queue; default: by sharding key, else in turn"),
    "reason": (TEXT, "why the message is given back"),
    "sharding_key": (
        _text(SHARDING_KEY_BYTES_MAX),
        "messages with the same key go to the same queue, in order",
    ),
    "spread": (FLAG, "spread the batch over the queues instead of sending it to one"),
    "split": (
        {"type": "string", "enum": ["lines"]},
        "lines: every line of the body is a message, without its line feed; empty lines are none",
    ),
    "tag": (TEXT, "the filter label"),
    "tail": (INTEGER, "start so many messages before the end"),
    "text": (TEXT, "part of the body; capitals count"),
    "timestamp_ms": (INTEGER, "start at the first message stored at or after this time"),
    "timeout": (
        {**TEXT, "examples": ["5s"]},
        "the longest wait for the medium, seconds or a duration such as 5s: after it 504 "
        "`FLUSH_DISK_TIMEOUT`, and the message is written all the same; default: as long as it "
        "takes",
    ),
    "transaction": (
        {**TEXT, "examples": ["prepare; group=pg1; check-after=30s"]},
        "store the message invisibly until POST /v1/transactions/{id}:commit",
    ),
    "unique_id": (
        {**TEXT, "minLength": 1, "maxLength": MESSAGE_ID_BYTES_MAX},
        "the producer's own id of a message, visible ASCII; it comes back, and finds the message",
    ),
    "until_ms": (INTEGER, "stored before this time"),
    "until_offset": (INTEGER, "read below this offset only"),
    "until_timestamp_ms": (INTEGER, "read only what was stored before this time"),
    "wait": (TEXT, "how long to wait for messages: seconds, or a duration such as 20s"),
}
"""Query parameters, and headers by their alias."""


def _parameter(name: str, place: str, schema: Json, description: str) -> Json:
    return {
        "name": name,
        "in": place,
        "required": False,
        "schema": schema,
        "description": description,
    }


def header(name: str, description: str, schema: Json = TEXT) -> Json:
    """A header that a request may have."""
    return _parameter(name, "header", schema, description)


NAMESPACE: Final = header(
    "MQ-Namespace",
    "the namespace that names in the request are of; without it, or empty, the default one, which "
    "has no name (query: namespace)",
)
"""Of every operation; the gateway takes it out before an operation is looked for."""

CLIENT_ID: Final = header(
    "MQ-Client-Id",
    "what the client calls itself, for the lists of clients, traces and bounds of a member; on a "
    "receive the same as `client_id`",
    {"type": "string", "maxLength": CLIENT_ID_CHARS_MAX},
)
FORWARD: Final = header(
    "MQ-Forward",
    "no: when another node leads the shard that the request is for, answer 421 with that node's "
    "address in place of asking it",
    {"type": "string", "enum": ["yes", "no"]},
)
"""Of every operation that is aimed at a shard; the gateway takes it out."""

PREFER: Final = header(
    "Prefer",
    "RFC 7240: return=minimal; respond-async to be answered before the data is on the medium; "
    "on batches handling=strict for all or nothing",
)
PREFER_WAIT: Final = header(
    "Prefer", "RFC 7240: wait=<seconds>, as `wait`; what was made of it is in the answer"
)
CONTENT_ENCODING: Final = header(
    "Content-Encoding",
    "the body is unpacked before it is read; size and ratio are bounded",
    {"type": "string", "enum": ["gzip", "deflate", "zstd", "identity"]},
)
IDEMPOTENCY_KEY: Final = header(
    "Idempotency-Key",
    "a text in quotes, unique to the request: a repetition gets the first result for "
    "`idempotency_window_ms` (`GET /v1/limits`), also after a crash of the node",
)
IF_NONE_MATCH: Final = header(
    "If-None-Match",
    "the ETag of an answer that is there already: 304 when it is still this one",
)
LAST_EVENT_ID: Final = header(
    "Last-Event-ID",
    "the cursor of the last message that was seen; browsers send it by themselves",
)

_BY_HEADER: Final = {
    b"mq-deliver-at": (TEXT, "deliver at this time: epoch milliseconds, or RFC 3339"),
}
"""Headers that take more than their alias says."""

_UNLISTED: Final = frozenset({"body"})
"""Of an operation with a request body: generated clients call that one `body`."""


def parameters_of(operation: Operation) -> list[Json]:
    """Those of the path, of the headers and of the query, in this order."""
    unlisted = frozenset() if operation.body is None else _UNLISTED
    return [
        *(_path_parameter(name) for name in operation.names),
        *_mq_headers(operation.mq_headers),
        *operation.headers,
        *(
            _parameter(name, "query", *PARAMETERS[name])
            for name in sorted(operation.query - unlisted)
        ),
        *([] if operation.aim is None else [FORWARD]),
        NAMESPACE,
    ]


def _path_parameter(name: str) -> Json:
    schema = INTEGER if name == "queue" else TEXT
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _mq_headers(aliases: Mapping[bytes, str]) -> list[Json]:
    found = []
    for name, alias in sorted(aliases.items()):
        schema, description = _BY_HEADER.get(name) or PARAMETERS[alias]
        found.append(header(display_header(name), f"{description} (query: {alias})", schema))
    return found
