"""Many plain records in one buffer, read by the column: the fields that `read_plain` reads of each.

Pure. For answers with the messages of one topic; what differs in more than its place, times, size
and body is left to `read_plain`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

import numpy as np

from app.store.formats.record.message_id import VERSION
from app.store.formats.record.plain_record import DIGITS_BYTES, ID_BITS, names_in
from app.store.formats.record.record import MAGIC_V1
from app.store.formats.record.record_block import HEAD_BYTES, Ints, heads, windows

_ID_FIELD_BYTES: Final = ID_BITS // 8
_STORE_TIME_AT: Final = 58
_POSITION_AT: Final = 30
"""Where the lowest bytes of both stand in a record, as they stand in the id."""


class PlainColumns(NamedTuple):
    """Fields of plain records of one topic and content type; the lists run in parallel."""

    topic: str
    content_type: str | None
    message_ids: list[str]
    queue_ids: list[int]
    queue_offsets: list[int]
    born_times_ms: list[int]
    store_times_ms: list[int]
    body_starts: list[int]
    """Places in the buffer."""
    body_ends: list[int]

    def rows(self) -> Iterator[tuple[str, int, int, int, int, int, int]]:
        """What differs, of one record after the other, in the order of the lists."""
        return cast(
            "Iterator[tuple[str, int, int, int, int, int, int]]", zip(*self[2:], strict=True)
        )


def plain_columns(
    data: memoryview, starts: Ints, sizes: Ints, store_id: bytes
) -> PlainColumns | None:
    """The fields of the intact records that begin at `starts` in `data`, at least one; None: some
    of them are not plain, or not of one topic and content type."""
    found = heads(data, starts)
    positions, store_times_ms = found["physical_offset"], found["store_time_ms"]
    is_plain = (
        bool((found["magic"] == MAGIC_V1).all())
        and not np.count_nonzero(found["system_flag"])
        and not np.count_nonzero(found["flag"])
        and not np.count_nonzero((positions | store_times_ms) >> ID_BITS)
    )
    if not is_plain:
        return None
    body_starts = starts + HEAD_BYTES
    body_ends = body_starts + found["body_length"]
    lengths = starts + sizes - DIGITS_BYTES - body_ends
    length = int(lengths[0])
    if length <= 0 or np.count_nonzero(lengths != length):
        return None
    tails = windows(np.frombuffer(data, np.uint8), length)[body_ends].tobytes()
    names = names_in(tails[:length])
    if names is None or tails != tails[:length] * len(starts):
        return None
    topic, content_type = names
    return PlainColumns(
        topic,
        content_type,
        _ids(found, store_id),
        found["queue_id"].tolist(),
        found["queue_offset"].tolist(),
        found["born_time_ms"].tolist(),
        store_times_ms.tolist(),
        body_starts.tolist(),
        body_ends.tolist(),
    )


def _ids(found: "np.ndarray[tuple[int], np.dtype[np.void]]", store_id: bytes) -> list[str]:
    """The message id of each."""
    raw = found.view(np.uint8).reshape(len(found), HEAD_BYTES)
    start = bytes((VERSION,)) + store_id
    at, behind = len(start), len(start) + _ID_FIELD_BYTES
    rows = np.empty((len(found), behind + _ID_FIELD_BYTES), np.uint8)
    rows[:, :at] = np.frombuffer(start, np.uint8)
    rows[:, at:behind] = raw[:, _STORE_TIME_AT : _STORE_TIME_AT + _ID_FIELD_BYTES]
    rows[:, behind:] = raw[:, _POSITION_AT : _POSITION_AT + _ID_FIELD_BYTES]
    text, width = rows.tobytes().hex().upper(), 2 * rows.shape[1]
    return [text[place : place + width] for place in range(0, len(text), width)]
