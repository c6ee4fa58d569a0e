"""Reading a RocketMQ store (4.9 or 5) whole, before anything of it is taken. Changes nothing.

The log is walked with every check that its records allow. Queues are counted from it and not from
`consumequeue/`, which is asked for one thing only: how far a queue had come whose messages have all
expired, so that its offsets go on there.
"""

import fcntl
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from app.store import paths
from app.store.formats.files.consume_queue import UNIT_BYTES, UNITS
from app.store.formats.record.record import RecordFields, decode_fields
from app.store.fs.files import read_whole
from app.store.fs.read_only_files import ReadOnlyFiles
from app.store.lifecycle.dispatcher import TRANSACTION_KIND, TRANSACTION_PREPARED, has_unit
from app.store.log.commit_log import CommitLog
from app.store.log.log_scan import Damage, LogScanner
from app.store.offline.rocketmq_settings import (
    RocketOffset,
    RocketTopic,
    SettingsDamaged,
    read_delay_offsets,
    read_offsets,
    read_topics,
)
from app.store.queues.queue_files import offsets_in_files

_COMPRESSED: Final = 0x1
_KIND: Final = 0x700
_KNOWN_KINDS: Final = (0x000, 0x100, 0x200, 0x300)
_INNER_BATCH: Final = 0x80
_CONFIG: Final = "config"
_FLOCK: Final = "hhqqi"

_Settings = TypeVar("_Settings")


class SourceUnusable(Exception):
    """The directory cannot be imported; the text says why and what to do."""


@dataclass(slots=True)
class QueueSpan:
    """Queue offsets of one queue that have a record in the log; half-open."""

    first: int
    end: int
    records: int = 0


