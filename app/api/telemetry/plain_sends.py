"""What is noted of a send of one message that says nothing beside its body. Event loop only."""

from typing import Final

from app.api.http.request_context import RequestContext
from app.api.telemetry.callers import note_sent
from app.api.telemetry.request_metrics import RequestMetrics
from app.api.telemetry.slow_puts import SLOW_PUT_S, SlowPuts
from app.broker import Broker
from app.broker.figures.counters import TopicFigures
from app.broker.results import SendResult

_NO_NAME: Final = ""


class PlainSends:
    """Counts and traces them: as other sends, with fewer calls."""

    def __init__(self, broker: Broker, traffic: RequestMetrics, slow_puts: SlowPuts) -> None:
        self._broker = broker
        self._traffic = traffic
        self._slow_puts = slow_puts

    def note(
        self,
        exchange: RequestContext,
        topic: str,
        figures: TopicFigures | None,
        size: int,
        began_s: float,
        seconds: float,
        result: SendResult,
    ) -> None:
        """A body of `size` bytes was stored, in so many seconds since `began_s`. `figures` are
        those of the topic before the send, None if it was not there yet."""
        traffic, broker = self._traffic, self._broker
        traffic.messages_in += 1
        traffic.bytes_in += size
        client = exchange.scope.get("client")
        broker.message_trace.sent_one(result, seconds, client)
        figures = figures or broker.statistics.topic(topic)
        if figures is not None:
            figures.put(1, size, seconds)
        clients = broker.clients
        if not client or not clients.producers.touch(topic, (_NO_NAME, client[0]), 1, topic):
            note_sent(clients, exchange, topic, 1)
        if seconds > SLOW_PUT_S:
            read_s = began_s - exchange.began_s
            self._slow_puts.note(broker.store, topic, 1, size, read_s, seconds)
