"""What the trace of a message tells of its producer: notes of requests that stored messages."""

from collections.abc import Sequence
from typing import Final

from app.api.http.request_context import RequestContext
from app.api.telemetry.callers import address_of
from app.broker.results import FrameResult, SendResult
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import Producer, TraceKind
from app.domain.errors import CurlewError
from app.domain.names import stored_name

Stored = SendResult | FrameResult | Sequence[SendResult | CurlewError]
"""What a request has stored; what is delayed has no place yet, and is passed over."""

_CLIENT: Final = (b"mq-client-id", b"mq-producer-id")


def trace_send(
    trace: MessageTrace,
    exchange: RequestContext,
    topic: str,
    stored: Stored,
    seconds: float,
    kind: TraceKind = TraceKind.SENT,
) -> None:
    """Note a request that took the broker so many seconds; nothing where it is not traced."""
    if kind is TraceKind.SENT and isinstance(stored, SendResult) and not exchange.mq_headers:
        offset = stored[3]
        if offset >= 0:
            client = exchange.scope.get("client")
            trace.sent_one((topic, stored[2], offset, stored[4], seconds, client))
        return
    if not trace.is_kept(topic):
        return
    producer = producer_in(exchange)
    if isinstance(stored, SendResult):
        _, _, queue_id, offset, at_ms, _, _ = stored
        if offset >= 0:
            trace.sent((kind, topic, queue_id, offset, 1, at_ms, seconds, producer))
    elif isinstance(stored, FrameResult):
        count = stored.count - stored.delayed_count
        place = stored.queue_id, stored.first_queue_offset, count
        if count:
            trace.sent((kind, topic, *place, stored.store_time_ms, seconds, producer))
    else:
        _trace_batch(trace, stored, seconds, producer, kind)


def _trace_batch(
    trace: MessageTrace,
    results: Sequence[SendResult | CurlewError],
    seconds: float,
    producer: Producer,
    kind: TraceKind,
) -> None:
    """Neighbours in a queue are one send."""
    runs: dict[tuple[str, int], tuple[int, int, int]] = {}
    for result in results:
        if isinstance(result, CurlewError):
            continue
        _, topic, queue_id, offset, at_ms, _, _ = result
        if offset < 0:
            continue
        run = runs.get((topic, queue_id))
        if run is not None and run[0] + run[1] == offset:
            runs[topic, queue_id] = run[0], run[1] + 1, run[2]
            continue
        if run is not None:
            trace.sent((kind, topic, queue_id, *run, seconds, producer))
        runs[topic, queue_id] = offset, 1, at_ms
    for place, run in runs.items():
        trace.sent((kind, *place, *run, seconds, producer))


def producer_in(exchange: RequestContext) -> Producer:
    """What the request says of who sends."""
    if not exchange.mq_headers:
        return None, None, address_of(exchange.scope)
    named = {name: value for name, value in exchange.mq_headers if name.startswith(b"mq-")}
    client_id = next((named[name] for name in _CLIENT if named.get(name)), None)
    group = named.get(b"mq-producer-group")
    return (
        None if client_id is None else client_id.decode("latin-1"),
        None if group is None else stored_name(exchange.namespace, group.decode("latin-1")),
        address_of(exchange.scope),
    )