@dataclass(slots=True)
class Survey:
    """What a RocketMQ store holds. Offsets physical, sizes in bytes, times in ms."""

    segment_bytes: int
    bases: list[int]
    start: int = 0
    end: int = 0
    """Behind the last good record or closed segment."""
    records: int = 0
    other_compressed: int = 0
    """Bodies packed in a way that we do not know, which are given out as they are stored."""
    inner_batches: int = 0
    prepared: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    torn: bool = False
    damages: list[Damage] = field(default_factory=list)
    queues: dict[tuple[str, int], QueueSpan] = field(default_factory=dict)
    topics: dict[str, RocketTopic] = field(default_factory=dict)
    offsets: list[RocketOffset] = field(default_factory=list)
    delay_offsets: Mapping[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def survey(source: ReadOnlyFiles) -> Survey:
    """Read everything. Raises `SourceUnusable`."""
    _refuse_strangers(source)
    found = _segments(source)
    _read_settings(source, found)
    log = CommitLog(source, found.segment_bytes)
    try:
        _walk(source, log, found)
    finally:
        log.close()
    _find_expired_queues(source, found)
    if source.exists(paths.ABORT):
        found.notes.append("RocketMQ did not stop in order (there is an abort file)")
    if found.torn:
        found.notes.append(f"bytes behind the last good record, at {found.end}, are left out")
    for damage in found.damages:
        found.notes.append(
            f"{damage.end - damage.start} bytes at {damage.start} cannot be read: {damage.reason}"
        )
    return found


def _refuse_strangers(source: ReadOnlyFiles) -> None:
    if source.exists(paths.META) or source.exists(paths.CHECKPOINT):
        raise SourceUnusable(f"{source.root} is a Curlew store; start a node on a copy of it")
    path = source.root / paths.LOCK
    if path.exists():
        with path.open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
        kind, _, _, _, process = struct.unpack(_FLOCK, answer)
        if kind != fcntl.F_UNLCK:
            raise SourceUnusable(
                f"a broker (process {process}) has {source.root} open; stop it first"
            )


def _segments(source: ReadOnlyFiles) -> Survey:
    sizes = {}
    for name in source.list(paths.COMMIT_LOG):
        base = paths.parse_file_name(name)
        if base is not None:
            file = source.open(paths.segment(base))
            sizes[base] = file.size()
            file.close()
    if not sizes or not any(sizes.values()):
        raise SourceUnusable(
            f"{source.root} has no segments in commitlog/; name the directory that holds "
            "commitlog/, consumequeue/ and config/ (RocketMQ's storePathRootDir)"
        )
    segment_bytes = max(sizes.values())
    wrong = [base for base in sizes if base % segment_bytes]
    if wrong:
        raise SourceUnusable(
            f"segment {paths.segment(wrong[0])} does not begin at a multiple of {segment_bytes} "
            "bytes, the size of the largest segment; is a file of another store among them?"
        )
    found = Survey(segment_bytes, list(sizes), start=min(sizes))
    for base, size in sizes.items():
        if size != segment_bytes:
            found.notes.append(f"{paths.segment(base)} has {size} of {segment_bytes} bytes")
    return found


def _read_settings(source: ReadOnlyFiles, found: Survey) -> None:
    found.topics = _read(source, "topics.json", found, read_topics) or {}
    found.offsets = _read(source, "consumerOffset.json", found, read_offsets) or []
    found.delay_offsets = _read(source, "delayOffset.json", found, read_delay_offsets) or {}
    for name in ("topics", "consumerOffsets"):
        if (source.root / _CONFIG / name).is_dir():
            found.notes.append(
                f"config/{name}/ is a RocksDB database and is not read; write it out with "
                "`mqadmin rocksDBConfigToJson` and import again"
            )


def _read(
    source: ReadOnlyFiles, name: str, found: Survey, parse: Callable[[bytes], _Settings]
) -> _Settings | None:
    """A settings file, or its `.bak`: RocketMQ is for a moment without the file itself."""
    damage: SettingsDamaged | None = None
    for path in (f"{_CONFIG}/{name}", f"{_CONFIG}/{name}.bak"):
        data = read_whole(source, path)
        if not data:
            continue
        try:
            return parse(data)
        except SettingsDamaged as error:
            damage = error
            found.notes.append(f"{path} cannot be read: {error}")
    if damage is not None:
        raise SourceUnusable(f"{source.root}/{_CONFIG}/{name} and its .bak are damaged: {damage}")
    found.notes.append(f"there is no {_CONFIG}/{name}")
    return None


def _walk(source: ReadOnlyFiles, log: CommitLog, found: Survey) -> None:
    """Read the log. Nothing covers a queue offset with a checksum; RocketMQ's queue files say where
    that of a queue's first record may lie."""
    known = offsets_in_files(source)
    scanner = LogScanner(log, unchecked_end=log.end_of_segments, known_offsets=known)
    for _, record in scanner.records(log.start):
        _count(decode_fields(record), found)
    found.end, found.torn, found.damages = scanner.end, scanner.torn, scanner.damages


def _count(fields: RecordFields, found: Survey) -> None:
    if not paths.is_topic_directory(fields.topic):
        raise SourceUnusable(
            f"the record at {fields.physical_offset} has a topic that RocketMQ would not allow: "
            f"{fields.topic!r}"
        )
    found.records += 1
    found.oldest_ms = min(found.oldest_ms or fields.store_time_ms, fields.store_time_ms)
    found.newest_ms = max(found.newest_ms, fields.store_time_ms)
    flag = fields.system_flag
    found.other_compressed += bool(flag & _COMPRESSED) and flag & _KIND not in _KNOWN_KINDS
    found.inner_batches += bool(flag & _INNER_BATCH)
    found.prepared += flag & TRANSACTION_KIND == TRANSACTION_PREPARED
    if not has_unit(flag):
        return
    name, offset = (fields.topic, fields.queue_id), fields.queue_offset
    span = found.queues.setdefault(name, QueueSpan(offset, offset))
    span.end = max(span.end, offset + 1)
    span.records += 1


def _find_expired_queues(source: ReadOnlyFiles, found: Survey) -> None:
    for topic in source.list(paths.CONSUME_QUEUES):
        directory = f"{paths.CONSUME_QUEUES}/{topic}"
        if not (source.root / directory).is_dir() or not paths.is_topic_directory(topic):
            continue
        for text in source.list(directory):
            queue_id = paths.parse_queue_id(text)
            if queue_id is not None and (topic, queue_id) not in found.queues:
                end = _queue_end(source, f"{directory}/{text}")
                if end:
                    found.queues[topic, queue_id] = QueueSpan(end, end)


def _queue_end(source: ReadOnlyFiles, directory: str) -> int:
    """One past the last unit that was ever written to a queue."""
    for name in reversed(source.list(directory)):
        base = paths.parse_file_name(name)
        data = read_whole(source, f"{directory}/{name}") if base is not None else None
        if base is None or data is None:
            continue
        units = np.frombuffer(data, UNITS, len(data) // UNIT_BYTES)
        written = np.flatnonzero(units["size"] > 0)
        if len(written):
            return base // UNIT_BYTES + int(written[-1]) + 1
    return 0
