"""Filter expressions: parse once, select by tag hash in the store, check the tag exactly. Pure.

A tag expression is `*` (or nothing) for every message, or tags joined by `||`. The consume queue
holds `java_hash(tag)` per message, so the store can skip by hash; since hashes collide, whoever
uses the result compares the tag itself. Messages without a tag have hash 0 and match `*` only.
"""

from typing import Final, NamedTuple

from app.domain.errors import IllegalFilter
from app.domain.message import java_hash

SQL_PREFIX: Final = "sql:"
EXPRESSION_CHARS_MAX: Final = 4_096
"""Longer than any list of tags a person writes; keeps parsing off the profile."""


class TagFilter(NamedTuple):
    """A parsed tag expression. `None` stands for "every message" wherever one is expected."""

    tags: frozenset[str]
    hashes: frozenset[int]


def parse_filter(expression: str | None) -> TagFilter | None:
    """Return the filter, None when every message matches, or raise `IllegalFilter`."""
    if expression is None or expression == "*":
        return None
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise _illegal(
            f"the filter expression has over {EXPRESSION_CHARS_MAX} characters",
            EXPRESSION_CHARS_MAX,
        )
    if expression.lstrip().lower().startswith(SQL_PREFIX):
        raise IllegalFilter(
            "SQL filters are not supported by this version; only tag expressions are",
            hint="use '*' or tags joined by '||', for instance 'created || paid'",
            fields={"position": 0},
        )
    text = expression.strip()
    if text in ("", "*"):
        return None
    tags = _parse_tags(expression)
    return TagFilter(tags, frozenset(java_hash(tag) for tag in tags))


def _parse_tags(expression: str) -> frozenset[str]:
    tags = set()
    position = 0
    for part in expression.split("||"):
        tag = part.strip()
        start = position + len(part) - len(part.lstrip())
        if not tag:
            raise _illegal("a tag is missing", start)
        if tag == "*":
            raise _illegal("'*' stands alone; it cannot be joined with tags", start)
        if "|" in tag:
            raise _illegal("tags are joined by '||', not by '|'", start + tag.index("|"))
        if not tag.isprintable():
            bad = next(index for index, char in enumerate(tag) if not char.isprintable())
            raise _illegal("a tag has printable characters only", start + bad)
        tags.add(tag)
        position += len(part) + 2
    return frozenset(tags)


def _illegal(what: str, position: int) -> IllegalFilter:
    return IllegalFilter(
        f"{what} (position {position})",
        hint="use '*' or tags joined by '||', for instance 'created || paid'",
        fields={"position": position},
    )
