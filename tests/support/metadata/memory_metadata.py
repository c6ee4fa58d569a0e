"""The cluster's metadata in memory: the signatures of the real one, and a switch to break it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from app.cluster import ClusterEvent, ClusterSnapshot, GroupView, NodeView, Page, TopicView
from app.cluster.metadata.listing import Wanted, page_of
from app.cluster.metadata.snapshot import NamespaceView
from app.domain.access.caller import OPEN, Caller
from app.domain.changes.conditions import Changed, Conditions, Terms
from app.domain.changes.merging import Named, by_name, merged
from app.domain.clock import Clock
from app.domain.consumers.consumption import (
    Consumption,
    ConsumptionElsewhere,
    ConsumptionRow,
    FirstUse,
    KeptSubscription,
    SubscriptionPair,
)
from app.domain.consumers.membership import GroupPulse, Membership, Rebalance
from app.domain.errors import (
    GroupNotFound,
    MetadataUnavailable,
    NamespaceNotFound,
    StateConflict,
    TopicNotFound,
)
from app.domain.identity import Deletion, Kind, new_generation
from app.domain.names import is_in
from app.domain.positions import CommittedOffset, OffsetSnapshot, QueueOffset
from app.domain.schedules import (
    SCHEDULE_DEFAULTS,
    Firing,
    Schedule,
    ScheduleSettings,
    missing_schedule,
)
from app.domain.settings import GroupSettings, TopicSettings, check_write_queues


class _NoEvents:
    """Nothing happens to nodes and shards in memory."""

    async def page(self, *_: object) -> list[ClusterEvent]:
        return []


class MemoryMetadata:
    """Tests read `offsets` and `commits`, and set `is_down`."""

    def __init__(self, clock: Clock) -> None:
        self.snapshot = ClusterSnapshot()
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.commits: list[list[CommittedOffset]] = []
        self.is_down = False
        self.shard = ""
        self.members = MemoryMemberships(self)
        self.offset_snapshots = MemoryOffsetSnapshots(clock)
        self.first_uses = MemoryFirstUses(self, clock)
        self.consumptions = MemoryConsumptions(self, clock)
        self.schedules = MemorySchedules(self)
        self.callers: dict[str, Caller] = {}
        """Of principals, by name; others may everything."""
        self._clock = clock
        self.principals: Any = None
        self.policies: Any = None
        self.audit: Any = SimpleNamespace(unnamed_count=0)
        self.events = _NoEvents()
        self.on_deletions: Callable[[Sequence[Deletion]], None] = lambda _: None
        self.pending: list[Deletion] = []
        """Deletions that were not carried out."""

    def list_topics(self, **asked: Any) -> Page[TopicView]:
        return _page(self.snapshot.topics, **asked)

    def list_groups(self, **asked: Any) -> Page[GroupView]:
        return _page(self.snapshot.groups, **asked)

    def list_namespaces(self, **asked: Any) -> Page[NamespaceView]:
        return _page(self.snapshot.namespaces, **asked)

    async def put_namespace(self, name: str, _: object = None) -> None:
        raise StateConflict(f"{name} cannot be made in memory")

    async def delete_namespace(self, name: str, _: object = None) -> None:
        raise NamespaceNotFound(f"there is no namespace {name!r}")

    async def list_nodes(self) -> list[NodeView]:
        return []

    def caller(self, principal: str | None) -> Caller:
        return self.callers.get(principal or "", OPEN)

    def check(self) -> None:
        if self.is_down:
            raise MetadataUnavailable("the database does not answer")

    async def refresh(self) -> bool:
        self.check()
        return False

    async def change_topic(
        self, name: str, named: Named, terms: Terms | None = None
    ) -> Changed[TopicView]:
        self.check()
        now, version = self._clock.now_ms(), self.snapshot.version + 1
        terms = terms or Terms()
        present = self.snapshot.topics.get(name)
        if present is None and terms.must_exist:
            raise TopicNotFound(f"there is no topic {name!r}")
        terms.conditions.check(f"topic {name!r}", present.version if present else 0)
        was = present.settings if present else None
        settings = merged(TopicSettings, named, was, by_name(TopicSettings()))
        check_write_queues(settings)
        topic = TopicView(
            name,
            settings.queues,
            settings.type,
            settings.flush,
            settings.retention_ms,
            settings.trace,
            settings.trace_rate,
            generation=present.generation if present else terms.generation or new_generation(),
            created_ms=present.created_ms if present else now,
            updated_ms=now,
            version=version,
            first_queues=present.first_queues if present else settings.queues,
            permission=settings.permission,
            write_queues_set=settings.write_queues,
            max_body_bytes=settings.max_body_bytes,
            max_rate=settings.max_rate,
            max_stored_bytes=settings.max_stored_bytes,
            replication=settings.replication,
        )
        if not terms.is_dry_run:
            self.snapshot = self.snapshot.with_topic(topic)
        return Changed(present, topic)

    async def put_topic(
        self,
        name: str,
        settings: TopicSettings,
        *,
        if_version: int | None = None,
        generation: int = 0,
    ) -> tuple[TopicView, bool]:
        terms = Terms(Conditions.at(if_version), generation=generation)
        changed = await self.change_topic(name, by_name(settings), terms)
        return changed.after, changed.is_made

    async def ensure_topic(self, name: str, *, generation: int = 0) -> TopicView:
        present = self.snapshot.topics.get(name)
        return present or (await self.put_topic(name, TopicSettings(), generation=generation))[0]

    async def delete_topic(self, name: str, terms: Terms | None = None) -> TopicView:
        self.check()
        present = self.snapshot.topics.get(name)
        if present is None:
            raise TopicNotFound(f"there is no topic {name!r}")
        if terms is not None and terms.is_dry_run:
            return present
        self.snapshot = self.snapshot.without_topic(name, self.snapshot.version + 1)
        self.offsets = {key: value for key, value in self.offsets.items() if key[1] != name}
        self.pending.append(Deletion(Kind.TOPIC, name, present.generation))
        return present

    async def change_group(
        self, name: str, named: Named, terms: Terms | None = None
    ) -> Changed[GroupView]:
        self.check()
        now, version = self._clock.now_ms(), self.snapshot.version + 1
        terms = terms or Terms()
        present = self.snapshot.groups.get(name)
        if present is None and terms.must_exist:
            raise GroupNotFound(f"there is no group {name!r}")
        terms.conditions.check(f"group {name!r}", present.version if present else 0)
        was = present.settings if present else None
        settings = merged(GroupSettings, named, was, by_name(GroupSettings()))
        group = GroupView(
            name,
            settings.max_attempts,
            settings.retry_policy,
            settings.order,
            settings.invisible_ms,
            settings.start,
            settings.max_in_flight,
            settings.mode,
            settings.on_exhausted,
            settings.max_in_flight_per_member,
            settings.paused,
            settings.max_in_flight_bytes,
            settings.max_span,
            settings.subscription,
            generation=present.generation if present else terms.generation or new_generation(),
            created_ms=present.created_ms if present else now,
            updated_ms=now,
            version=version,
        )
        if not terms.is_dry_run:
            self.snapshot = self.snapshot.with_group(group)
        return Changed(present, group)

    async def put_group(
        self,
        name: str,
        settings: GroupSettings,
        *,
        if_version: int | None = None,
        generation: int = 0,
    ) -> tuple[GroupView, bool]:
        terms = Terms(Conditions.at(if_version), generation=generation)
        changed = await self.change_group(name, by_name(settings), terms)
        return changed.after, changed.is_made

    async def ensure_group(self, name: str, *, generation: int = 0) -> GroupView:
        present = self.snapshot.groups.get(name)
        return present or (await self.put_group(name, GroupSettings(), generation=generation))[0]

    async def delete_group(self, name: str, terms: Terms | None = None) -> GroupView:
        self.check()
        present = self.snapshot.groups.get(name)
        if present is None:
            raise GroupNotFound(f"there is no group {name!r}")
        if terms is not None and terms.is_dry_run:
            return present
        self.snapshot = self.snapshot.without_group(name, self.snapshot.version + 1)
        self.offsets = {key: value for key, value in self.offsets.items() if key[0] != name}
        self.pending.append(Deletion(Kind.GROUP, name, present.generation))
        return present

    async def change_subscription(
        self,
        pair: SubscriptionPair,
        step: Callable[[KeptSubscription | None], KeptSubscription | None],
        *,
        is_dry_run: bool = False,
    ) -> None:
        self.check()
        group, topic = self.snapshot.groups.get(pair.group), self.snapshot.topics.get(pair.topic)
        if group is None or group.generation != pair.group_generation:
            raise GroupNotFound(f"there is no group {pair.group!r}")
        if topic is None or topic.generation != pair.topic_generation:
            raise TopicNotFound(f"there is no topic {pair.topic!r}")
        names = pair.group, pair.topic
        before = self.snapshot.subscriptions.get(names)
        after = step(before)
        if after is not None and after != before and not is_dry_run:
            version = self.snapshot.version + 1
            self.snapshot = self.snapshot.with_subscription(*names, after, version)

    async def deletions(self) -> list[Deletion]:
        self.check()
        return list(self.pending)

    async def carried_out(self, deletion: Deletion) -> None:
        self.check()
        self.pending.remove(deletion)

    async def set_generation(self, kind: Kind, name: str, generation: int, was: int) -> bool:
        self.check()
        version = self.snapshot.version + 1
        if kind is Kind.TOPIC:
            topic = self.snapshot.topics.get(name)
            if topic is None or topic.generation != was:
                return False
            topic = replace(topic, generation=generation, version=version)
            self.snapshot = self.snapshot.with_topic(topic)
        else:
            group = self.snapshot.groups.get(name)
            if group is None or group.generation != was:
                return False
            group = replace(group, generation=generation, version=version)
            self.snapshot = self.snapshot.with_group(group)
        return True

    async def load_offsets(self, group: str | None = None) -> list[CommittedOffset]:
        self.check()
        return [
            CommittedOffset(*key, QueueOffset(offset))
            for key, offset in self.offsets.items()
            if group in {None, key[0]}
        ]

    async def delete_offsets(
        self,
        group: str,
        topic: str,
        first_use_ms: int | None = None,
        *,
        elsewhere: Collection[int] = (),
    ) -> None:
        self.check()
        self.offsets = {
            key: offset
            for key, offset in self.offsets.items()
            if key[:2] != (group, topic) or key[2] in elsewhere
        }
        gone = group, topic, first_use_ms
        rows = self.first_uses.rows
        self.first_uses.rows = {k: v for k, v in rows.items() if (*k[:2], v) != gone}

    async def commit_offsets(
        self, rows: Sequence[CommittedOffset], *, force: bool = False
    ) -> list[CommittedOffset]:
        self.check()
        self.commits.append(list(rows))
        known = [
            row
            for row in rows
            if row.topic in self.snapshot.topics and row.group in self.snapshot.groups
        ]
        for row in known:
            key = (row.group, row.topic, row.queue_id)
            before = -1 if force else self.offsets.get(key, -1)
            self.offsets[key] = max(before, row.offset)
        return [row for row in rows if row not in known]

    async def secret(self, name: str) -> bytes:
        self.check()
        return name.encode().ljust(32, b".")[:32]

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue → offset as in the database."""
        return {key[2]: value for key, value in self.offsets.items() if key[:2] == (group, topic)}


