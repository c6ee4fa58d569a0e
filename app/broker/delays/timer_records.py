"""Records of the timer topic: how a message waits, how its waiting ends, what is delivered. Pure.

A record with a due time is a message that waits; its reserved properties say for which queue, for
when, and where it waited first (its identity, which stays when it is moved). A record without one
lists those that wait no more.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from app.broker.retries_and_dead_letters import fitted
from app.domain.message import (
    PROPERTY_DUE,
    PROPERTY_GENERATION,
    PROPERTY_REAL_QUEUE,
    PROPERTY_REAL_TOPIC,
    PROPERTY_STEP,
    PROPERTY_TIMER,
    Message,
    StoredMessage,
)
from app.domain.names import TIMER_TOPIC
from app.store import StepPart, Timer

QUEUE: Final = 0
"""Of the timer topic."""

_OF_WAITING: Final = frozenset(
    {PROPERTY_DUE, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE, PROPERTY_GENERATION, PROPERTY_STEP}
)
_decode_done: Final = msgspec.msgpack.Decoder(dict[str, list[int]]).decode


def waiting_part(
    message: Message, topic: str, queue_id: int, due_ms: int, identity: str | None
) -> StepPart:
    """The part of a step that stores `message` where it waits; `identity` tells
    its topic from others of the name."""
    system = {
        name: text
        for name, text in message.system.items()
        if name not in _OF_WAITING and name != PROPERTY_TIMER
    }
    system[PROPERTY_REAL_TOPIC] = topic
    system[PROPERTY_REAL_QUEUE] = str(queue_id)
    system[PROPERTY_DUE] = str(due_ms)
    if identity is not None:
        system[PROPERTY_GENERATION] = identity
    return StepPart(TIMER_TOPIC, QUEUE, [fitted(replace(message, system=system))])


def done_part(timers: Mapping[Timer, str]) -> StepPart:
    """The part of a step that ends the waiting of these, each with what it is `counted_as`.

    The body is MessagePack: topic, or topic and identity → due time, offset, due time, offset, …
    """
    rows: dict[str, list[int]] = {}
    for timer, topic in timers.items():
        rows.setdefault(topic, []).extend(timer)
    return StepPart(TIMER_TOPIC, QUEUE, [Message(msgspec.msgpack.encode(rows))])


def due_of(message: StoredMessage) -> int | None:
    """When a record of the timer topic is due; None when it is a list of those that are done."""
    due = message.system.get(PROPERTY_DUE)
    return None if due is None else int(due)


def identity_of(waiting: StoredMessage) -> str:
    """What stays the same of a delayed message when it is moved: where it waited first."""
    identity = waiting.system.get(PROPERTY_TIMER)
    return identity or identity_text(Timer(int(waiting.system[PROPERTY_DUE]), waiting.queue_offset))


def identity_text(first: Timer) -> str:
    """The identity of a message that waited there first."""
    return f"{first.due_ms}-{first.offset}"


def done_in(record: StoredMessage) -> Iterator[tuple[Timer, str]]:
    """What a record of `done_part` lists: timers and the topics for which they waited."""
    for topic, numbers in _decode_done(record.body).items():
        for timer in map(Timer, numbers[::2], numbers[1::2]):
            yield timer, topic


def target_of(waiting: StoredMessage) -> str:
    """The topic for which a message waits."""
    return waiting.system[PROPERTY_REAL_TOPIC]


def counted_as(waiting: StoredMessage) -> str:
    """Under what a waiting message is counted: its topic, for retries with their identity."""
    return counted(target_of(waiting), waiting.system.get(PROPERTY_GENERATION, ""))


def counted(topic: str, identity: str) -> str:
    """The same of a topic and an identity; only a retry's names two generations."""
    return f"{topic} {identity}" if ":" in identity else topic


def as_message(waited: StoredMessage) -> Message:
    """What is delivered of a record that waited: the message with its id and times."""
    system = {name: text for name, text in waited.system.items() if name not in _OF_WAITING}
    system[PROPERTY_TIMER] = identity_of(waited)
    packed = waited.packed
    message = Message(
        waited.body if packed is None else packed.data,
        tag=waited.tag,
        keys=waited.keys,
        sharding_key=waited.sharding_key,
        properties=waited.properties,
        content_type=waited.content_type,
        message_id=waited.message_id,
        born_time_ms=waited.born_time_ms,
        system=system,
        reconsume_times=waited.reconsume_times,
        unique_id=waited.unique_id,
        flag=waited.flag,
        encoding=None if packed is None else packed.encoding,
    )
    return fitted(message)


def moved_part(waiting: Sequence[StoredMessage], due_ms: int | None = None) -> StepPart:
    """The part of a step that stores records of the timer topic again; None: for the same time."""
    messages: list[Message] = []
    for record in waiting:
        system = {name: text for name, text in record.system.items() if name != PROPERTY_STEP}
        system[PROPERTY_TIMER] = identity_of(record)
        if due_ms is not None:
            system[PROPERTY_DUE] = str(due_ms)
        messages.append(fitted(replace(as_message(record), system=system)))
    return StepPart(TIMER_TOPIC, QUEUE, messages)
