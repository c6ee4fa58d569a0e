"""What a Python worker keeps of its memory: freed pages, and modules out of garbage collections.

A frame of some MiB is new memory from the kernel, page by page, and given back when it is done: a
page fault and 4 KiB to clear for each four messages of 1 KiB. Kept memory costs nothing. The knobs
are mallopt(3)'s, of glibc; elsewhere nothing happens.

Spark's worker daemon collects garbage after every task, and walks through all that pyarrow, numpy
and what a user's functions import have made: ten to forty milliseconds of a small task. `gc.freeze`
is the standard library's way to say that these objects stay. Called by `pulling` and `write_task`
before and after each task.
"""

import ctypes
import gc
import os
import sys
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


_modules_frozen: Final[dict[int, int]] = {}
"""How many there were, by process id: a forked worker has its parent's entry and objects of its
own."""


def freeze_loaded() -> None:
    """Collect and freeze, where modules have been loaded in this process since the last time.

    Only then: what is alive as it freezes and becomes garbage later is never collected.
    """
    process, modules = os.getpid(), len(sys.modules)
    if _modules_frozen.get(process) != modules:
        _modules_frozen[process] = modules
        gc.collect()
        gc.freeze()