def _page(
    found: Mapping[str, Any],
    *,
    namespace: str = "",
    prefix: str = "",
    page_size: int = 100,
    page_token: str | None = None,
    visible: Callable[[str], bool] = lambda _name: True,
) -> Page[Any]:
    return page_of(found, Wanted(namespace, prefix), page_size, page_token, 1_000, visible)


class MemoryMemberships:
    """Members in memory: a change is one call of the step. Tests set `is_read_only`."""

    def __init__(self, metadata: MemoryMetadata) -> None:
        self.is_read_only = False
        self.changes = 0
        """Transactions so far."""
        self._metadata = metadata
        self._groups: dict[str, Membership] = {}
        self._history: dict[str, list[Rebalance]] = {}

    async def read(self, group: str) -> Membership:
        self._metadata.check()
        return self._groups.get(group, Membership(group))

    async def change(
        self,
        group: str,
        step: Callable[[Membership], Membership],
        *,
        offsets_after: Sequence[CommittedOffset] = (),
        force: bool = False,
    ) -> Membership:
        self._metadata.check()
        if self.is_read_only:
            raise MetadataUnavailable("the database takes no writes")
        self.changes += 1
        after = step(self._groups.get(group, Membership(group)))
        if left_out := await self._metadata.commit_offsets(offsets_after, force=force):
            raise TopicNotFound(f"there is no topic {left_out[0].topic!r}")
        self._history.setdefault(group, [])[:0] = reversed(after.new_history)
        self._groups[group] = replace(after, new_history=())
        return after

    async def history(self, group: str) -> list[Rebalance]:
        return self._history.get(group, [])

    async def pulses(self) -> list[GroupPulse]:
        self._metadata.check()
        return [GroupPulse(k, v.counter, v.changed) for k, v in self._groups.items()]


