"""CRC-32, as of gzip: from ISA-L where it is installed, otherwise from zlib, which is slower.

`isal` is a dependency of this package: it checks 4 MiB in 0.1 ms. An application that ships the
connector with `--py-files` to executors without it asks the service for the other checksum, which
costs both sides more. Called by `frame` and `client`.
"""

import zlib
from collections.abc import Callable
from typing import Final

from pyspark_curlew.exchange import Buffer

Checksum = Callable[[Buffer], int]


def _compiled() -> Checksum | None:
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        return None
    return crc32


_found: Final = _compiled()
IS_FAST: Final = _found is not None
crc32: Final[Checksum] = _found or zlib.crc32
