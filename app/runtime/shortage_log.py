"""What is lacking now: said once in the log when it begins and once when it ends.

Whoever meets a shortage notes it under a name of its own (`begins`), again and again if it likes,
and takes the note back (`ends`) when the same work succeeds. Any thread.
"""

import logging
import threading
from typing import Final, NamedTuple

from app.domain.shortages import HINTS, Shortage

_LOG: Final = logging.getLogger(__name__)


class Lack(NamedTuple):
    """Work that does not get what it needs."""

    shortage: Shortage
    work: str
    """What is not done meanwhile: "a checkpoint is not written"."""


class ShortageLog:
    """The shortages of one node."""

    def __init__(self) -> None:
        self._lacks: dict[str, Lack] = {}
        self._lock = threading.Lock()

    def begins(self, name: str, shortage: Shortage, work: str) -> None:
        """Note that `name` lacks something. One WARNING for each shortage, not for each name."""
        with self._lock:
            earlier = self._lacks.get(name)
            is_new = all(lack.shortage is not shortage for lack in self._lacks.values())
            self._lacks[name] = Lack(shortage, work)
            ended = self._ended(earlier)
        if ended is not None:
            _LOG.info("%s: that has passed", ended.value)
        if is_new:
            _LOG.warning("%s: %s; %s", shortage.value, work, HINTS[shortage])

    def ends(self, name: str) -> None:
        """Note that `name` lacks nothing any more. One INFO when that is true of all."""
        if name not in self._lacks:
            return
        with self._lock:
            ended = self._ended(self._lacks.pop(name, None))
        if ended is not None:
            _LOG.info("%s: that has passed", ended.value)

    def _ended(self, earlier: Lack | None) -> Shortage | None:
        """The shortage of a note that is gone, when no other note has it."""
        if earlier is None:
            return None
        kept = any(lack.shortage is earlier.shortage for lack in self._lacks.values())
        return None if kept else earlier.shortage

    def now(self) -> tuple[Lack, ...]:
        """What is lacking, one for each name."""
        if not self._lacks:
            return ()
        with self._lock:
            return tuple(self._lacks.values())
