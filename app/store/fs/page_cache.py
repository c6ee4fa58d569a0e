"""Whether bytes of a file are in memory: Linux' cachestat(2), since version 6.5.

For `files`, which otherwise finds that out by reading. Any thread.
"""

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Final

_CACHESTAT: Final = 451
"""The number of the call, on all machines that Python has wheels for."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    """In pages."""

    _fields_ = (
        ("cached", ctypes.c_uint64),
        ("dirty", ctypes.c_uint64),
        ("written_back", ctypes.c_uint64),
        ("evicted", ctypes.c_uint64),
        ("recently_evicted", ctypes.c_uint64),
    )
    cached: int


def is_in_memory(descriptor: int, offset: int, size: int) -> bool:
    """Whether all of these bytes are; False where the kernel cannot tell."""
    counts = _Counts()
    wanted = _Range(offset, size)
    arguments = (descriptor, ctypes.byref(wanted), ctypes.byref(counts), 0)
    if _syscall is None or _syscall(_CACHESTAT, *arguments):
        return False
    first, last = offset // mmap.PAGESIZE, (offset + size - 1) // mmap.PAGESIZE
    return counts.cached > last - first


def _find_syscall() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    syscall = ctypes.CDLL(None).syscall
    pointer = ctypes.c_void_p
    syscall.argtypes = (ctypes.c_long, ctypes.c_uint, pointer, pointer, ctypes.c_uint)
    syscall.restype = ctypes.c_long
    return syscall


_syscall: Final = _find_syscall()
