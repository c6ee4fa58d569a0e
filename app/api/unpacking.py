"""Compressed request bodies: gzip, bounded in size and in ratio.

A small body must not become a large one: output stops at the limit of the operation, and a body
that grows beyond what honest data does is refused before that. Large bodies are unpacked in a
thread, where they hold up nobody.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final

from app.domain.errors import InvalidRequest, MalformedBody, UnsupportedContentType
from app.domain.limits import MIB, Limits

_GZIP: Final = 16 + zlib.MAX_WBITS
_INLINE_BYTES_MAX: Final = 32_768
_FREE_BYTES: Final = MIB
"""Up to here the ratio does not matter: text of few different lines packs 1,000 to 1."""

TooLarge = Callable[[int], InvalidRequest]


def is_packed(encoding: bytes | None) -> bool:
    """Whether the body has to be unpacked; raises for an encoding that is not taken."""
    if encoding is None:
        return False
    name = encoding.strip().lower()
    if name in {b"", b"identity"}:
        return False
    if name in {b"gzip", b"x-gzip"}:
        return True
    raise UnsupportedContentType(
        f"Content-Encoding {encoding.decode('latin-1')!r} is not taken",
        hint="use gzip, send the body as it is, or name the compression in Content-Type",
    )


async def unpack(body: bytes, limit: int, limits: Limits, too_large: TooLarge) -> bytes:
    """The bytes in `body`, at most `limit` of them."""
    if len(body) <= _INLINE_BYTES_MAX:
        return _gunzip(body, limit, limits, too_large)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, _gunzip, body, limit, limits, too_large)


def _gunzip(body: bytes, limit: int, limits: Limits, too_large: TooLarge) -> bytes:
    """All members of `body`, one after the other, as RFC 1952 has it."""
    allowed = min(limit, max(_FREE_BYTES, len(body) * limits.unpacking_ratio_max))
    parts: list[bytes] = []
    size = 0
    rest = body
    while rest:
        stream = zlib.decompressobj(_GZIP)
        try:
            part = stream.decompress(rest, allowed - size + 1)
        except zlib.error as error:
            raise MalformedBody(f"the body is not gzip: {error}") from error
        size += len(part)
        if size > allowed:
            raise _refusal(allowed, limit, limits, too_large)
        if not stream.eof:
            raise MalformedBody("the gzip stream ends too early")
        parts.append(part)
        rest = stream.unused_data
    return b"".join(parts)


def _refusal(allowed: int, limit: int, limits: Limits, too_large: TooLarge) -> InvalidRequest:
    if allowed == limit:
        return too_large(limit)
    return MalformedBody(
        f"the body unpacks to more than {limits.unpacking_ratio_max} times its size",
        hint="send it as it is",
        fields={"limit_ratio": limits.unpacking_ratio_max},
    )
