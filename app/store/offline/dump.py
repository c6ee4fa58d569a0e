"""Walking the records of a store: a stretch of the log, or one queue of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.domain.message import StoredMessage
from app.store.formats.record.record import decode_fields, decode_message
from app.store.lifecycle.dispatcher import has_unit
from app.store.log.log_scan import Damage, LogScanner
from app.store.offline.directory import Directory


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records. Offsets half-open; None: no bound."""

    from_offset: int | None = None
    """Physical; the walk begins at the first record from there on."""
    to_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One record of the log."""

    physical_offset: int
    size: int
    message: StoredMessage
    in_queue: bool
    """False for a prepared or rolled-back transaction record."""


def dump(directory: Directory, selection: Selection) -> Iterator[DumpedRecord | Damage]:
    """The records selected, in the order of the log, and the damage between them."""
    log = directory.log
    start = max(log.start, selection.from_offset or 0)
    end = log.end_of_segments if selection.to_offset is None else selection.to_offset
    store_id = bytes.fromhex(directory.meta.store_id)
    scanner = LogScanner(log, unchecked_end=directory.meta.unchecked_end)
    told = 0
    for position, record in scanner.records(start):
        for damage in scanner.damages[told:]:
            if damage.start > start or not selection.from_offset:
                yield damage
        told = len(scanner.damages)
        if position >= end:
            return
        fields = decode_fields(record)
        if position < start:  # the record that `from_offset` points into
            continue
        if selection.topic not in {None, fields.topic}:
            continue
        if selection.queue_id not in {None, fields.queue_id}:
            continue
        message = decode_message(record, store_id)
        yield DumpedRecord(position, len(record), message, has_unit(fields.system_flag))
