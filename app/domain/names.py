"""Names of topics and groups: what clients may use, what the system reserves, and namespaces.

A thing of a namespace is stored as `<namespace>%<name>`, as RocketMQ stores it; one of the default
namespace, which has no name, as its name alone. No name that a client gives has a `%`, so no two
namespaces can have the same stored name.
"""

import difflib
import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

from app.domain.errors import CurlewError, IllegalGroup, IllegalTopic, InvalidRequest
from app.domain.limits import NAME_CHARS_MAX, NAMESPACE_CHARS_MAX

_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")
_NAMESPACE: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAMESPACE_CHARS_MAX}}}")

DEFAULT_NAMESPACE: Final = ""
NAMESPACE_SEPARATOR: Final = "%"

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
EPOCHS_TOPIC: Final = "rmq_sys_epochs"
"""In which epoch the store is led."""
TERMS_TOPIC: Final = "rmq_sys_terms"
"""Where the terms of a log's leaders begin; its messages say nothing that anybody reads."""

RESERVED_TOPICS: Final = frozenset(
    """TBW102 SELF_TEST_TOPIC BenchmarkTest OFFSET_MOVED_EVENT TRANS_CHECK_MAX_TIME_TOPIC
    SCHEDULE_TOPIC_XXXX""".split()  # noqa: SIM905
)
"""RocketMQ's own, beside those that begin with `RMQ_SYS_`."""
_Error = TypeVar("_Error", bound=CurlewError)

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


def stored_name(namespace: str, name: str) -> str:
    """What a thing of the namespace is stored as. The name is checked elsewhere."""
    return f"{namespace}{NAMESPACE_SEPARATOR}{name}" if namespace else name


def in_audit(name: str) -> str:
    """A name as the resource of an entry has it: a slash, which parts names there, and what is not
    printable are percent-encoded. No stored name has any; what a client asked for may."""
    if name.isprintable() and "/" not in name:
        return name
    return "".join(
        each if each.isprintable() and each != "/" else quote(each, safe="") for each in name
    )


