"""What sends are aimed at: the shard of the queue that they name, of their key, or of their home;
else any that takes messages of the topic."""

from typing import Final
from urllib.parse import parse_qsl

import msgspec

from app.api.aims.aim import BODY, HERE, Aim, Asks, Names, Shard, at_queue
from app.api.aims.body_parts import entries_in
from app.api.aims.places import Places
from app.api.formats.cloudevents import EVENT, VERSION_HEADER, text_of, text_of_header
from app.api.formats.decoding import DECODE_FAULTS
from app.api.formats.dedup_headers import IDEMPOTENCY_KEY, key_of
from app.api.formats.media import ENVELOPE, BatchKind, batch_content, media_type
from app.api.formats.mq_headers import decode_header
from app.api.formats.prefer_header import STRICT, preferences_of
from app.api.http.request_context import RequestContext
from app.api.naming.request_namespace import stored
from app.domain.errors import CurlewError, OtherShard

_PARTITION_KEY: Final = b"ce-partitionkey"
_PRODUCER: Final = (b"mq-producer-id", "producer_id")
_SAID_BY_EACH: Final = frozenset({"json", "ndjson", "events"})
"""Batches whose messages say where they go."""


class _Said(msgspec.Struct):
    """What of a message in JSON says where it goes."""

    queue_id: int | None = None
    sharding_key: str | None = None
    partitionkey: str | bool | int | None = None


class _Plan(msgspec.Struct):
    """How an epoch spreads."""

    producer: str
    topic: str


_decode_plan: Final = msgspec.json.Decoder(_Plan).decode
_decode: Final = msgspec.json.Decoder(_Said).decode


def said(exchange: RequestContext, header: bytes, alias: str) -> str | None:
    """What a request says in a header, or in the query under its alias."""
    for name, value in exchange.mq_headers:
        if name == header:
            try:
                return decode_header(name, value)
            except CurlewError:
                return None
    query = exchange.query
    if query and alias.encode() in query:
        return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)).get(alias)
    return None