class MemoryFirstUses:
    """One time for a pair of group and topic of these generations."""

    def __init__(self, metadata: MemoryMetadata, clock: Clock) -> None:
        self.rows: dict[SubscriptionPair, int] = {}
        self._metadata = metadata
        self._clock = clock

    async def find(self, pair: SubscriptionPair) -> int | None:
        self._metadata.check()
        return self.rows.get(pair)

    async def note(self, pair: SubscriptionPair) -> FirstUse:
        self._metadata.check()
        is_this = pair not in self.rows
        return FirstUse(self.rows.setdefault(pair, self._clock.now_ms()), is_this)


class MemoryConsumptions:
    """By shard and pair. Tests enter for other shards, and count what is asked."""

    def __init__(self, metadata: MemoryMetadata, clock: Clock) -> None:
        self.rows: dict[tuple[str, SubscriptionPair], tuple[Consumption, int, bool]] = {}
        self.asked = 0
        self._metadata = metadata
        self._clock = clock

    async def enter(
        self, pair: SubscriptionPair, kind: Consumption, *, force: bool, shard: str | None = None
    ) -> ConsumptionElsewhere | None:
        own = self._metadata.shard if shard is None else shard
        found = await self.elsewhere(pair, kind, own)
        if found is not None and not force:
            return found
        for (each, of), (other, since_ms, _) in list(self.rows.items()):
            if of == pair and each != own and other is not kind:
                self.rows[each, of] = other, since_ms, True
        self.rows[own, pair] = kind, self._clock.now_ms(), False
        return None

    async def elsewhere(
        self, pair: SubscriptionPair, kind: Consumption, shard: str | None = None
    ) -> ConsumptionElsewhere | None:
        self.asked += 1
        self._metadata.check()
        own = self._metadata.shard if shard is None else shard
        return next(
            (
                ConsumptionElsewhere(each, other, since_ms)
                for (each, of), (other, since_ms, is_ended) in self.rows.items()
                if of == pair and each != own and other is not kind and not is_ended
            ),
            None,
        )

    async def held(self, *, ended_only: bool) -> list[ConsumptionRow]:
        self.asked += 1
        self._metadata.check()
        return [
            ConsumptionRow(pair.group, pair.topic, kind, is_ended)
            for (shard, pair), (kind, _, is_ended) in self.rows.items()
            if shard == self._metadata.shard and (is_ended or not ended_only)
        ]

    async def leave(self, names: Sequence[tuple[str, str]]) -> None:
        self.asked += 1
        self._metadata.check()
        here = self._metadata.shard
        self.rows = {
            (shard, pair): row
            for (shard, pair), row in self.rows.items()
            if shard != here or (pair.group, pair.topic) not in names
        }


