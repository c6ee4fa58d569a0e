"""What a store found damaged since it was opened: counted by kind, and said in the log.

Damage is what the node did not do itself: bytes that changed, files that are gone. The write that
a kill interrupts is none: nobody was told that it is safe (docs/adr/0045). A figure never goes
back while the store is open, also when the damage was put right: an operator should hear of it.
Any thread.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from app.domain.limits import DAMAGE_WARNINGS_PER_KIND_MAX

_LOG: Final = logging.getLogger(__name__)


class DamageKind(StrEnum):
    """What is damaged. The texts are labels of `curlew_store_damage_total`."""

    LOG = "log"
    """A stretch of the log that holds no good record; found at opening."""
    SEGMENT = "segment"
    """A segment of the log that is missing or shorter than it was made."""
    TAIL = "tail"
    """Bytes that were cut from the end of the log and may have been acknowledged."""
    MESSAGE = "message"
    """A message of a queue that cannot be read; found by a read."""
    SYSTEM_RECORD = "system_record"
    """The same in a topic of the broker's own state."""
    QUEUE = "queue"
    """Files or units of a queue that were made again from the log."""
    INDEX = "index"
    """A file of the key index that is made again from the log."""
    STATE = "state"
    """A checkpoint, a meta file or its copy."""
    TIMER_LOG = "timer_log"
    """A file of the timer log, which is made again from its topic."""
    STRAY_FILE = "stray_file"
    """A file or directory that is no part of a store; it is left alone."""


class Damages:
    """The damage of one store."""

    def __init__(self) -> None:
        self._counts: Counter[DamageKind] = Counter()
        self._put_right: Counter[DamageKind] = Counter()
        self._lock = threading.Lock()

    def note(self, kind: DamageKind, what: str, *, count: int = 1) -> None:
        """Count a finding, and warn of it unless its kind was warned of often enough.

        `count`: how many of a kind the one text is about.
        """
        with self._lock:
            before = self._counts[kind]
            self._counts[kind] = total = before + count
        if before < DAMAGE_WARNINGS_PER_KIND_MAX:
            _LOG.warning("damage (%s): %s", kind.value, what)
        elif len(str(total)) > len(str(before)):
            _LOG.warning("damage (%s): %d findings by now, the last: %s", kind.value, total, what)

    def counts(self) -> Mapping[str, int]:
        """Findings by kind since the opening; kinds without any are left out."""
        if not self._counts:
            return {}
        with self._lock:
            return {kind.value: self._counts[kind] for kind in DamageKind if self._counts[kind]}

    def put_right(self, kind: DamageKind) -> None:
        """All of a kind that was found so far is as it was. Its count stays."""
        with self._lock:
            self._put_right[kind] = self._counts[kind]

    def left(self) -> Mapping[str, int]:
        """`counts` without what was put right."""
        if not self._counts:
            return {}
        with self._lock:
            left = self._counts - self._put_right
            return {kind.value: left[kind] for kind in DamageKind if left[kind]}

    def sum_up(self) -> None:
        """Say once how much there was of the kinds that were not warned of each time."""
        for kind, count in self.counts().items():
            if count > DAMAGE_WARNINGS_PER_KIND_MAX:
                _LOG.warning("damage (%s): %d findings at opening", kind, count)
