"""The records of a request frame: whether they may be stored, their tag hashes and keys. Pure.

All are looked at at once, with numpy. The first record that is wrong is named in `MalformedFrame`.
What is the same for many records, as the properties mostly are, is looked at once. The checksum of
the frame and those of its records are `batch_frame`'s.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.errors import BodyTooLarge, MalformedFrame
from app.domain.limits import MESSAGE_PROPERTIES_BYTES_MAX, Limits
from app.domain.message import FIELD_PROPERTIES, PROPERTY_UNIQUE_KEY, RESERVED_PROPERTIES, java_hash
from app.store.formats.frame.frame_values import check_values, refuse_own_ids
from app.store.formats.record.record import (
    CHECKSUM_BYTES,
    CHECKSUM_NAME,
    FIXED_BYTES,
    MAGIC_V1,
    RECORD_OVERHEAD_BYTES,
    decode_properties,
)
from app.store.formats.record.record_block import HEAD, HEAD_BYTES, Ints, RecordTable, windows

EMPTY_CHECKSUM: Final = CHECKSUM_NAME + b"0000000000\x02"


def _by_length(names: Iterable[str]) -> dict[int, NDArray[np.uint8]]:
    rows: dict[int, list[NDArray[np.uint8]]] = {}
    for name in sorted(names):
        rows.setdefault(len(name), []).append(np.frombuffer(name.encode(), np.uint8))
    return {length: np.array(each) for length, each in rows.items()}


_REFUSED_NAMES: Final = _by_length(RESERVED_PROPERTIES - FIELD_PROPERTIES)
_FIELD_NAMES: Final = _by_length(FIELD_PROPERTIES)
"""Properties that are what has a field of its own in JSON; a record has each of them once."""
_PAIR_BYTES_MIN: Final = 4
"""Of a property: a letter each as name and value, and what ends the two."""

_ZERO_FIELDS: Final = (
    (12, 4, "queue id"),
    (20, 8, "queue offset"),
    (28, 8, "physical offset"),
    (36, 4, "system flag"),
    (56, 8, "store time"),
    (64, 8, "store host"),
    (72, 4, "reconsume times"),
    (76, 8, "prepared offset"),
)
_ZERO_RANGES: Final = ((12, 16), (20, 40), (56, 84))
"""The same in one piece each."""


_BORN_AT: Final = 40
_NEGATIVE: Final = 0x80
"""The highest bit of a signed number's first byte."""


@dataclass(slots=True)
class Properties:
    """The properties strings of all records without their checksums.

    When they are the same for all, `text` has them once and `ends` one item.
    """

    text: bytes
    ends: Ints
    """Where each record's end in `text`."""
    count: int
    """Of the records."""

    @property
    def are_one(self) -> bool:
        """Whether what is found in `text` holds for each record."""
        return len(self.ends) < self.count


def _bad(wrong: NDArray[np.bool_], detail: str) -> None:
    """Raise `MalformedFrame` for the first record that is marked in `wrong`."""
    if np.count_nonzero(wrong):  # in C: `any` calls Python
        index = int(wrong.argmax())
        raise MalformedFrame(f"record {index}: {detail}", fields={"index": index})


def _is_each(column: NDArray[np.uint8], piece: bytes, detail: str) -> None:
    """Raise `MalformedFrame` unless each row is `piece`."""
    if column.tobytes() != piece * len(column):
        _bad((column != np.frombuffer(piece, np.uint8)).any(axis=1), detail)


def same_or_each(values: Ints) -> Ints | int:
    """The value that all have, or all values."""
    first = int(values[0])
    return values if np.count_nonzero(values != first) else first


