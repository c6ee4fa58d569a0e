"""Entity tags of what is stored, and `If-None-Match` (RFC 9110, sections 8.8.3 and 13.1.2). Pure.

What names stored bytes is their place and their time, not their offset alone: after a loss of power
with asynchronous flush an offset may be given again to another message. So the tag of a range is a
digest over the heads of its first and last record, which hold physical offset, store time, length
and checksum of the body, and their number. The log is only ever cut at its end: when the last
record is the same, all before it are.

Tags are weak: `min_offset` and `max_offset` beside the same messages tell of the moment.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from app.api.http.request_context import CACHE_CONTROL, Headers
from app.store import first_and_last

IF_NONE_MATCH: Final = b"if-none-match"
VARY: Final = (b"vary", b"accept")
SEALED: Final = (CACHE_CONTROL, b"private, max-age=86400, immutable")
"""By its reader alone: another may not be allowed to. A day: long enough for a client that reads a
range again, short beside any retention that matters."""

_HEAD_BYTES: Final = 64
"""Of a record: everything up to the store time and what is before it (store/FORMAT.md)."""
_DIGEST_BYTES: Final = 12


def tag_of_range(form: str, next_offset: int, records: Sequence[memoryview]) -> bytes:
    """The tag of these records as `form` gives them; `next_offset` tells where they end."""
    digest = blake2b(f"{form}/{next_offset}/{len(records)}".encode(), digest_size=_DIGEST_BYTES)
    for record in first_and_last(records):
        digest.update(record[:_HEAD_BYTES])
    return b'W/"%b"' % digest.hexdigest().encode("ascii")


def tag_of_message(form: str, place: tuple[str, int, int, int]) -> bytes:
    """The tag of one message as `form` gives it: topic, queue, offset and store time."""
    digest = blake2b(f"{form}/{place}".encode(), digest_size=_DIGEST_BYTES)
    return b'W/"%b"' % digest.hexdigest().encode("ascii")


def is_known(condition: bytes | None, tag: bytes) -> bool:
    """Whether `If-None-Match` names `tag`, by weak comparison."""
    if condition is None:
        return False
    wanted = tag.removeprefix(b"W/")
    return any(each.strip().removeprefix(b"W/") in {b"*", wanted} for each in condition.split(b","))


def sealed_headers(tag: bytes) -> Headers:
    """Headers of an answer that will never be another one."""
    return [(b"etag", tag), SEALED, VARY]
