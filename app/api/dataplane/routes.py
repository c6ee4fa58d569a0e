"""The table of hot operations: names, paths, handlers. Read by the router and by the document."""

from functools import partial

from app.api.dataplane.browsing import Browsing
from app.api.dataplane.pulling import Pulling
from app.api.dataplane.receiving import Receiving
from app.api.dataplane.requesting import Requesting
from app.api.dataplane.router import Operation, Router
from app.api.dataplane.sending import Sending
from app.api.dataplane.settling import Settling
from app.api.dataplane.streaming import Streaming
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.domain.limits import Limits

_TOPIC = "/v1/topics/{topic}"
_GROUP = _TOPIC + "/groups/{group}"


def build_lane(broker: Broker, limits: Limits, traffic: RequestMetrics | None = None) -> Router:
    """The lane over `broker`, counting in `traffic`."""
    traffic = traffic or RequestMetrics()
    return Router(
        [
            *_sends(broker, limits, traffic),
            *_reads(broker, limits, traffic),
            *_settles(broker, limits, traffic),
        ]
    )


def _sends(broker: Broker, limits: Limits, traffic: RequestMetrics) -> list[Operation]:
    sending = Sending(broker, limits, traffic)
    requesting = Requesting(broker, limits, traffic)
    messages, replies = f"{_TOPIC}/messages", "/v1/replies/{correlation_id}"
    send = partial(Operation, sends=True, takes_mq_headers=True)
    return [
        send("send_message", "POST", messages, sending.send, is_direct=True),
        send("send_batch", "POST", f"{messages}:batch", sending.send_batch),
        send("request_reply", "POST", f"{messages}:request", requesting.request),
        Operation("reply_to_request", "POST", replies, requesting.reply, takes_mq_headers=True),
    ]


def _reads(broker: Broker, limits: Limits, traffic: RequestMetrics) -> list[Operation]:
    browsing, pulling = Browsing(broker, limits, traffic), Pulling(broker, limits, traffic)
    receiving, streaming = Receiving(broker, limits, traffic), Streaming(broker, limits, traffic)
    queue = f"{_TOPIC}/queues/{{queue}}"
    read = partial(Operation, reads=True)
    return [
        read("browse_messages", "GET", f"{_TOPIC}/messages", browsing.browse),
        read("pull_messages", "GET", f"{queue}/messages", pulling.pull),
        read("receive_messages", "POST", f"{_GROUP}/messages:receive", receiving.receive),
        read("stream_topic", "GET", f"{_TOPIC}/stream", streaming.stream_topic),
        read("stream_group", "GET", f"{_GROUP}/stream", streaming.stream_group, leases_by_get=True),
    ]


def _settles(broker: Broker, limits: Limits, traffic: RequestMetrics) -> list[Operation]:
    settling = Settling(broker, limits, traffic)
    messages, receipts = f"{_GROUP}/messages", "/v1/receipts/{handle}"
    return [
        Operation("settle_messages", "POST", f"{messages}:settle", settling.settle),
        Operation("ack_messages", "POST", f"{messages}:ack", settling.ack),
        Operation("nack_messages", "POST", f"{messages}:nack", settling.nack),
        Operation("extend_messages", "POST", f"{messages}:extend", settling.extend),
        Operation("dead_letter_messages", "POST", f"{messages}:dead-letter", settling.dead_letter),
        Operation("ack_receipt", "DELETE", receipts, settling.delete_receipt),
        Operation("change_receipt", "PATCH", receipts, settling.change_receipt),
    ]
