"""Names of topics and groups: what clients may use, and what the system reserves."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

from app.domain.errors import IllegalGroup, IllegalTopic
from app.domain.limits import NAME_CHARS_MAX

_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

_RULE: Final = f"use 1 to {NAME_CHARS_MAX} letters, digits, '_' or '-'"


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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, or None. For "did you mean" hints."""
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return matches[0] if matches else None
