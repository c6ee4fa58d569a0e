"""Records that were read in one piece: views of them are made only when somebody asks.

A pull of frames passes a thousand records on without looking at one.
"""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from typing_extensions import override

from app.store.formats.record_block import Ints


class RecordViews(Sequence[memoryview]):
    """Views of records that stand one directly behind the other."""

    __slots__ = ("_views", "data", "sizes")

    def __init__(self, data: memoryview, sizes: Ints) -> None:
        self.data = data
        """All of them."""
        self.sizes = sizes
        self._views: list[memoryview] | None = None

    def _all(self) -> list[memoryview]:
        if self._views is None:
            data, sizes = self.data, self.sizes.tolist()
            ends = np.cumsum(self.sizes).tolist()
            self._views = [data[e - size : e] for e, size in zip(ends, sizes, strict=True)]
        return self._views

    @override
    def __len__(self) -> int:
        return len(self.sizes)

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


def as_one_piece(records: Sequence[memoryview]) -> tuple[Ints, bytes | memoryview]:
    """The size of each of `records`, and all of them one behind the other."""
    if isinstance(records, RecordViews):
        return records.sizes, records.data
    return np.fromiter(map(len, records), np.int64, len(records)), b"".join(records)


def total_bytes(records: Sequence[memoryview]) -> int:
    """Bytes of all `records`, without making views of them."""
    if isinstance(records, RecordViews):
        return len(records.data)
    return sum(map(len, records))
