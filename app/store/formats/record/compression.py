"""Bodies that RocketMQ's clients packed (4 KiB and more by default). We store none so ourselves.

The kind stands in bits 8 to 10 of the system flag: 0 and 3 zlib, 1 an LZ4 frame, 2 Zstandard. The
record, and with it a batch frame, keeps the body as its producer sent it; whoever reads messages
gets it unpacked. (docs/adr/0018)
"""

import zlib
from typing import Final

import zstandard
from lz4 import frame as lz4_frame  # type: ignore[import-untyped]  # it has no stubs

SYSTEM_FLAG_COMPRESSED: Final = 0x1
PLAIN_BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A small body must not become any amount of memory; one that would is given out as stored."""

_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024
_KIND: Final = 0x700
_ZLIB: Final = (0x000, 0x300)
_LZ4: Final = 0x100
_ZSTD: Final = 0x200


def plain_body(body: bytes, system_flag: int) -> bytes:
    """The body as its producer had it; as stored when it cannot be unpacked within the bound."""
    if not system_flag & SYSTEM_FLAG_COMPRESSED:
        return body
    kind = system_flag & _KIND
    try:
        if kind in _ZLIB:
            plain = _inflate(body)
        elif kind == _LZ4:
            plain = _unpack_lz4(body)
        elif kind == _ZSTD:
            plain = _unpack_zstd(body)
        else:
            return body
    except (zlib.error, RuntimeError, zstandard.ZstdError):
        return body
    return body if plain is None else plain


def _inflate(body: bytes) -> bytes | None:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, PLAIN_BODY_BYTES_MAX)
    return plain if stream.eof else None


def _unpack_lz4(body: bytes) -> bytes | None:
    stream = lz4_frame.LZ4FrameDecompressor()
    plain: bytes = stream.decompress(body, max_length=PLAIN_BODY_BYTES_MAX)
    return plain if stream.eof else None


def _unpack_zstd(body: bytes) -> bytes | None:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    with unpacker.stream_reader(body) as stream:
        plain = stream.read(PLAIN_BODY_BYTES_MAX + 1)
    return plain if 0 < len(plain) <= PLAIN_BODY_BYTES_MAX else None
