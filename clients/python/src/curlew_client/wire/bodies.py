"""Bodies of messages: from what a program has to bytes with a content type, and packed. Pure."""

import json
import zlib
from base64 import b64decode
from functools import cache
from typing import Any, Final

Body = bytes | bytearray | memoryview | str | dict[str, Any]

JSON: Final = "application/json"
_SAVED_AT_LEAST: Final = 0.9
"""A body that packing makes no smaller than this part of itself is sent as it is."""
_RATIO_MAX: Final = 90
_UNPACKED_MAX: Final = 64 * 1024 * 1024
_UNSUSPECTED_BYTES: Final = 1024 * 1024
"""A node refuses a body beyond this that unpacks to more than 100 times its size."""


@cache
def _zstandard() -> Any:
    """The library, loaded when a body needs it; None: the extra is not installed."""
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard


def encode_body(body: object) -> tuple[bytes, str | None]:
    """Bytes, and the content type that follows from what it was."""
    if isinstance(body, bytes):
        return body, None
    if isinstance(body, str):
        return body.encode(), None
    if isinstance(body, dict):
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(), JSON
    if isinstance(body, bytearray | memoryview):
        return bytes(body), None
    kind = type(body).__name__
    raise TypeError(
        f"a body is bytes, str (sent as UTF-8) or dict (sent as JSON), not {kind}; "
        "encode it yourself, for instance by json.dumps(…).encode()"
    )


def shown_body(shown: dict[str, Any]) -> bytes:
    """The body in a document of the node; of a JSON body the blanks may differ from what was
    sent."""
    if "body_base64" in shown:
        return b64decode(shown["body_base64"])
    if "text" in shown:
        return str(shown["text"]).encode()
    return json.dumps(shown.get("body"), ensure_ascii=False, separators=(",", ":")).encode()


def packed(body: bytes) -> tuple[bytes, str | None]:
    """The body and its `Content-Encoding`: zstd if the extra is installed, else gzip, or as it
    is when that saves too little."""
    zstandard = _zstandard()
    if zstandard is not None:
        encoding, small = "zstd", zstandard.ZstdCompressor(level=1).compress(body)
    else:
        import gzip

        encoding, small = "gzip", gzip.compress(body, compresslevel=1)
    is_bomb = len(body) > _UNSUSPECTED_BYTES and len(small) * _RATIO_MAX < len(body)
    if is_bomb or len(small) > len(body) * _SAVED_AT_LEAST:
        return body, None
    return small, encoding


def unpacked(body: bytes, kind: int) -> bytes:
    """A body that its producer has packed; `kind` as RocketMQ's system flag has it.

    `ValueError` when it is damaged, or packed by what is not installed.
    """
    if kind in {0, 3}:
        try:
            return zlib.decompress(body)
        except zlib.error as error:
            raise ValueError(f"a packed body is damaged: {error}") from None
    zstandard = _zstandard()
    if kind == 2 and zstandard is not None:
        return bytes(zstandard.ZstdDecompressor().decompress(body, max_output_size=_UNPACKED_MAX))
    raise ValueError("a body is packed by lz4 or zstd, which this client cannot read; install zstd")
