"""Message metadata in `MQ-*` headers and query parameters of a send. Pure.

Header values are percent-encoded as in the CloudEvents HTTP binding (space, `"`, `%` and everything
outside printable ASCII); raw UTF-8 is understood too. Every header has a lower-case query alias;
given both ways they must say the same. Nothing is dropped silently: what is unknown, repeated,
contradicts itself, or is planned for a later version is refused.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Struct

from app.api.http.errors import UnknownParameter, UnsupportedFeature, did_you_mean
from app.api.http.parameters import (
    INT64_MAX,
    QUEUE_ID_MAX,
    Query,
    agreed,
    flag_of,
    integer_of,
    timeout_s_of,
)
from app.api.http.request_context import Headers
from app.domain.errors import IllegalProperty, InvalidRequest
from app.domain.limits import CLIENT_ID_CHARS_MAX
from app.domain.message import FLAG_MAX, FLAG_MIN
from app.domain.positions import FlushMode, TimestampMs

PROPERTY_PREFIX: Final = b"mq-prop-"
PROPERTY_PARAMETER_PREFIX: Final = "prop_"

MESSAGE_HEADERS: Final = {
    b"mq-tag": "tag",
    b"mq-keys": "keys",
    b"mq-sharding-key": "sharding_key",
    b"mq-queue-id": "queue_id",
    b"mq-born-time-ms": "born_time_ms",
    b"mq-unique-id": "unique_id",
    b"mq-flag": "flag",
    b"mq-properties": "properties",
    b"mq-durability": "durability",
    b"mq-timeout": "timeout",
    b"mq-one-way": "one_way",
    b"mq-keep-encoding": "keep_encoding",
    b"mq-client-id": "client_id",
    b"mq-delay": "delay",
    b"mq-deliver-at": "deliver_at_ms",
    b"mq-transaction": "transaction",
    b"mq-producer-group": "producer_group",
    b"mq-producer-id": "producer_id",
    b"mq-producer-epoch": "producer_epoch",
    b"mq-producer-seq": "producer_seq",
}
"""Header → query alias."""

SEND_PARAMETERS: Final = frozenset({*MESSAGE_HEADERS.values(), "idempotency_key"})

BATCH_HEADERS: Final = {
    b"mq-queue-id": "queue_id",
    b"mq-durability": "durability",
    b"mq-timeout": "timeout",
    b"mq-one-way": "one_way",
    b"mq-client-id": "client_id",
    b"mq-producer-id": "producer_id",
    b"mq-producer-epoch": "producer_epoch",
    b"mq-producer-seq": "producer_seq",
}

BATCH_OPTIONS: Final = frozenset({*BATCH_HEADERS.values(), "idempotency_key"})
"""Query parameters of a batch that say how it is sent."""

OF_EVERY_REQUEST: Final = frozenset({b"mq-client-id"})
"""What a client may say of itself anywhere."""

TRACE_HEADERS: Final = (b"traceparent", b"tracestate")
"""W3C trace context: stored as properties of these names, and so given to the consumer."""

_TRACE_PROPERTIES: Final = tuple(name.decode("ascii") for name in TRACE_HEADERS)

_SAFE_IN_HEADERS: Final = "!#$&'()*+,-./0123456789:;<=>?@[\\]^_`{|}~"
_NAMES_OF_DURABILITY: Final = {"memory": FlushMode.ASYNC, "flushed": FlushMode.SYNC}

_decode_properties: Final = msgspec.json.Decoder(dict[str, str]).decode


class SendOptions(Struct):
    """What a send says beside its body. None: not given."""

    tag: str | None = None
    keys: tuple[str, ...] | None = None
    sharding_key: str | None = None
    queue_id: int | None = None
    born_time_ms: TimestampMs | None = None
    unique_id: str | None = None
    flag: int | None = None
    flush: FlushMode | None = None
    timeout_s: float | None = None
    """Seconds that the sender waits for the medium."""
    one_way: bool | None = None
    """Nobody waits for what becomes of it."""
    keep_encoding: bool | None = None
    """The body is stored as it came, packed."""
    client_id: str | None = None
    """Who sends, for lists and traces; no part of the message."""
    delay: str | None = None
    deliver_at: str | None = None
    transaction: str | None = None
    producer_group: str | None = None
    producer_id: str | None = None
    producer_epoch: int | None = None
    producer_seq: int | None = None
    idempotency_key: str | None = None
    properties: dict[str, str] = {}

    def take(self, alias: str, text: str) -> None:
        """Set what `alias` names; keys and properties have rules of their own elsewhere.
        `InvalidRequest` when another value was given before."""
        read = _READINGS.get(alias)
        name = _FIELDS.get(alias, alias)
        value = text if read is None else read(text)
        known = getattr(self, name)
        setattr(self, name, value if known is None else agreed(alias, known, value))

    def take_keys(self, keys: tuple[str, ...]) -> None:
        self.keys = keys if self.keys is None else agreed("keys", self.keys, keys)


def client_id_of(text: str) -> str:
    """What a client calls itself."""
    if not 1 <= len(text) <= CLIENT_ID_CHARS_MAX:
        raise InvalidRequest(
            f"client_id has {len(text)} characters; it must have 1 to {CLIENT_ID_CHARS_MAX}",
            fields={"parameter": "client_id"},
        )
    return text


def put_property(properties: dict[str, str], name: str, text: str) -> None:
    """Add a property; `InvalidRequest` when it is there with another text.

    But a trace context of its own outweighs that of the request, which is set on the way.
    """
    known = properties.setdefault(name, text)
    if known != text:
        if name not in _TRACE_PROPERTIES:
            agreed(f"property {name!r}", known, text)
        properties[name] = text


def decode_header(name: bytes, value: bytes) -> str:
    """The text of a header value; `InvalidRequest` when it is not UTF-8."""
    try:
        return (unquote_to_bytes(value) if b"%" in value else value).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"header {display_header(name)} is not UTF-8",
            hint="percent-encode UTF-8 bytes, or send raw UTF-8",
            fields={"header": display_header(name)},
        ) from error


def named_in(value: bytes) -> str:
    """The text of a header in which a client says who it is: as `decode_header`, but nothing is
    refused for a name; what is not UTF-8 is taken as Latin-1."""
    try:
        return (unquote_to_bytes(value) if b"%" in value else value).decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def encode_header(text: str) -> bytes:
    """`text` as a header value that `decode_header` reads."""
    return quote(text, safe=_SAFE_IN_HEADERS).encode("ascii")


def read_trace(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """The trace context of a request, as properties."""
    found: dict[str, str] = {}
    for name in TRACE_HEADERS:
        if name in headers:
            found[name.decode("ascii")] = decode_header(name, headers[name])
    return found


def read_send_options(
    mq_headers: Headers, headers: Mapping[bytes, bytes], query: bytes
) -> SendOptions:
    """The options of a single send, from headers and query."""
    options = SendOptions(properties=read_trace(headers))
    if mq_headers:
        _read_headers(mq_headers, options)
    if query:
        _read_query(Query(query, SEND_PARAMETERS, prefix=PROPERTY_PARAMETER_PREFIX), options)
    return options


def read_batch_options(mq_headers: Headers, parameters: Query) -> SendOptions:
    """The options of a batch: queue, durability and time; the rest is in each message."""
    refuse_mq_headers(mq_headers, BATCH_HEADERS)
    options = SendOptions()
    _read_headers(mq_headers, options)
    for name, text in parameters.pairs():
        if name in BATCH_OPTIONS:
            options.take(name, text)
    return options


def _read_headers(mq_headers: Headers, options: SendOptions) -> None:
    given = dict(mq_headers)
    if len(given) != len(mq_headers):
        raise _given_twice([name for name, _ in mq_headers])
    for name, value in given.items():
        alias = MESSAGE_HEADERS.get(name)
        if alias is None:
            if not name.startswith(PROPERTY_PREFIX):
                raise _refusal(name, MESSAGE_HEADERS)
            put_property(options.properties, _property_name(name), decode_header(name, value))
        elif alias == "keys":
            # Split before decoding, or an encoded space would part a key instead of being refused.
            options.take_keys(tuple([decode_header(name, key) for key in value.split()]))
        elif alias == "properties":
            for each, text in _json_properties(decode_header(name, value)).items():
                put_property(options.properties, each, text)
        else:
            options.take(alias, decode_header(name, value))


def _read_query(parameters: Query, options: SendOptions) -> None:
    for alias, text in parameters.pairs():
        if alias.startswith(PROPERTY_PARAMETER_PREFIX):
            put_property(options.properties, alias[len(PROPERTY_PARAMETER_PREFIX) :], text)
        elif alias == "keys":
            options.take_keys(tuple(text.split()))
        elif alias == "properties":
            for name, value in _json_properties(text).items():
                put_property(options.properties, name, value)
        else:
            options.take(alias, text)


def _given_twice(names: list[bytes]) -> InvalidRequest:
    shown = next(display_header(name) for name in names if names.count(name) > 1)
    return InvalidRequest(f"header {shown} is given twice", fields={"header": shown})


def _property_name(header: bytes) -> str:
    name = header[len(PROPERTY_PREFIX) :].decode("latin-1")
    if not name:
        raise IllegalProperty(
            "header MQ-Prop- has no property name", hint="write MQ-Prop-<name>: <value>"
        )
    return name


def _json_properties(text: str) -> dict[str, str]:
    try:
        return _decode_properties(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise IllegalProperty(
            f"properties are not a JSON object of texts: {error}",
            hint='write MQ-Properties: {"orderId":"7"}',
        ) from error


def _flush_of(durability: str) -> FlushMode:
    if durability == "replicated":
        raise UnsupportedFeature(
            "whether a send waits for the replicas of its shard is up to the topic",
            hint="set replication of the topic to sync, and send with flushed or memory",
            fields={"parameter": "durability"},
        )
    if durability not in _NAMES_OF_DURABILITY:
        raise InvalidRequest(
            f"durability is {durability!r}; it must be memory or flushed",
            fields={"parameter": "durability"},
        )
    return _NAMES_OF_DURABILITY[durability]


def _integer(alias: str, *, low: int = 0, high: int = INT64_MAX) -> Callable[[str], int]:
    return partial(integer_of, alias, low=low, high=high, error=InvalidRequest)


_READINGS: Final[Mapping[str, Callable[[str], object]]] = {
    **{name: _integer(name) for name in ("born_time_ms", "producer_epoch", "producer_seq")},
    "queue_id": _integer("queue_id", high=QUEUE_ID_MAX),
    "flag": _integer("flag", low=FLAG_MIN, high=FLAG_MAX),
    "durability": _flush_of,
    "timeout": timeout_s_of,
    "one_way": partial(flag_of, "one_way"),
    "keep_encoding": partial(flag_of, "keep_encoding"),
    "client_id": client_id_of,
}
"""What is made of a text; of another alias the text itself."""
_FIELDS: Final = {"durability": "flush", "timeout": "timeout_s", "deliver_at_ms": "deliver_at"}
"""Of `SendOptions`, where they are called otherwise."""


def refuse_mq_headers(mq_headers: Headers, known: Collection[bytes] = ()) -> None:
    """Raise for the first header that is not in `known`."""
    for name, _ in mq_headers:
        if name not in known:
            raise _refusal(name, known)


def _refusal(name: bytes, known: Collection[bytes]) -> InvalidRequest:
    shown = display_header(name)
    if name.startswith(PROPERTY_PREFIX) or name in MESSAGE_HEADERS:
        hint: str | None = "message metadata goes with a single send, or into each entry of a batch"
    else:
        hint = did_you_mean(shown, sorted(display_header(each) for each in known))
    return UnknownParameter(f"unknown header {shown} here", hint=hint, fields={"header": shown})


def display_header(name: bytes) -> str:
    """A header name as people write it: `mq-queue-id` → `MQ-Queue-Id`."""
    words = name.decode("latin-1").split("-")
    return "-".join("MQ" if word == "mq" else word.capitalize() for word in words)
