"""Bodies that their producers packed: RocketMQ's clients (4 KiB and more by default), and ours on
request.

The kind stands in bits 8 to 10 of the system flag: 0 and 3 zlib, 1 an LZ4 frame, 2 Zstandard. The
record keeps the body as its producer sent it; who reads gets it unpacked, unless it says that it
takes it so. (docs/adr/0018, docs/adr/0056)
"""

import zlib
from typing import Final

import zstandard
from lz4 import frame as lz4_frame  # type: ignore[import-untyped]  # it has no stubs

from app.domain.message import StoredEncoding

SYSTEM_FLAG_COMPRESSED: Final = 0x1
PLAIN_BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A small body must not become any amount of memory; one that would is given out as stored."""

_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024
_KIND: Final = 0x700
_ZLIB: Final = (0x000, 0x300)
_LZ4: Final = 0x100
_ZSTD: Final = 0x200
_ENCODINGS: Final = {
    0x000: StoredEncoding.DEFLATE,
    0x300: StoredEncoding.DEFLATE,
    _LZ4: StoredEncoding.LZ4,
    _ZSTD: StoredEncoding.ZSTD,
}
_SYSTEM_FLAGS: Final = {
    StoredEncoding.DEFLATE: SYSTEM_FLAG_COMPRESSED | 0x300,
    StoredEncoding.LZ4: SYSTEM_FLAG_COMPRESSED | _LZ4,
    StoredEncoding.ZSTD: SYSTEM_FLAG_COMPRESSED | _ZSTD,
}
PACKING_BITS: Final = SYSTEM_FLAG_COMPRESSED | _KIND
"""Of the system flag: what says that, and how, the body is packed."""


def encoding_of(system_flag: int) -> StoredEncoding | None:
    """How the body of a record is packed; None: not at all, or in a way that we do not know."""
    if not system_flag & SYSTEM_FLAG_COMPRESSED:
        return None
    return _ENCODINGS.get(system_flag & _KIND)


def system_flag_of(encoding: StoredEncoding | None) -> int:
    """The bits of the system flag of a body that is packed so."""
    return 0 if encoding is None else _SYSTEM_FLAGS[encoding]


def plain_body(body: bytes, system_flag: int, bytes_max: int = PLAIN_BODY_BYTES_MAX) -> bytes:
    """The body as its producer had it; as stored when it cannot be unpacked within `bytes_max`: no
    more than that is unpacked in order to find out."""
    if not system_flag & SYSTEM_FLAG_COMPRESSED:
        return body
    kind = system_flag & _KIND
    most = min(bytes_max, PLAIN_BODY_BYTES_MAX)
    try:
        if kind in _ZLIB:
            plain = _inflate(body, most)
        elif kind == _LZ4:
            plain = _unpack_lz4(body, most)
        elif kind == _ZSTD:
            plain = _unpack_zstd(body, most)
        else:
            return body
    except (zlib.error, RuntimeError, zstandard.ZstdError):
        return body
    return body if plain is None else plain


def _inflate(body: bytes, bytes_max: int) -> bytes | None:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, bytes_max + 1)  # with room to see where it ends
    return plain if stream.eof and len(plain) <= bytes_max else None


def _unpack_lz4(body: bytes, bytes_max: int) -> bytes | None:
    stream = lz4_frame.LZ4FrameDecompressor()
    plain: bytes = stream.decompress(body, max_length=bytes_max + 1)
    return plain if stream.eof and len(plain) <= bytes_max else None


def _unpack_zstd(body: bytes, bytes_max: int) -> bytes | None:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    with unpacker.stream_reader(body, read_across_frames=True) as stream:
        plain = stream.read(bytes_max + 1)
    return plain if 0 < len(plain) <= bytes_max else None