def check_heads(table: RecordTable, topic: bytes, limits: Limits) -> Ints:
    """Check the fixed fields of every record; the body lengths."""
    sizes = table.sizes
    overhead = RECORD_OVERHEAD_BYTES + len(topic)
    _bad(sizes < overhead, f"a record for this topic has at least {overhead} bytes")
    rows = table.column(0, HEAD_BYTES)
    heads = rows.view(HEAD)[:, 0]
    _bad(heads["total_size"] != sizes, "its first field is not its size")
    _bad(heads["magic"] != MAGIC_V1, "wrong magic")
    for start, end in _ZERO_RANGES:
        if rows[:, start:end].any():
            for offset, size, name in _ZERO_FIELDS:
                _bad((rows[:, offset : offset + size] != 0).any(axis=1), f"{name} is not 0")
    _bad(rows[:, _BORN_AT] >= _NEGATIVE, "born time is negative")
    body_lengths: Ints = heads["body_length"].astype(np.int64) & 0xFFFFFFFF
    _bad(body_lengths > sizes - overhead, "the body is longer than the record")
    if int(body_lengths.max()) > limits.body_bytes_max:
        raise BodyTooLarge(
            f"record {int(body_lengths.argmax())} has a body over {limits.body_bytes_max} bytes",
            fields={"limit_bytes": limits.body_bytes_max},
        )
    return body_lengths


def check_rest(table: RecordTable, topic: bytes, body_lengths: Ints, limits: Limits) -> None:
    """Check what stands behind the body of every record: topic, lengths and empty checksum."""
    sizes = table.sizes
    topics_at = same_or_each(body_lengths) + FIXED_BYTES
    part = bytes((len(topic),)) + topic
    in_namespace = "; in a namespace write namespace%topic" if b"%" in topic else ""
    _is_each(table.column(topics_at, len(part)), part, "it names another topic" + in_namespace)
    lengths = table.column(topics_at + len(part), 2).view(">u2")[:, 0].astype(np.int64)
    _bad(lengths != sizes - FIXED_BYTES - 3 - len(topic) - body_lengths, "the lengths differ")
    most = min(limits.properties_bytes_max, MESSAGE_PROPERTIES_BYTES_MAX)
    _bad(lengths - CHECKSUM_BYTES > most, f"the properties have more than {most} bytes")
    tails = same_or_each(sizes) - CHECKSUM_BYTES
    ended = "it does not end with the empty checksum property"
    _is_each(table.column(tails, CHECKSUM_BYTES), EMPTY_CHECKSUM, ended)


def gather_properties(
    table: RecordTable, topic_length: int, body_lengths: Ints, count: int
) -> Properties:
    """The properties of `count` records; each that has any ends with 0x02, and all are UTF-8.

    `table` has these records, or the first for all of them when they have the same properties.
    """
    overhead = FIXED_BYTES + 3 + topic_length
    lengths = table.sizes - body_lengths - overhead - CHECKSUM_BYTES
    ends = table.positions + table.sizes - CHECKSUM_BYTES
    _bad((lengths > 0) & (table.data[ends - 1] != 2), "the last property does not end with 0x02")
    length = same_or_each(lengths)
    texts = len(lengths)
    if isinstance(length, int):
        column = table.column(same_or_each(body_lengths) + overhead, length) if length else None
        text = b"" if column is None else column.tobytes()
        if text == text[:length] * texts:
            text, texts = text[:length], 1
    else:
        data = table.data.data
        rows = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        text = b"".join([data[start:end] for start, end in rows])
    found = Properties(text, np.cumsum(lengths[:texts]), count)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        index = int(np.searchsorted(found.ends, error.start, "right"))
        raise MalformedFrame(
            f"record {index}: the properties are not UTF-8", fields={"index": index}
        ) from error
    return found


