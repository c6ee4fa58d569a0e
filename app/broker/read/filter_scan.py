"""Reads of a queue of which only the messages that a filter wants are kept.

A filter that knows its tags skips in the consume queue and reads nothing else. Any other has to
look at every message, so one read is one look of bounded size, and who needs more comes again:
nothing here blocks the event loop for longer than one look, and every look moves on.
"""

from app.broker.filters.filters import Filter
from app.broker.ports import QueueRecords
from app.domain.limits import FILTER_LOOK_BYTES, FILTER_LOOK_MESSAGES
from app.store import ReadResult
from app.store.formats.record.record import stored_properties

_OFF_LOOP_FACTOR = 16
"""A look on a reader thread is so many times larger, since a request has one only."""


def read_matching(
    store: QueueRecords,
    topic: str,
    queue_id: int,
    offset: int,
    *,
    wanted: Filter | None,
    max_messages: int,
    max_bytes: int,
    end_offset: int | None = None,
    in_place: bool = False,
    wait_for_disk: bool = False,
) -> ReadResult:
    """As `Store.read`, but only what is `wanted`; `next_offset` is behind what was looked at.

    Without a filter and `in_place`, records may be in place as of the store.

    May find nothing although there is something further on: then `next_offset` is not the end.
    Any thread, with `wait_for_disk`.
    """
    look_messages, look_bytes = max_messages, max_bytes
    if wanted is not None and not wanted.is_by_tag_only:
        factor = _OFF_LOOP_FACTOR if wait_for_disk else 1
        look_messages = max(max_messages, FILTER_LOOK_MESSAGES * factor)
        look_bytes = max(max_bytes, FILTER_LOOK_BYTES * factor)
    read = store.read(
        topic,
        queue_id,
        offset,
        max_messages=look_messages,
        max_bytes=look_bytes,
        tag_hashes=wanted.tag_hashes if wanted is not None else None,
        end_offset=end_offset,
        in_place=in_place and wanted is None,
        wait_for_disk=wait_for_disk,
    )
    if wanted is None or not read.records:
        return read
    return first_fitting(keep_matching(read, wanted), max_messages, max_bytes)


def keep_matching(read: ReadResult, wanted: Filter) -> ReadResult:
    """Leave out the records that are not wanted."""
    matches = wanted.matches
    keep = [
        index for index, record in enumerate(read.records) if matches(stored_properties(record))
    ]
    return read if len(keep) == len(read.records) else chosen(read, keep)


def first_fitting(read: ReadResult, max_messages: int, max_bytes: int) -> ReadResult:
    """Cut off what is over the bounds, but for the first record; to be read again."""
    size = 0
    for index, record in enumerate(read.records):
        size += len(record)
        if index and (index >= max_messages or size > max_bytes):
            return first_records(read, index)
    return read


def first_records(read: ReadResult, count: int) -> ReadResult:
    """Only the first `count` records; the next read begins at the one after them."""
    next_offset = read.queue_offsets[count]
    return read._replace(
        records=read.records[:count],
        queue_offsets=read.queue_offsets[:count],
        tag_hashes=read.tag_hashes[:count],
        next_offset=next_offset,
        scanned=read.scanned - (read.next_offset - next_offset),
        gaps=[gap for gap in read.gaps if gap.from_offset < next_offset],
    )


def chosen(read: ReadResult, keep: list[int]) -> ReadResult:
    """Only the records at these places; as far as it was looked stays the same."""
    return read._replace(
        records=[read.records[index] for index in keep],
        queue_offsets=[read.queue_offsets[index] for index in keep],
        tag_hashes=[read.tag_hashes[index] for index in keep],
    )
