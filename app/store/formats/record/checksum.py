"""The CRC-32 of zlib, from zlib-ng: the same value, in a fraction of the time.

The one place that chooses (docs/adr/0039).
"""

from zlib_ng.zlib_ng import crc32, crc32_combine

__all__ = ["crc32", "crc32_combine"]
