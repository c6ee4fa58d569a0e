"""Writing the floors of topics down, and reading them back: the I/O of `topic_floors`.

An entry is appended in the turn in which the state changes, so it stands in the log before every
message of the generation that it begins, and behind every one of a generation that it ends. Event
loop only.
"""

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol

from app.domain.errors import CurlewError
from app.domain.limits import MIB
from app.domain.message import Message, StoredMessage
from app.domain.names import FLOORS_TOPIC
from app.domain.positions import FlushMode
from app.store.queues.consume_queue import ConsumeQueue
from app.store.queues.queue_table import QueueTable
from app.store.read.queue_reads import ReadResult
from app.store.topics.topic_floors import (
    ENTRIES_MAX,
    QUEUE,
    TopicFloors,
    TopicState,
    decode_state,
    encode_state,
)
from app.store.write.appender import Appender, StepPart
from app.store.write.blocks import Done

_READ_MESSAGES: Final = 4_096
_READ_BYTES: Final = 4 * MIB

_STATES_A_TURN: Final = 2_048
"""States that are written in one turn when all are; 5 to 10 ms."""

_STEP_BYTES: Final = 64 * 1024
"""Aim for the size of a step of entries, where segments are not smaller."""


class Records(Protocol):
    """A store's records, to be read while it opens."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]: ...

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        wait_for_disk: bool,
    ) -> ReadResult: ...

    def decode(self, record: memoryview) -> StoredMessage: ...


class FloorJournal:
    """The entries of one store's floors."""

    def __init__(self, floors: TopicFloors, appender: Appender, queues: QueueTable) -> None:
        self.floors = floors
        self._appender = appender
        self._queues = queues
        self._entries = 0
        self._written_at = 0
        """End of the log when all states were written last."""
        self._is_writing = False
        self._is_closed = False
        self._lock = threading.Lock()
        self._risen = 0
        """How often queues have come to begin later than the log said."""
        self._written = 0
        """So many of these times the log says, or `floors.unwritten` has it."""
        self._rest: Iterator[str] | None = None
        """The topics that were not looked at since it was asked for `_looked_for` of these times;
        None: nothing is asked for. A topic has its turn again behind all others, so those whose
        queues rise all the time keep none away."""
        self._looked_for = 0
        self.told = 0
        """So many of these times are confirmed. Read by any thread."""

    def note_risen(self) -> int:
        """Some queues begin later than the log says; a number that `told` reaches when it says so,
        confirmed. Any thread."""
        with self._lock:
            self._risen += 1
            return self._risen

    def close(self) -> None:
        """The writer is about to stop: go on with nothing."""
        self._is_closed = True

    def start(self, records: Records, from_offset: int = 0) -> None:
        """Take the entries of the log, before anything is readable. The states have those below
        `from_offset`.

        Those that are damaged are passed over: what they said of queues, the checkpoint says too.
        """
        first, end = records.bounds(FLOORS_TOPIC, QUEUE)
        self._entries, offset = end - first, max(first, from_offset)
        while offset < end:
            read = records.read(
                FLOORS_TOPIC,
                QUEUE,
                offset,
                max_messages=_READ_MESSAGES,
                max_bytes=_READ_BYTES,
                wait_for_disk=True,
            )
            for record in read.records:
                self.floors.take(decode_state(records.decode(record).body))
            offset = max(read.next_offset, offset + 1)
        self.floors.start()

    # --- changes

    def bind(self, queue: ConsumeQueue, generation: int) -> None:
        """Let the queue take messages of this generation. Raises `TopicNotFound` when it is gone,
        and what an append raises."""
        state = self.floors.bind(queue, generation)
        if state is not None:
            self._append([state], _ignore)

    def begin(self, topic: str, generation: int) -> None:
        """Let a generation begin before its first message. Raises as `bind`."""
        state = self.floors.begin(topic, generation)
        if state is not None:
            self._append([state], _ignore)

    def end(self, topic: str, generation: int, done: Done) -> bool:
        """End a generation; False when it is gone already, and `done` is not called then."""
        state = self.floors.end(topic, generation)
        if state is not None:
            self._append([state], done)
        return state is not None

    # --- upkeep

    def renew(self, done: Done) -> bool:
        """Write all states anew when the entries hold a segment that retention may want to delete;
        `done` is called when they hold it no more. False: they are few, and `done` is not called.
        """
        if not self._is_due() or self._is_writing:
            return False
        self._write_all(done)
        return True

    def turn(self) -> None:
        """Write again what could not be written, where queues begin that have lost messages, and
        all states when many lie in the log."""
        try:
            unwritten = [*map(self.floors.state, self.floors.unwritten)]
            if unwritten:
                self._append(unwritten, _ignore)
            risen = self._next_risen()
            if risen:
                self._append(risen, partial(self._are_told, self._written))
        except CurlewError:
            return  # no room, or too much is waiting: the next turn tries again
        if not (self.floors.unwritten or self.floors.unconfirmed):
            self.told = max(self.told, self._written)
        if self._is_due() and not self._is_writing:
            self._write_all(_ignore)

    def _next_risen(self) -> list[TopicState]:
        """The states that are written in this turn; `_written` has what is whole with them."""
        if self._rest is None:
            if self._written == self._risen:
                return []
            self._rest, self._looked_for = iter(self.floors.names()), self._risen
        risen = self.floors.risen(self._rest, _STATES_A_TURN)
        if len(risen) < _STATES_A_TURN:
            self._rest, self._written = None, self._looked_for
        return risen

    def _are_told(self, noted: int, error: CurlewError | None) -> None:
        """What rises all the time, as trims do, keeps nobody waiting: the log is confirmed in its
        order, so all that was noted before is."""
        if error is None:
            self.told = max(self.told, noted)

    def _is_due(self) -> bool:
        if not self._entries:
            return False
        is_long = self._entries > 2 * len(self.floors) + ENTRIES_MAX
        return is_long or self._appender.end - self._written_at > self._appender.segment_bytes

    def _write_all(self, told: Done) -> None:
        """The states as they are, some in each turn, then let go of the entries before them. One
        that changes meanwhile has a newer entry, which says the same or is written after it."""
        queue = self._queues.get_or_make(FLOORS_TOPIC, QUEUE)
        first, before = queue.next_offset, (self._entries, self._written_at)
        names = iter([state.topic for state in self.floors.states()])
        self._is_writing = True
        self._entries, self._written_at = 0, self._appender.end

        def go_on(error: CurlewError | None) -> None:
            if self._is_closed:
                return
            if error is None:
                try:
                    states = [*map(self.floors.state, islice(names, _STATES_A_TURN))]
                    if states:
                        self._append(states, go_on)
                        return
                except CurlewError as refused:
                    error = refused
            self._is_writing = False
            if error is None:
                queue.expire_below(min(first, queue.max_offset))
            else:  # the next turn tries again
                self._entries, self._written_at = self._entries + before[0], before[1]
            told(error)

        go_on(None)

    def _append(self, states: Sequence[TopicState], done: Done) -> None:
        """In steps; `done` hears of the last one, which fails when one before it does."""
        unconfirmed = self.floors.unconfirmed
        steps = _steps(states, min(_STEP_BYTES, self._appender.segment_bytes // 4))
        try:
            for number, step in enumerate(steps, 1):
                told = done if number == len(steps) else _ignore
                part = StepPart(FLOORS_TOPIC, QUEUE, [Message(encode_state(each)) for each in step])
                self._appender.append_step((part,), FlushMode.SYNC, self._noting(step, told))
                self._entries += len(step)
                for state in step:
                    unconfirmed[state.topic] = unconfirmed.get(state.topic, 0) + 1
        except CurlewError:
            for state in states:
                self.floors.not_written(state.topic)
            raise

    def _noting(self, states: Sequence[TopicState], done: Done) -> Done:
        for state in states:
            self.floors.unwritten.pop(state.topic, None)

        def noted(error: CurlewError | None) -> None:
            for state in states:
                self.floors.confirmed(state.topic)
                if error is not None:
                    self.floors.not_written(state.topic)
            done(error)

        return noted


def _steps(states: Sequence[TopicState], step_bytes: int) -> list[list[TopicState]]:
    steps: list[list[TopicState]] = []
    size = step_bytes
    for state in states:
        cost = 160 + len(state.topic) + 12 * len(state.floors)
        if size + cost > step_bytes:
            steps.append([])
            size = 0
        steps[-1].append(state)
        size += cost
    return steps


def _ignore(_error: CurlewError | None) -> None:
    """What could not be written is written again by the next turn."""
