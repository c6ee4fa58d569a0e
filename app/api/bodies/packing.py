"""Compressed answers: JSON where the client takes it and it pays, and frames where it is a wish.

JSON from 1 KiB on, in zstd or else gzip, for an `Accept-Encoding` that takes one of them; what does
not become a tenth smaller goes out as it is, and so does what has an ETag, which names its bytes.
Frames are large and read by programs: only an `Accept-Encoding` that names just one encoding says
that the network is the narrower way. Large bodies are packed in a thread, where they delay no other
request.
"""

import asyncio
import re
import zlib
from functools import lru_cache
from typing import Final

import zstandard

from app.api.http.request_context import Headers

_INLINE_BYTES_MAX: Final = 32_768
_PAYS_BELOW: Final = 0.9
"""Of the size; for less, packing and unpacking cost more than they save."""
_JSON: Final = (b"application/json", b"application/problem+json")
_NOT_PACKED: Final = (b"content-encoding", b"etag")
_ZSTD_LEVEL: Final = 1
_GZIP_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS

_NO_WEIGHT: Final = re.compile(rb"q=0(\.0{0,3})?")

VARY: Final = (b"vary", b"accept-encoding")


def wanted_packing(accept_encoding: bytes | None) -> bytes | None:
    """zstd or gzip when the client names just that one; None otherwise.

    HTTP libraries send a list of all they know with each request; that is no wish, and packing
    costs more than a loopback or a local network does.
    """
    wanted = (accept_encoding or b"").strip().lower()
    return wanted if wanted in {b"zstd", b"gzip"} else None


def taken_packing(accept_encoding: bytes) -> bytes | None:
    """zstd, or else gzip, when the client takes it."""
    return next((each for each in (b"zstd", b"gzip") if takes(accept_encoding, each)), None)


@lru_cache(maxsize=256)
def takes(accept_encoding: bytes, encoding: bytes) -> bool:
    """Whether the client takes an encoding that is not `identity`; by RFC 9110, 12.5.3."""
    taken: dict[bytes, bool] = {}
    for part in accept_encoding.lower().split(b","):
        name, _, weight = part.partition(b";")
        taken[name.strip()] = not _NO_WEIGHT.fullmatch(weight.strip())
    every = taken.get(b"*", False)
    return taken.get(encoding, every)


@lru_cache(maxsize=256)
def names(accept_encoding: bytes, encoding: bytes) -> bool:
    """Whether the client takes an encoding and names it: `*` stands for those that HTTP has."""
    listed = accept_encoding.lower().split(b",")
    is_named = any(part.partition(b";")[0].strip() == encoding for part in listed)
    return is_named and takes(accept_encoding, encoding)


async def pack_json(accept_encoding: bytes, headers: Headers, body: bytes) -> bytes:
    """The body of an answer, packed if it is JSON, the client takes that, and it pays; `headers`
    then say so."""
    packing = taken_packing(accept_encoding)
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    if packing is None or kind not in _JSON:
        return body
    if any(name in _NOT_PACKED for name, _ in headers):
        return body
    headers.append(VARY)
    packed = await pack(packing, body)
    if len(packed) > len(body) * _PAYS_BELOW:
        return body
    headers.append((b"content-encoding", packing))
    return packed


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
