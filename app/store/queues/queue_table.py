"""All consume queues of a store, by topic and queue id. Event loop only."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from app.store.formats.files.state_file import QueueState
from app.store.fs.file_cache import OPEN_FILES_MAX, FileCache
from app.store.fs.files import FileSystem
from app.store.queues.consume_queue import ConsumeQueue, Repair


class QueueTable:
    """Makes queues on their first message and keeps them."""

    def __init__(
        self, files: FileSystem, file_units: int, open_files_max: int = OPEN_FILES_MAX
    ) -> None:
        self.cache = FileCache(files, open_files_max)
        self._file_units = file_units
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._of_topic: dict[str, list[ConsumeQueue]] = {}
        self.repair: Repair = lambda _queue, _first, _end: None
        """Called for a block of units that is not what the checkpoint says."""
        self.fault: str | None = None
        """Why confirmed messages are not in their queue: no checkpoint may count on the queues."""

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def topics(self) -> Iterable[str]:
        """Names of topics that have ever had a message."""
        return self._of_topic.keys()

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when no message was ever stored in it."""
        return self._queues.get((topic, queue_id))

    def get_or_make(self, topic: str, queue_id: int, *, first_offset: int = 0) -> ConsumeQueue:
        """The queue; a new one begins at `first_offset`."""
        queue = self.find_or_new(topic, queue_id, first_offset=first_offset)
        if not queue.number:
            self.enter(queue)
        return queue

    def find_or_new(self, topic: str, queue_id: int, *, first_offset: int = 0) -> ConsumeQueue:
        """The queue; a new one begins at `first_offset`, and is in the table from `enter` on."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = ConsumeQueue(self.cache, topic, queue_id, self._file_units, self._repair)
            queue.begin(first_offset, first_offset)
        return queue

    def enter(self, queue: ConsumeQueue) -> None:
        """Keep a new queue: it has a message, or its bounds are known."""
        assert not queue.number
        queue.number = len(self._queues) + 1
        self._queues[queue.topic, queue.queue_id] = queue
        self._of_topic.setdefault(queue.topic, []).append(queue)

    def fail(self, tell: Callable[[str], object], reason: str) -> None:
        """Take note that confirmed messages are not in their queue, and tell the store."""
        self.fault = reason
        tell(reason)

    def of_topic(self, topic: str) -> Sequence[ConsumeQueue]:
        """The queues of a topic that have ever had a message."""
        return self._of_topic.get(topic, ())

    def _repair(self, queue: ConsumeQueue, first: int, end: int) -> None:
        self.repair(queue, first, end)

    def states(self) -> tuple[QueueState, ...]:
        """All queues for a checkpoint, as far as their units are in files."""
        return tuple(queue.state() for queue in self._queues.values())

    def load(self, states: Iterable[QueueState], dispatched_end: int) -> list[QueueState]:
        """Take the queues of a checkpoint; those whose files are not what it says.

        The latter are empty now and must be dispatched again from the start of the log: taking a
        damaged last unit off would give its offset to another message.
        """
        lost: list[QueueState] = []
        for state in states:
            queue = self.get_or_make(state.topic, state.queue_id)
            is_known = queue.resume(state)
            good = queue.has_files() and (is_known or _ends_well(queue))
            if good and not is_known:
                good = _ends_below(queue, dispatched_end)
            if not good:
                lost.append(state)
                queue.begin(state.min_offset, state.min_offset)
            elif not is_known:
                queue.adopt()
        return lost


def _ends_well(queue: ConsumeQueue) -> bool:
    """Whether the last unit was written at all."""
    if queue.max_offset == queue.min_offset:
        return True
    return queue.units(queue.max_offset - 1, queue.max_offset)[0][1] > 0


def _ends_below(queue: ConsumeQueue, dispatched_end: int) -> bool:
    """Whether no unit points behind `dispatched_end`."""
    if queue.max_offset == queue.min_offset:
        return True
    ((physical_offset, size, _tag_hash),) = queue.units(queue.max_offset - 1, queue.max_offset)
    return physical_offset + size <= dispatched_end