def queue_in(text: str | None) -> int | None:
    """A queue id in a path, a header or a query; None: not a number, which its handler says."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if text is not None and is_number else None


def _of_head(
    exchange: RequestContext, names: Names, places: Places, *, reads_body: bool
) -> Shard | Asks:
    topic = places.topic(names[0])
    headers = exchange.headers
    is_plain = not exchange.mq_headers and not exchange.scope["query_string"]
    if not is_plain:
        queue = said(exchange, b"mq-queue-id", "queue_id")
        if queue is not None:
            queue_id = queue_in(queue)
            return HERE if queue_id is None else at_queue(places, topic, queue_id)
        key = said(exchange, b"mq-sharding-key", "sharding_key")
        if key is not None:
            return places.of_key(topic, key)
    if reads_body:
        content_type = headers.get(b"content-type")
        if content_type and media_type(content_type) in (ENVELOPE, EVENT):
            return BODY
        if VERSION_HEADER in headers and _PARTITION_KEY in headers:
            try:
                key = text_of_header(_PARTITION_KEY, headers[_PARTITION_KEY])
            except CurlewError:
                return HERE  # whose handler says what is wrong
            return places.of_key(topic, key)
    return _of_home_or_any(exchange, places, names, is_plain=is_plain)


def _of_home_or_any(
    exchange: RequestContext, places: Places, names: Names, *, is_plain: bool
) -> Shard:
    topic = places.topic(names[0])
    key = exchange.headers.get(IDEMPOTENCY_KEY)
    if key is not None:
        try:
            return places.of_home(topic, key_of(key.decode("latin-1")))
        except CurlewError:
            return HERE  # whose handler says what is wrong
    if not is_plain:
        home = said(exchange, b"mq-producer-id", "producer_id") or said(
            exchange, b"", "idempotency_key"
        )
        if home is not None:
            return places.of_home(topic, home)
    return places.for_any_queue(topic)


def _of_body(exchange: RequestContext, names: Names, places: Places, body: bytes) -> Shard | Asks:
    """Of an envelope or a CloudEvent."""
    topic = places.topic(names[0])
    try:
        message = _decode(body)
    except DECODE_FAULTS:
        return HERE  # whose handler says what is wrong
    if message.queue_id is not None:
        return at_queue(places, topic, message.queue_id)
    key = message.sharding_key if message.sharding_key is not None else message.partitionkey
    if key is not None:
        return places.of_key(topic, text_of(key))
    return _of_home_or_any(exchange, places, names, is_plain=False)


def _of_message(exchange: RequestContext, names: Names, places: Places) -> Shard | Asks:
    return _of_head(exchange, names, places, reads_body=True)


def _of_batch(exchange: RequestContext, names: Names, places: Places) -> Shard | Asks:
    if (
        _kind_of(exchange) in _SAID_BY_EACH
        and _is_one_piece(exchange)
        and _names_no_place(exchange)
    ):
        return BODY
    return _of_head(exchange, names, places, reads_body=False)


def _kind_of(exchange: RequestContext) -> BatchKind | None:
    if said(exchange, b"", "split") is not None:
        return None  # its lines are bodies
    try:
        return batch_content(exchange.headers.get(b"content-type"))
    except CurlewError:
        return None  # whose handler says what is wrong


def _is_one_piece(exchange: RequestContext) -> bool:
    is_once = IDEMPOTENCY_KEY in exchange.headers or STRICT in preferences_of(exchange)
    names = _PRODUCER, (b"", "idempotency_key")
    return is_once or any(said(exchange, *each) is not None for each in names)


def _names_no_place(exchange: RequestContext) -> bool:
    queue = said(exchange, b"mq-queue-id", "queue_id")
    return queue is None and said(exchange, b"mq-sharding-key", "sharding_key") is None


def _of_batch_body(exchange: RequestContext, names: Names, places: Places, body: bytes) -> Shard:
    """A batch that is stored once, or strictly, is one piece: it goes where all its messages have
    to go; to its home, if they may go anywhere. Raises `OtherShard` where those are several."""
    topic = places.topic(names[0])
    kind = _kind_of(exchange)
    assert kind is not None
    try:
        count_max = places.limits.batch_messages_max
        entries = [_decode(raw) for raw in entries_in(kind, body, count_max)]
    except (CurlewError, *DECODE_FAULTS, KeyError):
        return HERE  # whose handler says what is wrong
    found: dict[str | None, None] = {}
    for each in entries:
        key = each.partitionkey if each.sharding_key is None else each.sharding_key
        if each.queue_id is not None:
            found[places.of_queue(topic, each.queue_id)] = None
        elif key is not None:
            found[places.of_key(topic, text_of(key))] = None
    if not found:
        return _of_home_or_any(exchange, places, names, is_plain=False)
    first, *others = found
    if others:
        if said(exchange, *_PRODUCER) is not None:
            return HERE  # whose handler says NOT_LEADER: a producer asks for the route then
        other = others[0] or places.metadata.shard
        raise OtherShard("a message of a batch that is stored once, or strictly,", other)
    return first


def _of_plan(exchange: RequestContext, names: Names, places: Places) -> Shard | Asks:
    del exchange, names
    return BODY if places.are_several else HERE


def _of_plan_body(exchange: RequestContext, names: Names, places: Places, body: bytes) -> Shard:
    del exchange, names
    try:
        plan = _decode_plan(body)
    except DECODE_FAULTS:
        return HERE  # whose handler says what is wrong
    return places.of_home(places.topic(stored("topic", plan.topic)), plan.producer)


A_PLAN: Final = Aim(_of_plan, _of_plan_body)
"""How an epoch spreads over a topic: one shard remembers it, whichever node is asked."""
A_MESSAGE: Final = Aim(_of_message, _of_body)
"""One message."""
A_BATCH: Final = Aim(_of_batch, _of_batch_body)
"""A frame, a batch whose entries say nothing of their own, and one that is stored once; else its
handler splits it."""
