"""What a sender is told: the documents, headers and figures of the answers to sends. Pure."""

from collections.abc import Sequence

from msgspec import UNSET

from app.api.formats.mq_headers import encode_header
from app.api.formats.prefer_header import ASYNC
from app.api.formats.wire import SendAnswer
from app.api.http.request_context import Headers
from app.broker.results import BatchItem, SendResult
from app.domain.errors import CurlewError
from app.domain.message import Message
from app.domain.positions import FlushMode


def stored_of(
    items: Sequence[BatchItem | CurlewError], outcomes: Sequence[SendResult | CurlewError]
) -> tuple[int, int]:
    """How many messages of a batch were stored, and the bytes of their bodies."""
    sizes = [
        len(item.message.body)
        for item, outcome in zip(items, outcomes, strict=True)
        if isinstance(outcome, SendResult) and isinstance(item, BatchItem)
    ]
    return len(sizes), sum(sizes)


def answer_of(result: SendResult, unique_id: str | None) -> SendAnswer:
    """The document of a message that is stored, or waits until it is due."""
    named = UNSET if unique_id is None else unique_id
    if result.recall_handle is None:
        return SendAnswer("SEND_OK", *result[:5], unique_id=named)
    later = result[4:]
    return SendAnswer("SEND_OK", *result[:3], UNSET, *later, unique_id=named)  # type: ignore[arg-type]


def answered_early(
    preferences: frozenset[str], flush: FlushMode | None
) -> tuple[frozenset[str], FlushMode]:
    """What respond-async makes of a send; a durability that was asked for by name outweighs it."""
    if flush is FlushMode.SYNC:
        return preferences - {ASYNC}, flush
    return preferences, FlushMode.ASYNC


def timing(seconds: float) -> tuple[bytes, bytes]:
    """How long the broker took; what is missing to the client's own figure is HTTP and network."""
    return b"server-timing", b"store;dur=%.2f" % (seconds * 1_000)


def kept_encoding(message: Message) -> Headers:
    """How the body is stored, where it is not stored plain."""
    encoding = message.encoding
    return [] if encoding is None else [(b"mq-stored-encoding", encoding.encode())]


def position_headers(result: SendResult, unique_id: str | None) -> Headers:
    """The same where the client wants no document."""
    headers = [
        (b"mq-message-id", result.message_id.encode()),
        (b"mq-queue-id", b"%d" % result.queue_id),
    ]
    if unique_id is not None:
        headers.append((b"mq-unique-id", encode_header(unique_id)))
    if result.recall_handle is None:
        headers.append((b"mq-queue-offset", b"%d" % result.queue_offset))
    else:
        headers.append((b"mq-recall-handle", result.recall_handle.encode()))
        headers.append((b"mq-deliver-time-ms", b"%d" % (result.deliver_time_ms or 0)))
    return [*headers, (b"mq-store-time-ms", b"%d" % result.store_time_ms)]
