"""What a trace is made of: notes about offsets of one queue, as they are stored. Pure.

A record of the trace topic has the notes of one page, 1,024 offsets of a queue, and the page's key.
Fields are only ever added at the end, so that older records can be read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import count as numbering
from itertools import pairwise
from struct import Struct as Packed
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from app.broker.results import SendResult

PAGE_SHIFT: Final = 10
SHARE_MAX: Final = 1_000_000
"""Shares of sampled messages are counted in millionths."""

_ENTRY: Final = Packed("<HHI")
_ENTRIES: Final = np.dtype([("place", "<u2"), ("count", "<u2"), ("micros", "<u4")])
"""The same, of many."""
_IN_PAGE: Final = (1 << PAGE_SHIFT) - 1
_MICROS_MAX: Final = 2**32 - 1


class TraceKind(IntEnum):
    """What happened. The numbers are stored."""

    DELIVERED = 1
    ACKED = 2
    NACKED = 3
    EXPIRED = 4
    EXTENDED = 5
    DEAD_LETTERED = 6
    REDRIVEN = 7
    SKIPPED = 8
    RELEASED = 9
    SENT = 10
    SENT_AGAIN = 11
    """A repetition of a send under a claim; it stored nothing."""
    PARKED = 12


SAMPLED_KINDS: Final = frozenset(
    {
        *(TraceKind.DELIVERED, TraceKind.ACKED, TraceKind.EXTENDED, TraceKind.RELEASED),
        *(TraceKind.SENT, TraceKind.SENT_AGAIN),
    }
)
"""What happens to every message; a sampled topic notes it of some. All else is a failure."""


class Note(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An event of the offsets `[first, end)` of one queue."""

    kind: int
    at_ms: int
    first: int
    end: int
    group: str
    """Of consumers; of a send the producer's group, or empty."""
    attempt: int | None
    client_id: str | None
    detail: str | None
    copy: int | None
    """Of a delivery: it was the retry of this offset. Of a dead letter: its offset."""
    address: str | None = None
    """Of a send: where it came from."""
    requests: bytes | None = None
    """Of a send, for each request: place in the page, number of messages, microseconds. It is about
    these messages only; those of other requests may lie between."""


encode_notes: Final = msgspec.msgpack.Encoder().encode
decode_notes: Final = msgspec.msgpack.Decoder(list[Note]).decode

Page = tuple[str, int, int]
"""Topic, queue id, number of the page."""


def key_of(page: Page) -> str:
    """The key of the page's records."""
    topic, queue_id, number = page
    return f"{topic}/{queue_id}/{number}"


def page_of(key: str) -> Page:
    """The page with this key."""
    topic, queue_id, number = key.rsplit("/", 2)
    return topic, int(queue_id), int(number)


Producer = tuple[str | None, str | None, str | None]
"""Who sent: client id, producer group, address; None: not known. A plain tuple, as `Send` is: each
request makes one."""

Send = tuple[TraceKind, str, int, int, int, int, float, Producer]
"""A request that stored messages in one place: what it was, topic, queue id, first offset, count,
store time in ms, seconds that the broker took, producer."""


Single = tuple[SendResult, float, Any]
"""A plain send of one message, put down with what is at hand: where it is, seconds, and the address
and port of its client, or None."""


def notes_of_sends(
    sends: Iterable[Send], singles: Sequence[Single] = ()
) -> Iterator[tuple[Page, Note]]:
    """One note for each page and producer, with what each request took."""
    yield from _notes_of_singles(singles)
    named: dict[tuple[str, int, int, TraceKind, Producer], _Run] = {}
    for kind, topic, queue_id, first, count, at_ms, seconds, producer in sends:
        for start, part in _parts_of(first, count):
            place = topic, queue_id, start >> PAGE_SHIFT, kind, producer
            run = named.setdefault(place, _Run(at_ms, start, start, []))
            run.first = min(run.first, start)
            run.end = max(run.end, start + part)
            micros = min(round(seconds * 1e6), _MICROS_MAX)
            run.entries.append(_ENTRY.pack(start & _IN_PAGE, part, micros))
    for (topic, queue_id, number, kind, producer), run in named.items():
        yield (topic, queue_id, number), _note_of(kind, producer, run)


