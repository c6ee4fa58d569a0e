"""How the names of AMQP are written in Curlew, and which routing keys a pattern takes. Pure."""

import hashlib
import re
from typing import Final
from urllib.parse import quote, unquote

NAME_CHARS_MAX: Final = 127
"""Of a topic and of a group."""
TAG_BYTES_MAX: Final = 128
_SHORTENED_TO: Final = 90
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_LOOKS_WRITTEN: Final = re.compile(r"_x[0-9a-f]{2}")


def stored_name(name: str, prefix: str = "") -> str:
    """The topic or group of this name: as it is, where Curlew takes it; else `_xHH` stands for each
    byte of UTF-8 that it does not take. Two names are never written alike.

    Raises `ValueError` for an empty name.
    """
    if not name:
        raise ValueError("an exchange or a queue has an empty name")
    written = prefix + _LOOKS_WRITTEN.sub(lambda found: "_x5f" + found[0][1:], name)
    if not _PLAIN.fullmatch(written):
        written = "".join(
            each if _PLAIN.fullmatch(each) else "".join(f"_x{byte:02x}" for byte in each.encode())
            for each in written
        )
    if len(written) > NAME_CHARS_MAX:
        digest = hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
        written = f"{written[:_SHORTENED_TO]}_x{digest}"
    return written


EMPTY_TAG: Final = "%"
"""Of the empty routing key: no other is written so."""
NO_TAG: Final = "%-"
"""Of no message: the filter of a queue that is bound to nothing any more."""
FILTER_CHARS_MAX: Final = 4_096
_SAFE: Final = " !#$&'()+,/;=?@[]^`{}~\"<>\\"


def tag_of(routing_key: str) -> str:
    """The tag of messages with this routing key; two keys never have the same. Characters that a
    tag or a filter does not take are written as in URLs."""
    if not routing_key:
        return EMPTY_TAG
    tag = quote(routing_key, safe=_SAFE)
    if tag != tag.strip():
        tag = quote(routing_key, safe="")
    if len(tag) > TAG_BYTES_MAX:
        tag = "%blake2b-" + hashlib.blake2b(routing_key.encode(), digest_size=16).hexdigest()
    return tag


def routing_key_of(tag: str | None) -> str:
    """The routing key of a tag; of a shortened one the tag itself."""
    return "" if tag is None or tag == EMPTY_TAG else unquote(tag)


def filter_of(tags: set[str]) -> str:
    """The filter of messages with one of these tags. `ValueError` when it is too long."""
    found = " || ".join(sorted(tags or {NO_TAG}))
    if len(found) > FILTER_CHARS_MAX:
        raise ValueError(
            f"the {len(tags)} routing keys of a queue have {len(found)} characters together; a "
            f"filter has {FILTER_CHARS_MAX}: bind it by fewer, or use a fanout exchange"
        )
    return found


def tags_of(filter_text: str) -> set[str]:
    """The tags that a filter of `filter_of` has."""
    return {each.strip() for each in filter_text.split("||")} - {NO_TAG}


def takes(pattern: str, routing_key: str) -> bool:
    """Whether a binding of a topic exchange takes a routing key: words are parted by dots, `*` is
    one word, `#` is any number of them."""
    return _takes(pattern.split("."), routing_key.split(".") if routing_key else [])


def _takes(pattern: list[str], words: list[str]) -> bool:
    reached = {0}
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in {"*", words[at]}}
    return len(words) in reached
