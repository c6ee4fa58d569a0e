"""The table of hot operations: names, paths, handlers. Read by the router and by the document."""

from app.api.lane.browsing import Browsing
from app.api.lane.pulling import Pulling
from app.api.lane.receiving import Receiving
from app.api.lane.requesting import Requesting
from app.api.lane.routing import Lane, Operation
from app.api.lane.sending import Sending
from app.api.lane.settling import Settling
from app.api.lane.streaming import Streaming
from app.api.ports import DataPlane
from app.api.traffic import Traffic
from app.domain.limits import Limits

_TOPIC = "/v1/topics/{topic}"
_GROUP = _TOPIC + "/groups/{group}"


def build_lane(broker: DataPlane, limits: Limits, traffic: Traffic | None = None) -> Lane:
    """The lane over `broker`, counting in `traffic`."""
    traffic = traffic or Traffic()
    sending, pulling = Sending(broker, limits, traffic), Pulling(broker, limits, traffic)
    streaming = Streaming(broker, limits, traffic)
    receiving, settling = Receiving(broker, limits, traffic), Settling(broker, limits)
    browsing = Browsing(broker, limits, traffic)
    requesting = Requesting(broker, limits, traffic)
    receipts = "/v1/receipts/{handle}"
    return Lane(
        [
            Operation(
                "send_message",
                "POST",
                f"{_TOPIC}/messages",
                sending.send,
                sends=True,
                takes_mq_headers=True,
            ),
            Operation(
                "send_batch",
                "POST",
                f"{_TOPIC}/messages:batch",
                sending.send_batch,
                sends=True,
                takes_mq_headers=True,
            ),
            Operation(
                "request_reply",
                "POST",
                f"{_TOPIC}/messages:request",
                requesting.request,
                sends=True,
                takes_mq_headers=True,
            ),
            Operation(
                "reply_to_request",
                "POST",
                "/v1/replies/{correlation_id}",
                requesting.reply,
                takes_mq_headers=True,
            ),
            Operation("browse_messages", "GET", f"{_TOPIC}/messages", browsing.browse),
            Operation("pull_messages", "GET", f"{_TOPIC}/queues/{{queue}}/messages", pulling.pull),
            Operation("receive_messages", "POST", f"{_GROUP}/messages:receive", receiving.receive),
            Operation("stream_topic", "GET", f"{_TOPIC}/stream", streaming.stream_topic),
            Operation("stream_group", "GET", f"{_GROUP}/stream", streaming.stream_group),
            Operation("settle_messages", "POST", f"{_GROUP}/messages:settle", settling.settle),
            Operation("ack_messages", "POST", f"{_GROUP}/messages:ack", settling.ack),
            Operation("nack_messages", "POST", f"{_GROUP}/messages:nack", settling.nack),
            Operation("extend_messages", "POST", f"{_GROUP}/messages:extend", settling.extend),
            Operation(
                "dead_letter_messages",
                "POST",
                f"{_GROUP}/messages:dead-letter",
                settling.dead_letter,
            ),
            Operation("ack_receipt", "DELETE", receipts, settling.delete_receipt),
            Operation("change_receipt", "PATCH", receipts, settling.change_receipt),
        ]
    )
