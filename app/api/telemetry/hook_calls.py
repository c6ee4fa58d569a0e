"""What hooks are asked and told about a request that sends."""

from collections.abc import Callable, Sequence

from app.api.http.request_context import RequestContext
from app.api.telemetry.send_traces import Stored, producer_in, runs_in
from app.broker import Broker
from app.broker.hooks.hook_contract import SendKind, SendRequest, SentMessages
from app.broker.results import BatchItem
from app.domain.errors import CurlewError
from app.domain.limits import Limits
from app.domain.message import Message
from app.store.formats.frame.batch_frame import parse_request
from app.store.formats.frame.frame_messages import messages_of


async def ask_hooks(
    broker: Broker,
    exchange: RequestContext,
    kind: SendKind,
    topic: str,
    make: Callable[[], Sequence[Message]],
) -> None:
    """Ask whether the messages that `make` gives may be sent. Raises `ForbiddenByHook` or
    `HookFailed`."""
    if broker.hooks.check_sends:
        client_id, _, address = producer_in(exchange)
        await broker.hooks.check_send(SendRequest(kind, topic, make, client_id, address))


def tell_hooks(broker: Broker, exchange: RequestContext, topic: str, stored: Stored) -> None:
    """Tell of what was stored."""
    if broker.hooks.hear_sends:
        client_id, _, address = producer_in(exchange)
        sends = [SentMessages(topic, *run, client_id, address) for run in runs_in(stored)]
        broker.hooks.sent(sends)


def good_messages(items: Sequence[BatchItem | CurlewError]) -> list[Message]:
    """Of a batch; its bad entries are refused anyway."""
    return [item.message for item in items if isinstance(item, BatchItem)]


def frame_messages(
    body: bytes | bytearray | memoryview, topic: str, limits: Limits
) -> list[Message]:
    """Of a frame; raises what is wrong with it."""
    return messages_of(parse_request(bytes(body), topic=topic, limits=limits))
