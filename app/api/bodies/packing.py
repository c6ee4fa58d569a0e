"""Compressed answers for large frames: zstd or gzip, by an `Accept-Encoding` that names just one.

Only frames of a pull: they are large, read by programs, and the client says whether its network
or its processor is the narrower way. Everything else is small or already text for people. Large
bodies are packed in a thread, where they delay no other request.
"""

import asyncio
import zlib
from typing import Final

import zstandard

_INLINE_BYTES_MAX: Final = 32_768
_ZSTD_LEVEL: Final = 1
_GZIP_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS

VARY: Final = (b"vary", b"accept-encoding")


def wanted_packing(accept_encoding: bytes | None) -> bytes | None:
    """zstd or gzip when the client names just that one; None otherwise.

    HTTP libraries send a list of all they know with each request; that is no wish, and packing
    costs more than a loopback or a local network does.
    """
    wanted = (accept_encoding or b"").strip().lower()
    return wanted if wanted in {b"zstd", b"gzip"} else None


async def pack(packing: bytes, body: bytes) -> bytes:
    """The body in the content encoding `packing`."""
    work = _zstd if packing == b"zstd" else _gzip
    if len(body) <= _INLINE_BYTES_MAX:
        return work(body)
    return await asyncio.get_running_loop().run_in_executor(None, work, body)


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(body)


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()