def look_into(
    properties: Properties, tag_hashes: Ints | None, limits: Limits
) -> tuple[Ints, list[tuple[int, list[str]]]]:
    """Check names and values; the tag hash of each record (unless given), and the keys of those
    that have any."""
    text, ends = properties.text, properties.ends
    if not text:
        none = np.zeros(properties.count, np.int64)
        return none if tag_hashes is None else tag_hashes, []
    starts, separators = _check_pairs(text, ends)
    _check_counts(text, starts, separators, ends, limits)
    check_values(text, starts, separators, ends, limits)
    if tag_hashes is None:
        tag_hashes = _tag_hashes(text, starts, separators, ends)
        if properties.are_one:
            tag_hashes = np.repeat(tag_hashes, properties.count)
    keyed = _keys(text, starts, separators, ends)
    if properties.are_one:
        if properties.count > 1 and b"\x02UNIQ_KEY\x01" in b"\x02" + text:
            unique_id = decode_properties(text)[PROPERTY_UNIQUE_KEY]
            _refuse_repeated({0: unique_id, 1: unique_id})
        keyed = [(record, keys) for record in range(properties.count) for _, keys in keyed]
    return tag_hashes, keyed


def _check_pairs(properties: bytes, ends: Ints) -> tuple[Ints, Ints]:
    """Where every pair and its separator stand; each has a name, a value and no reserved name."""
    data = np.frombuffer(properties, np.uint8)
    pair_ends = np.flatnonzero(data == 2)
    separators = np.flatnonzero(data == 1)
    starts = np.concatenate((np.zeros(1, np.int64), pair_ends[:-1] + 1))[: len(pair_ends)]
    chosen = np.searchsorted(separators, starts)
    padded = np.append(separators, len(data))
    first = padded[chosen]
    wrong = (first >= pair_ends - 1) | (first == starts)
    lengths = first - starts
    present = set(lengths.tolist())
    for length in (_REFUSED_NAMES.keys() | _FIELD_NAMES.keys()) & present:
        at = np.flatnonzero(lengths == length)
        names = windows(data, length)[starts[at]]
        fields = _FIELD_NAMES.get(length, ())
        if len(at) > 1 and any(names.tobytes() == field.tobytes() * len(at) for field in fields):
            _mark_repeated(wrong, at, pair_ends, ends)
            continue
        for field in fields:
            _mark_repeated(wrong, at[(names == field).all(axis=1)], pair_ends, ends)
        if length in _REFUSED_NAMES:
            wrong[at] |= _are_among(names, _REFUSED_NAMES[length])
    if np.count_nonzero(wrong):
        place = int(wrong.argmax())
        index = int(np.searchsorted(ends, starts[place], "right"))
        name = properties[starts[place] : first[place]].decode(errors="replace")
        raise MalformedFrame(
            f"record {index}: {_fault_of(name)}", hint=_HINT, fields={"index": index}
        )
    return starts, first


_HINT: Final = (
    "a property has a name and a value; reserved names are refused, and tag, keys, sharding key,"
    " content type and id stand there once"
)


def _mark_repeated(wrong: NDArray[np.bool_], at: Ints, pair_ends: Ints, ends: Ints) -> None:
    """Mark each of the pairs `at`, which have one name, that is not its record's first."""
    if len(at) < 2:
        return
    each, rest = divmod(len(pair_ends), len(ends))
    if not rest and np.array_equal(pair_ends[each - 1 :: each] + 1, ends):
        records = at // each
    else:
        records = np.searchsorted(ends, pair_ends[at], "right")
    wrong[at[1:]] |= records[1:] == records[:-1]


def _refuse_repeated(uniques: dict[int, str]) -> None:
    """Raise `MalformedFrame` for an id that a record before has, too; an id names one message."""
    if len(set(uniques.values())) == len(uniques):
        return
    first: dict[str, int] = {}
    for record, unique_id in sorted(uniques.items()):
        if first.setdefault(unique_id, record) != record:
            raise MalformedFrame(
                f"record {record}: property 'UNIQ_KEY' is {unique_id!r}, as in record"
                f" {first[unique_id]}",
                hint="an id names one message: give each its own, or leave it out",
                fields={"index": record, "first_index": first[unique_id]},
            )


