"""Sending over HTTP: one message, and batches as JSON, NDJSON or frames.

Translates only: queue choice, limits of a message and storing are the broker's.
"""

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final

from msgspec import UNSET

from app.api.decoding import decode_batch, decode_lines, envelope_decoder, message_of
from app.api.errors import (
    InvalidBody,
    UnsupportedFeature,
    entry_problem,
    with_outcome_of_send,
)
from app.api.exchange import Exchange, Headers, batch_too_large, body_too_large
from app.api.lane import media
from app.api.lane.answers import answer_results
from app.api.lane.metadata import (
    BATCH_HEADERS,
    HEADERS_OF_LATER_VERSIONS,
    NO_OPTIONS,
    TRACE_HEADERS,
    SendOptions,
    read_batch_options,
    read_send_options,
    refuse_later_headers,
)
from app.api.parameters import Query
from app.api.ports import DataPlane
from app.api.traffic import Traffic
from app.api.wire import (
    BatchAnswer,
    BatchEntry,
    BatchResult,
    FrameAnswer,
    SendAnswer,
    encode,
)
from app.broker.results import BatchItem, SendResult
from app.domain.errors import BatchTooLarge, CurlewError, UnsupportedContentType
from app.domain.limits import Limits
from app.domain.message import Message

BATCH_PARAMETERS: Final = frozenset({"spread", *BATCH_HEADERS.values()})

_CONTENT_ENCODING: Final = b"content-encoding"
_SPECIAL_HEADERS: Final = frozenset({*HEADERS_OF_LATER_VERSIONS, *TRACE_HEADERS, _CONTENT_ENCODING})
"""Headers that are seldom there; one set operation tells whether any is."""

_MINIMAL: Final = "return=minimal"
_REPRESENTATION: Final = "return=representation"
_STRICT: Final = "handling=strict"


class Sending:
    """Handlers of the two send operations. Stateless beside its collaborators."""

    def __init__(self, broker: DataPlane, limits: Limits, traffic: Traffic) -> None:
        self._broker = broker
        self._limits = limits
        self._traffic = traffic

    async def send(self, exchange: Exchange, topic: str) -> None:
        headers = exchange.headers
        kind, content_type = media.send_content(headers.get(b"content-type"))
        options = NO_OPTIONS
        if (
            exchange.mq_headers
            or exchange.scope["query_string"]
            or not _SPECIAL_HEADERS.isdisjoint(headers)
        ):
            refuse_later_headers(headers)
            _refuse_content_encoding(headers.get(_CONTENT_ENCODING))
            options = read_send_options(exchange.mq_headers, headers, exchange.query)
        if kind == "raw":
            body = await exchange.read_body(self._limits.body_bytes_max, body_too_large)
            message = _raw_message(body, content_type, options)
            queue_id = options.queue_id
        else:
            body = await exchange.read_body(self._limits.batch_bytes_max, body_too_large)
            envelope = envelope_decoder.decode(body)
            message = _merged(message_of(envelope), options)
            queue_id = envelope.queue_id if options.queue_id is None else options.queue_id
        began_s = perf_counter()
        result = await self._broker.send(topic, message, queue_id=queue_id, flush=options.flush)
        timing = _timing(began_s)
        self._traffic.taken_in(1, len(message.body))
        prefer = headers.get(b"prefer")
        if prefer is not None and _MINIMAL in media.preferences(prefer):
            await exchange.answer_empty(201, [*_position_headers(result), timing])
            return
        await exchange.answer(
            201,
            [media.JSON_HEADER, (b"mq-message-id", result[0].encode()), timing],
            encode(SendAnswer("SEND_OK", *result)),
        )

    async def send_batch(self, exchange: Exchange, topic: str) -> None:
        headers = exchange.headers
        kind = media.batch_content(headers.get(b"content-type"))
        refuse_later_headers(headers)
        _refuse_content_encoding(headers.get(_CONTENT_ENCODING))
        parameters = Query(exchange.query, BATCH_PARAMETERS)
        options = read_batch_options(exchange.mq_headers, parameters)
        spread = parameters.flag("spread")
        prefer = headers.get(b"prefer")
        wishes = media.preferences(prefer) if prefer is not None else frozenset()
        body = await exchange.read_body(self._limits.batch_bytes_max, batch_too_large)
        if kind == "frames":
            if spread:
                raise UnsupportedFeature(
                    "a batch frame goes to one queue", hint="leave out spread, or send JSON"
                )
            await self._send_frame(exchange, topic, body, options, wishes)
            return
        entries = decode_batch(body) if kind == "json" else decode_lines(body)
        await self._send_entries(exchange, topic, entries, options, spread, wishes)

    async def _send_frame(
        self,
        exchange: Exchange,
        topic: str,
        body: bytes,
        options: SendOptions,
        wishes: frozenset[str],
    ) -> None:
        began_s = perf_counter()
        result = await self._broker.send_frame(
            topic, body, queue_id=options.queue_id, flush=options.flush
        )
        headers = _applied([media.JSON_HEADER, _timing(began_s)], wishes)
        self._traffic.taken_in(result.count, len(body))
        answer = FrameAnswer(
            status="SEND_OK",
            topic=result.topic,
            queue_id=result.queue_id,
            first_queue_offset=result.first_queue_offset,
            count=result.count,
            store_time_ms=result.store_time_ms,
            message_ids=list(result.message_ids) if _REPRESENTATION in wishes else UNSET,
        )
        # All or nothing by nature: a frame with one bad record is refused whole.
        await exchange.answer(200, headers, encode(answer))

    async def _send_entries(
        self,
        exchange: Exchange,
        topic: str,
        entries: Sequence[BatchEntry | CurlewError],
        options: SendOptions,
        spread: bool,
        wishes: frozenset[str],
    ) -> None:
        strict = _STRICT in wishes
        self._check_count(len(entries))
        items = [_item_of(entry) for entry in entries]
        began_s = perf_counter()
        outcomes = await self._broker.send_batch(
            topic,
            items,
            queue_id=options.queue_id,
            spread=spread,
            strict=strict,
            flush=options.flush,
        )
        ids = [None if isinstance(entry, CurlewError) else entry.id for entry in entries]
        results = [
            _result_of(index, entry_id, outcome)
            for index, (entry_id, outcome) in enumerate(zip(ids, outcomes, strict=True))
        ]
        failures = [outcome for outcome in outcomes if isinstance(outcome, CurlewError)]
        headers = _applied([media.JSON_HEADER, _timing(began_s)], wishes)
        self._count(items, outcomes)
        answer = BatchAnswer(results, len(outcomes) - len(failures), len(failures))
        await answer_results(exchange, headers, answer, failures)

    def _count(
        self,
        items: Sequence[BatchItem | CurlewError],
        outcomes: Sequence[SendResult | CurlewError],
    ) -> None:
        sizes = [
            len(item.message.body)
            for item, outcome in zip(items, outcomes, strict=True)
            if isinstance(outcome, SendResult) and isinstance(item, BatchItem)
        ]
        self._traffic.taken_in(len(sizes), sum(sizes))

    def _check_count(self, count: int) -> None:
        if count == 0:
            raise InvalidBody("the batch has no messages", hint='send {"messages":[…]}')
        if count > self._limits.batch_messages_max:
            raise BatchTooLarge(
                f"the batch has {count} messages; at most {self._limits.batch_messages_max} are "
                "taken",
                fields={"limit_messages": self._limits.batch_messages_max},
            )


