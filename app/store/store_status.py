"""What a look at a store tells. Values only."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from app.runtime.shortage_log import Lack
from app.store.lifecycle.recovery import Recovery


class QueueBounds(NamedTuple):
    """Readable offsets of a queue, half-open."""

    min_offset: int
    max_offset: int


class StoreStatus(NamedTuple):
    """A look at the store. Ends are physical offsets, sizes bytes."""

    failed: str | None
    """Why no write is taken until a restart."""
    refusal: str | None
    """Why no message is taken for now: the disk is full, here or at other replicas."""
    start: int
    written_end: int
    flushed_end: int
    confirmed_end: int
    segments: int
    pending_bytes: int
    queues: int
    recovery: Recovery
    lacks: tuple[Lack, ...] = ()
    """What is not done for now because the machine lacks something."""
    damages: Mapping[str, int] = MappingProxyType({})
    """What was found damaged since the opening, by kind (`damage.DamageKind`)."""
    damages_left: Mapping[str, int] = MappingProxyType({})
    """The same without what was put right from another replica."""
    clock_lead_ms: int = 0
    """How far the newest store time is ahead of the wall clock, beyond `STORE_TIME_LEAD_MS_MAX`;
    0: it is not."""
    clock_jump_ms: int = 0
    """How far the wall clock has jumped ahead of the time by which messages grow old."""
    refusal_here: str | None = None
    """The same as `refusal`, of the disk of this node alone."""
