"""Spans of requests by OpenTelemetry's conventions for messaging. Event loop only.

A span begins where the request's `traceparent` says, is of kind SERVER, and is kept in the
request's scope: handlers may run outside of any task, so no context variable holds it. A message
carries the context in which it was made as its properties `traceparent` and `tracestate`; spans of
receives and settles are linked to it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.api.formats.mq_headers import named_in
from app.api.http.request_context import RequestContext
from app.broker.results import Delivery
from app.domain.errors import CurlewError
from app.domain.limits import SPAN_HANDLES_MAX, SPAN_LINKS_MAX

_W3C: Final = TraceContextTextMapPropagator()
_PARENT: Final = b"traceparent"
_STATE: Final = b"tracestate"
_SPAN: Final = "curlew.span"
"""In the scope of a request, its span."""
_SYSTEM: Final = "curlew"
_ERRORS_FROM: Final = 500
"""A smaller status is the client's own matter, which is no error of a server's span."""


class RequestSpans:
    """Begins and ends spans; remembers of which messages the newest receipt handles are."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._links: dict[str, Link] = {}
        """By receipt handle, oldest first."""

    @contextmanager
    def of(
        self, exchange: RequestContext, name: str, kind: str, topic: str, group: str | None = None
    ) -> Iterator[Span]:
        """The span of a request while it is handled. `name` and `kind` are the operation's name and
        type in the conventions."""
        attributes = {
            "messaging.system": _SYSTEM,
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.destination.name": topic,
        }
        if group is not None:
            attributes["messaging.consumer.group.name"] = group
        client_id = next((v for n, v in exchange.mq_headers if n == b"mq-client-id"), None)
        if client_id is not None:
            attributes["messaging.client.id"] = named_in(client_id)
        parent = _W3C.extract(_carrier(exchange.headers))
        span = self._tracer.start_span(
            f"{name} {topic}", parent, SpanKind.SERVER, attributes=attributes
        )
        exchange.scope[_SPAN] = span
        try:
            yield span
        except CurlewError as error:
            span.set_attribute("error.type", error.code)
            span.set_status(Status(StatusCode.ERROR, error.detail))
            raise
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            if exchange.status:
                span.set_attribute("http.response.status_code", exchange.status)
                if exchange.status >= _ERRORS_FROM:
                    span.set_status(Status(StatusCode.ERROR))
            span.end()

    @staticmethod
    def span_of(exchange: RequestContext) -> Span:
        span: Span = exchange.scope[_SPAN]
        return span

    @staticmethod
    def give_context(exchange: RequestContext, span: Span) -> None:
        """Let a message whose producer says nothing begin its way in `span`."""
        if _PARENT in exchange.headers or not span.get_span_context().is_valid:
            return
        context = span.get_span_context()
        flags = int(context.trace_flags)
        text = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
        exchange.headers[_PARENT] = text.encode("ascii")

    def received(self, span: Span, deliveries: Sequence[Delivery]) -> None:
        """Link a receive to what it gave, and remember the handles."""
        span.set_attribute("messaging.batch.message_count", len(deliveries))
        if len(deliveries) == 1:
            message = deliveries[0].message
            span.set_attribute("messaging.message.id", message.message_id)
            span.set_attribute("messaging.message.body.size", len(message.body))
        for delivery in deliveries[:SPAN_LINKS_MAX]:
            link = _link_of(delivery)
            if link is not None:
                span.add_link(link.context, link.attributes)
                self._links[delivery.receipt_handle] = link
        while len(self._links) > SPAN_HANDLES_MAX:
            del self._links[next(iter(self._links))]

    def settled(self, span: Span, handles: Iterable[str]) -> None:
        """Link a settle to the messages of its handles."""
        count = 0
        for handle in handles:
            count += 1
            link = self._links.pop(handle, None)
            if link is not None and count <= SPAN_LINKS_MAX:
                span.add_link(link.context, link.attributes)
        span.set_attribute("messaging.batch.message_count", count)


def _carrier(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    return {
        name.decode("ascii"): headers[name].decode("latin-1")
        for name in (_PARENT, _STATE)
        if name in headers
    }


def _link_of(delivery: Delivery) -> Link | None:
    """To the context in which a message was made."""
    message = delivery.message
    properties = message.properties
    if "traceparent" not in properties:
        return None
    made = get_current_span(_W3C.extract(dict(properties))).get_span_context()
    if not made.is_valid:
        return None
    return Link(
        made,
        {
            "messaging.message.id": message.message_id,
            "messaging.destination.partition.id": str(message.queue_id),
        },
    )
