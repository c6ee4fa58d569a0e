"""Records that are known to be good, where they stand: sent from the files without being read.

A frame of stored records needs their sizes and their checksum, and of whole blocks both are known
(see `verified_blocks`): the units of the queue are read and held to their sums, the log is not. So
the bytes are not looked at here. Whoever gets them has the checksum of what stood there when it
was found good, has to hold them to it, and reads in the ordinary way when they do not fit. Any
thread.
"""

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np

from app.store.formats.record.checksum import crc32_combine
from app.store.fs.files import FilePart
from app.store.queues.consume_queue import ConsumeQueue
from app.store.read.queue_reads import Columns, ReadResult, Wanted, array_runs, chosen_columns
from app.store.read.record_checks import Source
from app.store.read.record_views import RecordsInPlace
from app.store.read.verified_blocks import UNKNOWN, VerifiedBlocks, sums_of_units

IN_PLACE_BYTES_MIN: Final = 512 * 1024
"""What is behind the last whole block is left to the next request: less is not worth that."""
PART_BYTES_MIN: Final = 64 * 1024
"""On average: smaller parts cost more calls than the copies that they spare."""

_CRC_MASK: Final = 0xFFFFFFFF


def find_in_place(
    source: Source, queue: ConsumeQueue, wanted: Wanted, *, wait_for_disk: bool
) -> ReadResult | None:
    """What is wanted, up to the last whole block, when all of it is known.

    None where it has to be read. `ColdRead` as for a read.
    """
    for known in source.known:
        found = _find(source, queue, wanted, known, wait_for_disk=wait_for_disk)
        if found is not None:
            return found
    return None


def _find(
    source: Source,
    queue: ConsumeQueue,
    wanted: Wanted,
    known: VerifiedBlocks,
    *,
    wait_for_disk: bool,
) -> ReadResult | None:
    offset, step = wanted.offset, known.records
    count = min(wanted.end - offset, wanted.max_messages)
    if offset % step or count < step or known.sums(queue.number, offset // step, 1) == [UNKNOWN]:
        return None  # told by its first block, before any of the units is read
    data = queue.unit_bytes(offset, offset + count, wait_for_disk=wait_for_disk)
    columns, _ = chosen_columns(data, wanted)
    blocks = range(0, len(columns.sizes) - step + 1, step)
    sums = known.sums(queue.number, offset // step, len(blocks))
    if not sums or [each >> 32 for each in sums] != list(sums_of_units(data, blocks)):
        return None
    records = _places(source, columns, sums, step)
    if records is None:
        return None
    end = offset + len(records)
    hashes = array("q", columns.hashes[: len(records)].tobytes())
    return ReadResult(records, range(offset, end), hashes, end, len(records), [])


def _places(
    source: Source, columns: Columns, sums: Sequence[int], step: int
) -> RecordsInPlace | None:
    """The records of these blocks, unless others stand between them or they are too scattered."""
    count = len(sums) * step
    positions, sizes = columns.positions[:count], columns.sizes[:count]
    ends = sizes.cumsum()
    total = int(ends[-1])
    if total < IN_PLACE_BYTES_MIN:
        return None
    runs = array_runs(source, positions, sizes)
    if len(runs) * PART_BYTES_MIN > total:
        return None
    parts: list[FilePart] = []
    for low, high in runs:
        first = int(positions[low])
        size = int(positions[high - 1] + sizes[high - 1]) - first
        part = source.log.file_part(first, size)
        if part is None:
            return None
        parts.append(part)
    if sum(part.size for part in parts) != total:
        return None
    checksum = 0
    block_sizes = np.diff(ends[step - 1 :: step], prepend=0).tolist()
    for each, size in zip(sums, block_sizes, strict=True):
        checksum = crc32_combine(checksum, each & _CRC_MASK, size)
    return RecordsInPlace(parts, sizes, checksum)
