"""Sends of a command: one message, or many in batches and at a rate."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from curlew_client.command.service import Service
from curlew_client.errors import CurlewError
from curlew_client.producing.messages import Message, batch_request, send_request
from curlew_client.results import SendResult, result_of, results_of

BATCH_MESSAGES: Final = 500
BATCH_BYTES: Final = 1024 * 1024
BATCHES_PER_S: Final = 10
"""At a rate, so often at most."""
RETRIES: Final = 3


def send_one(service: Service, topic: str, message: Message) -> SendResult:
    """Send a message, numbered, so that a repeated attempt stores it once."""
    request = send_request(topic, message, service.session.options.compress_from)
    reply = service.sender.send(request, service.timeout_s, RETRIES)
    if reply is None:
        return SendResult(topic, is_duplicate=True)
    return result_of(reply[0], topic, reply[1])


def send_batch(service: Service, topic: str, messages: list[Message]) -> None:
    """Send messages of one queue or of none: all are stored, or none."""
    namespace = service.session.options.namespace
    request = batch_request(topic, messages, messages[0].queue_id, namespace)
    reply = service.sender.send(request, service.timeout_s, RETRIES)
    if reply is None:
        return
    for result in results_of(reply[0], topic, len(messages), reply[1]):
        if isinstance(result, CurlewError):
            raise result


def send_many(
    service: Service,
    topic: str,
    messages: Iterable[Message],
    *,
    rate: float | None = None,
    sent: Callable[[int, int], object] = lambda count, size: None,
) -> int:
    """Send them in order; how many. `sent(count, bytes)` hears of each batch that is stored.

    The first that fails ends it; a note of the exception says how many were stored before.
    """
    count = 0
    began_s = time.monotonic()
    try:
        for batch in batches(messages, rate):
            send_batch(service, topic, batch)
            count += len(batch)
            sent(len(batch), sum(len(each.body) for each in batch))
            if rate is not None:
                time.sleep(max(began_s + count / rate - time.monotonic(), 0))
    except Exception as error:
        if count:
            error.add_note(f"{count} messages were sent before")
        raise
    return count


def batches(messages: Iterable[Message], rate: float | None) -> Iterator[list[Message]]:
    """Messages of one queue each, bounded by number and bytes; small ones at a small rate."""
    most = BATCH_MESSAGES
    if rate is not None:
        most = max(min(int(rate / BATCHES_PER_S), most), 1)
    batch: list[Message] = []
    size = 0
    for message in messages:
        is_other = bool(batch) and batch[0].queue_id != message.queue_id
        if batch and (is_other or len(batch) >= most or size + message.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.size
    if batch:
        yield batch
