"""Putting wrong units of a queue right, from the log between their neighbours.

A unit that was zeroed or points elsewhere is noticed when it is read, by the queue offset inside
the record. The record must lie between those of the neighbouring units, because a queue's records
stand in the log in its order; so a short stretch of the log is read, and every unit found in it is
put right. What is not found there is a damaged record, and is remembered as such.

A block of units that is not what the checkpoint says (`unit_checksums`) is held to its records one
by one, tag hashes included, and repaired in the same way, however far that is to read.

Reader threads only: it waits for the disk.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import Final

from app.domain.limits import MIB
from app.domain.names import is_system_topic
from app.store.damage import DamageKind, Damages
from app.store.formats.files.consume_queue import UNIT
from app.store.formats.record.record import decode_fields, decode_properties
from app.store.lifecycle.dispatcher import has_unit, unit_of
from app.store.log.log_scan import LogScanner
from app.store.queues.consume_queue import ConsumeQueue, Unit
from app.store.read.queue_reads import GAP_CORRUPT, Gap
from app.store.read.record_checks import Source, is_intact

STRETCH_BYTES_MAX: Final = 256 * MIB
NEIGHBOUR_UNITS_MAX: Final = 8192
_DEAD_MAX: Final = 100_000


class UnitRepair:
    """Mends the queues of one store."""

    def __init__(self, source: Source, damages: Damages) -> None:
        self.mended = 0
        """Units that were put right since opening."""
        self.source = source
        self.damages = damages
        self._lock = threading.Lock()
        self._dead: set[tuple[str, int, int]] = set()

    def is_worth_trying(self, queue: ConsumeQueue, gaps: Iterable[Gap]) -> bool:
        """Whether any of `gaps` has not been looked into yet."""
        return any(
            gap.reason == GAP_CORRUPT and (queue.topic, queue.queue_id, offset) not in self._dead
            for gap in gaps
            for offset in range(gap.from_offset, gap.to_offset)
        )

    def mend(self, queue: ConsumeQueue, gaps: Iterable[Gap], confirmed_end: int) -> int:
        """Look into `gaps`; the number of units that were put right."""
        before = self.mended
        for gap in gaps:
            if gap.reason == GAP_CORRUPT:
                self._mend(queue, gap.from_offset, gap.to_offset, confirmed_end)
        return self.mended - before

    def repair(self, queue: ConsumeQueue, first: int, end: int) -> None:
        """Put the wrong ones among the units `[first, end)` of the files right."""
        with self._lock:
            first = max(first, queue.min_offset)
            wrong = [
                offset
                for offset, unit in enumerate(queue.raw_units(first, end), first)
                if not self._is_right(queue, unit, offset)
            ]
            log_end = self.source.log.end_of_segments
            for run in _runs(wrong):
                self._mend(queue, run.start, run.stop, log_end, stretch_max=log_end)

    def _is_right(self, queue: ConsumeQueue, unit: Unit, queue_offset: int) -> bool:
        """Whether a unit says of its record what is so."""
        if not self._is_good(queue, unit, queue_offset):
            return False
        fields = decode_fields(self.source.log.read(unit[0], unit[1]))
        return UNIT.unpack(unit_of(fields, decode_properties(fields.properties))) == unit

    def _mend(
        self,
        queue: ConsumeQueue,
        first: int,
        end: int,
        confirmed_end: int,
        *,
        stretch_max: int = STRETCH_BYTES_MAX,
    ) -> None:
        lower = self._end_of_good(queue, first)
        upper = min(self._start_of_good(queue, end, confirmed_end), confirmed_end)
        missing = set(range(first, end))
        if upper - lower <= stretch_max:
            scanner = LogScanner(self.source.log, unchecked_end=self.source.unchecked_end)
            for position, record in scanner.records(lower):
                if position >= upper or not missing:
                    break
                fields = decode_fields(record)
                if (
                    fields.queue_offset in missing
                    and (fields.topic, fields.queue_id) == (queue.topic, queue.queue_id)
                    and has_unit(fields.system_flag)
                ):
                    pairs = decode_properties(fields.properties)
                    queue.mend(fields.queue_offset, unit_of(fields, pairs))
                    missing.discard(fields.queue_offset)
                    self.mended += 1
        self._tell(queue, range(first, end), missing)
        if len(self._dead) > _DEAD_MAX:
            self._dead.clear()
        self._dead.update((queue.topic, queue.queue_id, offset) for offset in missing)

    def _tell(self, queue: ConsumeQueue, looked_at: range, missing: set[int]) -> None:
        """Count what was put right, and each message that cannot be read when it is met first."""
        name = f"{queue.topic}/{queue.queue_id}"
        mended = len(looked_at) - len(missing)
        if mended:
            what = (
                f"{mended} units of {name} from {looked_at.start} on were wrong and are put right"
            )
            self.damages.note(DamageKind.QUEUE, what)
        new = [at for at in missing if (queue.topic, queue.queue_id, at) not in self._dead]
        if new:
            is_own = is_system_topic(queue.topic)
            kind = DamageKind.SYSTEM_RECORD if is_own else DamageKind.MESSAGE
            what = f"{len(new)} messages of {name} from {min(new)} on cannot be read"
            self.damages.note(kind, what, count=len(new))

    def _end_of_good(self, queue: ConsumeQueue, offset: int) -> int:
        """Behind the record of the nearest good unit before `offset`."""
        first = max(queue.min_offset, offset - NEIGHBOUR_UNITS_MAX)
        for number, unit in reversed(list(enumerate(queue.raw_units(first, offset), first))):
            if self._is_good(queue, unit, number):
                return unit[0] + unit[1]
        return self.source.log.start

    def _start_of_good(self, queue: ConsumeQueue, offset: int, otherwise: int) -> int:
        end = min(queue.max_offset, offset + NEIGHBOUR_UNITS_MAX)
        for number, unit in enumerate(queue.raw_units(offset, end), offset):
            if self._is_good(queue, unit, number):
                return unit[0]
        return otherwise

    def _is_good(self, queue: ConsumeQueue, unit: Unit, queue_offset: int) -> bool:
        log = self.source.log
        if unit[1] <= 0 or not log.start <= unit[0] < log.end_of_segments:
            return False
        record = memoryview(log.read(unit[0], unit[1]))
        return is_intact(self.source, queue, record, unit, queue_offset)


def _runs(offsets: list[int]) -> Iterator[range]:
    """Neighbouring offsets in one piece."""
    start = 0
    for number in range(1, len(offsets) + 1):
        if number == len(offsets) or offsets[number] != offsets[number - 1] + 1:
            yield range(offsets[start], offsets[number - 1] + 1)
            start = number
