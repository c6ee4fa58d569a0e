"""The C allocator of this process: how it keeps memory that was freed.

Whoever allocates a mebibyte gets fresh pages from the kernel, and gives them back when it is freed:
256 page faults and as many pages to clear, for every request body and every answer. Kept memory
costs nothing. The knobs are mallopt(3)'s, of glibc.
"""

import ctypes
from typing import Final

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Freed memory at the end of the heap beyond this goes back to the kernel."""
HEAP_PIECE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Larger pieces are mapped each by itself; glibc takes no higher value on 64-bit machines."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> bool:
    """Let the allocator keep up to `KEPT_BYTES_MAX`; False where it is not glibc's.

    For the whole process, once, before it is busy. Resident memory may grow by as much.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    kept = mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    return bool(mallopt(_M_MMAP_THRESHOLD, HEAP_PIECE_BYTES_MAX) and kept)
