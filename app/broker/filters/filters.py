"""Filter expressions: parsed once, then asked about the properties of each message. Pure.

A tag expression is `*` (or nothing) for every message, or tags joined by `||`. After `sql:` stands
a condition over properties, RocketMQ's SQL92 (`app.broker.filters.sql`). The consume queue holds
`java_hash(tag)` per message, so the store can skip by hash where only certain tags can match; since
hashes collide, and a condition says more, every message that is read is still asked. Messages
without a tag have hash 0 and match no tag.
"""

from functools import lru_cache
from typing import Final, Protocol

from app.broker.filters.sql import (
    Fault,
    Node,
    NotComparable,
    Properties,
    compile_condition,
    parse,
    tags_of,
)
from app.domain.errors import IllegalFilter
from app.domain.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX
from app.domain.message import (
    PROPERTY_CONTENT_TYPE,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAG,
    PROPERTY_UNIQUE_KEY,
    StoredMessage,
    java_hash,
)

SQL_PREFIX: Final = "sql:"
_TAG_HINT: Final = "use '*' or tags joined by '||', for instance 'created || paid'"
_SQL_HINT: Final = "for instance sql: region = 'eu' AND amount > 100"
_PARSED_MAX: Final = 256
"""Expressions kept parsed; clients repeat theirs with every request."""


class Filter(Protocol):
    """Which messages are wanted. `None` stands for "every message" wherever one is expected."""

    @property
    def tag_hashes(self) -> frozenset[int] | None:
        """Only messages with one of these tag hashes can match; None: any can."""
        ...

    @property
    def is_by_tag_only(self) -> bool:
        """Whether nearly everything with such a hash matches."""
        ...

    def matches(self, properties: Properties) -> bool:
        """Whether a message is wanted, by its properties as stored: its own, TAGS, KEYS, …"""
        ...


class TagFilter:
    """A parsed tag expression."""

    __slots__ = ("tag_hashes", "tags")

    is_by_tag_only: Final = True

    def __init__(self, tags: frozenset[str]) -> None:
        self.tags = tags
        self.tag_hashes = frozenset(map(java_hash, tags))

    def matches(self, properties: Properties) -> bool:
        return properties.get(PROPERTY_TAG) in self.tags


class SqlFilter:
    """A parsed SQL92 condition. What cannot be compared does not match, as in RocketMQ."""

    __slots__ = ("_condition", "node", "tag_hashes")

    is_by_tag_only: Final = False

    def __init__(self, node: Node) -> None:
        self.node = node
        self._condition = compile_condition(node)
        tags = tags_of(node)
        self.tag_hashes = frozenset(map(java_hash, tags)) if tags is not None else None

    def matches(self, properties: Properties) -> bool:
        try:
            return self._condition(properties) is True
        except NotComparable:
            return False


def properties_of(message: StoredMessage) -> Properties:
    """The properties that a filter looks at, under the names that they are stored by."""
    fields = {
        PROPERTY_TAG: message.tag,
        PROPERTY_KEYS: " ".join(message.keys),
        PROPERTY_UNIQUE_KEY: message.unique_id or message.message_id,
        PROPERTY_SHARDING_KEY: message.sharding_key,
        PROPERTY_CONTENT_TYPE: message.content_type,
    }
    named = {name: text for name, text in fields.items() if text}
    return {**message.system, **message.properties, **named}


@lru_cache(maxsize=_PARSED_MAX)
def parse_filter(expression: str | None) -> TagFilter | SqlFilter | None:
    """Return the filter, None when every message matches, or raise `IllegalFilter`."""
    if expression is None or expression == "*":
        return None
    if len(expression) > FILTER_CHARS_MAX:
        raise _illegal(
            f"the filter expression has over {FILTER_CHARS_MAX} characters",
            FILTER_CHARS_MAX,
            _TAG_HINT,
        )
    start = len(expression) - len(expression.lstrip())
    if expression[start : start + len(SQL_PREFIX)].lower() == SQL_PREFIX:
        return _parse_sql(expression, start + len(SQL_PREFIX))
    if expression.strip() in ("", "*"):
        return None
    return TagFilter(_parse_tags(expression))


def is_same(one: str, other: str) -> bool:
    """Whether two expressions are the same filter in other words: tags in another order, a
    condition with other spaces. Raises `IllegalFilter`."""
    if one == other:
        return True
    first, second = parse_filter(one), parse_filter(other)
    if isinstance(first, TagFilter) and isinstance(second, TagFilter):
        return first.tags == second.tags
    if isinstance(first, SqlFilter) and isinstance(second, SqlFilter):
        return repr(first.node) == repr(second.node)
    return first is second


def _parse_sql(expression: str, start: int) -> SqlFilter:
    try:
        return SqlFilter(parse(expression[start:], depth_max=FILTER_DEPTH_MAX))
    except Fault as fault:
        raise _illegal(fault.what, start + fault.position, fault.hint or _SQL_HINT) from None


def _parse_tags(expression: str) -> frozenset[str]:
    tags = set()
    position = 0
    for part in expression.split("||"):
        tag = part.strip()
        start = position + len(part) - len(part.lstrip())
        if not tag:
            raise _illegal("a tag is missing", start, _TAG_HINT)
        if tag == "*":
            raise _illegal("'*' stands alone; it cannot be joined with tags", start, _TAG_HINT)
        if "|" in tag:
            at = start + tag.index("|")
            raise _illegal("tags are joined by '||', not by '|'", at, _TAG_HINT)
        if not tag.isprintable():
            bad = next(index for index, char in enumerate(tag) if not char.isprintable())
            raise _illegal("a tag has printable characters only", start + bad, _TAG_HINT)
        tags.add(tag)
        position += len(part) + 2
    return frozenset(tags)


def _illegal(what: str, position: int, hint: str) -> IllegalFilter:
    return IllegalFilter(f"{what} (position {position})", hint=hint, fields={"position": position})