def split_name(stored: str) -> tuple[str, str]:
    """Namespace and name of what is stored so; of a retry or dead-letter topic those of its group
    and the rest."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if stored.startswith(prefix):
            namespace, name = split_name(stored.removeprefix(prefix))
            return namespace, prefix + name
    namespace, separator, name = stored.partition(NAMESPACE_SEPARATOR)
    return (namespace, name) if separator else (DEFAULT_NAMESPACE, stored)


def namespace_of(stored: str) -> str:
    """The namespace of what is stored so; the default one is `""`."""
    return split_name(stored)[0] if NAMESPACE_SEPARATOR in stored else DEFAULT_NAMESPACE


def is_in(namespace: str, stored: str) -> bool:
    """Whether what is stored so belongs to the namespace."""
    return namespace_of(stored) == namespace


def check_namespace(name: str) -> str:
    """Return `name`, or raise `InvalidRequest` when no namespace may have it."""
    if not _NAMESPACE.fullmatch(name):
        raise InvalidRequest(
            f"namespace name {name!r} is not allowed",
            hint=f"use 1 to {NAMESPACE_CHARS_MAX} letters, digits, '_' or '-'",
        )
    if name.startswith(SYSTEM_TOPIC_PREFIX):
        raise InvalidRequest(
            f"namespace name {name!r} is reserved for the system",
            hint=f"choose a name that does not begin with {SYSTEM_TOPIC_PREFIX!r}",
        )
    return name


def check_topic(stored: str) -> str:
    """Return `stored`, or raise `IllegalTopic` when a client may not use it."""
    name = _own_name("topic", stored, IllegalTopic)
    if name.startswith(SYSTEM_TOPIC_PREFIX):
        raise IllegalTopic(
            f"topic name {name!r} is reserved for the system",
            hint=f"choose a name that does not begin with {SYSTEM_TOPIC_PREFIX!r}",
        )
    return stored


def check_new_topic(stored: str) -> str:
    """The same for a topic that is to be made; one that is there keeps its name."""
    check_topic(stored)
    name = stored.rpartition(NAMESPACE_SEPARATOR)[2]
    if is_reserved_topic(name):
        raise IllegalTopic(
            f"topic name {name!r} is reserved: RocketMQ keeps a topic of its own under it",
            hint="choose another name; delays, transactions and trails need no topic here",
        )
    return stored


def is_reserved_topic(name: str) -> bool:
    """Whether RocketMQ has a topic of its own of this name, in a broker or in its tools."""
    return name in RESERVED_TOPICS or name.lower().startswith(SYSTEM_TOPIC_PREFIX)


def check_group(stored: str) -> str:
    """Return `stored`, or raise `IllegalGroup` when a client may not use it."""
    _own_name("group", stored, IllegalGroup)
    return stored


def check_name(kind: str, stored: str) -> str:
    """Return `stored`, or raise `InvalidRequest` when nothing of this `kind` may have it."""
    _own_name(kind, stored, InvalidRequest)
    return stored


def refuse_separator(kind: str, name: str, error: type[InvalidRequest] = InvalidRequest) -> None:
    """Raise for a name from a client that would reach into a namespace."""
    if NAMESPACE_SEPARATOR in name:
        raise error(f"{kind} name {name!r} is not allowed", hint=_RULE)


def _own_name(kind: str, stored: str, error: type[InvalidRequest]) -> str:
    """The name without its namespace, or `error`."""
    namespace, separator, name = stored.partition(NAMESPACE_SEPARATOR)
    if not separator:
        name = stored
    elif not _NAMESPACE.fullmatch(namespace):
        raise error(f"{kind} name {stored!r} is not allowed", hint=_RULE)
    if not _NAME.fullmatch(name):
        raise error(f"{kind} name {name!r} is not allowed", hint=_RULE)
    if len(stored) > NAME_CHARS_MAX:
        raise error(
            f"{kind} name {name!r} is too long for namespace {namespace!r}",
            hint=f"both together have at most {NAME_CHARS_MAX - 1} characters",
        )
    return name


_COMPARED_MAX: Final = 128
"""Names that are compared whole."""

_LIKENESS_MIN: Final = 0.65
"""Ratio of difflib from which on a name is suggested: `retry` is no misspelt `order` (0.6), nor
`resource` a `producer` (0.625)."""

_COMPARED_SQUARE_CHARS_MAX: Final = 50_000
"""The same by length: comparing two names takes as long as the product of their lengths, about 60
ns for each. Some milliseconds in all."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name of the same namespace that is most like `name`, or None. For "did you mean"
    hints.

    Takes some milliseconds at most, however many are known: of many, one is found that has a good
    part of its beginning or of its end in common with `name`.
    """
    names = _in_namespace_of(name, known)
    compared = list(names) if len(names) <= _COMPARED_MAX else _alike(name, names)
    chars = max(_COMPARED_SQUARE_CHARS_MAX // max(len(name), 1), NAME_CHARS_MAX)
    if sum(map(len, compared)) > chars:
        compared.sort(key=partial(_shared_chars, name), reverse=True)
        compared = compared[: max(chars // max(map(len, compared)), 1)]
    matches = difflib.get_close_matches(name, compared, n=1, cutoff=_LIKENESS_MIN)
    return matches[0] if matches else None


def _in_namespace_of(name: str, known: Iterable[str]) -> Collection[str]:
    """Nobody is told of names of another namespace."""
    namespace, separator, _ = name.partition(NAMESPACE_SEPARATOR)
    if not separator:
        return [each for each in known if NAMESPACE_SEPARATOR not in each]
    start = namespace + separator
    return [each for each in known if each.startswith(start)]


def suggest_similar(
    error: _Error, kind: str, name: str, known: Iterable[str], say: Callable[[str], str]
) -> _Error:
    """Have `error` name the known thing that was perhaps meant, of those that its reader may know
    of: whoever answers asks that. `say` makes the hint."""

    def suggest(visible: Callable[[str, str], bool]) -> str | None:
        names = list(known)
        if len(names) > _COMPARED_MAX:
            names = _alike(name, names)
        similar = nearest(name, [each for each in names if visible(kind, each)])
        return None if similar is None else say(similar)

    error.suggest = suggest
    return error


def did_you_mean(similar: str) -> str:
    """The hint."""
    return f"did you mean {similar!r}?"


def _beginning_or_ending_as(name: str, known: Iterable[str]) -> list[str]:
    third = max(len(name) // 3, 1)
    return [each for each in known if each.startswith(name[:third]) or each.endswith(name[-third:])]


def _alike(name: str, known: Iterable[str]) -> list[str]:
    """At most `_COMPARED_MAX` of the known names: of those that begin or end as `name` does, those
    that have most of it in common."""
    found = _beginning_or_ending_as(name, known)
    if len(found) > _COMPARED_MAX:
        third = max(len(name) // 3, 1)
        ends = name[:third], name[-third:]
        found = [e for e in found if e.startswith(ends[0]) and e.endswith(ends[1])] or found
    for count in (len(name) // 2, len(name) * 2 // 3, len(name) * 5 // 6):
        if len(found) <= _COMPARED_MAX:
            break
        ends = name[:count], name[-count:]
        found = [e for e in found if e.startswith(ends[0]) or e.endswith(ends[1])] or found
    return found[:_COMPARED_MAX]


def _shared_chars(name: str, other: str) -> int:
    """Characters at the beginning and at the end of both."""
    size = min(len(name), len(other))
    head = next((at for at in range(size) if name[at] != other[at]), size)
    tail = next((at for at in range(size - head) if name[-1 - at] != other[-1 - at]), size - head)
    return head + tail
