"""The CRC-32 of zlib, from ISA-L: the same value, four to ten times as fast.

The one place that chooses, so that a platform without ISA-L could fall back here.
"""

from isal.isal_zlib import crc32, crc32_combine

__all__ = ["crc32", "crc32_combine"]
