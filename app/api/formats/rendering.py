"""Stored messages as JSON: which form the body takes, and the views of pull and receive. Pure.

Lossless: `text` and `body_base64` give the exact bytes back, and so does `body` but for line breaks
between JSON tokens; `?body=base64` avoids even that.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from app.api.formats.decoding import DECODE_FAULTS
from app.api.formats.wire import DeadLetterView, DeliveredMessage, MessageView, ReplyView
from app.broker.failures.dead_letter_admin import DeadLetter
from app.broker.produce.request_reply import Reply, expectation_of
from app.broker.results import Delivery
from app.domain.message import StoredMessage
from app.store import Piece, to_copy
from app.store.formats.record.plain_columns import plain_columns
from app.store.formats.record.plain_record import PlainRecord, read_plain

_Body = tuple[Raw | UnsetType, str | UnsetType, bytes | UnsetType]

_check_json: Final = msgspec.json.Decoder(Raw).decode


@lru_cache(maxsize=512)
def is_json(content_type: str) -> bool:
    """Whether the media type says JSON: `application/json`, `…+json`."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type in {"application/json", "text/json"} or media_type.endswith("+json")


def body_members(body: bytes, content_type: str | None, *, force_base64: bool) -> _Body:
    """`body`, `text` and `body_base64` of a message, one of them set.

    JSON is spliced as it was sent, so that numbers keep all their digits; only line breaks, which
    JSON has between tokens only, become spaces, so that a message fits a line of NDJSON.
    """
    if force_base64:
        return UNSET, UNSET, body
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        return UNSET, UNSET, body
    if content_type is not None and is_json(content_type):
        try:
            _check_json(body)
        except DECODE_FAULTS:
            return UNSET, text, UNSET
        if b"\n" in body or b"\r" in body:
            body = body.replace(b"\n", b" ").replace(b"\r", b" ")
        return Raw(body), UNSET, UNSET
    return UNSET, text, UNSET


_Members = tuple[
    str,
    str,
    int,
    int,
    int,
    int,
    tuple[str, ...],
    dict[str, str],
    str | UnsetType,
    str | UnsetType,
    str | UnsetType,
    Raw | UnsetType,
    str | UnsetType,
    bytes | UnsetType,
    str | UnsetType,
    int | UnsetType,
    str | UnsetType,
    int | UnsetType,
]


def _members(message: StoredMessage, force_base64: bool) -> _Members:
    """The fields of `MessageView` in their order."""
    content_type, tag, sharding_key = message.content_type, message.tag, message.sharding_key
    body, text, body_base64 = body_members(message.body, content_type, force_base64=force_base64)
    return (
        message.message_id,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.born_time_ms,
        message.store_time_ms,
        message.keys,
        dict(message.properties),
        UNSET if tag is None else tag,
        UNSET if sharding_key is None else sharding_key,
        UNSET if content_type is None else content_type,
        body,
        text,
        body_base64,
        *_expectation(message),
        UNSET if message.unique_id is None else message.unique_id,
        message.flag or UNSET,
    )


def _expectation(message: StoredMessage) -> tuple[str | UnsetType, int | UnsetType]:
    expectation = expectation_of(message) if message.system else None
    return (UNSET, UNSET) if expectation is None else expectation


def reply_view(reply: Reply, *, force_base64: bool) -> ReplyView:
    """`reply` as the answer to a request."""
    message = reply.message
    body, text, body_base64 = body_members(
        message.body, message.content_type, force_base64=force_base64
    )
    return ReplyView(
        replied_ms=reply.replied_ms,
        keys=message.keys,
        properties=dict(message.properties),
        tag=UNSET if message.tag is None else message.tag,
        content_type=UNSET if message.content_type is None else message.content_type,
        body=body,
        text=text,
        body_base64=body_base64,
    )


def view_of(message: StoredMessage, *, force_base64: bool = False) -> MessageView:
    """`message` as pull and look-up answer it."""
    return MessageView(*_members(message, force_base64))


def delivered_view(delivery: Delivery, *, force_base64: bool = False) -> DeliveredMessage:
    """`delivery` as receive answers it."""
    return DeliveredMessage(
        *_members(delivery.message, force_base64),
        receipt_handle=delivery.receipt_handle,
        delivery_attempt=delivery.attempt,
        max_attempts=delivery.max_attempts,
        invisible_until_ms=delivery.invisible_until_ms,
    )


