"""The allocators of this process, C's and Python's: how they keep memory that was freed.

Whoever allocates a mebibyte gets fresh pages from the kernel, and gives them back when it is freed:
256 page faults and as many pages to clear, for every request body and every answer. Kept memory
costs nothing. The knobs are mallopt(3)'s, of glibc.

Python has small objects in arenas of a mebibyte, and an arena goes back to the kernel with its last
object. A process whose objects of one turn, or until the next collection, just do not fit into what
is there takes a new arena each time, and gives it back. There is no knob; an object that stays in
an arena keeps it.
"""

import ctypes
from typing import Final

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Freed memory at the end of the heap beyond this goes back to the kernel."""
HEAP_PIECE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Larger pieces are mapped each by itself; glibc takes no higher value on 64-bit machines."""
ARENAS_KEPT: Final = 16
"""Mebibytes that stay with Python's small objects, in use or not."""

_PINS: Final[list[bytes]] = []
_PIN_BYTES: Final = 512 - 33
"""Of one, which takes 512 bytes with its head: the largest that Python has in arenas."""
_WINDOW_BITS: Final = 19
"""An arena begins anywhere, so that a pin in each half a mebibyte leaves none without."""
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


def keep_arenas() -> None:
    """Let Python keep `ARENAS_KEPT` arenas. Once for the whole process; further calls do nothing.

    Those that are in use most are filled first, so that the process has no more than it would have.
    Resident memory grows by as much as was not in use.
    """
    if _PINS:
        return
    windows: dict[int, bytes] = {}
    made: list[bytes] = []
    for _ in range(2 * ARENAS_KEPT * (1 << _WINDOW_BITS) // 512):
        block = bytes(_PIN_BYTES)
        made.append(block)
        windows.setdefault(id(block) >> _WINDOW_BITS, block)
    _PINS.extend(windows.values())
