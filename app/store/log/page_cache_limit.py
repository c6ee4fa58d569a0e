"""The newest bytes of the log stay in memory, older ones are let go of: where that is asked.

Linux keeps what was written in its page cache until the memory is wanted elsewhere, so that a log
takes new memory as long as there is any. Where a virtual machine's host takes free memory back, new
memory is dear, ten times what memory costs that was in use just now (docs/adr/0038).

What is read again and again stays longer, as much again: it would come from the disk each time. Who
follows the log at its end, or behind it by less than half of what stays, reads nothing of that
kind.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from app.domain.limits import MIB
from app.store.log.commit_log import CommitLog

STEP_BYTES: Final = 16 * MIB
"""What is let go of at once, and by how much more than was asked may stay. Linux holds a file in
pieces of up to 2 MiB, and lets go of whole ones only: a step must not end within one."""


class PageCacheLimit:
    """Follows the log. For one thread, which may wait: a step takes about a millisecond."""

    def __init__(self, log: CommitLog, kept_bytes: int, end: int) -> None:
        """`end` of the log now; what is further than `kept_bytes` before it is left as it is."""
        self._log = log
        self._kept_bytes = kept_bytes
        """So much stays that is new, and as much beside it that was read again since so much was
        written."""
        self._end = end
        self._followed = self._behind(end, kept_bytes // 2)
        """Number of the oldest step that is read by who follows the log, not read again."""
        self._first = self._behind(end, kept_bytes)
        """Number of the oldest step that stays because it is new."""
        self._reread: frozenset[int] = frozenset()
        """Older steps that stay because they were read lately."""
        self._read_at: dict[int, int] = {}
        """By number of a step that stays: where the log ended when it was read last."""

    def was_read(self, start: int, size: int) -> None:
        """Note that `size` bytes from `start` on were read, or are about to be. Any thread."""
        for step in range(start // STEP_BYTES, (start + size - 1) // STEP_BYTES + 1):
            if self._first <= step < self._followed or step in self._reread:
                self._read_at[step] = self._end

    def follow(self, flushed: int) -> None:
        """Let go of what lies more than that before `flushed`, up to which all is on the medium.

        Nothing is wrong when the kernel does not: readers find more in memory.
        """
        self._end = flushed
        self._followed = self._behind(flushed, self._kept_bytes // 2)
        first = self._behind(flushed, self._kept_bytes)
        if first > self._first:
            old = [*sorted(self._reread), *range(self._first, first)]
            self._reread = self._read_lately(old, flushed)
            self._first = first
            self._let_go([step for step in old if step not in self._reread])

    def _read_lately(self, steps: Iterable[int], end: int) -> frozenset[int]:
        """Those read last, as far as they were read lately and may stay."""
        since = end - self._kept_bytes
        lately = [step for step in steps if self._read_at.get(step, since) > since]
        lately.sort(key=self._read_at.__getitem__, reverse=True)
        return frozenset(lately[: self._kept_bytes // STEP_BYTES])

    def _let_go(self, steps: Sequence[int]) -> None:
        """Ascending ones; those that follow each other in one call."""
        start = 0
        for index, step in enumerate(steps):
            self._read_at.pop(step, None)
            if index + 1 == len(steps) or steps[index + 1] != step + 1:
                with contextlib.suppress(OSError):
                    self._log.let_go(steps[start] * STEP_BYTES, (step + 1) * STEP_BYTES)
                start = index + 1

    @staticmethod
    def _behind(end: int, distance: int) -> int:
        """Number of the step so many bytes before the end; the first one when there are fewer."""
        return max(end - distance, 0) // STEP_BYTES


def bound_cache(log: CommitLog, kept_bytes: int | None, end: int) -> PageCacheLimit | None:
    """Bound what stays in memory of a log that goes on at `end`; None: as the kernel decides."""
    if kept_bytes is None:
        return None
    cache = PageCacheLimit(log, kept_bytes, end)
    log.on_read = cache.was_read
    return cache