def delivered_views(
    deliveries: Sequence[Delivery], store_id: bytes, *, force_base64: bool = False
) -> tuple[list[DeliveredMessage], int]:
    """`delivered_view` of each, and the bytes of all bodies. Most need no message for it."""
    views: list[DeliveredMessage] = []
    body_bytes = 0
    for delivery, plain in zip(deliveries, _plain_of(deliveries, store_id), strict=True):
        if plain is None:
            views.append(delivered_view(delivery, force_base64=force_base64))
            body_bytes += len(delivery.message.body)
            continue
        message_id, topic, queue_id, queue_offset, born_ms, store_ms, content_type, body = plain
        body_bytes += len(body)
        json, text, base64 = _plain_body(body, content_type, force_base64)
        views.append(
            DeliveredMessage(
                message_id,
                topic,
                queue_id,
                queue_offset,
                born_ms,
                store_ms,
                (),
                {},
                UNSET,
                UNSET,
                UNSET if content_type is None else content_type,
                json,
                text,
                base64,
                receipt_handle=delivery.receipt_handle,
                delivery_attempt=delivery.attempt,
                max_attempts=delivery.max_attempts,
                invisible_until_ms=delivery.invisible_until_ms,
            )
        )
    return views, body_bytes


def record_views(
    records: Sequence[memoryview],
    store_id: bytes,
    decode: Callable[[memoryview], StoredMessage],
    *,
    force_base64: bool = False,
) -> tuple[list[MessageView], int]:
    """`view_of` the message of each record, and the bytes of all bodies."""
    views: list[MessageView] = []
    body_bytes = 0
    for index, plain in enumerate(read_plain(to_copy(records), store_id)):
        if plain is None:
            message = decode(records[index])
            views.append(view_of(message, force_base64=force_base64))
            body_bytes += len(message.body)
            continue
        message_id, topic, queue_id, queue_offset, born_ms, store_ms, content_type, body = plain
        body_bytes += len(body)
        json, text, base64 = _plain_body(body, content_type, force_base64)
        views.append(
            MessageView(
                message_id,
                topic,
                queue_id,
                queue_offset,
                born_ms,
                store_ms,
                (),
                {},
                UNSET,
                UNSET,
                UNSET if content_type is None else content_type,
                json,
                text,
                base64,
            )
        )
    return views, body_bytes


def piece_views(
    piece: Piece, store_id: bytes, *, force_base64: bool = False
) -> tuple[list[MessageView], int] | None:
    """As `record_views`, in less time for many; None where they are not much the same."""
    data = piece.data
    columns = plain_columns(data, piece.starts, piece.sizes, store_id)
    if columns is None:
        return None
    topic, content_type = columns.topic, columns.content_type
    body_bytes = sum(columns.body_ends) - sum(columns.body_starts)
    is_other = force_base64 or content_type is not None
    shown_type = UNSET if content_type is None else content_type
    views: list[MessageView] = []
    for message_id, queue_id, queue_offset, born_ms, store_ms, start, end in columns.rows():
        json: Raw | UnsetType = UNSET
        base64: bytes | UnsetType = UNSET
        text: str | UnsetType = UNSET
        if is_other:
            body = bytes(data[start:end])
            json, text, base64 = body_members(body, content_type, force_base64=force_base64)
        else:
            try:
                text = str(data[start:end], "utf-8")
            except UnicodeDecodeError:
                base64 = bytes(data[start:end])
        views.append(
            MessageView(
                message_id,
                topic,
                queue_id,
                queue_offset,
                born_ms,
                store_ms,
                (),
                {},
                UNSET,
                UNSET,
                shown_type,
                json,
                text,
                base64,
            )
        )
    return views, body_bytes


def _plain_body(body: bytes, content_type: str | None, force_base64: bool) -> _Body:
    """`body_members`, its frequent case first."""
    if content_type is not None or force_base64:
        return body_members(body, content_type, force_base64=force_base64)
    try:
        return UNSET, str(body, "utf-8"), UNSET
    except UnicodeDecodeError:
        return UNSET, UNSET, body


def _plain_of(deliveries: Sequence[Delivery], store_id: bytes) -> list[PlainRecord | None]:
    """The fields of each delivery that is a plain record still."""
    contents = [delivery.content for delivery in deliveries]
    records = [content for content in contents if isinstance(content, memoryview)]
    rows = read_plain(records, store_id)
    if len(rows) == len(contents):
        return rows
    found = iter(rows)
    return [next(found) if isinstance(content, memoryview) else None for content in contents]


def dead_letter_view(letter: DeadLetter, *, force_base64: bool = False) -> DeadLetterView:
    """`letter` as the dead-letter listing answers it."""
    return DeadLetterView(
        *_members(letter.message, force_base64),
        offset=letter.offset,
        attempts=letter.attempts,
        dead_since_ms=letter.dead_since_ms,
        reason=UNSET if letter.reason is None else letter.reason,
    )
