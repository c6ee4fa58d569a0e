"""CRC-32, as of gzip: from ISA-L where it is installed, otherwise from zlib, which is slower.

`isal` is a dependency of this package: it checks 4 MiB in 0.1 ms. An application that ships the
connector with `--py-files` to executors without it asks the service for the other checksum, which
costs both sides more. Called by `frame`, `outgoing` and `client`.
"""

import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray


def _compiled() -> Callable[[memoryview, int], int] | None:
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        return None
    return crc32


_found: Final = _compiled()
_function: Final = _found or zlib.crc32
IS_FAST: Final = _found is not None


def crc32(raw: NDArray[np.uint8], before: int = 0) -> int:
    """CRC-32 of what has the CRC-32 `before` and `raw` behind it."""
    return _function(raw.data, before)
