"""Records of one queue, one behind the other, as a frame leaves them in the log."""

from app.store.formats.record.record import encode_record
from tests.support.stores.stores import SMALL


def record(
    body: bytes = b"same",
    *,
    topic: bytes = b"orders",
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    properties: bytes = b"",
) -> bytes:
    """One of them."""
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        body=body,
        properties=properties,
        born_time_ms=1,
        store_time_ms=1 + queue_offset,
        store_host=SMALL.store_host,
    )


def records(
    bodies: list[bytes],
    *,
    topic: bytes = b"orders",
    properties: bytes = b"",
    base: int = 0,
    first_offset: int = 0,
) -> list[bytes]:
    """One of each body, the first at the physical offset `base`."""
    found: list[bytes] = []
    for number, body in enumerate(bodies, first_offset):
        at = base + sum(map(len, found))
        found.append(
            record(
                body,
                topic=topic,
                queue_offset=number,
                physical_offset=at,
                properties=properties,
            )
        )
    return found
