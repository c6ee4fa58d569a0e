"""Compressed request bodies: gzip, deflate and zstd, bounded in size and in ratio.

A small body must not become a large one: output stops at the limit of the operation, and a body
that grows beyond what honest data does is refused before that. Large bodies are unpacked in a
thread, where they delay no other request. Used by every operation that reads a body.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final, Literal

import zstandard

from app.api.http.errors import UnsupportedEncoding
from app.api.http.request_context import RequestContext
from app.domain.errors import InvalidRequest, MalformedBody
from app.domain.limits import MIB, Limits
from app.domain.message import StoredEncoding

CONTENT_ENCODING: Final = b"content-encoding"

_GZIP: Final = 16 + zlib.MAX_WBITS
_INLINE_BYTES_MAX: Final = 32_768
_FIRST_STEP_BYTES: Final = 1_024
"""Of a gzip member, doubled with each step: zlib copies what it was given behind a member's end."""
_FREE_BYTES: Final = MIB
"""Up to here the ratio does not matter: text of few different lines packs 1,000 to 1."""
_ZSTD_WINDOW_BYTES_MAX: Final = 8 * MIB
"""RFC 9659: a sender of `Content-Encoding: zstd` uses no larger window; bounds the memory."""
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"
"""Of a skippable frame, after a first byte of 0x50 to 0x5f (RFC 8878, section 3.1.2)."""
_RLE_BLOCK: Final = 1
_CHECKSUM_BYTES: Final = 4

TooLarge = Callable[[int], InvalidRequest]
Packing = Literal["gzip", "deflate", "zstd"]

_PACKINGS: Final[dict[bytes, Packing | None]] = {
    b"": None,
    b"identity": None,
    b"gzip": "gzip",
    b"x-gzip": "gzip",
    b"deflate": "deflate",
    b"zstd": "zstd",
}


_KEPT: Final = {"deflate": StoredEncoding.DEFLATE, "zstd": StoredEncoding.ZSTD}
"""What RocketMQ's records know, too."""


def packing_of(encoding: bytes | None) -> Packing | None:
    """How the body is packed; None: not at all. Raises for an encoding that is not taken."""
    if encoding is None:
        return None
    try:
        return _PACKINGS[encoding.strip().lower()]
    except KeyError:
        raise UnsupportedEncoding(
            f"Content-Encoding {encoding.decode('latin-1')!r} is not taken"
        ) from None


async def read_unpacked(
    exchange: RequestContext, limit: int, limits: Limits, too_large: TooLarge
) -> bytes:
    """The whole body of a request as its sender meant it, at most `limit` bytes."""
    packing = packing_of(exchange.headers.get(CONTENT_ENCODING))
    body = await exchange.read_body(limit, too_large)
    if packing is None:
        return body
    unpacked = await unpack(packing, body, limit, limits, too_large)
    exchange.hold(len(unpacked))
    return unpacked


async def read_to_keep(
    exchange: RequestContext, limit: int, limits: Limits, too_large: TooLarge
) -> tuple[bytes, StoredEncoding | None]:
    """The body to store of a producer that wants it kept packed, and how it is packed.

    It is unpacked all the same, so that nobody gets what cannot be unpacked. What RocketMQ has no
    encoding for, and what would become too much larger for its readers, is given unpacked. Raises
    `InvalidRequest` for a body that is not packed.
    """
    encoding = exchange.headers.get(CONTENT_ENCODING)
    packing = packing_of(encoding)
    if packing is None:
        raise InvalidRequest(
            "keep_encoding says to store the body packed, and the request has no Content-Encoding",
            hint="send it with Content-Encoding zstd or deflate, or leave out keep_encoding",
            fields={"parameter": "keep_encoding"},
        )
    body = await exchange.read_body(limit, too_large)
    unpacked = await unpack(packing, body, limit, limits, too_large)
    exchange.hold(len(unpacked))
    kept = _KEPT.get(packing)
    if kept is None or not len(body) < len(unpacked) <= len(body) * limits.stored_ratio_max:
        return unpacked, None
    return body, kept


async def unpack(
    packing: Packing, body: bytes, limit: int, limits: Limits, too_large: TooLarge
) -> bytes:
    """The bytes in `body`, at most `limit` of them."""
    unpack_all = _UNPACK[packing]
    if len(body) <= _INLINE_BYTES_MAX:
        return unpack_all(body, limit, limits, too_large)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, unpack_all, body, limit, limits, too_large)


def _allowed(body: bytes, limit: int, limits: Limits) -> int:
    """How many bytes `body` may become."""
    return min(limit, max(_FREE_BYTES, len(body) * limits.unpacking_ratio_max))


