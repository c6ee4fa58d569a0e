"""Stored records for clients who do not unpack bodies themselves.

Much is unpacked in a thread, where it delays no other request. Used by the answers that hand
records on as they are read, pulls and polls, and by those that make messages of them, receives and
streams of a group.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from app.broker.results import Delivery
from app.domain.limits import KIB
from app.domain.message import StoredEncoding
from app.store import packed_bytes
from app.store.formats.record.compression import SYSTEM_FLAG_COMPRESSED
from app.store.formats.record.unpacked_record import (
    SYSTEM_FLAG_LOW,
    is_packed,
    unpacked_records,
)

_INLINE_BYTES_MAX: Final = 32 * KIB


async def unpack_deliveries(deliveries: Sequence[Delivery]) -> None:
    """Have the messages of those with packed bodies, so that nobody has to unpack them later on the
    event loop."""
    sizes = [
        len(content)
        for delivery in deliveries
        if isinstance(content := delivery.content, memoryview)
        and content[SYSTEM_FLAG_LOW] & SYSTEM_FLAG_COMPRESSED  # `is_packed`, written out
    ]
    if sum(sizes) > _INLINE_BYTES_MAX:
        await asyncio.get_running_loop().run_in_executor(None, _make_messages, deliveries)


def _make_messages(deliveries: Sequence[Delivery]) -> None:
    for delivery in deliveries:
        content = delivery.content
        if isinstance(content, memoryview) and is_packed(content):
            _ = delivery.message  # it keeps it


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