class MemoryOffsetSnapshots:
    """Snapshots of offsets in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], OffsetSnapshot] = {}

    async def create(
        self,
        group: str,
        name: str,
        offsets: Sequence[CommittedOffset],
        *,
        is_dry_run: bool = False,
    ) -> OffsetSnapshot:
        snapshot = OffsetSnapshot(group, name, self._clock.now_ms(), tuple(offsets))
        if not is_dry_run:
            self._kept[group, name] = snapshot
        return snapshot

    async def load(self, group: str) -> list[OffsetSnapshot]:
        return [self._kept[key] for key in sorted(self._kept) if key[0] == group]

    async def delete(self, group: str, name: str) -> bool:
        return self._kept.pop((group, name), None) is not None


class MemorySchedules:
    """Schedules and claims; tests read `claims`."""

    def __init__(self, metadata: MemoryMetadata) -> None:
        self.kept: dict[str, Schedule] = {}
        self.claims: dict[tuple[str, int], tuple[str, Firing]] = {}
        self._metadata = metadata

    async def change(
        self,
        name: str,
        named: Named,
        due_of: Callable[[ScheduleSettings], int | None],
        terms: Terms | None = None,
        *,
        owner: str | None = None,
        check: Callable[[Schedule | None], None] = lambda _present: None,
    ) -> Changed[Schedule]:
        self._metadata.check()
        present = self.kept.get(name)
        check(present)
        if present is None and terms is not None and terms.must_exist:
            raise missing_schedule(name)
        was = present.settings if present else None
        settings = merged(ScheduleSettings, named, was, SCHEDULE_DEFAULTS)
        if present is not None and present.settings == settings:
            return Changed(present, present)
        next_due_ms = due_of(settings)
        version = present.version + 1 if present else 1
        if present is not None:
            next_due_ms = present.next_due_after(settings, next_due_ms)
        owner = owner or (present.owner if present else None)
        made = Schedule(name, settings, next_due_ms, 0, 0, version, owner)
        if terms is None or not terms.is_dry_run:
            self.kept[name] = made
        return Changed(present, made)

    async def put(
        self, name: str, settings: ScheduleSettings, next_due_ms: int | None
    ) -> tuple[Schedule, bool]:
        changed = await self.change(name, by_name(settings), lambda _: next_due_ms)
        return changed.after, changed.is_made

    async def get(self, name: str) -> Schedule:
        if name not in self.kept:
            raise missing_schedule(name)
        return self.kept[name]

    async def load(
        self, after: str, limit: int, namespace: str = ""
    ) -> tuple[list[Schedule], bool]:
        names = [name for name in sorted(self.kept) if is_in(namespace, name) and name > after]
        found = [self.kept[name] for name in names]
        return found[:limit], len(found) > limit

    async def remove(
        self,
        name: str,
        terms: Terms | None = None,
        *,
        check: Callable[[Schedule], None] = lambda _present: None,
    ) -> Schedule:
        check(await self.get(name))
        if terms is not None and terms.is_dry_run:
            return self.kept[name]
        return self.kept.pop(name)

    async def due(self, until_ms: int, limit: int) -> list[Schedule]:
        self._metadata.check()
        found = [s for s in self.kept.values() if s.next_due_ms and s.next_due_ms <= until_ms]
        return found[:limit]

    async def move_on(
        self, schedule: Schedule, next_due_ms: int, node_id: str | None
    ) -> Firing | None:
        self._metadata.check()
        assert schedule.next_due_ms is not None
        if self.kept.get(schedule.name) != schedule:
            return None
        self.kept[schedule.name] = replace(schedule, next_due_ms=next_due_ms)
        if node_id is None:
            return None
        firing = Firing(schedule.name, schedule.next_due_ms, schedule.settings, schedule.owner)
        self.claims[firing[:2]] = (node_id, firing)
        return firing

    async def firings(self, node_id: str) -> Sequence[Firing]:
        self._metadata.check()
        return [firing for owner, firing in self.claims.values() if owner == node_id]

    async def done(self, firing: Firing) -> None:
        self._metadata.check()
        self.claims.pop(firing[:2], None)
