"""Cutting a large batch into what one turn of the event loop appends. Pure.

The messages of a queue stay in their order. Parts of other requests may come between two parts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from app.broker.results import BatchItem
from app.domain.errors import CurlewError
from app.domain.limits import MIB
from app.domain.message import Message

TURN_MESSAGES_MAX: Final = 2_000
"""Messages that one turn appends; four keys or properties count as one more."""

TURN_BYTES_MAX: Final = 8 * MIB
"""Bytes of bodies that one turn appends, if it is more than one message."""

SMALL_MESSAGES_MAX: Final = 256
"""So few are always one turn's."""


def weight_of(message: Message) -> int:
    """What a message costs to check and to append, in plain ones."""
    return 1 + (len(message.keys) + len(message.properties)) // 4


def ranges_of(messages: Sequence[Message], weight_max: int) -> Iterator[tuple[int, int]]:
    """Cut messages into runs for one turn each, by weight and bytes: (first, end) of each run."""
    first = weight = size = 0
    for place, message in enumerate(messages):
        weight += weight_of(message)
        size += len(message.body)
        if place > first and (weight > weight_max or size > TURN_BYTES_MAX):
            yield first, place
            first, weight, size = place, weight_of(message), len(message.body)
    if len(messages) > first:
        yield first, len(messages)


class BatchPart(NamedTuple):
    """Messages of one queue that are appended at once."""

    queue_id: int
    indexes: Sequence[int]
    """Their places in the batch."""
    messages: list[Message]
    begins_turn: bool
    """Whether what came before is enough for one turn."""


def parts_of(
    items: Sequence[BatchItem | CurlewError], chosen: Mapping[int, Sequence[int]]
) -> Iterator[BatchPart]:
    """What to append, one after the other. `chosen`: queue → places of its messages, all good."""
    if len(items) > SMALL_MESSAGES_MAX:
        yield from _large_parts(items, chosen)
        return
    for queue_id, indexes in chosen.items():
        messages = [
            item.message for index in indexes if isinstance(item := items[index], BatchItem)
        ]
        yield BatchPart(queue_id, indexes, messages, begins_turn=False)


def _large_parts(
    items: Sequence[BatchItem | CurlewError], chosen: Mapping[int, Sequence[int]]
) -> Iterator[BatchPart]:
    begins_turn = True  # choosing the queues was a turn of its own
    weight = size = 0
    for queue_id, indexes in chosen.items():
        part: list[int] = []
        messages: list[Message] = []
        for index in indexes:
            item = items[index]
            assert isinstance(item, BatchItem)
            message = item.message
            weight += weight_of(message)
            size += len(message.body)
            if weight > TURN_MESSAGES_MAX or size > TURN_BYTES_MAX:
                if part:
                    yield BatchPart(queue_id, part, messages, begins_turn)
                    part, messages = [], []
                begins_turn = True
                weight, size = weight_of(message), len(message.body)
            part.append(index)
            messages.append(message)
        if part:
            yield BatchPart(queue_id, part, messages, begins_turn)
            begins_turn = False