def _notes_of_singles(singles: Sequence[Single]) -> Iterator[tuple[Page, Note]]:
    """Notes of plain sends, column by column: there may be tens of thousands at once."""
    if not singles:
        return
    results, seconds, clients = zip(*singles, strict=True)
    _, topics, queue_ids, places, times_ms, *_ = zip(*results, strict=True)
    addresses = [client[0] if client else None for client in clients]
    numbers: defaultdict[tuple[str, int, str | None], int] = defaultdict(numbering().__next__)
    places_of = zip(topics, queue_ids, addresses, strict=True)
    origins = np.array([numbers[place] for place in places_of])
    offsets = np.array(places)
    order = np.lexsort((offsets >> PAGE_SHIFT, origins))
    origins, offsets = origins[order], offsets[order]
    pages = offsets >> PAGE_SHIFT
    entries = np.empty(len(order), _ENTRIES)
    entries["place"] = offsets & _IN_PAGE
    entries["count"] = 1
    entries["micros"] = np.minimum(np.rint(np.array(seconds)[order] * 1e6), _MICROS_MAX)
    packed = entries.tobytes()
    is_first = np.ones(len(order), bool)
    is_first[1:] = (origins[1:] != origins[:-1]) | (pages[1:] != pages[:-1])
    starts = np.flatnonzero(is_first)
    firsts = np.minimum.reduceat(offsets, starts).tolist()
    lasts = np.maximum.reduceat(offsets, starts).tolist()
    known = list(numbers)
    rows = zip(origins[starts].tolist(), order[starts].tolist(), firsts, lasts, strict=True)
    bounds = [*(starts * _ENTRY.size).tolist(), len(packed)]
    for (origin, at, first, last), (start, end) in zip(rows, pairwise(bounds), strict=True):
        topic, queue_id, address = known[origin]
        run = _Run(times_ms[at], first, last + 1, [packed[start:end]])
        note = _note_of(TraceKind.SENT, (None, None, address), run)
        yield (topic, queue_id, first >> PAGE_SHIFT), note


def _parts_of(first: int, count: int) -> Iterator[tuple[int, int]]:
    """First offset and count of what falls into each page."""
    end = first + count
    while first < end:
        until = min(end, ((first >> PAGE_SHIFT) + 1) << PAGE_SHIFT)
        yield first, until - first
        first = until


class _Run(msgspec.Struct):
    """What becomes a note."""

    at_ms: int
    first: int
    end: int
    entries: list[bytes]


def _note_of(kind: TraceKind, producer: Producer, run: _Run) -> Note:
    client_id, group, address = producer
    return Note(
        *(kind, run.at_ms, run.first, run.end, group or "", None, client_id),
        *(None, None, address, b"".join(run.entries)),
    )


def covers(note: Note, offset: int) -> bool:
    """Whether the note is about this offset of its page."""
    if not note.first <= offset < note.end:
        return False
    return note.requests is None or seconds_of(note, offset) is not None


def count_of(note: Note) -> int:
    """How many messages it is about."""
    if note.requests is None:
        return note.end - note.first
    return sum([count for _, count, _ in _ENTRY.iter_unpack(note.requests)])


def about_one(note: Note, offset: int) -> Note:
    """The same of one of its messages."""
    if note.requests is None:
        return replace(note, first=offset, end=offset + 1)
    return only_request(note, offset, seconds_of(note, offset) or 0)


def only_request(note: Note, offset: int, seconds: float) -> Note:
    """A note of sends as one about a request that took so long and sent one message."""
    micros = min(round(seconds * 1e6), _MICROS_MAX)
    requests = _ENTRY.pack(offset & _IN_PAGE, 1, micros)
    return replace(note, first=offset, end=offset + 1, requests=requests)


def seconds_of(note: Note, offset: int) -> float | None:
    """How long the broker took for the request that sent this offset; None: it is of none."""
    place = offset & _IN_PAGE
    for first, count, micros in _ENTRY.iter_unpack(note.requests or b""):
        if first <= place < first + count:
            return float(micros / 1e6)
    return None


def longest_seconds(note: Note) -> float | None:
    """The most that the broker took for one of the requests."""
    times = [micros for _, _, micros in _ENTRY.iter_unpack(note.requests or b"")]
    return max(times) / 1e6 if times else None


def sampled(first: int, end: int, share: int) -> Iterator[int]:
    """The offsets in `[first, end)` that a share of so many millionths takes: every n-th."""
    if share <= 0:
        return
    turn = first * share // SHARE_MAX
    while (offset := -(-turn * SHARE_MAX // share)) < end:
        if offset >= first:
            yield offset
        turn += 1


def is_sampled(offset: int, share: int) -> bool:
    """Whether `sampled` has this offset."""
    return offset * share % SHARE_MAX < share


def runs_of(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Half-open runs of rising offsets; none crosses a page."""
    first, last = offsets[0], offsets[-1]
    is_whole = last - first == len(offsets) - 1 and first >> PAGE_SHIFT == last >> PAGE_SHIFT
    if is_whole and offsets == list(range(first, last + 1)):
        yield first, last + 1
        return
    first = end = -1
    for offset in offsets:
        if offset == end and offset >> PAGE_SHIFT == first >> PAGE_SHIFT:
            end += 1
            continue
        if first >= 0:
            yield first, end
        first, end = offset, offset + 1
    yield first, end
