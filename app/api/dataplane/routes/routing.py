"""All operations of the data plane, and the handler of each."""

from typing import TYPE_CHECKING, Final

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.dataplane.browsing import Browsing
from app.api.dataplane.polling.polling import Polling
from app.api.dataplane.pulls.pulling import Pulling
from app.api.dataplane.receiving import Receiving
from app.api.dataplane.requesting import Requesting
from app.api.dataplane.router import Router
from app.api.dataplane.routes.lease_operations import POLL, RECEIVE_MESSAGES, STREAM_GROUP
from app.api.dataplane.routes.read_operations import BROWSE_MESSAGES, PULL_MESSAGES, STREAM_TOPIC
from app.api.dataplane.routes.send_operations import (
    REPLY_TO_REQUEST,
    REQUEST_REPLY,
    SEND_BATCH,
    SEND_MESSAGE,
)
from app.api.dataplane.routes.settle_operations import (
    ACK_MESSAGES,
    ACK_RECEIPT,
    CHANGE_RECEIPT,
    DEAD_LETTER_MESSAGES,
    EXTEND_MESSAGES,
    NACK_MESSAGES,
    SETTLE_MESSAGES,
)
from app.api.dataplane.sending import Sending
from app.api.dataplane.settling import Settling
from app.api.dataplane.streaming import Streaming
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.domain.limits import Limits

if TYPE_CHECKING:  # an extra, imported where it is on
    from opentelemetry.trace import Tracer

_Named = NamedElsewhere | None

OPERATIONS: Final = (
    *(SEND_MESSAGE, SEND_BATCH, REQUEST_REPLY, REPLY_TO_REQUEST),
    *(BROWSE_MESSAGES, PULL_MESSAGES, RECEIVE_MESSAGES, STREAM_TOPIC, STREAM_GROUP),
    *(SETTLE_MESSAGES, ACK_MESSAGES, NACK_MESSAGES, EXTEND_MESSAGES, DEAD_LETTER_MESSAGES),
    *(ACK_RECEIPT, CHANGE_RECEIPT, POLL),
)


def build_router(
    broker: Broker,
    limits: Limits,
    traffic: RequestMetrics | None = None,
    named: _Named = None,
    tracer: "Tracer | None" = None,
) -> Router:
    """The routes to handlers, which count in `traffic`; `named` asks for what paths do not name,
    `tracer` makes spans."""
    parts = broker, limits, traffic or RequestMetrics()
    more = *parts, named or NamedElsewhere(None, None)
    sending, requesting, browsing = Sending(*parts), Requesting(*parts), Browsing(*parts)
    pulling, receiving, streaming = Pulling(*parts), Receiving(*more), Streaming(*more)
    settling, polling = Settling(*more), Polling(*more)
    if tracer is not None:
        from app.api.dataplane.spans.traced_handlers import traced_handlers

        sending, receiving, settling = traced_handlers(tracer, parts, more)
    return Router(
        {
            SEND_MESSAGE: sending.send,
            SEND_BATCH: sending.send_batch,
            REQUEST_REPLY: requesting.request,
            REPLY_TO_REQUEST: requesting.reply,
            BROWSE_MESSAGES: browsing.browse,
            PULL_MESSAGES: pulling.pull,
            RECEIVE_MESSAGES: receiving.receive,
            STREAM_TOPIC: streaming.stream_topic,
            STREAM_GROUP: streaming.stream_group,
            SETTLE_MESSAGES: settling.settle,
            ACK_MESSAGES: settling.ack,
            NACK_MESSAGES: settling.nack,
            EXTEND_MESSAGES: settling.extend,
            DEAD_LETTER_MESSAGES: settling.dead_letter,
            ACK_RECEIPT: settling.delete_receipt,
            CHANGE_RECEIPT: settling.change_receipt,
            POLL: polling.poll,
        },
    )
