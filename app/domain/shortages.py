"""What a machine may run out of for a while, and how a failed call says so. Pure.

The one place that tells these errors from faults of the disk. A shortage passes: what it stopped is
refused or tried again, and goes on when there is enough. Anything else that a disk answers (EIO,
EROFS, …) is a fault, and every sync that failed is one, whatever its errno: the kernel may have
dropped what it could not write.
"""

import errno
from collections.abc import Mapping
from enum import Enum
from typing import Final


class Shortage(Enum):
    """What there is too little of. The value completes a sentence."""

    ROOM = "the disk has no room"
    DESCRIPTORS = "no more files can be opened"
    MEMORY = "the kernel has no memory"
    TIME = "the call was interrupted"


class SyncFailed(OSError):
    """A sync failed: what was written since the last one may be lost. Never a shortage."""


_SHORTAGES: Final[Mapping[int, Shortage]] = {
    errno.ENOSPC: Shortage.ROOM,
    errno.EDQUOT: Shortage.ROOM,
    errno.EMFILE: Shortage.DESCRIPTORS,
    errno.ENFILE: Shortage.DESCRIPTORS,
    errno.ENOMEM: Shortage.MEMORY,
    errno.ENOBUFS: Shortage.MEMORY,
    errno.EINTR: Shortage.TIME,
}

HINTS: Final[Mapping[Shortage, str]] = {
    Shortage.ROOM: "free some space (or raise the quota) or shorten the retention; it then works "
    "again by itself",
    Shortage.DESCRIPTORS: "raise the limit of open files (`ulimit -n`) or close connections; it "
    "then works again by itself",
    Shortage.MEMORY: "give the node more memory; it then works again by itself",
    Shortage.TIME: "try again",
}
"""What to do about each."""


def shortage_of(error: BaseException) -> Shortage | None:
    """What was lacking, so that the same call may succeed later; None: a fault, or no such error.

    Only when what was half done is undone or done again from its beginning.
    """
    if isinstance(error, MemoryError):
        return Shortage.MEMORY
    if isinstance(error, OSError) and not isinstance(error, SyncFailed) and error.errno is not None:
        return _SHORTAGES.get(error.errno)
    return None
