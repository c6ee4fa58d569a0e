"""Bodies that are packed are unpacked where they keep nobody waiting."""

import threading
import zlib

import pytest

from app.api.bodies.plain_bodies import unpack_deliveries
from app.broker.results import Delivery
from app.domain.message import StoredMessage
from app.store.formats.record.record import decode_message, encode_record

pytestmark = pytest.mark.anyio


def delivery(body: bytes, system_flag: int, seen: list[str]) -> Delivery:
    record = encode_record(
        topic=b"orders",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=b"",
        born_time_ms=1,
        store_time_ms=2,
        store_host=bytes(8),
        system_flag=system_flag,
    )

    def decode(found: memoryview) -> StoredMessage:
        seen.append(threading.current_thread().name)
        return decode_message(found, bytes(4))

    return Delivery(memoryview(record), "handle", 1, 16, 0, decode)


async def test_much_is_unpacked_in_a_thread_and_little_or_plain_later() -> None:
    seen: list[str] = []
    noise = zlib.compress(bytes(range(256)) * 40, 0)
    large = [delivery(noise, 0x301, seen) for _ in range(4)]
    plain = delivery(b"x" * 100_000, 0, seen)
    await unpack_deliveries([large[0], plain])
    assert seen == []
    await unpack_deliveries([*large, plain])
    assert len(seen) == len(large)
    assert threading.current_thread().name not in seen
    assert all(each.message.body == bytes(range(256)) * 40 for each in large)
    assert len(seen) == len(large), "each is unpacked once"
