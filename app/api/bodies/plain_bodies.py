"""Stored records for clients who do not unpack bodies themselves.

Much is unpacked in a thread, where it delays no other request. Used by the answers that hand
records on as they are read: pulls and polls. What makes messages of records unpacks there.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from app.domain.limits import KIB
from app.domain.message import StoredEncoding
from app.store import packed_bytes
from app.store.formats.record.unpacked_record import unpacked_records

_INLINE_BYTES_MAX: Final = 32 * KIB


async def plain_records(
    records: Sequence[memoryview], taken: Collection[StoredEncoding], ratio_max: int
) -> Sequence[memoryview]:
    """`records` with plain bodies, but for those in encodings that are `taken`, and those that
    become more than `ratio_max` times as large; themselves when none is packed."""
    size = packed_bytes(records)
    if not size:
        return records
    work = partial(unpacked_records, records, taken, ratio_max)
    if size <= _INLINE_BYTES_MAX:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)