def _fault_of(name: str) -> str:
    if name in FIELD_PROPERTIES:
        return f"property {name!r} is empty or stands there twice"
    if name in RESERVED_PROPERTIES:
        return f"property name {name!r} is reserved"
    return f"property {name[:100]!r} is empty"


def _check_counts(text: bytes, starts: Ints, separators: Ints, ends: Ints, limits: Limits) -> None:
    """Hold each record to as many properties as JSON takes; what has a field there is none."""
    most = limits.properties_count_max
    fits = _PAIR_BYTES_MIN * most
    if len(text) <= fits or (ends[0] <= fits and (ends[1:] - ends[:-1]).max() <= fits):
        return
    pair_ends = np.searchsorted(starts, ends)
    first = np.concatenate((np.zeros(1, np.int64), pair_ends[:-1]))
    if (pair_ends - first).max() <= most:
        return
    fields_before = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(_are_fields(text, starts, separators), out=fields_before[1:])
    counts = (pair_ends - first) - (fields_before[pair_ends] - fields_before[first])
    if counts.max() > most:
        index = int((counts > most).argmax())
        raise MalformedFrame(
            f"record {index}: it has {counts[index]} properties; at most {most} are taken",
            fields={"index": index, "limit": most},
        )


def _are_fields(text: bytes, starts: Ints, separators: Ints) -> NDArray[np.bool_]:
    """Which pairs are what has a field of its own in JSON."""
    data, lengths = np.frombuffer(text, np.uint8), separators - starts
    found = np.zeros(len(starts), np.bool_)
    for length, fields in _FIELD_NAMES.items():
        at = np.flatnonzero(lengths == length)
        if len(at):
            found[at] = _are_among(windows(data, length)[starts[at]], fields)
    return found


def _are_among(names: NDArray[np.uint8], wanted: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which rows of `names` are a row of `wanted`; all have one length."""
    among: NDArray[np.bool_] = (names[:, None, :] == wanted[None]).all(axis=2).any(axis=1)
    return among


def _tag_hashes(text: bytes, starts: Ints, separators: Ints, ends: Ints) -> Ints:
    """Java's hash of the TAGS property of each record, 0 without one."""
    hashes = np.zeros(len(ends), np.int64)
    known: dict[bytes, int] = {}
    chosen = starts[separators - starts == 4]
    records = np.searchsorted(ends, chosen, "right").tolist()
    for start, record in zip(chosen.tolist(), records, strict=True):
        if text[start : start + 4] != b"TAGS":
            continue
        tag = text[start + 5 : text.index(2, start)]
        found = known.get(tag)
        if found is None:
            found = known[tag] = java_hash(tag.decode())
        hashes[record] = found
    return hashes


def _keys(text: bytes, starts: Ints, separators: Ints, ends: Ints) -> list[tuple[int, list[str]]]:
    """The keys of each record that has any, as `record_keys` finds them in its properties.

    UNIQ_KEY stands before the words of KEYS, wherever the two are; of a property that a record has
    twice the later one counts.
    """
    if b"KEYS\x01" not in text and b"UNIQ_KEY\x01" not in text:
        return []
    uniques: dict[int, str] = {}
    words: dict[int, str] = {}
    lengths = separators - starts
    chosen = np.flatnonzero((lengths == 4) | (lengths == 8))
    records = np.searchsorted(ends, starts[chosen], "right").tolist()
    rows = zip(starts[chosen].tolist(), separators[chosen].tolist(), records, strict=True)
    for start, separator, record in rows:
        name = text[start:separator]
        if name in (b"KEYS", b"UNIQ_KEY"):
            values = words if name == b"KEYS" else uniques
            values[record] = text[separator + 1 : text.index(2, separator)].decode()
    refuse_own_ids(uniques)
    _refuse_repeated(uniques)
    found: list[tuple[int, list[str]]] = []
    for record in sorted(uniques.keys() | words.keys()):
        keys = [uniques.get(record, ""), *words.get(record, "").split(" ")]
        found.append((record, [key for key in keys if key]))
    return found
