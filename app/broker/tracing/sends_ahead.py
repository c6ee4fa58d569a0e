"""Sends of messages that had no place in their queue yet: delayed ones and halves of transactions.

They are noted where the message waits, in pages that are named after the system topic and the
message's own: so a search by topic finds them. What is delivered later says where it waited, and so
its trace has them too. They are noted of all messages of a sampled topic, as nobody knows which
offset a message will have. Pure.
"""

from typing import Final

from app.broker.tracing.trace_notes import Note, about_one, only_request, seconds_of
from app.domain.message import PROPERTY_HALF, PROPERTY_TIMER, StoredMessage
from app.domain.names import HALF_TOPIC, TIMER_TOPIC

_SEPARATOR: Final = "+"
_WAITED: Final = (f"{TIMER_TOPIC}{_SEPARATOR}", f"{HALF_TOPIC}{_SEPARATOR}")

NO_OFFSET: Final = -1
"""Of a message that has no place in its queue yet."""


def ahead_name(waits_in: str, topic: str) -> str:
    """How the pages are named of messages for `topic` that wait in a system topic."""
    return f"{waits_in}{_SEPARATOR}{topic}"


def split_ahead(name: str) -> tuple[str, str] | None:
    """Invert `ahead_name`; None: the page is of a queue."""
    if not name.startswith(_WAITED):
        return None
    waits_in, _, topic = name.partition(_SEPARATOR)
    return waits_in, topic


def place_ahead(message: StoredMessage) -> tuple[str, int] | None:
    """Name of the pages and offset under which the message was noted before it had its place."""
    timer, half = message.system.get(PROPERTY_TIMER), message.system.get(PROPERTY_HALF)
    if timer is not None:
        return ahead_name(TIMER_TOPIC, message.topic), int(timer.partition("-")[2])
    if half is not None and half.isascii() and half.isdigit():
        return ahead_name(HALF_TOPIC, message.topic), int(half)
    return None


def is_about(note: Note, message: StoredMessage) -> bool:
    """Whether a note of that place is about the message: those of halves name theirs."""
    return note.detail in (None, message.message_id)


def as_of(note: Note, waited_at: int, offset: int) -> Note:
    """The note as one about the place that the message has by now."""
    seconds = seconds_of(note, waited_at) or 0.0
    return only_request(about_one(note, waited_at), offset, seconds)
