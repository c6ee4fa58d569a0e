"""Committed offsets of all groups: in memory now, in SQL within a second.

The book holds what SQL is to hold, a checkpoint for people and tools; what must not be lost is in
the log (`progress_journal`). Progress of leases is collected when the book is written (`track`),
commits by clients go in at once (`advance`). A database that is down stops nobody: rows
stay dirty, the next turn tries again, and `problem` says so. Event loop only.

Invariant: an offset goes back only through `force`.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from app.broker.ports import Metadata
from app.domain.errors import CurlewError
from app.domain.positions import CommittedOffset, QueueOffset

Key = tuple[str, str, int]


class Tracked(Protocol):
    """Somebody whose committed offset moves: a leased queue."""

    @property
    def key(self) -> Key:
        """(group, topic, queue id)"""
        ...

    @property
    def committed(self) -> int: ...


class OffsetBook:
    """One per broker."""

    def __init__(self, metadata: Metadata) -> None:
        self.problem: str | None = None
        """Why the last write failed; None when it did not."""
        self._metadata = metadata
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._dirty: set[Key] = set()
        self._tracked: set[Tracked] = set()
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        for row in await self._metadata.load_offsets():
            self._offsets.setdefault((row.group, row.topic), {})[row.queue_id] = row.offset

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

    def track(self, moved: Tracked) -> None:
        """Write this one's offset next time. Repeating it costs nothing."""
        self._tracked.add(moved)

    def advance(self, key: Key, offset: int) -> None:
        """Move forward; a lower offset changes nothing."""
        group, topic, queue_id = key
        queues = self._offsets.setdefault((group, topic), {})
        if queues.get(queue_id, -1) < offset:
            queues[queue_id] = offset
            self._dirty.add(key)

    async def force(self, rows: Iterable[CommittedOffset]) -> None:
        """Set offsets, backwards too; in SQL first, so that a failure changes nothing."""
        rows = list(rows)
        async with self._writing:
            await self._metadata.commit_offsets(rows, force=True)
            for row in rows:
                self._offsets.setdefault((row.group, row.topic), {})[row.queue_id] = row.offset

    async def write(self) -> None:
        """Bring SQL up to date, in one transaction."""
        async with self._writing:
            self._collect()
            keys = list(self._dirty)
            if not keys:
                return
            self._dirty.clear()
            rows = [
                CommittedOffset(
                    group, topic, queue, QueueOffset(self._offsets[(group, topic)][queue])
                )
                for group, topic, queue in keys
            ]
            try:
                await self._metadata.commit_offsets(rows)
            except CurlewError as error:
                self._keep(keys)
                self.problem = f"committed offsets cannot be written: {error.detail}"
            except BaseException:
                self._keep(keys)
                raise
            else:
                self.problem = None

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop everything of a topic or group that was deleted."""

        def is_gone(key_group: str, key_topic: str) -> bool:
            return key_topic == topic or key_group == group

        for names in [names for names in self._offsets if is_gone(*names)]:
            del self._offsets[names]
        self._dirty = {key for key in self._dirty if not is_gone(key[0], key[1])}
        self._tracked = {one for one in self._tracked if not is_gone(one.key[0], one.key[1])}

    def _collect(self) -> None:
        tracked, self._tracked = self._tracked, set()
        for one in tracked:
            self.advance(one.key, one.committed)

    def _keep(self, keys: Iterable[Key]) -> None:
        self._dirty.update(key for key in keys if (key[0], key[1]) in self._offsets)