def _gunzip(body: bytes, limit: int, limits: Limits, too_large: TooLarge) -> bytes:
    """All members of `body`, one after the other, as RFC 1952 has it."""
    allowed = _allowed(body, limit, limits)
    parts: list[bytes] = []
    size = at = 0
    whole = memoryview(body)
    while at < len(body):
        stream = zlib.decompressobj(_GZIP)
        step = _FIRST_STEP_BYTES
        while not stream.eof:
            if at >= len(body):
                raise MalformedBody("the gzip stream ends too early")
            piece = whole[at : at + step]
            try:
                part = stream.decompress(piece, allowed - size + 1)
            except zlib.error as error:
                raise MalformedBody(
                    f"the body is not gzip: {error}",
                    hint="compress it, or leave out Content-Encoding",
                ) from error
            size += len(part)
            if size > allowed:
                raise _refusal(allowed, limit, limits, too_large)
            parts.append(part)
            at += len(piece) - len(stream.unused_data)
            step *= 2
    return b"".join(parts)


def _inflate(body: bytes, limit: int, limits: Limits, too_large: TooLarge) -> bytes:
    """The one stream of `body`, in zlib's format, as RFC 9110 has it."""
    allowed = _allowed(body, limit, limits)
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(body, allowed + 1)
    except zlib.error as error:
        raise MalformedBody(
            f"the body is not deflate: {error}", hint="deflate is zlib's format, RFC 1950"
        ) from error
    if len(unpacked) > allowed:
        raise _refusal(allowed, limit, limits, too_large)
    if not stream.eof:
        raise MalformedBody("the deflate stream ends too early")
    if stream.unused_data:
        raise MalformedBody("there are bytes behind the deflate stream")
    return unpacked


def _unzstd(body: bytes, limit: int, limits: Limits, too_large: TooLarge) -> bytes:
    """All frames of `body`, one after the other, as RFC 8878 has it."""
    allowed = _allowed(body, limit, limits)
    _check_frames(body)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    parts: list[bytes] = []
    size = 0
    try:
        with decompressor.stream_reader(body, read_across_frames=True) as reader:
            while part := reader.read(allowed - size + 1):
                size += len(part)
                if size > allowed:
                    raise _refusal(allowed, limit, limits, too_large)
                parts.append(part)
    except zstandard.ZstdError as error:
        raise MalformedBody(
            f"the body is not zstd: {error}",
            hint=f"use windows of up to {_ZSTD_WINDOW_BYTES_MAX} bytes and no dictionary",
        ) from error
    return b"".join(parts)


def _check_frames(body: bytes) -> None:
    """Raise unless `body` is whole frames; the library takes a cut one for a short one."""
    end = 0
    while end < len(body):
        end = _frame_end(body, end)
    if end > len(body):
        raise MalformedBody("the zstd stream ends too early")


def _frame_end(body: bytes, start: int) -> int:
    """Where the frame at `start` ends; beyond the body's end when it is cut."""
    if body[start + 1 : start + 4] == _SKIPPABLE_MAGIC and body[start] & 0xF0 == 0x50:
        length = body[start + 4 : start + 8]
        return start + 8 + (int.from_bytes(length, "little") if len(length) == 4 else 1)
    if body[start : start + 4] != _ZSTD_MAGIC:
        raise MalformedBody("the body is not zstd: no frame begins where one should")
    header = body[start : start + 18]  # the longest header there is
    try:
        position = start + zstandard.frame_header_size(header)
        has_checksum = zstandard.get_frame_parameters(header).has_checksum
    except zstandard.ZstdError as error:
        raise MalformedBody(f"the body is not zstd: {error}") from error
    is_last = False
    while not is_last:
        block = body[position : position + 3]
        if len(block) < 3:
            return len(body) + 1
        described = int.from_bytes(block, "little")
        is_last = bool(described & 1)
        is_run = described >> 1 & 3 == _RLE_BLOCK
        position += 3 + (1 if is_run else described >> 3)
    return position + (_CHECKSUM_BYTES if has_checksum else 0)


def _refusal(allowed: int, limit: int, limits: Limits, too_large: TooLarge) -> InvalidRequest:
    if allowed == limit:
        return too_large(limit)
    return MalformedBody(
        f"the body unpacks to more than {limits.unpacking_ratio_max} times its size",
        hint="send it as it is",
        fields={"limit_ratio": limits.unpacking_ratio_max},
    )


_UNPACK: Final = {"gzip": _gunzip, "deflate": _inflate, "zstd": _unzstd}
