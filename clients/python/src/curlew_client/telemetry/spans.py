"""Spans of sends and handlers, by OpenTelemetry's conventions for messaging.

from curlew_client.telemetry.spans import SpanHook

with Client(hooks=[SpanHook()]) as curlew: ...

Needs the extra `otel`. A send carries its span's context in the properties `traceparent` and
`tracestate` of its messages. The span of a handler of one message goes on from there; that of a
handler of several is linked to each of them. It is the current one while the handler runs.
"""

from contextlib import AbstractContextManager
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from curlew_client.consuming.messages import Received
from curlew_client.errors import ServiceError
from curlew_client.hooks import Handling, Hook, Sending
from curlew_client.options import VERSION

LINKS_MAX: Final = 128
"""Of a span: what OpenTelemetry's SDK keeps unless told otherwise."""
_W3C: Final = TraceContextTextMapPropagator()
_PARENT: Final = "traceparent"


class SpanHook(Hook):
    """Makes a span of each send and of each call of a handler. Any number of clients share it."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """`provider`: who makes the spans; else the one that the program has set."""
        self._tracer: Tracer = get_tracer("curlew_client", VERSION, provider)

    def before_send(self, sending: Sending) -> None:
        """Begin the span, and give its context to the messages that have none."""
        attributes = _attributes("send", "send", sending.topic)
        messages = sending.messages
        if len(messages) == 1:
            attributes["messaging.message.body.size"] = len(messages[0].body)
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        name = f"send {sending.topic}"
        span = self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
        sending.notes[self] = span
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, set_span_in_context(span))
        for message in messages:
            properties = message.properties or {}
            if carrier and _PARENT not in properties:
                message.properties = {**properties, **carrier}

    def after_send(self, sending: Sending) -> None:
        """End the span."""
        span: Span = sending.notes[self]
        results = sending.results
        if results is not None and len(results) == 1 and results[0].message_id is not None:
            span.set_attribute("messaging.message.id", results[0].message_id)
        _end(span, sending.error)

    def before_handle(self, handling: Handling) -> None:
        """Begin the span, and make it the current one."""
        messages = handling.messages
        topic = messages[0].topic
        attributes = _attributes("process", "process", topic)
        attributes["messaging.consumer.group.name"] = handling.group
        parent: Context | None = None
        links: list[Link] = []
        if len(messages) == 1:
            attributes["messaging.message.id"] = messages[0].message_id
            attributes["messaging.message.body.size"] = len(messages[0].body)
            attributes["messaging.destination.partition.id"] = str(messages[0].queue_id)
            parent = _W3C.extract(messages[0].properties)
        else:
            attributes["messaging.batch.message_count"] = len(messages)
            links = [link for each in messages[:LINKS_MAX] if (link := _link(each)) is not None]
        span = self._tracer.start_span(
            f"process {topic}", parent, SpanKind.CONSUMER, attributes=attributes, links=links
        )
        current: AbstractContextManager[Span] = use_span(
            span, record_exception=False, set_status_on_exception=False
        )
        current.__enter__()
        handling.notes[self] = span, current

    def after_handle(self, handling: Handling) -> None:
        """End the span."""
        span, current = handling.notes[self]
        current.__exit__(None, None, None)
        _end(span, handling.error)


def _attributes(name: str, kind: str, topic: str) -> dict[str, AttributeValue]:
    return {
        "messaging.system": "curlew",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _link(message: Received[object]) -> Link | None:
    """To the context in which a message was made."""
    made = get_current_span(_W3C.extract(message.properties, Context())).get_span_context()
    if not made.is_valid:
        return None
    return Link(made, {"messaging.message.id": message.message_id})


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        kind = error.code if isinstance(error, ServiceError) else type(error).__name__
        span.set_attribute("error.type", kind)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
