"""Keeps memory that a Python worker has freed, for the next frame.

A frame of some MiB is new memory from the kernel, page by page, and given back when it is done: a
page fault and 4 KiB to clear for each four messages of 1 KiB. Kept memory costs nothing. The knobs
are mallopt(3)'s, of glibc; elsewhere nothing happens. Called by `pulling` and `sending` before they
begin.
"""

import ctypes
import os
from typing import Final

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Freed memory at the end of the heap beyond this goes back to the kernel."""
PIECE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Larger pieces are mapped each by itself; glibc takes no higher value on 64-bit machines."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_kept_in: set[int] = set()
"""Process ids: a forked worker may have its parent's entry."""


def keep_freed_memory() -> None:
    """Have the allocator keep up to `KEPT_BYTES_MAX`; once in a process, the first time."""
    process = os.getpid()
    if process in _kept_in:
        return
    _kept_in.add(process)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    mallopt(_M_MMAP_THRESHOLD, PIECE_BYTES_MAX)
