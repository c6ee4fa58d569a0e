"""What a message takes as text, and what is said of a column that has something else.

The rule is the service's, as its JSON and its frames have it. It stands here again so that a row is
refused before anything is sent, with the name of the column; a test holds the two against each
other. No Python for values that are plain. Called by `rows`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_curlew.errors import RowRefused

_SHOWN_MAX: Final = 100
_TEXTS: Final = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
)
_AS_BASE64: Final = {
    "properties": "transform_values(properties, (k, v) -> base64(v))",
    "headers": "transform(headers, h -> named_struct('key', h.key, 'value', base64(h.value)))",
}
_WITHOUT_EMPTY: Final = {
    "properties": "map_filter(properties, (k, v) -> length(k) > 0 AND length(v) > 0)",
    "headers": "filter(headers, h -> length(h.key) > 0 AND length(h.value) > 0)",
}
_WITHOUT_NAME: Final = {
    "properties": "map_filter(properties, (k, v) -> k <> '{name}')",
    "headers": "filter(headers, h -> h.key <> '{name}')",
}


class _Rule(NamedTuple):
    bytes_max: int | None
    """None: a setting of the service says it, which then refuses what is longer."""
    takes: Callable[[str], bool] | None
    """Of text with any byte beyond letters, digits and plain signs; None: all."""
    words: str


def _is_tag(text: str) -> bool:
    return text == text.strip() and "|" not in text and text != "*" and text.isprintable()


def _are_keys(text: str) -> bool:
    words = text.split(" ")
    return all(word and len(word.encode()) <= _KEY_BYTES_MAX for word in words) and not any(
        character.isspace() for word in words for character in word
    )


def _is_id(text: str) -> bool:
    return all("!" <= character <= "~" for character in text)


_KEY_BYTES_MAX: Final = 255
_RULES: Final = {
    b"TAGS": _Rule(
        None,
        _is_tag,
        "a tag is printable, has no '|' and no space at an end, and is not '*', or no filter"
        " could ask for it",
    ),
    b"KEYS": _Rule(
        None,
        _are_keys,
        "keys stand one space apart, with no other white space and at most 255 bytes each",
    ),
    b"UNIQ_KEY": _Rule(255, _is_id, "an id is visible ASCII"),
    b"__SHARDINGKEY": _Rule(1024, None, "a sharding key"),
    b"MQ_CONTENT_TYPE": _Rule(255, None, "a content type"),
}
_UNIQUE_ID: Final = b"UNIQ_KEY"
_OF_NODES: Final = r"^(01[0-9A-Fa-f]{32}$|schedule:)"
"""Ids that the service gives: of a place in a log, and of a due time of a schedule."""
_SPECIAL: Final = r"[^!-)+-{}~]"
"""What letters, digits and signs that any value may have are not."""
OF_FIELDS: Final = frozenset(_RULES)
"""Reserved names that stand for a field of a message."""


def binary_of(values: pa.Array, column: str) -> pa.Array:
    """The column as binary, be it text or bytes."""
    kind = values.type
    if not any(is_kind(kind) for is_kind in _TEXTS):
        raise RowRefused(f"column {column!r} is {kind}, neither a string nor binary")
    return values.cast(pa.binary())


def text_of(values: pa.Array, column: str) -> pa.Array:
    """The column's bytes; they are UTF-8 without the two characters that separate properties."""
    encoded = binary_of(values, column)
    written = _AS_BASE64.get(column, f"base64({column})")
    try:
        text = encoded.cast(pa.string())
    except pa.ArrowInvalid:
        raise RowRefused(
            f"column {column!r} has bytes that are not UTF-8; a message has text there: write"
            f" {written}, or put the bytes into 'value'"
        ) from None
    for separator in ("\x01", "\x02"):
        if pc.any(pc.match_substring(text, separator)).as_py():
            raise RowRefused(
                f"column {column!r} has a character U+0001 or U+0002, which stand between the"
                f" properties of a message: take it out, or write {written}"
            )
    return encoded


def field_of(values: pa.Array, column: str, name: bytes) -> pa.Array:
    """The column's bytes, which can be the property `name` of a message; null: it has none."""
    encoded = text_of(values, column)
    if pc.any(pc.equal(pc.binary_length(encoded), 0)).as_py():
        raise RowRefused(
            f"column {column!r} is empty in a row; null is a message without a {column}: write CASE"
            f" WHEN length({column}) > 0 THEN {column} END"
        )
    check_field(encoded, f"column {column!r}", name)
    return encoded


def check_field(values: pa.Array, where: str, name: bytes) -> None:
    """Raise `RowRefused` for a value that the property `name` of a message cannot have."""
    rule = _RULES[name]
    if rule.bytes_max is not None:
        longest = pc.max(pc.binary_length(values)).as_py()
        if longest is not None and longest > rule.bytes_max:
            raise RowRefused(
                f"{where} has {longest} bytes in a row; a message takes {rule.bytes_max} there"
            )
    if rule.takes is None:
        return
    known = pc.unique(values)
    if name == _UNIQUE_ID:
        _refuse_ids_of_nodes(known, where)
    is_long = pc.greater(pc.binary_length(known), _KEY_BYTES_MAX)
    is_special = pc.match_substring_regex(known.cast(pa.string()), _SPECIAL)
    for each in known.filter(pc.or_(is_special, is_long)).to_pylist():
        text = each.decode()
        if not rule.takes(text):
            raise RowRefused(f"{where} has {text[:_SHOWN_MAX]!r} in a row; {rule.words}")


def _refuse_ids_of_nodes(known: pa.Array, where: str) -> None:
    is_own = pc.match_substring_regex(known.cast(pa.string()), _OF_NODES)
    for each in known.filter(is_own).to_pylist():
        raise RowRefused(
            f"{where} has {each[:_SHOWN_MAX].decode()!r} in a row, which looks like an id that the"
            " service gives: leave it out, and the message gets a new one, or make it a property of"
            " another name"
        )


def check_filled(names: pa.Array, values: pa.Array, column: str) -> None:
    """Raise `RowRefused` for a pair of `column` without a name or a value."""
    for part, lacks in ((names, "a name"), (values, "a value")):
        empty = pc.fill_null(pc.equal(pc.binary_length(part), 0), True)
        if pc.any(empty).as_py():
            name = names.filter(empty)[0].as_py()
            of_which = "" if part is names or name is None else f" for {name.decode()!r}"
            raise RowRefused(
                f"column {column!r} is null or empty in a row where {lacks} is wanted{of_which}:"
                f" write {_WITHOUT_EMPTY[column]}"
            )


def reserved(name: str, column: str) -> RowRefused:
    """The refusal of a name in `column` that the service keeps for itself."""
    return RowRefused(
        f"column {column!r} has the reserved name {name!r} in a row, which says nothing of a new"
        f" message: write {_WITHOUT_NAME[column].format(name=name)}"
    )
