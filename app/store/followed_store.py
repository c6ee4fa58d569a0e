"""What of a replica may be read while it follows: confirmed messages, of topics that live.

Its queues have nothing beyond the high watermark, so no read goes beyond it either. Which
generation of a topic they hold, and where it begins, the entries of the floors say. They are taken
as they are dispatched, and what is read meanwhile is not given out: it might be of another
generation than who reads has asked for.

`hold`, `take_floors` and `shut` belong to the replica's thread, all else to the event loop and its
reader threads. The event loop never waits here.
"""

import threading
from collections.abc import Sequence
from typing import Final

from app.domain.limits import MIB
from app.domain.names import FLOORS_TOPIC
from app.store.damage import DamageKind
from app.store.lifecycle.store_parts import StoreParts
from app.store.read.queue_reads import Gap
from app.store.readable_queues import ReadableQueues
from app.store.timers.timer_log import TimerLog
from app.store.topics.topic_floors import QUEUE, TakenFloors, TopicFloors, decode_state

_ENTRIES_A_TURN: Final = 1_024
_BYTES_A_TURN: Final = 4 * MIB


class FollowedStore(ReadableQueues):
    """Of one opening of a replica's store, until `shut`."""

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        self._floors = TopicFloors(parts.queues)
        self._files, self._damages = parts.files, parts.repair.damages
        self._taken = self.bounds(FLOORS_TOPIC, QUEUE).min_offset
        """Entries below are in `_floors`, or were passed over."""
        self._whole_to: int | None = None
        """Some entry from here on was passed over, and may have been put right since; None: none.
        """
        self._changed = threading.Condition()
        self._reading_count = 0
        self._turn = 0
        """Raised when what is being read may not be given out."""
        self._is_held = True
        self._is_shut = False

    # --- the replica's thread

    def hold(self) -> None:
        """Entries of the floors are about to be dispatched."""
        with self._changed:
            self._is_held = True
            self._turn += 1

    def take_floors(self) -> bool:
        """Take some of the entries that are dispatched; whether there are more. Waits for the disk;
        raises `OSError`, or `ShardUnavailable` where another replica may have a damaged one. What
        none has is passed over, and counted as damage."""
        end = self.bounds(FLOORS_TOPIC, QUEUE).max_offset
        if self._taken < end:
            read = self.read(
                FLOORS_TOPIC,
                QUEUE,
                self._taken,
                max_messages=_ENTRIES_A_TURN,
                max_bytes=_BYTES_A_TURN,
                wait_for_disk=True,
            )
            for record in read.records:
                self._floors.take(decode_state(self.decode(record).body))
            self._note_lost(read.gaps)
            after = max(read.next_offset, self._taken + 1)
            if self._whole_to is None and len(read.records) < after - self._taken:
                self._whole_to = self._taken
            self._taken = after
        has_more = self._taken < end
        if self._is_held and not has_more:
            with self._changed:
                self._is_held = False
        return has_more

    def hand_over(self) -> TakenFloors:
        """For who begins to lead over the same parts: it is shut, and takes no more. What was
        passed over is read again, with all behind it."""
        whole_to = self._taken if self._whole_to is None else self._whole_to
        return TakenFloors(self._floors, whole_to)

    def timer_log(self) -> TimerLog:
        """The timer log beside this store, for one owner."""
        return TimerLog(self._files, damages=self._damages)

    def _note_lost(self, gaps: Sequence[Gap]) -> None:
        for first, end, _ in gaps:
            what = f"entries {first} to {end} of {FLOORS_TOPIC} cannot be read"
            self._damages.note(DamageKind.SYSTEM_RECORD, what, count=end - first)

    def shut(self) -> None:
        """Let nobody begin to read any more, and wait for those who do. Idempotent."""
        with self._changed:
            self._is_shut = True
            self._turn += 1
            self._changed.wait_for(lambda: not self._reading_count)

    # --- the event loop

    def begin(self, topic: str, generation: int) -> int | None:
        """Begin to read this generation of a topic: a number for `end`. None: it is not known to
        live here, or nothing may be read now."""
        with self._changed:
            is_readable = not (self._is_shut or self._is_held)
            if not is_readable or self._floors.generation(topic) != generation:
                return None
            self._reading_count += 1
            return self._turn

    def end(self, turn: int) -> bool:
        """Who has begun has read; whether it may be given out."""
        with self._changed:
            self._reading_count -= 1
            self._changed.notify_all()
            return turn == self._turn
