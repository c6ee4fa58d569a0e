"""What the trace of a message tells of its producer: notes of requests that stored messages."""

from collections.abc import Iterator, Sequence
from itertools import count as numbering
from itertools import repeat

from app.api.formats.mq_headers import encode_header
from app.api.http.request_context import RequestContext
from app.api.telemetry.callers import CLIENT, PRODUCER_GROUP, Names, address_of, names_of
from app.broker.results import FrameResult, SendResult
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import Producer, TraceKind
from app.broker.transactions.transaction_table import Transaction
from app.domain.errors import CurlewError
from app.domain.handles.recall import waiting_offset_of
from app.domain.names import stored_name

Stored = SendResult | FrameResult | Sequence[SendResult | CurlewError]
"""What a request has stored; what is delayed has no place in its queue yet."""


def trace_send(
    trace: MessageTrace,
    exchange: RequestContext,
    topic: str,
    stored: Stored,
    seconds: float,
    kind: TraceKind,
    names: Names,
) -> None:
    """Note a request that took the broker so many seconds; nothing where it is not traced."""
    is_named = CLIENT in names or PRODUCER_GROUP in names
    if kind is TraceKind.SENT and type(stored) is SendResult and not is_named:
        trace.sent_one(stored, seconds, exchange.scope.get("client"))
    elif trace.is_kept(topic):
        producer = _producer_of(exchange, names)
        if isinstance(stored, SendResult) and stored.queue_offset >= 0:
            place = topic, stored.queue_id, stored.queue_offset, 1
            trace.sent((kind, *place, stored.store_time_ms, seconds, producer))
            return
        is_any_delayed = False
        for queue_id, first, count, at_ms in runs_in(stored):
            if first >= 0:
                trace.sent((kind, topic, queue_id, first, count, at_ms, seconds, producer))
            else:
                is_any_delayed = True
        for first, count, at_ms in waiting_in(stored) if is_any_delayed else ():
            trace.sent_delayed(kind, topic, (first, count), at_ms, seconds, producer)


def trace_prepared(
    trace: MessageTrace, exchange: RequestContext, half: Transaction, seconds: float
) -> None:
    """Note a request that stored the half of a transaction."""
    client_id, _, address = producer_in(exchange)
    producer = client_id, half.producer_group, address
    place = half.topic, half.transaction_id, half.half_offset, half.prepared_ms
    trace.prepared(*place, seconds, producer)


def waiting_in(stored: Stored) -> Iterator[tuple[int, int, int]]:
    """First offset where delayed messages wait, count and store time: neighbours together."""
    if isinstance(stored, FrameResult):
        if stored.delayed_count and stored.first_waiting_offset >= 0:
            yield stored.first_waiting_offset, stored.delayed_count, stored.store_time_ms
        return
    first, count, at_ms = 0, 0, 0
    for result in (stored,) if isinstance(stored, SendResult) else stored:
        if isinstance(result, CurlewError) or result.recall_handle is None:
            continue
        offset = waiting_offset_of(result.recall_handle)
        if count and offset == first + count:
            count += 1
            continue
        if count:
            yield first, count, at_ms
        first, count, at_ms = offset, 1, result.store_time_ms
    if count:
        yield first, count, at_ms


def runs_in(stored: Stored) -> Iterator[tuple[int, int, int, int]]:
    """Queue id, first offset (-1: delayed), count and store time of what a request has stored:
    neighbours in a queue together."""
    if isinstance(stored, SendResult):
        yield stored.queue_id, stored.queue_offset, 1, stored.store_time_ms
    elif isinstance(stored, FrameResult):
        placed = stored.count - stored.delayed_count
        if placed:
            yield stored.queue_id, stored.first_queue_offset, placed, stored.store_time_ms
        if stored.delayed_count:
            yield stored.queue_id, -1, stored.delayed_count, stored.store_time_ms
    else:
        yield from _runs_in_batch(stored)


def _runs_in_batch(
    results: Sequence[SendResult | CurlewError],
) -> Iterator[tuple[int, int, int, int]]:
    if not results:
        return
    first, last = results[0], results[-1]
    if isinstance(first, SendResult) and isinstance(last, SendResult) and first[3] >= 0:
        # Most often all went to one queue, one behind the other: two comparisons of lists.
        count = len(results)
        places = [each[2:4] for each in results if isinstance(each, SendResult)]
        if places == list(zip(repeat(first[2], count), numbering(first[3]))):
            yield first[2], first[3], count, first[4]
            return
    runs: dict[int, tuple[int, int, int]] = {}
    for result in results:
        if isinstance(result, CurlewError):
            continue
        queue_id, offset = result.queue_id, result.queue_offset
        run = runs.get(queue_id)
        if run is not None and offset == (run[0] + run[1] if run[0] >= 0 else -1):
            runs[queue_id] = run[0], run[1] + 1, run[2]
            continue
        if run is not None:
            yield queue_id, *run
        runs[queue_id] = offset, 1, result.store_time_ms
    for queue_id, run in runs.items():
        yield queue_id, *run


def name_client(exchange: RequestContext, client_id: str | None) -> None:
    """A client that is named in the query is as good as one that is named in a header."""
    if client_id is not None and not any(name == CLIENT for name, _ in exchange.mq_headers):
        exchange.mq_headers.append((CLIENT, encode_header(client_id)))


def producer_in(exchange: RequestContext) -> Producer:
    """What the request says of who sends."""
    return _producer_of(exchange, names_of(exchange))


def _producer_of(exchange: RequestContext, names: Names) -> Producer:
    """Not the id of an idempotent producer: not everybody who may read the trace may know of that
    name."""
    group = names.get(PRODUCER_GROUP)
    return (
        names.get(CLIENT),
        None if group is None else stored_name(exchange.namespace, group),
        address_of(exchange.scope),
    )
