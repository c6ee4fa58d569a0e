"""Where a group begins in the queues of a topic, what it has committed there, and commits that move
it on. What clients hold of the group's messages is not here: `Groups` tells the subscriptions.

A subscription begins at the group's committed offsets; a queue without one at the first message, if
the group has committed others of the topic (the queue was added later), else where the group's
`start` says. What was decided is committed, so that a restart does not decide again. Offsets are
moved in the log first; the offset cache, and SQL behind it, hear of it when the log has it. Event
loop only.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Final

from app.broker.context import Context
from app.broker.journal.append_future import AppendFuture
from app.broker.leasing.consumer_journal import ConsumerJournal
from app.broker.lifecycle.name_room import NameRoom
from app.broker.ports import Group, Topic
from app.broker.progress.offset_cache import OffsetCache
from app.broker.progress.progress_entries import Key, Placed, Skipped
from app.broker.read.start_offsets import GroupStarts
from app.broker.results import QueuePosition
from app.broker.topic_lookup import check_current
from app.domain.errors import CurlewError, DiskFull, OffsetOutOfRange, SystemBusy
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.names import retry_topic
from app.domain.positions import CommittedOffset, FlushMode
from app.domain.settings import GroupMode, StartPosition
from app.store import QueueBounds

_ROOM_ENOUGH: Final = nullcontext()


class CommittedOffsets:
    """Committed offsets of all groups and topics. One per broker."""

    def __init__(
        self,
        context: Context,
        offset_cache: OffsetCache,
        consumer_journal: ConsumerJournal,
        name_room: NameRoom,
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self.cache = offset_cache
        self.journal = consumer_journal
        self._name_room = name_room
        self._starts = GroupStarts(context)
        self.deleting: dict[tuple[str, str], AppendFuture] = {}
        """(group, topic) → a deletion of the progress that is being written down."""
        self._placing: dict[tuple[str, str], AppendFuture] = {}
        """(group, topic) → where the group begins to read by offset is being written down."""

    # --- what is committed

    def committed(self, group: str, topic: str) -> list[QueuePosition]:
        """By queue, in the queues of this node's shard that have an offset."""
        offsets = self.cache.committed_here(group, topic)
        return [QueuePosition(queue, offset) for queue, offset in sorted(offsets.items())]

    def check_commit(self, topic: Topic, rows: Sequence[QueuePosition]) -> None:
        """Raise unless all offsets lie within their queues, end included."""
        for queue_id, offset in rows:
            self._check_commit(topic.name, queue_id, offset)

    def _check_commit(self, topic: str, queue_id: int, offset: int) -> None:
        bounds = self._store.bounds(topic, queue_id)
        if not 0 <= offset <= bounds.max_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of queue {queue_id} cannot be committed;"
                f" the end is {bounds.max_offset}",
                hint="commit the offset after the last message that was processed",
                fields={"queue_id": queue_id, "offset": offset, **bounds._asdict()},
            )

    def committed_after(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """What would be committed in the queue after a commit."""
        state = self.journal.find((group, topic, queue_id))
        if state is None:
            return offset
        progress = state.progress.copy()
        progress.skip_to(offset)
        return progress.committed

    # --- where a group begins

    async def starts(self, group: Group, topic: Topic, *, is_kept: bool = False) -> list[int]:
        """As `positions`; nothing is kept, or with `is_kept` the time of the first use alone."""
        if group.mode is GroupMode.BROADCAST:
            bounds = [self._store.bounds(topic.name, queue) for queue in range(topic.queues)]
            return await self.offsets_at(topic.name, bounds, group.start)
        return await self.start_offsets(group, topic, is_kept=is_kept)

    async def positions(self, group: Group, topic: Topic) -> list[int]:
        """Per queue, where a reader of the group begins. What had to be decided is kept at once,
        or a crash would decide it again, later; in a broadcast group the clients keep it."""
        offsets = await self.starts(group, topic, is_kept=True)
        if group.mode is GroupMode.BROADCAST:
            return offsets
        check_current(self._metadata, topic, group)
        known = self.cache.committed(group.name, topic.name)
        if any(queue_id not in known for queue_id in range(topic.queues)):
            await self._begin_reading(group, topic, offsets)
        return offsets

    async def start_offsets(self, group: Group, topic: Topic, *, is_kept: bool = True) -> list[int]:
        """Per queue, where a subscription begins; `is_kept`: its first use is remembered."""
        committed = {
            **self._known_to_log(group, topic),
            **self.cache.committed(group.name, topic.name),
        }
        bounds = [self._store.bounds(topic.name, queue) for queue in range(topic.queues)]
        if not committed:
            return await self._starts.of(group, topic, bounds, is_kept=is_kept)
        return [min(committed.get(queue, low), high) for queue, (low, high) in enumerate(bounds)]

    def _known_to_log(self, group: Group, topic: Topic) -> dict[int, int]:
        """Queue → offset. The book forgets what is missing in SQL, which may come back."""
        if not self.journal.is_bound(group, topic):
            return {}
        keys = [(group.name, topic.name, queue) for queue in range(topic.queues)]
        found = [(key[2], self.journal.find(key)) for key in keys]
        return {
            queue: state.progress.committed
            for queue, state in found
            if state is not None and not state.moves
        }

    async def offsets_at(
        self, topic: str, bounds: Sequence[QueueBounds], start: StartPosition
    ) -> list[int]:
        """Per queue, the offset that `start` means now."""
        return await self._starts.at(topic, bounds, start)

    def place(self, group: str, topic: str, offsets: Mapping[int, int]) -> AppendFuture | None:
        """Let queues of which nothing is known begin at their offsets.

        So does one of which more is known than the log has, after a loss of power.
        """
        new = self._without_place(group, topic, offsets)
        rows = [(topic, queue_id, offset) for queue_id, offset in new.items()]
        return self.journal.place(group, rows, FlushMode.ASYNC) if rows else None

    def _without_place(self, group: str, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Those of queues that have to begin there."""
        new: dict[int, int] = {}
        for queue_id, offset in offsets.items():
            state = self.journal.find((group, topic, queue_id))
            if queue_id == RETRY_QUEUE_ID:
                bounds = self._store.bounds(retry_topic(group, topic), 0)
            else:
                bounds = self._store.bounds(topic, queue_id)
            if state is None or state.end > bounds.max_offset:
                new[queue_id] = offset
        return new

    async def _begin_reading(self, group: Group, topic: Topic, offsets: Sequence[int]) -> None:
        """Write down where a group begins that reads by offset. Without room the log is told when
        there is some, before it is told of any other message."""
        self.check_room(group, topic)
        known = self.cache.committed(group.name, topic.name)
        places = {queue: at for queue, at in enumerate(offsets) if queue not in known}
        try:
            self.journal.bind(group, topic)
        except DiskFull:  # the place waits as well, and is to come behind
            self.journal.bind(group, topic, may_wait=True)
        pair = group.name, topic.name
        new = self._without_place(*pair, places)
        if new:
            placed = self.journal.place_reader(*pair, new)
            if placed is not None:
                self._placing[pair] = placed
        await self._until_placed(pair)
        for queue_id, offset in places.items():
            self.cache.advance((group.name, topic.name, queue_id), offset)
        await self.cache.write()

    async def _until_placed(self, pair: tuple[str, str]) -> None:
        """The log has where the group begins to read, or has refused it and is told again."""
        placed = self._placing.get(pair)
        if placed is None:
            return
        with contextlib.suppress(DiskFull, SystemBusy):
            await placed.wait()
        if self._placing.get(pair) is placed:
            del self._placing[pair]

    # --- room, and generations

    def check_room(self, group: Group, topic: Topic) -> None:
        """Raise `StateConflict` when the group may not begin in one more topic. To be called in the
        turn in which it begins."""
        with self.room(group, (topic,)):
            pass

    def room(self, group: Group, topics: Iterable[Topic]) -> AbstractContextManager[None]:
        """Keep room for the group to begin in all of the topics, or raise `StateConflict` when it
        is entered. Costs little where the group has begun."""
        begins = [each for each in topics if not self.cache.has_begun(group.name, each.name)]
        if not begins or group.mode is GroupMode.BROADCAST:
            return _ROOM_ENOUGH
        return self._room(group.name, begins)

    @contextmanager
    def _room(self, group: str, topics: Iterable[Topic]) -> Iterator[None]:
        with ExitStack() as held:
            for topic in topics:
                if not self.cache.begins(group, topic.name):
                    self._name_room.check_retries(group, topic.name)
                held.enter_context(self.cache.room(group, topic, self._limits))
            yield

    def bind(self, group: Group, topic: Topic) -> None:
        """Before the log is told of offsets: they are of these generations."""
        self.check_room(group, topic)
        self.journal.bind(group, topic)

    # --- moves

    def commit(
        self,
        group: Group,
        topic: Topic,
        rows: Sequence[QueuePosition],
        refused: Callable[[Key], None],
    ) -> AppendFuture:
        """Everything below these offsets is done; lower ones change nothing. On its way to the
        log; `OffsetCache` brings it to SQL. `refused` is given each queue of which the log has
        refused it. Raises `TopicNotFound` or `GroupNotFound` when one was deleted since it was
        looked up. `until_deleted` before."""
        check_current(self._metadata, topic, group)
        self.bind(group, topic)
        entry = Skipped(group.name, [(topic.name, queue_id, offset) for queue_id, offset in rows])

        def moved(key: Key, committed: int, error: CurlewError | None) -> None:
            """SQL hears of nothing that the log does not have."""
            if error is None:
                self.cache.advance(key, committed)
            else:
                refused(key)
                self._go_back(key)

        return self.journal.move(entry, topic.flush, moved)

    def reset(
        self, group: str, rows: Sequence[CommittedOffset], refused: Callable[[Key], None]
    ) -> AppendFuture:
        """Set offsets in the log, forwards or backwards; who resets tells the offset cache.
        `refused` as of `commit`. `bind` and `until_deleted` before."""
        places = [(row.topic, row.queue_id, int(row.offset)) for row in rows]

        def moved(key: Key, _committed: int, error: CurlewError | None) -> None:
            if error is not None:
                refused(key)
                self._go_back(key)

        return self.journal.move(Placed(group, places), FlushMode.SYNC, moved)

    def _go_back(self, key: Key) -> None:
        """The log has refused to move the queue: nothing ahead of it is committed."""
        group, topic, queue_id = key
        state = self.journal.find(key)
        if state is not None and self.cache.committed(group, topic).get(queue_id, 0) > (
            state.progress.committed
        ):
            self.cache.correct(key, state.progress.committed)

    # --- deletion

    def delete(self, group: str, topic: str) -> AppendFuture:
        """Have the log forget what the group has done in the topic. The offset cache was told; it
        knows the offsets again when the log refuses. `until_deleted` before."""

        def deleted(error: CurlewError | None) -> None:
            del self.deleting[group, topic]
            if error is None:
                self.journal.delete_retries(group, topic)
            else:
                self._remember(group, topic)

        try:
            written = self.journal.unsubscribe(group, topic, deleted)
        except CurlewError:
            self._remember(group, topic)
            raise
        self.deleting[group, topic] = written
        return written

    async def until_deleted(self, group: str, topic: str) -> None:
        """A deletion of the group's progress in the topic is over, or was refused."""
        deleting = self.deleting.get((group, topic))
        if deleting is not None:
            with contextlib.suppress(CurlewError):
                await deleting.wait()

    def _remember(self, group: str, topic: str) -> None:
        """The log has refused to forget the group's progress: the book knows it again."""
        for name, queue_id, state in self.journal.of_group(group):
            if name == topic and queue_id != RETRY_QUEUE_ID:
                self.cache.correct((group, topic, queue_id), state.progress.committed)
