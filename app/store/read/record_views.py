"""Records that were read in a few pieces: views of them are made only when somebody asks.

A pull of frames passes thousands of records on without looking at one.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, overload

import numpy as np
from typing_extensions import override

from app.store.formats.files.consume_queue import UNITS
from app.store.formats.record.record_block import Ints
from app.store.formats.record.unpacked_record import are_packed, is_packed
from app.store.fs.files import FilePart

_BUFFER_BYTES_MIN: Final = 64 * 1024
"""On average. Copying smaller buffers together costs less than handing on each by itself."""


_COPIED_BYTES_MAX: Final = 124 * 1024
"""A larger copy is given new pages by the allocator, which cost more than views of records."""


class Piece(NamedTuple):
    """Some bytes of the log and records in them; the arrays run in parallel."""

    data: memoryview
    starts: Ints
    """Where records begin in `data`; foreign ones may stand between them."""
    sizes: Ints

    def views(self) -> list[memoryview]:
        """A view of each record."""
        data = self.data
        rows = zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        return [data[start : start + size] for start, size in rows]

    def without(self, numbers: Sequence[int]) -> "Piece":
        """All but the records with these numbers."""
        starts, sizes = np.delete(self.starts, numbers), np.delete(self.sizes, numbers)
        return Piece(self.data, starts, sizes)

    @property
    def is_dense(self) -> bool:
        """Whether `data` is its records and nothing else."""
        return int(self.sizes.sum()) == len(self.data)


def views_of(pieces: Sequence[Piece]) -> list[memoryview]:
    """A view of each record of `pieces`, in order."""
    return [view for piece in pieces for view in piece.views()]


class _MadeWhenAsked(Sequence[memoryview]):
    """Records of which views are made all at once, when somebody asks for one."""

    __slots__ = ("_views",)

    def __init__(self) -> None:
        self._views: list[memoryview] | None = None

    def _make_views(self) -> list[memoryview]:
        raise NotImplementedError

    def _all(self) -> list[memoryview]:
        if self._views is None:
            self._views = self._make_views()
        return self._views

    @override
    def __iter__(self) -> Iterator[memoryview]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> list[memoryview]: ...

    @override
    def __getitem__(self, index: int | slice) -> memoryview | list[memoryview]:
        return self._all()[index]


class RecordViews(_MadeWhenAsked):
    """Views of the records of `pieces`, in order. Immutable; for one thread at a time."""

    __slots__ = ("_count", "pieces")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__()
        self.pieces = pieces
        self._count = sum(len(piece.sizes) for piece in pieces)

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def _make_views(self) -> list[memoryview]:
        return views_of(self.pieces)


LogPiece = tuple[int, int, int, int]
"""Records of one queue: where they are in the log, where they begin and end in a buffer that those
of others are in, too, and their bytes; foreign ones may stand between. One that ends where it
begins is not in the buffer."""


class Together:
    """Records of several queues that were read into one buffer, `data`, and their `units` as they
    stand in the queues. Immutable; for one thread at a time."""

    __slots__ = ("_encoded", "_starts", "_table", "_views", "data", "lows", "pieces", "units")

    def __init__(
        self, data: memoryview, units: bytes, lows: Sequence[int], pieces: Sequence[LogPiece]
    ) -> None:
        """`lows`: number of the first unit of each queue; at the end, how many there are."""
        self.data = data
        self.units = units
        self._table = np.frombuffer(units, UNITS)
        self.lows = lows
        self.pieces = pieces
        self._encoded: tuple[bytes, bytes] | None = None
        self._starts: Ints | None = None
        self._views: list[memoryview] | None = None

    @property
    def sizes(self) -> Ints:
        """Of each record."""
        return self._table["size"].astype(np.int64)

    @property
    def starts(self) -> Ints:
        """Where each record begins in `data`; made at the first call."""
        if self._starts is None:
            positions = self._table["physical_offset"].astype(np.int64)
            # Of what is not in the buffer units may say anything: more than fits into an array.
            shifts = [start - at if end > start else 0 for at, start, end, _ in self.pieces]
            self._starts = positions + np.repeat(shifts, np.diff(self.lows))
        return self._starts

    @property
    def hashes(self) -> "array[int]":
        """Of the tag of each record."""
        return array("q", self._table["tag_hash"].astype(np.int64).tobytes())

    def encoded(self) -> tuple[bytes, bytes]:
        """Sizes (4 bytes each) and hashes of tags (8 bytes each), big-endian; made at the first
        call."""
        if self._encoded is None:
            self._encoded = self._table["size"].tobytes(), self._table["tag_hash"].tobytes()
        return self._encoded

    def views(self) -> list[memoryview]:
        """A view of each record of all queues; made at the first call."""
        if self._views is None:
            self._views = Piece(self.data, self.starts, self.sizes).views()
        return self._views


class KnownViews(_MadeWhenAsked):
    """Views of records `low` to `high` (exclusive) of a `Together`: those of one queue, of which
    none has a packed body, and which are this piece of it. Immutable; for one thread at a time."""

    __slots__ = ("_piece", "high", "low", "together")

    def __init__(self, together: Together, low: int, high: int, piece: LogPiece) -> None:
        self._views = None
        self.together = together
        self.low = low
        self.high = high
        self._piece = piece

    @property
    def total_bytes(self) -> int:
        return self._piece[3]

    @property
    def sizes(self) -> Ints:
        return self.together.sizes[self.low : self.high]

    @override
    def __len__(self) -> int:
        return self.high - self.low

    @override
    def _make_views(self) -> list[memoryview]:
        return self.together.views()[self.low : self.high]

    def columns(self) -> bytes:
        """Sizes and hashes of tags, as they stand in a frame (`batch_frame`)."""
        sizes, hashes = self.together.encoded()
        return sizes[4 * self.low : 4 * self.high] + hashes[8 * self.low : 8 * self.high]

    def buffers(self) -> list[bytes | memoryview]:
        """All records, one behind the other."""
        _, start, end, total = self._piece
        is_dense = total == end - start
        return [self.together.data[start:end] if is_dense else b"".join(self._all())]


class RecordsInPlace(_MadeWhenAsked):
    """Records that nobody has looked at; views of them wait for the disk. Immutable; for one thread
    at a time.

    `parts` together are all records, one behind the other; `checksum` is their CRC-32.
    """

    __slots__ = ("checksum", "parts", "sizes")

    def __init__(self, parts: Sequence[FilePart], sizes: Ints, checksum: int) -> None:
        super().__init__()
        self.parts = parts
        self.sizes = sizes
        self.checksum = checksum

    @property
    def total_bytes(self) -> int:
        return int(self.sizes.sum())

    @override
    def __len__(self) -> int:
        return len(self.sizes)

    @override
    def _make_views(self) -> list[memoryview]:
        whole = memoryview(b"".join([part.read() for part in self.parts]))
        return Piece(whole, self.sizes.cumsum() - self.sizes, self.sizes).views()


def to_copy(records: Sequence[memoryview]) -> Iterable[bytes | memoryview]:
    """The records for who takes a copy of each: copies already, where that costs less."""
    if not isinstance(records, RecordViews) or len(records.pieces) != 1:
        return records
    data, starts, sizes = records.pieces[0]
    if len(data) > _COPIED_BYTES_MAX:
        return records
    whole = bytes(data)
    rows = zip(starts.tolist(), sizes.tolist(), strict=True)
    return [whole[start : start + size] for start, size in rows]


def in_one_piece(reads: Sequence[Sequence[memoryview]]) -> Piece | None:
    """The records of several reads, where these are parts of one `Together` that follow each other;
    else None."""
    first = reads[0]
    if not isinstance(first, KnownViews):
        return None
    together, high = first.together, first.low
    for read in reads:
        if not isinstance(read, KnownViews) or read.together is not together or read.low != high:
            return None
        high = read.high
    starts, sizes = together.starts[first.low : high], together.sizes[first.low : high]
    return Piece(together.data, starts, sizes)


def first_and_last(records: Sequence[memoryview]) -> list[memoryview]:
    """The first and the last of `records`, as far as there are any; without views of the others."""
    if not isinstance(records, RecordViews):
        return [*records[:1], *records[-1:]]
    pieces = [piece for piece in records.pieces if len(piece.sizes)]
    if not pieces:
        return []
    (data, starts, sizes), last = pieces[0], pieces[-1]
    first_end = int(starts[0] + sizes[0])
    last_start, last_size = int(last.starts[-1]), int(last.sizes[-1])
    return [data[int(starts[0]) : first_end], last.data[last_start : last_start + last_size]]


def as_buffers(records: Sequence[memoryview]) -> tuple[Ints, list[bytes | memoryview]]:
    """The size of each of `records`, and buffers that hold all of them one behind the other."""
    if isinstance(records, KnownViews):
        return records.sizes, records.buffers()
    if not isinstance(records, RecordViews):
        return np.fromiter(map(len, records), np.int64, len(records)), [b"".join(records)]
    sizes = _sizes(records)
    if len(records.pieces) * _BUFFER_BYTES_MIN > int(sizes.sum()) + _BUFFER_BYTES_MIN:
        return sizes, [b"".join(_dense(records.pieces))]
    return sizes, _dense(records.pieces)


def _dense(pieces: Sequence[Piece]) -> list[bytes | memoryview]:
    return [piece.data if piece.is_dense else b"".join(piece.views()) for piece in pieces]


def _sizes(records: RecordViews) -> Ints:
    parts = [piece.sizes for piece in records.pieces]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])


def packed_bytes(records: Sequence[memoryview]) -> int:
    """Bytes of the pieces that have records with packed bodies; 0: none has."""
    if isinstance(records, (KnownViews, RecordsInPlace)):
        return 0  # only blocks without any are left in place, or known
    if not isinstance(records, RecordViews):
        return sum([len(record) for record in records if is_packed(record)])
    found = [
        len(data)
        for data, starts, _ in records.pieces
        if len(starts) and are_packed(data, starts).any()
    ]
    return sum(found)


def total_bytes(records: Sequence[memoryview]) -> int:
    """Bytes of all `records`, without making views of them."""
    if isinstance(records, (KnownViews, RecordsInPlace)):
        return records.total_bytes
    if isinstance(records, RecordViews):
        return sum(int(piece.sizes.sum()) for piece in records.pieces)
    return sum(map(len, records))
