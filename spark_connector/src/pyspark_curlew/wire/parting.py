"""Takes records apart, while a frame comes.

Spark wants the bodies one behind the other, so they are copied at least once. Of a frame of 16 MiB
that is received whole, each byte comes from memory three times: to be received, summed, and copied.
Here one piece after the other comes into the same MiB, which stays in the processor's cache, and
what leaves that is written once (docs/adr/0036 and 0041 have the figures). Records of one size that
follow each other are a matrix, whose columns numpy copies; where there are too few of those, the
frame is read whole. Called by `frame`.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyspark_curlew.errors import FrameDamaged
from pyspark_curlew.wire.record_layout import (
    CHECKSUM,
    FIXED_BYTES,
    FLAGS_AT,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    STORE_TIME_AT,
    body_shift,
    store_time_shift,
)
from pyspark_curlew.wire.sources import Source

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]

PIECE_BYTES_MAX: Final = 1024 * 1024
"""Received at once, unless a single record has more."""
PIECE_BYTES_MIN: Final = 128 * 1024
"""On average: each piece costs some 15 us beside its bytes and its receiving."""

_LEAD: Final = struct.Struct(">II28xI")
"""Size, magic and flags of a record."""
_SIZE_AND_MAGIC: Final = slice(0, 8)
_FLAGS: Final = slice(FLAGS_AT, FLAGS_AT + 4)
_STORE_TIME: Final = slice(STORE_TIME_AT, STORE_TIME_AT + 8)
_UNSIGNED: Final = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_MASKS: Final = np.frombuffer(b"\xff" * 9 + b"\xf0" * 10 + b"\xff", dtype=np.uint32)
"""Of a digit the upper half."""
_WORDS: Final = np.frombuffer(CHECKSUM, dtype=np.uint32) & _MASKS
_PROPERTY_END: Final = 0x02


class Parted(NamedTuple):
    """The parts of a checked frame's records; those of varying length are back to back.

    `heads` are the first 88 bytes of each, the store time where it is with IPv4 hosts. Of the
    properties the records' own checksums are left out where all have one behind the others.
    """

    heads: Bytes
    bodies: Bytes
    body_sizes: Int64s
    properties: Bytes
    property_sizes: Int64s

    @property
    def records(self) -> int:
        return len(self.body_sizes)


def pieces_of(sizes: Int64s) -> list[range] | None:
    """Which records to receive at once, all of one size; None when the pieces would be small.

    Also when a size is none of a record: that is for `records` to say.
    """
    if len(sizes) == 0 or int(sizes.min()) < RECORD_BYTES_MIN:
        return None
    changes = np.flatnonzero(np.diff(sizes)) + 1
    if (len(changes) + 1) * PIECE_BYTES_MIN > int(sizes.sum()):
        return None
    starts = [0, *changes.tolist()]
    stops = [*changes.tolist(), len(sizes)]
    pieces = []
    for start, stop in zip(starts, stops, strict=True):
        count = max(1, PIECE_BYTES_MAX // int(sizes[start]))
        pieces += [range(at, min(at + count, stop)) for at in range(start, stop, count)]
    return pieces


def read_parted(
    source: Source,
    sizes: Int64s,
    pieces: list[range],
    checksum: Callable[[Bytes, int], int],
    before: int,
) -> tuple[Parted, int]:
    """Receive records of `sizes` bytes; `before` is the checksum of what came before them.

    Return their parts and the checksum. Raises `FrameDamaged` where the lengths inside a record do
    not add up. Nothing of the result may be believed before its checksum is compared.
    """
    parting = _Parting(sizes)
    room = np.empty(max(len(piece) * int(sizes[piece.start]) for piece in pieces), dtype=np.uint8)
    for piece in pieces:
        size = int(sizes[piece.start])
        here = room[: len(piece) * size]
        source.take_into(here.data)
        before = checksum(here, before)
        parting.add(here.reshape(len(piece), size))
    return parting.parted(), before


class _Layout(NamedTuple):
    """Where things are in a record."""

    store_time: slice
    body_length: slice
    body: slice
    topic_length: slice
    properties_length: slice


def _layout_of(record: memoryview) -> _Layout:
    size, magic, flags = _LEAD.unpack_from(record)
    if size != len(record):
        raise FrameDamaged("a record of the batch frame has another size than was announced")
    if magic not in {MAGIC_V1, MAGIC_V2}:
        raise FrameDamaged("a record of the batch frame does not begin with a known magic")
    store_time = _at(STORE_TIME_AT + store_time_shift(flags), 8)
    body_length = _at(FIXED_BYTES + body_shift(flags) - 4, 4)
    body = _at(body_length.stop, _number(record, body_length))
    topic_length = _at(body.stop, 2 if magic == MAGIC_V2 else 1)
    properties_length = _at(topic_length.stop + _number(record, topic_length), 2)
    if properties_length.stop + _number(record, properties_length) != len(record):
        raise FrameDamaged("the lengths inside a record do not add up to its size")
    return _Layout(store_time, body_length, body, topic_length, properties_length)


def _at(start: int, size: int) -> slice:
    return slice(start, start + size)


def _number(record: memoryview, place: slice) -> int:
    return int.from_bytes(record[place], "big")


class _Parting:
    """What has come so far."""

    def __init__(self, sizes: Int64s) -> None:
        self._records = 0
        self._heads = np.empty((len(sizes), FIXED_BYTES), dtype=np.uint8)
        self._bodies = np.empty(int(sizes.sum()), dtype=np.uint8)
        self._body_bytes = 0
        self._body_sizes = np.empty(len(sizes), dtype=np.int64)
        self._properties: list[Bytes] = []
        """A matrix for records of one layout."""

    def add(self, records: Bytes) -> None:
        """Records of one size, each a row."""
        layout = _layout_of(records[0].data)
        if not _are_alike(records, layout):
            half = len(records) // 2
            self.add(records[:half])
            self.add(records[half:])
            return
        heads = self._heads[self._records :][: len(records)]
        heads[...] = records[:, :FIXED_BYTES]
        if layout.body.start != FIXED_BYTES:
            heads[:, _STORE_TIME] = records[:, layout.store_time]
        bodies = records[:, layout.body]
        place = self._bodies[self._body_bytes :][: bodies.size]
        place.reshape(bodies.shape)[...] = bodies
        self._body_bytes += bodies.size
        self._body_sizes[self._records :][: len(records)] = bodies.shape[1]
        self._records += len(records)
        self._properties.append(records[:, layout.properties_length.stop :].copy())

    def parted(self) -> Parted:
        properties = _without_checksums(self._properties)
        counts = [len(each) for each in properties]
        return Parted(
            self._heads,
            self._bodies[: self._body_bytes],
            self._body_sizes,
            _joined(properties),
            np.repeat([each.shape[1] for each in properties], counts),
        )


def _joined(matrices: list[Bytes]) -> Bytes:
    """Their rows, one behind the other. `ravel` would copy what is cut out of larger ones."""
    joined = np.empty(sum(each.size for each in matrices), dtype=np.uint8)
    at = 0
    for each in matrices:
        joined[at : at + each.size].reshape(each.shape)[...] = each
        at += each.size
    return joined


def _are_alike(records: Bytes, layout: _Layout) -> bool:
    """Whether all have the first one's layout."""
    lengths = layout.body_length, layout.topic_length, layout.properties_length
    return all(
        map(_is_one_number, (records[:, place] for place in (_SIZE_AND_MAGIC, _FLAGS, *lengths)))
    )


def _is_one_number(rows: Bytes) -> bool:
    """As bytes, which compare faster than numbers do in numpy (10 us for five fields, not 25)."""
    width = rows.shape[1]
    raw = rows.view(_UNSIGNED[width]).tobytes()
    return raw == raw[:width] * len(rows)


def _without_checksums(properties: list[Bytes]) -> list[Bytes]:
    """Leave out the property `__CRC32#` where all records have it as their last one. The service
    puts it there, nobody reads it here, and often it is the only one."""
    width = len(CHECKSUM)
    if min(each.shape[1] for each in properties) < width:
        return properties
    ends = np.concatenate([each[:, -width:] for each in properties])
    before = [each[:, -width - 1] for each in properties if each.shape[1] > width]
    for column, word, mask in zip(ends.view(np.uint32).T, _WORDS, _MASKS, strict=True):
        if (column & mask != word).any():
            return properties
    if before and (np.concatenate(before) != _PROPERTY_END).any():
        return properties
    return [each[:, :-width] for each in properties]
