"""What is noted of a send of one message that says nothing beside its body. Event loop only."""

from typing import Final

import msgspec

from app.api.http.request_context import RequestContext
from app.api.telemetry.request_metrics import RequestMetrics
from app.api.telemetry.slow_puts import SLOW_PUT_S, SlowPuts
from app.broker import Broker
from app.broker.figures.clients import ClientRow
from app.broker.figures.counters import TopicFigures
from app.broker.ports import Topic
from app.broker.results import SendResult
from app.domain.limits import Limits
from app.domain.settings import TraceMode

_KNOWN_MAX: Final = 4_096
"""Pairs of topic and address remembered; when full, remembering starts anew."""


class KnownSender(msgspec.Struct, eq=False):
    """A client that sends to a topic, and where its sends count."""

    view: Topic
    figures: TopicFigures
    row: ClientRow
    is_traced: bool
    """All of the topic is, not a share."""


class PlainSends:
    """Counts and traces the plain sends of clients that have sent before, with few calls.

    What is looked up for other sends each time is known here until the topic changes, its figures
    are dropped, or the table of clients takes a turn.
    """

    def __init__(
        self, broker: Broker, limits: Limits, traffic: RequestMetrics, slow_puts: SlowPuts
    ) -> None:
        self._broker = broker
        self._limits = limits
        self._traffic = traffic
        self._slow_puts = slow_puts
        self._known: dict[tuple[str, str], KnownSender] = {}

    def find(self, exchange: RequestContext, topic: str) -> KnownSender | None:
        """Who sends; asked before the send, so that it counts for the topic that there is then.
        None: nobody known, or not any more."""
        client = exchange.scope.get("client")
        known = self._known.get((topic, client[0])) if client else None
        broker = self._broker
        if (
            known is None
            or known.view is not broker.metadata.snapshot.topics.get(topic)
            or known.figures is not broker.statistics.topics.get(topic)
            or known.row.turn != broker.clients.producers.turn
        ):
            return None
        return known

    def learn(self, exchange: RequestContext, topic: str) -> None:
        """A plain send of somebody who was not known has been counted."""
        client = exchange.scope.get("client")
        broker = self._broker
        view = broker.metadata.snapshot.topics.get(topic)
        figures = broker.statistics.topic(topic)
        if not client or view is None or figures is None:
            return
        row = broker.clients.producers.find(topic, ("", client[0]))
        if row is not None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            is_traced = view.trace is TraceMode.ON
            self._known[topic, client[0]] = KnownSender(view, figures, row, is_traced)

    def note(
        self,
        exchange: RequestContext,
        known: KnownSender,
        size: int,
        began_s: float,
        seconds: float,
        result: SendResult,
    ) -> None:
        """A body of `size` bytes was stored, in so many seconds since `began_s`."""
        traffic = self._traffic
        traffic.messages_in += 1
        traffic.bytes_in += size
        known.figures.put(1, size, seconds)
        known.row.count += 1
        trace = self._broker.message_trace
        singles = trace.singles
        if known.is_traced and len(singles) < self._limits.trace_notes_pending_max:
            singles.append((result, seconds, exchange.scope["client"]))
        else:
            trace.sent_one(result, seconds, exchange.scope["client"])
        if seconds > SLOW_PUT_S:
            read_s = began_s - exchange.began_s
            self._slow_puts.note(self._broker.store, result[1], 1, size, read_s, seconds)
