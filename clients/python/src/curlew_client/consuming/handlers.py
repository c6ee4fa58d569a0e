"""What a handler's end means for its messages. Pure.

Returning acks, an exception hands back by the group's policy. `Retry` and `DeadLetter`, raised or
returned, say it exactly. What is no `Exception` (KeyboardInterrupt, SystemExit, a cancellation)
releases. A handler of batches may return the index of the last message that is done, or a dict
from messages to `Retry` or `DeadLetter`; the others are acked.
"""

from collections.abc import Sequence
from typing import Any

from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.messages import Received
from curlew_client.errors import DeadLetter, Retry
from curlew_client.wire.durations import milliseconds_of

Messages = Sequence[Received[Any]]


def decisions_of(
    messages: Messages, returned: object, error: BaseException | None, *, is_batch: bool
) -> list[Decision]:
    """A decision for each message about which the handler has not decided by hand."""
    if returned is None and error is None and len(messages) == 1:  # by far the most
        (message,) = messages
        if message.is_settled:
            return []
        message.is_settled = True
        return [Decision("ack", message)]
    left = [message for message in messages if not message.is_settled]
    if error is not None:
        found = [_of_error(message, error) for message in left]
    elif is_batch:
        found = _of_batch(messages, returned)
        found = [each for each in found if not each.message.is_settled]
    else:
        found = [_of_returned(message, returned) for message in left]
    for decision in found:
        decision.message.is_settled = True
    return found


def _of_error(message: Received[Any], error: BaseException) -> Decision:
    if isinstance(error, Retry | DeadLetter):
        return _of_returned(message, error)
    if isinstance(error, Exception):
        return Decision("nack", message, None, f"{type(error).__name__}: {error}")
    return Decision("release", message)


def _of_returned(message: Received[Any], returned: object) -> Decision:
    if isinstance(returned, Retry):
        delay_ms = None if returned.delay is None else milliseconds_of("delay", returned.delay)
        return Decision("nack", message, delay_ms, returned.reason)
    if isinstance(returned, DeadLetter):
        return Decision("dead_letter", message, None, returned.reason)
    return Decision("ack", message)


def _of_batch(messages: Messages, returned: object) -> list[Decision]:
    if isinstance(returned, bool):
        return [Decision("ack", message) for message in messages]
    if isinstance(returned, int):
        return [
            Decision("ack", message) if index <= returned else Decision("nack", message)
            for index, message in enumerate(messages)
        ]
    if isinstance(returned, dict):
        return [_of_returned(message, returned.get(message)) for message in messages]
    return [_of_returned(message, returned) for message in messages]
