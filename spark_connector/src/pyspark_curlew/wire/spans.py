"""Spans of bytes in a block, one for each row, and copying them together.

Called by `records`, `properties` and `columns`, and by what is written.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Spans(NamedTuple):
    """At most one span of bytes for each row; `present` says where there is one.

    Starts and ends never decrease from row to row; where there is none, both are the same.
    """

    starts: Int64s
    ends: Int64s
    present: Flags


def all_present(starts: Int64s, ends: Int64s) -> Spans:
    """A span for each row."""
    return Spans(starts, ends, np.ones(len(starts), dtype=np.bool_))


def gather(kind: pa.DataType, block: pa.Buffer, spans: Spans) -> pa.Array:
    """Copy the spans, one behind the other, into an array of `kind` (binary or string).

    One `take` does it: the positions of the wanted spans and of the gaps between them are the
    offsets of an array over the whole block, of which every second element is kept. Arrow makes
    room for as many values as it is asked for, of the average size of those that are there. Gaps
    are among these, so that it would copy all it has once or twice into more room; it is asked for
    the empty value at the end as often as makes up for that.
    """
    count = len(spans.starts)
    if not spans.present.any():
        return pa.nulls(count, kind)
    limits = np.empty(2 * count + 1, dtype=np.int32)
    limits[0 : 2 * count : 2] = spans.starts
    limits[1::2] = spans.ends
    limits[-1] = spans.ends[-1]
    over_all = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(limits), block])
    more = _more_for_room(spans, int(limits[-1] - limits[0]))
    wanted = np.empty(count + more, dtype=np.int32)
    wanted[:count] = np.arange(0, 2 * count, 2)
    wanted[count:] = 2 * count - 1
    present = np.append(spans.present, np.ones(more, dtype=np.bool_))
    taken = over_all.take(fixed(pa.int32(), wanted, present))
    return pa.Array.from_buffers(kind, count, taken.buffers())


def _more_for_room(spans: Spans, reach: int) -> int:
    """How many values more make room for all; `reach`: bytes of the spans and the gaps between."""
    total = int((spans.ends - spans.starts).sum())
    if total == 0:
        return 0
    count = len(spans.starts)
    return max(0, 2 * count * total // reach + 1 - count)


def fixed(kind: pa.DataType, values: NDArray[np.generic], present: Flags | None = None) -> pa.Array:
    """An array over `values`, with nulls where they are not present."""
    validity = None
    if present is not None and not present.all():
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])


def limits_of(values: pa.Array) -> Int64s:
    """Where each binary value begins in the array's bytes, and where the last one ends."""
    if not len(values):
        return np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)
    return offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