def _timing(began_s: float) -> tuple[bytes, bytes]:
    """How long the broker took; what is missing to the client's own figure is HTTP and network."""
    return b"server-timing", b"store;dur=%.2f" % ((perf_counter() - began_s) * 1_000)


def _raw_message(body: bytes, content_type: str | None, options: SendOptions) -> Message:
    if options is NO_OPTIONS:
        return Message(body, content_type=content_type)
    return Message(
        body,
        tag=options.tag,
        keys=options.keys or (),
        sharding_key=options.sharding_key,
        properties=options.properties,
        content_type=content_type,
        born_time_ms=options.born_time_ms,
    )


def _merged(message: Message, options: SendOptions) -> Message:
    """`message` of an envelope, with what headers and query say over it."""
    if options is NO_OPTIONS:
        return message
    return replace(
        message,
        tag=message.tag if options.tag is None else options.tag,
        keys=message.keys if options.keys is None else options.keys,
        sharding_key=message.sharding_key if options.sharding_key is None else options.sharding_key,
        properties={**message.properties, **options.properties},
        born_time_ms=message.born_time_ms if options.born_time_ms is None else options.born_time_ms,
    )


def _refuse_content_encoding(encoding: bytes | None) -> None:
    """A consumer could not tell that the body is compressed, so it is not taken."""
    if encoding is not None and encoding.strip().lower() not in {b"", b"identity"}:
        raise UnsupportedContentType(
            f"Content-Encoding {encoding.decode('latin-1')!r} is not taken",
            hint="send the body as it is, or name the compression in Content-Type",
        )


def _position_headers(result: SendResult) -> Headers:
    return [
        (b"mq-message-id", result.message_id.encode()),
        (b"mq-queue-id", b"%d" % result.queue_id),
        (b"mq-queue-offset", b"%d" % result.queue_offset),
        (b"mq-store-time-ms", b"%d" % result.store_time_ms),
    ]


def _applied(headers: Headers, wishes: frozenset[str]) -> Headers:
    if _STRICT in wishes:
        headers.append((b"preference-applied", _STRICT.encode("ascii")))
    return headers


def _item_of(entry: BatchEntry | CurlewError) -> BatchItem | CurlewError:
    if isinstance(entry, CurlewError):
        return entry
    try:
        return BatchItem(message_of(entry), entry.queue_id)
    except CurlewError as error:
        return error


def _result_of(index: int, entry_id: str | None, outcome: SendResult | CurlewError) -> BatchResult:
    if isinstance(outcome, CurlewError):
        problem = entry_problem(with_outcome_of_send(outcome))
        return BatchResult(index, problem.status, entry_id, error=problem)
    return BatchResult(
        index,
        201,
        entry_id,
        outcome.message_id,
        outcome.queue_id,
        outcome.queue_offset,
        outcome.store_time_ms,
    )
