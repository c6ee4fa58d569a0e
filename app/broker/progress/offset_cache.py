"""Committed offsets of all groups: in memory now, in SQL within a second.

SQL gets a copy of the committed offsets, for operators and tools; the durable ones are in the log
(`consumer_journal`), and nobody believes the copy: it is compared with the log at the start, and
written. The cache takes over the progress of leases when it is written to SQL
(`track`), and commits of clients at once (`advance`). While the database is down the rows stay
dirty, the next turn tries again, and `problem` says why. Event loop only.

Invariant: an offset goes back only through `force` and `correct`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from app.broker.ports import Metadata, Topic
from app.domain.errors import CurlewError, StateConflict
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.limits import Limits
from app.domain.positions import CommittedOffset, QueueOffset

_LOG: Final = logging.getLogger(__name__)
_SHOWN: Final = 20
"""Queues that one line of the log lists."""

Key = tuple[str, str, int]


class Tracked(Protocol):
    """Somebody whose committed offset moves: a leased queue."""

    @property
    def key(self) -> Key:
        """(group, topic, queue id)"""
        ...

    @property
    def committed(self) -> int: ...

    @property
    def unconfirmed(self) -> int:
        """Requests whose acks are in `committed`, and not in the log yet. Each advances when it
        is there."""
        ...


class OffsetCache:
    """One per broker."""

    def __init__(self, metadata: Metadata) -> None:
        self.problem: str | None = None
        """Why the last write failed; None when it did not."""
        self._metadata = metadata
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._dirty: set[Key] = set()
        self._forced: set[Key] = set()
        """Those of the dirty ones that may go back."""
        self._unbelieved: set[Key] = set()
        """Of which SQL may say more than the log: the next write of them may go back."""
        self._tracked: set[Tracked] = set()
        self._readers: Counter[str] = Counter()
        """Topic → groups that have an offset in it."""
        self._held: Counter[tuple[str, str]] = Counter()
        """(group, topic) for which room is kept, and how many keep it."""
        self._raised: dict[str, list[int]] = {}
        """Topic → how many queues it is about to have, by each change that is under way."""
        self._writing = asyncio.Lock()

    async def read_copy(self) -> dict[Key, int]:
        """What SQL says of the queues of this shard, for `begin`."""
        rows = await self._metadata.load_offsets()
        found = {(row.group, row.topic, row.queue_id): row.offset for row in rows}
        return {key: offset for key, offset in found.items() if self._is_here(key)}

    def _is_here(self, key: Key) -> bool:
        """Whether the queue is in this node's shard: each writes the copy of its own offsets."""
        return _is_of(self._metadata.snapshot.topics.get(key[1]), key[2])

    def begin(self, known: Iterable[tuple[Key, int]], copy: Mapping[Key, int]) -> None:
        """Take the offsets that the log has; the next write brings the copy in SQL up to date.

        What only SQL has is no offset. It stays there until the group begins in that queue.
        """
        self._unbelieved = set(copy)
        for key, offset in known:
            self._of(key[0], key[1])[key[2]] = offset
            self._unbelieved.discard(key)
            if copy.get(key) != offset:
                self._dirty.add(key)
                self._forced.add(key)
        if self._unbelieved:
            shown = ", ".join(f"{g} in {t}/{q}" for g, t, q in sorted(self._unbelieved)[:_SHOWN])
            _LOG.warning(
                "the metadata database has committed offsets of %d queues of which the log knows"
                " nothing; they do not count: %s%s",
                *(len(self._unbelieved), shown, ", …" if len(self._unbelieved) > _SHOWN else ""),
            )

    def _of(self, group: str, topic: str) -> dict[int, int]:
        queues = self._offsets.get((group, topic))
        if queues is None:
            queues = self._offsets[group, topic] = {}
            self._readers[topic] += 1
        return queues

    def _drop(self, group: str, topic: str) -> None:
        if self._offsets.pop((group, topic), None) is not None:
            self._readers[topic] -= 1
            if not self._readers[topic]:
                del self._readers[topic]

    def rows(self) -> list[tuple[Key, int]]:
        """Everything that is known."""
        return [
            ((group, topic, queue_id), offset)
            for (group, topic), queues in self._offsets.items()
            for queue_id, offset in queues.items()
        ]

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue → offset, for the queues that have one."""
        self._collect()
        return self._offsets.get((group, topic), {})

    def committed_here(self, group: str, topic: str) -> dict[int, int]:
        """As `committed`, of the queues of this shard: a member begins here in all that it is
        assigned, and how far the group is in the others only their nodes know."""
        view = self._metadata.snapshot.topics.get(topic)
        found = self.committed(group, topic)
        return {queue_id: at for queue_id, at in found.items() if _is_of(view, queue_id)}

    def topics(self, group: str) -> list[str]:
        """Topics in which the group has committed anything, by name."""
        self._collect()
        return sorted(topic for name, topic in self._offsets if name == group)

    def pairs(self) -> list[tuple[str, str]]:
        """Groups and the topics in which they have committed anything."""
        self._collect()
        return list(self._offsets)

    # --- room

    def has_begun(self, group: str, topic: str) -> bool:
        """Whether the group has an offset in the topic."""
        return (group, topic) in self._offsets

    def begins(self, group: str, topic: str) -> bool:
        """Whether room is kept for the group to begin in the topic."""
        return (group, topic) in self._held

    @contextmanager
    def room(self, group: str, topic: Topic, limits: Limits) -> Iterator[None]:
        """Keep room for the group to begin in one more topic until it has, so that of many that
        begin at once no more do than may. Raises `StateConflict`."""
        pair = group, topic.name
        if pair not in self._offsets and pair not in self._held:
            self._check_topics(group, limits)
            self._check_queues(self._queues_to_be() + topic.queues, topic.queues, limits)
        self._held[pair] += 1
        try:
            yield
        finally:
            self._held[pair] -= 1
            if not self._held[pair]:
                del self._held[pair]

    @contextmanager
    def room_for_queues(self, topic: str, queues: int, limits: Limits) -> Iterator[None]:
        """Keep room for the groups that read a topic while it gets so many queues. Raises
        `StateConflict`."""
        raised = self._raised.setdefault(topic, [])
        known = self._metadata.snapshot.topics.get(topic)
        added = queues - max(*raised, 0, 0 if known is None else known.queues)
        raised.append(queues)
        try:
            readers = self._readers[topic]
            if added > 0 and readers:
                self._check_queues(self._queues_to_be(), readers * added, limits)
            yield
        finally:
            raised.remove(queues)
            if not raised and self._raised.get(topic) is raised:
                del self._raised[topic]

    def _check_topics(self, group: str, limits: Limits) -> None:
        topics = sum(name == group for name, _ in self._offsets)
        topics += sum(pair[0] == group and pair not in self._offsets for pair in self._held)
        if topics >= limits.subscriptions_per_group_max:
            raise _no_room(
                f"group {group!r} has begun in {topics} topics, and may begin in no more",
                "subscriptions_per_group_max",
                limits.subscriptions_per_group_max,
            )

    def _check_queues(self, queues: int, added: int, limits: Limits) -> None:
        if queues > limits.subscribed_queues_max:
            raise _no_room(
                f"the groups have begun in {queues - added} queues; there is no room for {added}",
                "subscribed_queues_max",
                limits.subscribed_queues_max,
            )

    def _queues_to_be(self) -> int:
        """All queues of all topics that the groups have begun in, whether or not there is an
        offset for each yet."""
        topics = self._metadata.snapshot.topics
        readers = self._readers + Counter(
            topic for group, topic in self._held if (group, topic) not in self._offsets
        )
        count = 0
        for name, groups in readers.items():
            queues = topics[name].queues if name in topics else 1
            count += groups * max(queues, *self._raised.get(name, ()), 0)
        return count

    # --- who reads

    def readers(self, topic: str) -> list[str]:
        """Groups that have committed anything in the topic, by name."""
        self._collect()
        return sorted(group for group, name in self._offsets if name == topic)

    def track(self, moved: Tracked) -> None:
        """Write this one's offset next time. Repeating it costs nothing.

        SQL does not hear of retries: their topics are not in the metadata.
        """
        if moved.key[2] != RETRY_QUEUE_ID:
            self._tracked.add(moved)

    def advance(self, key: Key, offset: int) -> None:
        """Move forward; a lower offset changes nothing."""
        group, topic, queue_id = key
        queues = self._of(group, topic)
        if queues.get(queue_id, -1) < offset:
            queues[queue_id] = offset
            self._dirty.add(key)

    def correct(self, key: Key, offset: int) -> None:
        """Set an offset to what the log says, backwards too; SQL follows with the next write."""
        group, topic, queue_id = key
        queues = self._of(group, topic)
        before = queues.get(queue_id)
        if before != offset:
            queues[queue_id] = offset
            self._dirty.add(key)
            if before is not None and before > offset:
                self._forced.add(key)

    async def force(
        self,
        rows: Sequence[CommittedOffset],
        prepare: Callable[[], Awaitable[object]],
        log: Callable[[], Awaitable[object]],
    ) -> None:
        """Set offsets, backwards too: `prepare` in SQL, then `log`; SQL's copy follows.

        No commit and no look at SQL comes in between. What the two raise changes no offset, and
        those of what is deleted meanwhile are no offsets of a successor.
        """
        async with self._writing:
            await prepare()
            await log()
            for row in filter(self._is_of_present, rows):
                self._of(row.group, row.topic)[row.queue_id] = row.offset
                key = row.group, row.topic, row.queue_id
                self._dirty.add(key)
                self._forced.add(key)
            await self._write()

    async def commit(
        self,
        rows: Sequence[CommittedOffset],
        store: Callable[[Sequence[CommittedOffset]], Awaitable[object]],
    ) -> None:
        """Move forward, by `store` in SQL first; what it raises changes nothing."""
        async with self._writing:
            await store(rows)
            for row in filter(self._is_of_present, rows):
                key = (row.group, row.topic, row.queue_id)
                is_copied = key not in self._dirty and key not in self._unbelieved
                self.advance(key, row.offset)
                if is_copied:
                    self._dirty.discard(key)

    async def delete(
        self, group: str, topic: str, check: Callable[[], object], first_use_ms: int | None
    ) -> bool:
        """Forget the group's offsets in the topic, in SQL first; False when there were none. Its
        first use is forgotten too where that was then.

        `check` raises when the two were deleted meanwhile: a successor keeps its offsets.
        """
        async with self._writing:
            check()
            had_any = bool(self.committed(group, topic))
            view = self._metadata.snapshot.topics.get(topic)
            count = 0 if view is None else view.queues
            elsewhere = [each for each in range(count) if not self._is_here((group, topic, each))]
            await self._metadata.delete_offsets(group, topic, first_use_ms, elsewhere=elsewhere)
            check()
            self._forget(lambda key_group, key_topic: (key_group, key_topic) == (group, topic))
            return had_any

    async def write(self) -> None:
        """Bring SQL up to date, in one transaction."""
        async with self._writing:
            self._collect()
            await self._write()

    async def _write(self) -> None:
        if keys := list(self._dirty):
            forced = (self._forced | self._unbelieved) & self._dirty
            self._dirty.clear()
            self._forced.clear()
            rows = [self._row(key) for key in keys if key not in forced and self._is_here(key)]
            back = [self._row(key) for key in keys if key in forced and self._is_here(key)]
            try:
                left_out = await self._metadata.commit_offsets(rows) if rows else []
                if back:
                    left_out += await self._metadata.commit_offsets(back, force=True)
            except CurlewError as error:
                self._keep(keys, forced)
                self.problem = f"committed offsets cannot be written: {error.detail}"
            except BaseException:
                self._keep(keys, forced)
                raise
            else:
                self.problem = None
                self._unbelieved.difference_update(forced)
                self._forget_deleted(left_out)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop everything of a topic or group that was deleted."""

        self._forget(lambda key_group, key_topic: key_topic == topic or key_group == group)

    def _forget_deleted(self, left_out: Iterable[CommittedOffset]) -> None:
        """Another node has deleted the group or the topic; what is left here must not pile up, nor
        count for one that is made again under the name. If it was made again here since, what is
        there is the successor's."""
        names = {
            (row.group, row.topic)
            for row in left_out
            if not row.topic.startswith("%") and not self._has_successor(row)
        }
        if names:
            self._forget(lambda *key: key in names)

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        for names in [names for names in self._offsets if is_gone(*names)]:
            keys = [(*names, queue_id) for queue_id in self._offsets[names]]
            self._dirty.difference_update(keys)
            self._forced.difference_update(keys)
            self._drop(*names)
        self._unbelieved = {key for key in self._unbelieved if not is_gone(key[0], key[1])}
        self._tracked = {one for one in self._tracked if not is_gone(one.key[0], one.key[1])}

    def _collect(self) -> None:
        tracked, self._tracked = self._tracked, set()
        for one in tracked:
            if one.unconfirmed:
                self._tracked.add(one)
            else:
                self.advance(one.key, one.committed)

    def _row(self, key: Key) -> CommittedOffset:
        """What SQL is to hold, of what has these names now."""
        group, topic, queue = key
        offset = QueueOffset(self._offsets[group, topic][queue])
        of_group, of_topic = self._generations(group, topic)
        return CommittedOffset(
            group, topic, queue, offset, topic_generation=of_topic, group_generation=of_group
        )

    def _generations(self, group: str, topic: str) -> tuple[int, int]:
        """Of what has these names now; 0: nothing."""
        snapshot = self._metadata.snapshot
        topic_now, group_now = snapshot.topics.get(topic), snapshot.groups.get(group)
        return (
            0 if group_now is None else group_now.generation,
            0 if topic_now is None else topic_now.generation,
        )

    def _is_of_present(self, row: CommittedOffset) -> bool:
        """Whether the group and the topic of a row have these names still."""
        of_group, of_topic = self._generations(row.group, row.topic)
        return row.group_generation == of_group and row.topic_generation == of_topic

    def _has_successor(self, row: CommittedOffset) -> bool:
        """Whether there are a group and a topic of these names, and not those of the row."""
        now = self._generations(row.group, row.topic)
        return 0 not in now and now != (row.group_generation, row.topic_generation)

    def _keep(self, keys: Iterable[Key], forced: Iterable[Key]) -> None:
        """What was not written is dirty again, unless it was deleted meanwhile."""
        self._dirty.update(key for key in keys if key[2] in self._offsets.get(key[:2], ()))
        self._forced.update(self._dirty.intersection(forced))


def _is_of(topic: Topic | None, queue_id: int) -> bool:
    """Whether a queue is in this node's shard, or the topic has it no more."""
    return topic is None or queue_id >= topic.queues or topic.shard_of(queue_id) is None


def _no_room(text: str, bound: str, limit: int) -> StateConflict:
    return StateConflict(
        text,
        hint="delete groups that nobody needs, or what they keep of a topic with DELETE"
        f" /v1/groups/{{group}}/offsets/{{topic}}, or let the operator raise {bound}",
        fields={"limit": limit, "bound": bound},
    )
