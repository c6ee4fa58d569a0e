"""The properties of all records of a frame, found in one pass without Python per record.

A record's properties are `name 0x01 value 0x02 name 0x01 value ...`, the last 0x02 optional.
RocketMQ's reader decides what counts: the first 0x01 of a piece separates; pieces without it, with
an empty name or with an empty value are dropped; of two pieces with one name the later one wins.
Called by `columns`.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyspark_curlew.wire.spans import Flags, Int64s, Spans, all_present

_NAME_VALUE: Final = 0x01
_PIECE_END: Final = 0x02
_PAD: Final = 64
"""Zero bytes behind the text, so that reading a name's length from any piece stays inside."""


class PropertyText:
    """The properties of `n` records in one text; `positions_wanted` are its `n + 1` row limits."""

    def __init__(self, text: NDArray[np.uint8], bounds: Int64s) -> None:
        self.text = text
        self.bounds = bounds
        self._padded = np.zeros(len(text) + _PAD, dtype=np.uint8)
        self._padded[: len(text)] = text
        self._starts, self._ends, self._rows = _pieces(text, bounds)
        self._heads = self._u8(self._starts)

    def find(self, name: bytes) -> Spans:
        """The value of the property `name` in each record."""
        assert 0 < len(name) < _PAD - 8
        needle = name + bytes([_NAME_VALUE])
        found = self._named(needle)
        value_starts = self._starts[found] + len(needle)
        value_ends = self._ends[found]
        rows = self._rows[found]
        filled = value_starts < value_ends
        if not filled.all():
            rows, value_starts, value_ends = rows[filled], value_starts[filled], value_ends[filled]
        return self._spans(rows, value_starts, value_ends)

    def _named(self, needle: bytes) -> Int64s | slice:
        """The pieces that begin with `needle`; a slice if they are evenly spaced."""
        begins = self._begins_with(needle)
        if not begins.any():
            return slice(0, 0)
        evenly = self._evenly(begins)
        found = np.flatnonzero(begins) if evenly is None else evenly
        if len(needle) <= 8:
            return found
        tails = self._u8(self._starts[found] + len(needle) - 8)
        fits = tails == np.uint64(int.from_bytes(needle[-8:], "little"))
        return found if fits.all() else np.arange(len(begins))[found][fits]

    def _evenly(self, begins: Flags) -> slice | None:
        """Where `begins` is, if there is one for each record, always as many pieces apart."""
        count = len(self.bounds) - 1
        step = len(begins) // count
        first = int(begins.argmax())
        if first >= step or np.count_nonzero(begins) != count or not begins[first::step].all():
            return None
        return slice(first, None, step)

    def pairs(self, without: bytes) -> "Pairs":
        """Every name and value that counts, but for the property `without`."""
        separators = np.flatnonzero(self.text == _NAME_VALUE)
        separators = np.append(separators, len(self.text))
        middles = separators[np.searchsorted(separators, self._starts)]
        counts = (middles > self._starts) & (middles + 1 < self._ends)
        counts &= ~self._is_named(without, middles)
        return Pairs(
            rows=self._rows[counts],
            name_starts=self._starts[counts],
            name_ends=middles[counts],
            value_ends=self._ends[counts],
        )

    def first_words(self, spans: Spans) -> Spans:
        """Cut each span before its first space. Keys are stored separated by spaces."""
        if not spans.present.any():
            return spans
        spaces = np.flatnonzero(self.text == 0x20)
        if len(spaces) == 0:
            return spans
        spaces = np.append(spaces, len(self.text))
        first = spaces[np.searchsorted(spaces, spans.starts)]
        ends = np.minimum(first, spans.ends)
        return Spans(spans.starts, ends, spans.present & (ends > spans.starts))

    def _is_named(self, name: bytes, middles: Int64s) -> Flags:
        rows = self.find(name)
        value_starts = rows.starts[rows.present]
        named: Flags = np.isin(middles + 1, value_starts)
        return named

    def _begins_with(self, needle: bytes) -> Flags:
        head = needle[:8]
        if len(head) == 8:
            whole: Flags = self._heads == np.uint64(int.from_bytes(head, "little"))
            return whole
        mask = np.uint64((1 << 8 * len(head)) - 1)
        begins: Flags = (self._heads & mask) == np.uint64(int.from_bytes(head, "little"))
        return begins

    def _spans(self, rows: Int64s, value_starts: Int64s, value_ends: Int64s) -> Spans:
        count = len(self.bounds) - 1
        if len(rows) == count and (rows[1:] > rows[:-1]).all():
            return all_present(value_starts, value_ends)
        starts = self.bounds[:-1].copy()
        ends = starts.copy()
        present = np.zeros(count, dtype=np.bool_)
        starts[rows] = value_starts  # of equal indices the last one counts
        ends[rows] = value_ends
        present[rows] = True
        return Spans(starts, ends, present)

    def _u8(self, positions: Int64s) -> NDArray[np.uint64]:
        view: NDArray[np.uint64] = np.ndarray(
            (len(self._padded) - 7,), dtype="<u8", buffer=self._padded, strides=(1,)
        )
        return view[positions]


class Pairs(NamedTuple):
    """Names and values by piece, in the order of the text; a value begins one behind its name."""

    rows: Int64s
    name_starts: Int64s
    name_ends: Int64s
    value_ends: Int64s

    def keep(self, chosen: Flags) -> "Pairs":
        return Pairs(*(column[chosen] for column in self))


def either(first: Spans, second: Spans) -> Spans:
    """`first` where it is present, `second` elsewhere."""
    if first.present.all() or not second.present.any():
        return first
    if not first.present.any():
        return second
    return Spans(
        np.where(first.present, first.starts, second.starts),
        np.where(first.present, first.ends, second.ends),
        first.present | second.present,
    )


def _pieces(text: NDArray[np.uint8], bounds: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Start, end and row of each piece. A piece ends at a 0x02 or where its record's text ends."""
    separators = np.flatnonzero(text == _PIECE_END)
    count = len(bounds) - 1
    each, rest = divmod(len(separators), max(count, 1))
    if each and not rest and np.array_equal(separators[each - 1 :: each] + 1, bounds[1:]):
        starts = np.zeros_like(separators)
        starts[1:] = separators[:-1] + 1
        return starts, separators, np.repeat(np.arange(count), each)
    return _uneven_pieces(separators, bounds)


def _uneven_pieces(separators: Int64s, bounds: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The same where records differ in how many pieces they have, or do not end with a 0x02.

    Both kinds of ends are sorted together as `2 * position + kind`: at one position the end of a
    record comes before a 0x02, which then belongs to the next record.
    """
    marks = np.sort(np.concatenate((2 * separators + 1, 2 * bounds[1:])), kind="stable")
    ends = marks >> 1
    is_separator = marks & 1
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + is_separator[:-1]
    rows = np.zeros_like(ends)
    np.cumsum(1 - is_separator[:-1], out=rows[1:])
    return starts, ends, rows
