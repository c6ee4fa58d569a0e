"""How far a group has come in one queue: acked offsets → committed offset. Pure.

The committed offset is the lowest offset that is not acked. Acks above it are kept in a bitmap
window: pages of 1,024 offsets, each a Python integer, so that an ack costs the same whatever the
order and however many are open, and a full page costs one dictionary entry.

Invariants: every offset below `committed` is acked; `committed` itself is not; no page lies wholly
below `committed`; bits below `committed` in its own page may be set or not and mean nothing.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Final

_PAGE_SHIFT: Final = 10
_PAGE_BITS: Final = 1 << _PAGE_SHIFT
_PAGE_MASK: Final = _PAGE_BITS - 1
_BITS: Final = tuple(1 << bit for bit in range(_PAGE_BITS))
_FULL: Final = (1 << _PAGE_BITS) - 1
_PAGE_BYTES: Final = _PAGE_BITS // 8

PackedPages = tuple[int, int | bytes]
"""First page and either how many full ones follow one another, or the bits of this one."""


class AckSet:
    """Acked offsets of one queue and group. Not thread-safe: event loop only."""

    __slots__ = ("_pages", "committed")

    def __init__(self, committed: int) -> None:
        self.committed = committed
        self._pages: dict[int, int] = {}

    def is_acked(self, offset: int) -> bool:
        if offset < self.committed:
            return True
        page = self._pages.get(offset >> _PAGE_SHIFT)
        return page is not None and page & _BITS[offset & _PAGE_MASK] != 0

    def has_acked(self, start: int, end: int) -> bool:
        """Whether anything in `[start, end)` is acked."""
        if start < self.committed:
            return start < end
        pages = self._pages
        if not pages:
            return False
        for number in range(start >> _PAGE_SHIFT, ((end - 1) >> _PAGE_SHIFT) + 1):
            page = pages.get(number)
            if page is not None:
                page_start = number << _PAGE_SHIFT
                first, stop = max(start - page_start, 0), min(end - page_start, _PAGE_BITS)
                if page >> first & ((1 << (stop - first)) - 1):
                    return True
        return False

    def ack(self, offset: int) -> None:
        """Record one ack. Repeating it changes nothing."""
        committed = self.committed
        if offset < committed:
            return
        pages = self._pages
        if offset == committed:
            self.committed = committed = offset + 1
            if pages:
                self._advance()
            return
        number = offset >> _PAGE_SHIFT
        page = pages.get(number, 0) | _BITS[offset & _PAGE_MASK]
        pages[number] = _FULL if page == _FULL else page

    def ack_range(self, start: int, end: int) -> None:
        """Record acks for `[start, end)`, for instance of messages that a filter leaves out."""
        if start <= self.committed:
            self.skip_to(end)
            return
        while start < end:
            number = start >> _PAGE_SHIFT
            page_start = number << _PAGE_SHIFT
            stop = min(end, page_start + _PAGE_BITS)
            bits = ((1 << (stop - start)) - 1) << (start - page_start)
            page = self._pages.get(number, 0) | bits
            self._pages[number] = _FULL if page == _FULL else page
            start = stop

    def reopen(self, offsets: Collection[int]) -> None:
        """Undo acks that could not be written down; `committed` may go back."""
        first, end = min(offsets), self.committed
        if first < end:
            self.committed = first
            self.ack_range(first + 1, end)
        for offset in offsets:
            number = offset >> _PAGE_SHIFT
            page = self._pages.pop(number, 0) & ~_BITS[offset & _PAGE_MASK]
            if page:
                self._pages[number] = page

    def hold_to(self, end: int) -> None:
        """Forget acks from `end` on; `committed` may go back to it."""
        self.committed = min(self.committed, end)
        last = end >> _PAGE_SHIFT
        for number in [number for number in self._pages if number > last]:
            del self._pages[number]
        page = self._pages.get(last, 0) & ((1 << (end & _PAGE_MASK)) - 1)
        if page and self.committed < end:
            self._pages[last] = page
        else:
            self._pages.pop(last, None)

    @property
    def is_even(self) -> bool:
        """Whether nothing behind `committed` can be acked; sooner told than `end`."""
        return not self._pages

    @property
    def end(self) -> int:
        """Nothing is acked from here on."""
        last = max(self._pages, default=None)
        if last is None:
            return self.committed
        return max(self.committed, (last << _PAGE_SHIFT) + self._pages[last].bit_length())

    def acked_from(self, offset: int) -> int:
        """How many offsets from `offset` on, which is not below `committed`, are acked."""
        first = offset >> _PAGE_SHIFT
        count = 0
        for number, page in self._pages.items():
            if number > first:
                count += page.bit_count()
            elif number == first:
                count += (page >> (offset & _PAGE_MASK)).bit_count()
        return count

    def next_open(self, offset: int) -> int:
        """The first offset from `offset` on that is not acked."""
        offset = max(offset, self.committed)
        while True:
            page = self._pages.get(offset >> _PAGE_SHIFT)
            if page is None:
                return offset
            open_bits = ~(page >> (offset & _PAGE_MASK))
            run = (open_bits & -open_bits).bit_length() - 1
            if run == 0:
                return offset
            offset += run

    def restart(self, offset: int) -> None:
        """Begin anew at `offset`, backwards or forwards: nothing from there on is acked."""
        self.committed = offset
        self._pages.clear()

    def copy(self) -> "AckSet":
        """The acks as they are now; what is acked later does not show."""
        twin = AckSet(self.committed)
        twin._pages = dict(self._pages)
        return twin

    def become(self, other: "AckSet") -> None:
        """Take over the acks of another, which is not used again."""
        self.committed, self._pages = other.committed, other._pages

    def add_acks_of(self, other: "AckSet", start: int) -> None:
        """Take over what another has acked from `start` on."""
        if start < other.committed:
            self.ack_range(start, other.committed)
        for first, end in list(other.runs()):
            if end > start:
                self.ack_range(max(first, start), end)

    def pack(self) -> Iterator[PackedPages]:
        """The acks above `committed`, for `unpack`. Full pages in a row cost one entry."""
        pages = sorted(self._pages.items())
        numbered = enumerate(pages)
        for key, run in groupby(
            numbered, lambda each: each[1][0] - each[0] if each[1][1] == _FULL else -1 - each[0]
        ):
            found = [page for _, page in run]
            first, bits = found[0]
            yield (first, len(found) if key >= 0 else bits.to_bytes(_PAGE_BYTES, "little"))

    def unpack(self, packed: Iterable[PackedPages]) -> None:
        """Add acks that `pack` gave."""
        for first, what in packed:
            if isinstance(what, int):
                self._pages.update(dict.fromkeys(range(first, first + what), _FULL))
            else:
                self._pages[first] = int.from_bytes(what, "little")

    def runs(self) -> Iterator[tuple[int, int]]:
        """Acked offsets above `committed` as half-open ranges, ascending; they may touch."""
        for number in sorted(self._pages):
            first = number << _PAGE_SHIFT
            bits = self._pages[number] >> max(self.committed - first, 0)
            at = max(first, self.committed)
            while bits:
                skipped = (bits & -bits).bit_length() - 1
                at += skipped
                bits >>= skipped
                length = (~bits & (bits + 1)).bit_length() - 1
                yield at, at + length
                at += length
                bits >>= length

    def skip_to(self, offset: int) -> None:
        """Everything below `offset` counts as acked. Going back is not possible here."""
        if offset <= self.committed:
            return
        self.committed = offset
        pages = self._pages
        if pages:
            first = offset >> _PAGE_SHIFT
            for number in [number for number in pages if number < first]:
                del pages[number]
            self._advance()

    def _advance(self) -> None:
        """Move `committed` over the acks that follow it, dropping the pages it leaves."""
        pages = self._pages
        committed = self.committed
        while True:
            number = committed >> _PAGE_SHIFT
            previous = number - 1
            if previous in pages:
                del pages[previous]
            page = pages.get(number)
            if page is None:
                break
            bit = committed & _PAGE_MASK
            open_bits = ~(page >> bit)
            run = (open_bits & -open_bits).bit_length() - 1
            if run == 0:
                break
            committed += run
            if committed & _PAGE_MASK:
                break
            del pages[number]
        self.committed = committed
