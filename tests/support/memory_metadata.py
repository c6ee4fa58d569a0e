"""The cluster's metadata in memory: the signatures of the real one, and a switch to break it."""

from collections.abc import Mapping, Sequence

from app.cluster import ClusterSnapshot, GroupView, TopicView
from app.domain.clock import Clock
from app.domain.errors import GroupNotFound, MetadataUnavailable, TopicNotFound
from app.domain.positions import CommittedOffset
from app.domain.settings import GroupSettings, TopicSettings


class MemoryMetadata:
    """Tests read `offsets` and `commits`, and set `is_down`."""

    def __init__(self, clock: Clock) -> None:
        self.snapshot = ClusterSnapshot()
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.commits: list[list[CommittedOffset]] = []
        self.is_down = False
        self._clock = clock
        self._generations: dict[str, int] = {}

    def _check(self) -> None:
        if self.is_down:
            raise MetadataUnavailable("the database does not answer")

    async def put_topic(
        self, name: str, settings: TopicSettings, *, if_version: int | None = None
    ) -> tuple[TopicView, bool]:
        self._check()
        now, version = self._clock.now_ms(), self.snapshot.version + 1
        present = self.snapshot.topics.get(name)
        if present is None:
            self._generations[name] = self._generations.get(name, 0) + 1
        topic = TopicView(
            name,
            settings.queues,
            settings.type,
            settings.flush,
            settings.retention_ms,
            generation=self._generations[name],
            created_ms=present.created_ms if present else now,
            updated_ms=now,
            version=version,
        )
        self.snapshot = self.snapshot.with_topic(topic)
        return topic, present is None

    async def ensure_topic(self, name: str) -> TopicView:
        present = self.snapshot.topics.get(name)
        return present or (await self.put_topic(name, TopicSettings()))[0]

    async def delete_topic(self, name: str) -> None:
        self._check()
        if name not in self.snapshot.topics:
            raise TopicNotFound(f"there is no topic {name!r}")
        self.snapshot = self.snapshot.without_topic(name, self.snapshot.version + 1)
        self.offsets = {key: value for key, value in self.offsets.items() if key[1] != name}

    async def put_group(
        self, name: str, settings: GroupSettings, *, if_version: int | None = None
    ) -> tuple[GroupView, bool]:
        self._check()
        now, version = self._clock.now_ms(), self.snapshot.version + 1
        is_new = name not in self.snapshot.groups
        group = GroupView(
            name,
            settings.max_attempts,
            settings.retry_policy,
            settings.order,
            settings.invisible_ms,
            settings.start,
            settings.max_in_flight,
            created_ms=now,
            updated_ms=now,
            version=version,
        )
        self.snapshot = self.snapshot.with_group(group)
        return group, is_new

    async def ensure_group(self, name: str) -> GroupView:
        present = self.snapshot.groups.get(name)
        return present or (await self.put_group(name, GroupSettings()))[0]

    async def delete_group(self, name: str) -> None:
        self._check()
        if name not in self.snapshot.groups:
            raise GroupNotFound(f"there is no group {name!r}")
        self.snapshot = self.snapshot.without_group(name, self.snapshot.version + 1)
        self.offsets = {key: value for key, value in self.offsets.items() if key[0] != name}

    async def load_offsets(self) -> list[CommittedOffset]:
        self._check()
        return [CommittedOffset(*key, offset) for key, offset in self.offsets.items()]  # type: ignore[arg-type]  # QueueOffset

    async def commit_offsets(
        self, rows: Sequence[CommittedOffset], *, force: bool = False
    ) -> list[CommittedOffset]:
        self._check()
        self.commits.append(list(rows))
        for row in rows:
            key = (row.group, row.topic, row.queue_id)
            before = -1 if force else self.offsets.get(key, -1)
            self.offsets[key] = max(before, row.offset)
        return []

    async def secret(self, name: str) -> bytes:
        self._check()
        return name.encode().ljust(32, b".")[:32]

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue → offset as in the database."""
        return {key[2]: value for key, value in self.offsets.items() if key[:2] == (group, topic)}
