"""Whether the values in the properties of a request frame may stand there. Pure.

The rule is that of JSON (`app.domain.message`), in its words. Few bytes can break it, so a look at
all bytes at once finds the values that somebody has to read; mostly there are none. Called by
`request_records`, which knows already that each pair has a name and a value.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.errors import InvalidRequest, MalformedFrame
from app.domain.limits import (
    CONTENT_TYPE_BYTES_MAX,
    KEY_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    SHARDING_KEY_BYTES_MAX,
    Limits,
)
from app.domain.message import (
    FIELD_PROPERTIES,
    PROPERTY_UNIQUE_KEY,
    check_field,
    check_property,
)
from app.domain.schedules import SCHEDULED_ID_PREFIX
from app.store.formats.record.message_id import is_own_id
from app.store.formats.record.record_block import Flags, Ints

Bytes = NDArray[np.uint8]

_NAME_LENGTHS: Final = sorted(map(len, FIELD_PROPERTIES))
_ID_LENGTH: Final = len(PROPERTY_UNIQUE_KEY)
_SPECIAL: Final = (b"|", b"*")
_SPACE: Final = 0x20
_NAME_END: Final = 1
_PAIR_END: Final = 2
_ASCII_END: Final = 0x7F
_OF_NODES: Final = "01", SCHEDULED_ID_PREFIX
"""How ids begin that look like a node's."""


def check_values(text: bytes, starts: Ints, separators: Ints, ends: Ints, limits: Limits) -> None:
    """Raise `MalformedFrame` for the first record with a value that JSON refuses."""
    data = np.frombuffer(text, np.uint8)
    behind = np.append(starts[1:], len(text))
    shortest = min(
        limits.tag_bytes_max,
        KEY_BYTES_MAX,
        MESSAGE_ID_BYTES_MAX,
        SHARDING_KEY_BYTES_MAX,
        CONTENT_TYPE_BYTES_MAX,
        2 * limits.keys_count_max,
    )
    suspect = behind - separators - 2 > shortest
    split: Sequence[int] = ()
    if not _is_plain(text, data, len(starts)):
        suspect[_pairs_at(_is_special(data), starts)] = True
        spaced = _pairs_at(data == _SPACE, starts)
        suspect[spaced[separators[spaced] - starts[spaced] == _ID_LENGTH]] = True
        split = _split_pairs(data, starts, separators)
    places = np.flatnonzero(suspect)
    if len(places):  # most are properties of the client's own
        places = places[np.isin(separators[places] - starts[places], _NAME_LENGTHS)]
    good: set[bytes] = set()
    for at in sorted({*places.tolist(), *split}):
        pair = text[starts[at] : int(behind[at]) - 1]
        if pair not in good:
            _check_pair(pair, int(np.searchsorted(ends, starts[at], "right")), limits)
            good.add(pair)


def _split_pairs(data: Bytes, starts: Ints, separators: Ints) -> Sequence[int]:
    """The pairs whose value has the byte that ends a name."""
    if np.count_nonzero(data == 1) == len(starts):
        return ()
    marks = np.flatnonzero(data == 1)
    pairs = np.searchsorted(starts, marks[~np.isin(marks, separators)], "right") - 1
    return list(map(int, pairs))


def _check_pair(pair: bytes, record: int, limits: Limits) -> None:
    name, _, value = pair.decode().partition("\x01")
    try:
        if name in FIELD_PROPERTIES:
            check_field(name, value, limits)
        else:
            check_property(name, value)
    except InvalidRequest as error:
        fields = {**error.fields, "index": record}
        detail = f"record {record}: {error.detail}"
        raise MalformedFrame(detail, hint=error.hint, fields=fields) from error


def refuse_own_ids(uniques: Mapping[int, str]) -> None:
    """Raise `MalformedFrame` for a producer's id that would be taken for one of a node. JSON takes
    it, for the node writes a mark beside it. `uniques`: by number of the record."""
    for record, unique_id in uniques.items():
        if unique_id.startswith(_OF_NODES) and is_own_id(unique_id):
            raise MalformedFrame(
                f"record {record}: property {PROPERTY_UNIQUE_KEY!r} is {unique_id!r}, which looks"
                " like an id that a node gives",
                hint="leave it out, make it a property, or send the message as JSON",
                fields={"index": record},
            )


def _is_plain(text: bytes, data: Bytes, pairs: int) -> bool:
    """Whether there is nothing but letters, digits and signs that any value may have, and the two
    bytes around the value of each pair."""
    return (
        text.isascii()
        and np.count_nonzero(data <= _SPACE) == 2 * pairs
        and not any(each in text for each in (*_SPECIAL, b"\x7f"))
    )


def _is_special(data: Bytes) -> Flags:
    """Bytes that not all values may have; spaces where they are beside another or at an end."""
    blank = data <= _SPACE
    special: Flags = (data < _SPACE) & (data != _NAME_END) & (data != _PAIR_END)
    special |= data >= _ASCII_END
    for each in _SPECIAL:
        special |= data == each[0]
    spaces = np.flatnonzero(data == _SPACE)
    special[spaces] = blank[spaces - 1] | blank[spaces + 1]  # never the first byte nor the last
    return special


def _pairs_at(flags: Flags, starts: Ints) -> Ints:
    """The pairs with a byte that is marked."""
    found: Ints = np.searchsorted(starts, np.flatnonzero(flags), "right") - 1
    return found
