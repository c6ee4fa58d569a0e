"""The newest bytes of the log stay in memory, older ones are let go of: where that is asked.

Linux keeps what was written in its page cache until the memory is wanted elsewhere, so that a log
takes new memory as long as there is any. Where a virtual machine's host takes free memory back, new
memory is dear, ten times what memory costs that was in use just now (docs/adr/0038).
"""

import contextlib
from typing import Final

from app.domain.limits import MIB
from app.store.commit_log import CommitLog

STEP_BYTES: Final = 16 * MIB
"""What is let go of at once, and by how much more than was asked may stay. Linux holds a file in
pieces of up to 2 MiB, and lets go of whole ones only: a step must not end within one."""


class CacheBound:
    """Follows the log. For one thread, which may wait: a step takes about a millisecond."""

    def __init__(self, log: CommitLog, kept_bytes: int, end: int) -> None:
        """`end` of the log now; what is further than `kept_bytes` before it is left as it is."""
        self._log = log
        self._kept_bytes = kept_bytes
        self._start = self._first_kept(end)

    def follow(self, flushed: int) -> None:
        """Let go of what lies more than that before `flushed`, up to which all is on the medium.

        Nothing is wrong when the kernel does not: readers find more in memory.
        """
        start = self._first_kept(flushed)
        if start > self._start:
            with contextlib.suppress(OSError):
                self._log.let_go(self._start, start)
            self._start = start

    def _first_kept(self, end: int) -> int:
        return max(end - self._kept_bytes, 0) // STEP_BYTES * STEP_BYTES
