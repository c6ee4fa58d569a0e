"""Handlers that make a span of each request, in the place of those that make none.

A node without OpenTelemetry has the plain ones, and pays nothing.
"""

from collections.abc import Awaitable, Callable, Sequence

from opentelemetry.trace import Tracer
from typing_extensions import override

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.dataplane.receiving import Receiving
from app.api.dataplane.sending import Sending
from app.api.dataplane.settling import Settling
from app.api.dataplane.spans.request_spans import RequestSpans
from app.api.formats.wire import SettleBody
from app.api.http.request_context import Headers, RequestContext
from app.api.telemetry.request_metrics import RequestMetrics
from app.api.telemetry.send_traces import Stored
from app.broker import Broker
from app.broker.figures.counters import TopicFigures
from app.broker.results import Extend, Nack, ReceiveRequest, ReceiveResult, SendResult
from app.domain.limits import Limits

Parts = tuple[Broker, Limits, RequestMetrics]
MoreParts = tuple[Broker, Limits, RequestMetrics, NamedElsewhere]


class TracedSending(Sending):
    """Sends with spans."""

    def __init__(self, spans: RequestSpans, *parts: *Parts) -> None:
        super().__init__(*parts)
        self._spans = spans

    @override
    async def send(self, exchange: RequestContext, topic: str) -> None:
        with self._spans.of(exchange, "send", "send", topic) as span:
            self._spans.give_context(exchange, span)
            await super().send(exchange, topic)

    @override
    async def send_batch(self, exchange: RequestContext, topic: str) -> None:
        with self._spans.of(exchange, "send", "send", topic):
            await super().send_batch(exchange, topic)

    @override
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
        span = self._spans.span_of(exchange)
        if isinstance(stored, SendResult):
            span.set_attribute("messaging.message.id", stored.message_id)
            span.set_attribute("messaging.message.body.size", size)
            span.set_attribute("messaging.destination.partition.id", str(stored.queue_id))
        else:
            span.set_attribute("messaging.batch.message_count", count)
        return super()._note(exchange, topic, figures, began_s, count, size, stored)


class TracedReceiving(Receiving):
    """Receives with spans."""

    def __init__(self, spans: RequestSpans, *parts: *MoreParts) -> None:
        super().__init__(*parts)
        self._spans = spans

    @override
    async def receive(self, exchange: RequestContext, topic: str, group: str) -> None:
        with self._spans.of(exchange, "receive", "receive", topic, group):
            await super().receive(exchange, topic, group)

    @override
    async def _answer(
        self,
        exchange: RequestContext,
        request: ReceiveRequest,
        result: ReceiveResult,
        headers: Headers,
        force_base64: bool,
    ) -> int:
        self._spans.received(self._spans.span_of(exchange), result.deliveries)
        return await super()._answer(exchange, request, result, headers, force_base64)

    @override
    async def _answer_raw(
        self, exchange: RequestContext, result: ReceiveResult, headers: Headers
    ) -> int:
        self._spans.received(self._spans.span_of(exchange), result.deliveries)
        return await super()._answer_raw(exchange, result, headers)


class TracedSettling(Settling):
    """Settles with spans."""

    def __init__(self, spans: RequestSpans, *parts: *MoreParts) -> None:
        super().__init__(*parts)
        self._spans = spans

    @override
    async def _settle(
        self,
        exchange: RequestContext,
        topic: str,
        group: str,
        acks: Sequence[str],
        nacks: Sequence[Nack],
        extends: Sequence[Extend],
        dead_letters: Sequence[Nack] = (),
        releases: Sequence[str] = (),
    ) -> None:
        with self._spans.of(exchange, "settle", "settle", topic, group) as span:
            handles = [
                *acks,
                *(each.receipt_handle for each in (*nacks, *dead_letters)),
                *(each.receipt_handle for each in extends),
                *releases,
            ]
            self._spans.settled(span, handles)
            await super()._settle(
                exchange, topic, group, acks, nacks, extends, dead_letters, releases
            )

    @override
    async def _ack_and_send(
        self, exchange: RequestContext, topic: str, group: str, body: SettleBody
    ) -> None:
        with self._spans.of(exchange, "settle", "settle", topic, group) as span:
            self._spans.settled(span, body.acks)
            await super()._ack_and_send(exchange, topic, group, body)

    @override
    async def delete_receipt(self, exchange: RequestContext, handle: str) -> None:
        await self._one(exchange, handle, super().delete_receipt)

    @override
    async def change_receipt(self, exchange: RequestContext, handle: str) -> None:
        await self._one(exchange, handle, super().change_receipt)

    async def _one(
        self,
        exchange: RequestContext,
        handle: str,
        settle: Callable[[RequestContext, str], Awaitable[None]],
    ) -> None:
        topic, group = self._broker.settler.names_of(handle)
        with self._spans.of(exchange, "settle", "settle", topic, group) as span:
            self._spans.settled(span, (handle,))
            await settle(exchange, handle)


Handlers = tuple[Sending, Receiving, Settling]


def traced_handlers(tracer: Tracer, parts: Parts, more: MoreParts) -> Handlers:
    """What takes the place of the three; made of what they are made of."""
    spans = RequestSpans(tracer)
    return (
        TracedSending(spans, *parts),
        TracedReceiving(spans, *more),
        TracedSettling(spans, *more),
    )
