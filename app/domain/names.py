"""Names of topics and groups: what clients may use, and what the system reserves."""

import difflib
import hashlib
import re
from collections.abc import Iterable
from typing import Final

from app.domain.errors import IllegalGroup, IllegalTopic, InvalidRequest
from app.domain.limits import NAME_CHARS_MAX

_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")

STORED_NAME_CHARS_MAX: Final = 255
"""Longest name of a directory on Linux file systems."""

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

PROGRESS_TOPIC: Final = "rmq_sys_progress"
"""Acks and attempts of all groups."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Messages that wait for their time."""
HALF_TOPIC: Final = "rmq_sys_trans_half"
"""Messages of transactions that are not decided."""
DECISION_TOPIC: Final = "rmq_sys_trans_op"
"""Decisions about them."""
PRODUCER_TOPIC: Final = "rmq_sys_producers"
"""What producers have sent already."""
DEAD_LETTER_STATE_TOPIC: Final = "rmq_sys_dead_letters"
"""Which dead letters were redriven or purged."""
TRACE_TOPIC: Final = "rmq_sys_trace"
"""What became of messages."""
FLOORS_TOPIC: Final = "rmq_sys_floors"
"""Which generation of each topic its queues hold, and where it begins."""

_RULE: Final = f"use 1 to {NAME_CHARS_MAX} letters, digits, '_' or '-'"


def is_system_topic(name: str) -> bool:
    """Whether the broker keeps its own records there; such topics are never in the metadata."""
    return name.startswith(SYSTEM_TOPIC_PREFIX)


def retry_topic(group: str, topic: str) -> str:
    """Where a group's failed messages of a topic wait for their next delivery.

    One for each pair, as in RocketMQ 5's POP consumption, so that a receive on one topic meets no
    retries of another. No client name has a '+'. A name too long for a directory ends in a digest.
    """
    name = f"{RETRY_PREFIX}{group}+{topic}"
    if len(name) <= STORED_NAME_CHARS_MAX:
        return name
    digest = hashlib.blake2b(topic.encode(), digest_size=8).hexdigest()
    return f"{name[: STORED_NAME_CHARS_MAX - len(digest) - 1]}+{digest}"


def dead_letter_topic(group: str) -> str:
    """Where the messages go that a group has failed to consume for good."""
    return f"{DEAD_LETTER_PREFIX}{group}"


def check_topic(name: str) -> str:
    """Return `name`, or raise `IllegalTopic` when a client may not use it."""
    if not _NAME.fullmatch(name):
        raise IllegalTopic(f"topic name {name!r} is not allowed", hint=_RULE)
    if name.startswith(SYSTEM_TOPIC_PREFIX):
        raise IllegalTopic(
            f"topic name {name!r} is reserved for the system",
            hint=f"choose a name that does not begin with {SYSTEM_TOPIC_PREFIX!r}",
        )
    return name


def check_group(name: str) -> str:
    """Return `name`, or raise `IllegalGroup` when a client may not use it."""
    if not _NAME.fullmatch(name):
        raise IllegalGroup(f"group name {name!r} is not allowed", hint=_RULE)
    return name


def check_name(kind: str, name: str) -> str:
    """Return `name`, or raise `InvalidRequest` when nothing of this `kind` may have it."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{kind} name {name!r} is not allowed", hint=_RULE)
    return name


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, or None. For "did you mean" hints."""
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return matches[0] if matches else None
