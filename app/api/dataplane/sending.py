"""Sending over HTTP: one message, and batches as JSON, NDJSON or frames.

Translates only: queue choice, limits of a message and storing are the broker's.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Final

from msgspec import UNSET

from app.api.bodies.unpacking import CONTENT_ENCODING, packing_of, read_to_keep, read_unpacked
from app.api.dataplane.entry_results import (
    ENTRIES_A_TURN,
    answer_results,
    let_others_turn,
    results_of,
)
from app.api.dataplane.send_answers import (
    answer_of,
    answered_early,
    kept_encoding,
    position_headers,
    stored_of,
    timing,
)
from app.api.formats import media
from app.api.formats.cloudevents import (
    EVENTS,
    VERSION_HEADER,
    attributes_of_headers,
)
from app.api.formats.dedup_headers import DUPLICATE, IDEMPOTENCY_KEY, claim_of
from app.api.formats.merging import (
    Entry,
    entries_of,
    is_small,
    message_beside_body,
    message_to_send,
)
from app.api.formats.mq_headers import (
    BATCH_OPTIONS,
    TRACE_HEADERS,
    SendOptions,
    put_property,
    read_batch_options,
    read_send_options,
    read_trace,
)
from app.api.formats.prefer_header import (
    ASYNC,
    MINIMAL,
    PREFER,
    REPRESENTATION,
    STRICT,
    applied,
    preferences_of,
)
from app.api.formats.transaction_headers import (
    Preparation,
    preparation_of,
    prepared_answer,
    refuse_with_transaction,
)
from app.api.formats.wire import (
    BatchAnswer,
    FrameAnswer,
    SendAnswer,
    encode_line,
)
from app.api.http.errors import (
    InvalidBody,
    UnsupportedFeature,
)
from app.api.http.parameters import Query
from app.api.http.request_context import (
    HEAD,
    WHOLE_BODY,
    HeadMemory,
    RequestContext,
    batch_too_large,
    body_too_large,
)
from app.api.telemetry.callers import names_of, note_sent
from app.api.telemetry.hook_calls import (
    ask_hooks,
    frame_messages,
    good_messages,
    tell_hooks,
)
from app.api.telemetry.plain_sends import PlainSends
from app.api.telemetry.request_metrics import RequestMetrics
from app.api.telemetry.send_traces import Stored, name_client, trace_prepared, trace_send
from app.api.telemetry.slow_puts import SLOW_PUT_S, SlowPuts
from app.broker import Broker
from app.broker.dedup.deduplicator import Once
from app.broker.dedup.tokens import Claim
from app.broker.figures.counters import TopicFigures
from app.broker.hooks.hook_contract import SendKind
from app.broker.produce.send_deadlines import Deadline
from app.broker.results import SendResult
from app.broker.tracing.trace_notes import TraceKind
from app.domain.errors import (
    CurlewError,
    InvalidRequest,
)
from app.domain.limits import Limits
from app.domain.message import Message, StoredEncoding
from app.domain.positions import FlushMode
from app.runtime.direct import in_task

BATCH_PARAMETERS: Final = BATCH_OPTIONS | {"spread", "split"}

_SPECIAL_HEADERS: Final = frozenset(
    {
        *TRACE_HEADERS,
        CONTENT_ENCODING,
        IDEMPOTENCY_KEY,
        PREFER,
        VERSION_HEADER,
    }
)
"""Headers that are seldom there; one set operation tells whether any is."""

_KEPT_MAX: Final = 64
"""Keys and properties of a message that is kept with its head: read, each takes far more than its
bytes, and a connection keeps some heads, also of what is refused each time."""

_Types = tuple[media.BodyKind, str | None]
"""What a body is, and the content type of its message."""


class Sending:
    """Handlers of the two send operations. Stateless beside its collaborators."""

    def __init__(self, broker: Broker, limits: Limits, traffic: RequestMetrics) -> None:
        self._broker = broker
        self._limits = limits
        self._traffic = traffic
        self._slow_puts = SlowPuts()
        self._plain = PlainSends(broker, limits, traffic, self._slow_puts)

    async def send(self, exchange: RequestContext, topic: str) -> None:
        headers = exchange.headers
        kind, content_type = media.send_content(headers.get(b"content-type"))
        is_plain = not (
            exchange.scope["query_string"]
            or kind != "raw"
            or not _SPECIAL_HEADERS.isdisjoint(headers)
            or self._broker.hooks.is_on
        )
        said: Message | None = None
        options: SendOptions | None = None
        if is_plain and exchange.mq_headers:
            head: HeadMemory | None = exchange.scope.get(HEAD)
            said = None if head is None else head.message
            if said is None:
                options = read_send_options(exchange.mq_headers, headers, b"")
                said = message_beside_body(options)
                if head is not None and not head.ends_alike and _is_brief(said):
                    head.message = said
            is_plain = said is not None
        if not is_plain:
            options = options or read_send_options(exchange.mq_headers, headers, exchange.query)
            await self._send_with_options(exchange, topic, (kind, content_type), options)
            return
        if WHOLE_BODY in exchange.scope:
            body = exchange.take_body(self._limits.body_bytes_max, body_too_large)
        else:
            body = await exchange.read_body(self._limits.body_bytes_max, body_too_large)
        if said is None:
            message = Message(body, content_type=content_type)
        else:
            of_keys = said.keys, said.sharding_key
            message = Message(body, said.tag, *of_keys, said.properties, content_type)
        known = self._plain.find(exchange, topic)
        figures = self._broker.statistics.topic(topic) if known is None else None
        began_s = perf_counter()
        result = await self._broker.sender.send(topic, message)
        if known is None:
            timing = self._note(exchange, topic, figures, began_s, 1, len(body), result)
            self._plain.learn(exchange, topic)
        else:
            seconds = perf_counter() - began_s
            self._plain.note(exchange, known, len(body), began_s, seconds, result)
            timing = (b"server-timing", b"store;dur=%.2f" % (seconds * 1_000))
        message_id = (b"mq-message-id", result[0].encode())
        answer = encode_line(SendAnswer("SEND_OK", *result[:5]))
        await exchange.answer(201, [media.JSON_HEADER, message_id, timing], answer)

    async def _send_with_options(
        self, exchange: RequestContext, topic: str, types: _Types, options: SendOptions
    ) -> None:
        """A send with options; a task where it waits for more than the store."""
        headers, (kind, content_type) = exchange.headers, types
        if self._broker.hooks.is_on or options.timeout_s is not None or options.keep_encoding:
            await in_task()
        name_client(exchange, options.client_id)
        if VERSION_HEADER in headers and kind == "raw":
            _take_event(exchange, options)
        body, encoding = await self._read(exchange, kind, options)
        message, queue_id, due = message_to_send(kind, content_type, body, options, encoding)
        preferences = preferences_of(exchange)
        claim = await claim_of(options, exchange, body)
        preparation = preparation_of(options, exchange)
        if due is not None or preparation is not None or options.one_way:
            await in_task()
        asked: SendKind = "message" if preparation is None else "transaction"
        await ask_hooks(self._broker, exchange, asked, topic, lambda: (message,))
        if preparation is not None:
            is_claimed, is_later = claim is not None, due is not None
            refuse_with_transaction(options, is_claimed=is_claimed, is_later=is_later)
            await self._prepare(exchange, topic, message, queue_id, options.flush, preparation)
            return
        flush = options.flush
        if ASYNC in preferences:
            preferences, flush = answered_early(preferences, flush)
        figures = self._broker.statistics.topic(topic)
        deadline = self._deadline_of(options)
        began_s = perf_counter()
        is_repeated = False
        if claim is None:
            result = await self._broker.sender.send(
                topic, message, queue_id=queue_id, flush=flush, due=due, deadline=deadline
            )
        else:
            (result,), is_repeated = await self._broker.deduplicator.send(
                *(topic, message, claim),
                queue_id=queue_id,
                flush=flush,
                due=due,
                deadline=deadline,
            )
        if options.one_way:
            stored = (int(not is_repeated), len(message.body), result)
            await self._answer_one_way(exchange, topic, figures, *stored)
            return
        if is_repeated:
            self._note(exchange, topic, figures, began_s, 0, 0, result)
            await self._answer_again(exchange, result, message.unique_id, preferences)
            return
        timing = self._note(exchange, topic, figures, began_s, 1, len(message.body), result)
        status = 202 if flush is FlushMode.ASYNC else 201
        if MINIMAL in preferences:
            headers_only = applied(
                [*position_headers(result, message.unique_id), *kept_encoding(message), timing],
                preferences,
                MINIMAL,
                ASYNC,
            )
            await exchange.answer_empty(status, headers_only)
            return
        message_id = (b"mq-message-id", result[0].encode())
        answer_headers = [media.JSON_HEADER, message_id, *kept_encoding(message), timing]
        await exchange.answer(
            status,
            applied(answer_headers, preferences, REPRESENTATION, ASYNC),
            encode_line(answer_of(result, message.unique_id)),
        )

    async def _read(
        self, exchange: RequestContext, kind: media.BodyKind, options: SendOptions
    ) -> tuple[bytes, StoredEncoding | None]:
        """The body, and how it is packed when it is to be stored so."""
        limits = self._limits
        limit = limits.body_bytes_max if kind == "raw" else limits.batch_bytes_max
        if not options.keep_encoding:
            return await read_unpacked(exchange, limit, limits, body_too_large), None
        if kind != "raw":
            raise InvalidRequest(
                "keep_encoding is of a body that is the message, and this one is JSON around it",
                hint="send the message raw, and what belongs to it in headers",
                fields={"parameter": "keep_encoding"},
            )
        return await read_to_keep(exchange, limit, limits, body_too_large)

    async def _prepare(
        self,
        exchange: RequestContext,
        topic: str,
        message: Message,
        queue_id: int | None,
        flush: FlushMode | None,
        preparation: Preparation,
    ) -> None:
        """Store a half message. It counts as sent when it is committed."""
        began_s = perf_counter()
        transaction = await self._broker.transactions.prepare(
            topic,
            message,
            producer_group=preparation.producer_group,
            check_after_ms=preparation.check_after_ms,
            counts_when_asked=preparation.counts_when_asked,
            queue_id=queue_id,
            flush=flush,
        )
        seconds = perf_counter() - began_s
        trace_prepared(self._broker.message_trace, exchange, transaction, seconds)
        headers = [
            media.JSON_HEADER,
            (b"mq-message-id", transaction.transaction_id.encode()),
            (b"location", f"/v1/transactions/{transaction.transaction_id}".encode()),
            *kept_encoding(message),
        ]
        answer = prepared_answer(transaction, message.unique_id)
        await exchange.answer(202, headers, encode_line(answer))

    async def _answer_again(
        self,
        exchange: RequestContext,
        result: SendResult,
        unique_id: str | None,
        preferences: frozenset[str],
    ) -> None:
        if MINIMAL in preferences:
            headers = position_headers(result, unique_id)
            headers = applied([*headers, DUPLICATE], preferences, MINIMAL)
            await exchange.answer_empty(200, headers)
            return
        headers = [media.JSON_HEADER, (b"mq-message-id", result[0].encode()), DUPLICATE]
        body = encode_line(answer_of(result, unique_id))
        await exchange.answer(200, applied(headers, preferences, REPRESENTATION), body)

    async def send_batch(self, exchange: RequestContext, topic: str) -> None:
        headers = exchange.headers
        parameters = Query(exchange.query, BATCH_PARAMETERS)
        content_type = headers.get(b"content-type")
        kind: media.BatchKind
        if parameters.choice("split", ("lines",)):
            kind, line_type = "lines", media.raw_content_type(content_type)
        else:
            kind, line_type = media.batch_content(content_type), None
        if VERSION_HEADER in headers:
            raise InvalidRequest(
                "CloudEvents in headers are sent one by one", hint=f"send a batch as {EVENTS}"
            )
        options = read_batch_options(exchange.mq_headers, parameters)
        name_client(exchange, options.client_id)
        spread = parameters.flag("spread")
        preferences = preferences_of(exchange)
        if ASYNC in preferences:
            preferences, options.flush = answered_early(preferences, options.flush)
        if kind == "frames":
            frame = await self._read_frame(exchange)
            if spread:
                raise UnsupportedFeature(
                    "a batch frame goes to one queue", hint="leave out spread, or send JSON"
                )
            await self._send_frame(exchange, topic, frame, options, preferences)
            return
        if spread and options.queue_id is not None:
            raise InvalidRequest(
                "spread and queue_id contradict each other", hint="leave one of them out"
            )
        limits = self._limits
        body = await read_unpacked(exchange, limits.batch_bytes_max, limits, batch_too_large)
        for_all = read_trace(headers), options.queue_id
        work = partial(entries_of, kind, body, line_type, limits.batch_messages_max, *for_all)
        if is_small(body):
            entries = work()
            await let_others_turn(len(entries))
        else:
            entries = await asyncio.get_running_loop().run_in_executor(None, work)
        claim = await claim_of(options, exchange, body)
        await self._send_entries(exchange, topic, entries, options, spread, preferences, claim)
        while len(entries) > ENTRIES_A_TURN:  # a million properties take a while to be freed
            del entries[-ENTRIES_A_TURN:]
            await asyncio.sleep(0)

    async def _read_frame(self, exchange: RequestContext) -> bytes | bytearray | memoryview:
        """The body, to be written to when it came in parts: the store fills it in place."""
        limit = self._limits.batch_bytes_max
        if packing_of(exchange.headers.get(CONTENT_ENCODING)) is None:
            return await exchange.read_own_body(limit, batch_too_large)
        return await read_unpacked(exchange, limit, self._limits, batch_too_large)

    async def _send_frame(
        self,
        exchange: RequestContext,
        topic: str,
        body: bytes | bytearray | memoryview,
        options: SendOptions,
        preferences: frozenset[str],
    ) -> None:
        messages = partial(frame_messages, body, topic, self._limits)
        await ask_hooks(self._broker, exchange, "frame", topic, messages)
        figures = self._broker.statistics.topic(topic)
        began_s = perf_counter()
        claim = await claim_of(options, exchange, body)
        queue_id, flush, deadline = options.queue_id, options.flush, self._deadline_of(options)
        answer_headers = [media.JSON_HEADER]
        is_repeated = False
        if claim is None:
            result = await self._broker.sender.send_frame(
                topic, body, queue_id=queue_id, flush=flush, deadline=deadline
            )
        else:
            result, is_repeated = await self._broker.deduplicator.send_frame(
                topic, body, claim, queue_id=queue_id, flush=flush, deadline=deadline
            )
            answer_headers += [DUPLICATE] * is_repeated
        stored = (0, 0, result) if is_repeated else (result.count, len(body), result)
        if options.one_way:
            await self._answer_one_way(exchange, topic, figures, *stored)
            return
        answer_headers.append(self._note(exchange, topic, figures, began_s, *stored))
        headers = applied(answer_headers, preferences, REPRESENTATION, STRICT, ASYNC)
        answer = FrameAnswer(
            status="SEND_OK",
            topic=result.topic,
            queue_id=result.queue_id,
            first_queue_offset=UNSET
            if result.first_queue_offset < 0
            else result.first_queue_offset,
            count=result.count,
            store_time_ms=result.store_time_ms,
            delayed_count=result.delayed_count,
            message_ids=list(result.message_ids) if REPRESENTATION in preferences else UNSET,
        )
        # All or nothing by nature: a frame with one bad record is refused whole.
        await exchange.answer(200, headers, encode_line(answer))

    async def _send_entries(
        self,
        exchange: RequestContext,
        topic: str,
        entries: Sequence[Entry],
        options: SendOptions,
        spread: bool,
        preferences: frozenset[str],
        claim: Claim | None,
    ) -> None:
        strict = STRICT in preferences
        if not entries:
            raise InvalidBody("the batch has no messages", hint='send {"messages":[…]}')
        items = [entry.item for entry in entries]
        await ask_hooks(self._broker, exchange, "batch", topic, partial(good_messages, items))
        figures = self._broker.statistics.topic(topic)
        deadline = self._deadline_of(options)
        began_s = perf_counter()
        if claim is not None:
            once = await self._broker.deduplicator.send_batch(
                topic,
                items,
                claim,
                queue_id=options.queue_id,
                spread=spread,
                flush=options.flush,
                deadline=deadline,
            )
            await let_others_turn(len(items))
            count = (0, 0) if once.is_repeated else stored_of(items, once.results)
            if options.one_way:
                await self._answer_one_way(exchange, topic, figures, *count, once.results)
                return
            timing = self._note(exchange, topic, figures, began_s, *count, once.results)
            await self._answer_once(exchange, entries, once, timing, preferences)
            return
        outcomes = await self._broker.sender.send_batch(
            topic,
            items,
            queue_id=options.queue_id,
            spread=spread,
            strict=strict,
            flush=options.flush,
            deadline=deadline,
        )
        await let_others_turn(len(items))
        count = stored_of(items, outcomes)
        if options.one_way and count[0] == len(items):
            await self._answer_one_way(exchange, topic, figures, *count, outcomes)
            return
        timing = self._note(exchange, topic, figures, began_s, *count, outcomes)
        results = await results_of(entries, outcomes)
        failures = [outcome for outcome in outcomes if isinstance(outcome, CurlewError)]
        for code, failed in Counter(failure.code for failure in failures).items():
            self._broker.statistics.failed(topic, code, failed)
        headers = applied([media.JSON_HEADER, timing], preferences, STRICT, ASYNC)
        answer = BatchAnswer(results, len(outcomes) - len(failures), len(failures))
        await answer_results(exchange, headers, answer, failures)

    async def _answer_once(
        self,
        exchange: RequestContext,
        entries: Sequence[Entry],
        once: Once,
        timing: tuple[bytes, bytes],
        preferences: frozenset[str],
    ) -> None:
        """A batch under a claim is stored whole, so there are only successes to tell."""
        results = await results_of(entries, once.results)
        headers = [media.JSON_HEADER, timing, *[DUPLICATE] * once.is_repeated]
        answer = BatchAnswer(results, len(results), 0)
        await exchange.answer(
            200, applied(headers, preferences, STRICT, ASYNC), encode_line(answer)
        )

    async def _answer_one_way(
        self,
        exchange: RequestContext,
        topic: str,
        figures: TopicFigures | None,
        count: int,
        size: int,
        stored: Stored,
    ) -> None:
        """Nothing is told but that names, topic and limits are well; nobody knows how long the
        medium takes."""
        kind = TraceKind.SENT if count else TraceKind.SENT_AGAIN
        names = names_of(exchange)
        trace_send(self._broker.message_trace, exchange, topic, stored, 0, kind, names)
        if count:
            self._traffic.taken_in(count, size)
            figures = figures or self._broker.statistics.topic(topic)
            if figures is not None:
                figures.put(count, size, None)
            note_sent(self._broker.clients, exchange, topic, count, names)
            tell_hooks(self._broker, exchange, topic, stored)
        await exchange.answer_empty(202, [])

    def _deadline_of(self, options: SendOptions) -> Deadline:
        """When the sender waits no longer, in the loop's time; None: it waits as long as it
        takes."""
        if options.one_way:
            return self._broker.sender.one_way
        if options.timeout_s is None:
            return None
        return asyncio.get_running_loop().time() + options.timeout_s

    def _note(
        self,
        exchange: RequestContext,
        topic: str,
        figures: TopicFigures | None,
        began_s: float,
        count: int,
        size: int,
        stored: Stored,
    ) -> tuple[bytes, bytes]:
        """Count and trace what was stored since `began_s`; the header that says how long it took.

        `figures` are those of the topic before the send, None if it was not there yet. With a
        `count` of 0 it was stored before.
        """
        seconds = perf_counter() - began_s
        kind = TraceKind.SENT if count else TraceKind.SENT_AGAIN
        names = names_of(exchange)
        trace_send(self._broker.message_trace, exchange, topic, stored, seconds, kind, names)
        if count:
            self._traffic.taken_in(count, size)
            figures = figures or self._broker.statistics.topic(topic)
            if figures is not None:
                figures.put(count, size, seconds)
            note_sent(self._broker.clients, exchange, topic, count, names)
            if self._broker.hooks.is_on:
                tell_hooks(self._broker, exchange, topic, stored)
            if seconds > SLOW_PUT_S:
                read_s = began_s - exchange.began_s
                self._slow_puts.note(self._broker.store, topic, count, size, read_s, seconds)
        return timing(seconds)


def _take_event(exchange: RequestContext, options: SendOptions) -> None:
    """Add the attributes of an event in binary mode."""
    attributes = attributes_of_headers(exchange.scope["headers"])
    for name, text in attributes.items():
        put_property(options.properties, name, text)
    if (key := attributes.get("ce-partitionkey")) is not None:
        options.take("sharding_key", key)


def _is_brief(said: Message | None) -> bool:
    """Whether it may be kept with its head."""
    return said is not None and len(said.keys) + len(said.properties) <= _KEPT_MAX
