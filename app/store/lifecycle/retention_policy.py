"""What may be deleted, and when writing must stop: decisions only, no I/O.

The log is shared by all topics, so a topic's retention has two parts. Its messages become
unreadable when they are older than the topic keeps them; the bytes go with their segment, when no
topic can read any of it any more. Size and a filling disk take whole segments, whoever still wanted
them. The segment in use is never deleted. (docs/adr/0012)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.domain.names import is_system_topic

FOREVER_MS: Final = 1 << 60

DELETE_SEGMENTS_MAX: Final = 10
"""Segments that one pass deletes at most (RocketMQ's deleteFileBatchMax), unless the disk fills."""

REFUSE_RATIO: Final = 0.90
"""Of the file system: from here on no messages are taken."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What is to be kept. Ratios are of the whole file system, between 0 and 1."""

    default_ms: int = 72 * 3_600_000
    by_topic_ms: Mapping[str, int] = field(default_factory=dict)
    log_bytes_max: int | None = None
    """Size of the whole log; None: as the disk allows."""
    warn_ratio: float = 0.75
    delete_ratio: float = 0.85
    refuse_ratio: float = REFUSE_RATIO

    def __post_init__(self) -> None:
        if not 0 < self.warn_ratio <= self.delete_ratio <= self.refuse_ratio <= 1:
            raise ValueError(
                "the ratios of the disk must rise: warn "
                f"{self.warn_ratio}, delete {self.delete_ratio}, refuse {self.refuse_ratio}"
            )

    def topic_ms(self, topic: str) -> int:
        """How long a topic's messages stay readable; the broker trims its own topics itself."""
        kept_ms = FOREVER_MS if is_system_topic(topic) else self.default_ms
        return self.by_topic_ms.get(topic, kept_ms)


class LogState(NamedTuple):
    """What a decision needs to know. `bases` are the segments, oldest first."""

    bases: Sequence[int]
    segment_bytes: int
    end: int
    """Of what was written; the segment that holds it is in use."""
    first_needed: int
    """Physical offset of the oldest record that some topic can still read."""
    disk_total: int
    disk_free: int
    pinned: int | None = None
    """Physical offset from which a background service needs the log; see `retention_holds`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do now."""

    delete: int
    """Number of segments to delete, from the oldest on."""
    refuse_writes: bool
    warn: bool
    held_back: int = 0
    """Segments that would go and that a pin holds."""


def decide(policy: RetentionPolicy, state: LogState) -> Verdict:
    """Which segments go, by age, size and the disk."""
    size = state.segment_bytes
    full = [base for base in state.bases if base + size <= state.end]
    old = [base for base in full if state.pinned is None or base + size <= state.pinned]
    by_age = sum(base + size <= state.first_needed for base in full)
    by_size = 0
    if policy.log_bytes_max is not None:
        excess = state.end - (full[0] if full else state.end) - policy.log_bytes_max
        by_size = min(len(full), max(-(-excess // size), 0))
    freed = min(max(by_age, by_size), DELETE_SEGMENTS_MAX)
    free = state.disk_free + freed * size
    total = max(state.disk_total, 1)
    while freed < len(full) and 1 - free / total >= policy.delete_ratio:
        freed += 1
        free += size
    wanted, freed = freed, min(freed, len(old))
    used = 1 - min(free - (wanted - freed) * size, total) / total
    return Verdict(freed, used >= policy.refuse_ratio, used >= policy.warn_ratio, wanted - freed)
