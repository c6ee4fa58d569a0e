"""The metadata as the data plane sees it: immutable values, looked up in plain dicts.

A snapshot is never changed, only replaced as a whole, so a reader that holds one sees topics and
groups of the same moment. Pure: no SQL here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from app.domain.consumers.consumption import KeptSubscription
from app.domain.message import queue_among, queue_for_sharding_key
from app.domain.positions import FlushMode, ReplicationMode, TimestampMs
from app.domain.settings import (
    DeliveryOrder,
    GroupMode,
    GroupSettings,
    Permission,
    RetryPolicy,
    StartPosition,
    SubscriptionRule,
    TopicSettings,
    TopicType,
    TraceMode,
    WhenExhausted,
)
from app.domain.shards.takes import Takes, intake_of


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic. `version` is the cluster's metadata version at its last change: it never repeats,
    not even for a name that was deleted and made again. `generation` tells those apart."""

    name: str
    queues: int
    type: TopicType
    flush: FlushMode
    retention_ms: int
    trace: TraceMode
    trace_rate: float
    generation: int
    created_ms: TimestampMs
    updated_ms: TimestampMs
    version: int
    permission: Permission = Permission.READ_WRITE
    write_queues_set: int | None = None
    """As the setting has it; `write_queues` is what follows of it."""
    max_body_bytes: int | None = None
    max_rate: int | None = None
    max_stored_bytes: int | None = None
    replication: ReplicationMode | None = None
    shards: tuple[str, ...] = ()
    """Of each queue, where the cluster has several; empty: all are here."""
    here: str = ""
    """The shard of this node."""
    first_queues: int = 0
    """Queues that it was made with."""
    drains: tuple[tuple[str, Takes], ...] = ()
    """Shards that do not take all."""
    write_queues: int = field(init=False)
    writable_here: Sequence[int] = field(init=False)
    """Queues of this node's shard that take messages."""
    open_queues: Sequence[int] = field(init=False)
    """Queues, of all shards, that messages without a key go to."""
    moved: frozenset[int] = field(init=False)
    """Queues whose keys belong to others, as their shards drain."""
    is_open_here: bool = field(init=False)
    """Whether any of `open_queues` is of this node's shard."""
    is_readable: bool = field(init=False)
    is_guarded: bool = field(init=False)
    """Whether there is more to look at before a message is taken than that the topic exists."""

    def __post_init__(self) -> None:
        bounds = self.max_body_bytes, self.max_rate, self.max_stored_bytes
        is_guarded = (
            self.type is not TopicType.NORMAL
            or self.permission is not Permission.READ_WRITE
            or any(bound is not None for bound in bounds)
        )
        write_queues = self.queues if self.write_queues_set is None else self.write_queues_set
        is_readable = self.permission in (Permission.READ_WRITE, Permission.READ)
        writable: Sequence[int] = range(write_queues)
        if self.shards:
            writable = tuple(each for each in writable if self.shards[each] == self.here)
        intake = intake_of(self.shards, dict(self.drains), self.queues, write_queues)
        is_open = not self.shards or any(self.shards[each] == self.here for each in intake.open)
        object.__setattr__(self, "write_queues", write_queues)
        object.__setattr__(self, "writable_here", writable)
        object.__setattr__(self, "open_queues", intake.open)
        object.__setattr__(self, "moved", intake.moved)
        object.__setattr__(self, "is_open_here", is_open)
        object.__setattr__(self, "is_readable", is_readable)
        object.__setattr__(self, "is_guarded", is_guarded)

    @property
    def settings(self) -> TopicSettings:
        return TopicSettings(
            self.queues,
            self.type,
            self.flush,
            self.retention_ms,
            self.trace,
            self.trace_rate,
            self.permission,
            self.write_queues_set,
            self.max_body_bytes,
            self.max_rate,
            self.max_stored_bytes,
            self.replication,
        )

    def shard_of(self, queue_id: int) -> str | None:
        """The shard of a queue, when it is not the one of this node."""
        if not self.shards or self.shards[queue_id] == self.here:
            return None
        return self.shards[queue_id]

    def queue_of_key(self, sharding_key: str) -> int:
        """The queue that messages with this key go to."""
        queue_id = queue_for_sharding_key(sharding_key, self.write_queues)
        if queue_id not in self.moved:
            return queue_id
        return queue_among(sharding_key, self.key_queues)

    @property
    def key_queues(self) -> Sequence[int]:
        """Those that keep their keys, and get the keys of the others."""
        kept = tuple(each for each in range(self.write_queues) if each not in self.moved)
        return kept or self.open_queues

    def home_of(self, name: str) -> int:
        """The queue whose shard remembers an idempotency key or a producer. One that has moved goes
        to one of the first queues too, so that it stays there when the topic has more."""
        queue_id = queue_for_sharding_key(name, self.first_queues)
        if queue_id not in self.moved:
            return queue_id
        first = range(min(self.first_queues, self.write_queues))
        homes = [each for each in first if each not in self.moved] or self.open_queues
        return queue_among(name, homes)

    def takes_of(self, queue_id: int) -> Takes:
        """What of new messages one queue takes, whatever the topic's permission is."""
        if queue_id in self.open_queues:
            return Takes.ALL
        is_closed = queue_id >= self.write_queues or queue_id in self.moved
        return Takes.NONE if is_closed else Takes.KEYED

    def permission_of(self, queue_id: int) -> Permission:
        """Of one queue: that of the topic, without writing behind the last queue that takes any,
        and in a shard that drains."""
        if queue_id in self.open_queues:
            return self.permission
        return Permission.READ if self.is_readable else Permission.NONE


@dataclass(frozen=True, slots=True)
class GroupView:
    """A consumer group. `version` as in `TopicView`."""

    name: str
    max_attempts: int
    retry_policy: RetryPolicy
    order: DeliveryOrder
    invisible_ms: int
    start: StartPosition
    max_in_flight: int
    mode: GroupMode
    on_exhausted: WhenExhausted
    max_in_flight_per_member: int | None
    paused: bool
    max_in_flight_bytes: int | None
    max_span: int | None
    subscription: SubscriptionRule
    generation: int
    created_ms: TimestampMs
    updated_ms: TimestampMs
    version: int

    @property
    def settings(self) -> GroupSettings:
        return GroupSettings(
            self.max_attempts,
            self.retry_policy,
            self.order,
            self.invisible_ms,
            self.start,
            self.max_in_flight,
            self.mode,
            self.on_exhausted,
            self.max_in_flight_per_member,
            self.paused,
            self.max_in_flight_bytes,
            self.max_span,
            self.subscription,
        )


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace. `version` as in `TopicView`."""

    name: str
    created_ms: TimestampMs
    version: int


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as it registered itself; `seen_ms` is its last sign of life."""

    node_id: str
    address: str
    store_id: bytes
    started_ms: TimestampMs
    seen_ms: TimestampMs
    shard: str = ""
    advertise_url: str = ""
    """Where clients reach it."""
    cluster_url: str = ""
    """Where other nodes reach it; empty: nowhere."""
    zone: str = ""
    version: str = ""
    """Of the program."""


class ReplicaMember(NamedTuple):
    """A node that has a replica of a shard, in sync or not."""

    node_id: str
    cluster_url: str
    """Where the other replicas reach it."""
    advertise_url: str | None
    """Where clients reach it; None: nowhere."""
    zone: str | None


@dataclass(frozen=True, slots=True)
class ShardView:
    """A shard, and where its leader is reached."""

    name: str
    shard_id: bytes
    epoch: int
    leader: str
    """A node."""
    advertise_url: str
    cluster_url: str
    members: tuple[ReplicaMember, ...] = ()
    """The nodes that have a replica of it, in the order in which they joined; none: a lone node's.
    """
    in_sync: tuple[str, ...] = ()
    """Nodes that have all that is confirmed."""
    target_replicas: int = 1
    min_in_sync: int = 1
    takes: Takes = Takes.ALL


class StoredSettings(NamedTuple):
    """Settings that were changed while nodes ran: name → text, and the version of all."""

    values: Mapping[str, str]
    version: int


NO_SETTINGS: Final = StoredSettings(MappingProxyType({}), 1)

Subscriptions = Mapping[tuple[str, str], KeptSubscription]
"""(Group, topic) → the filter that an operator has set or taken away."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Topics, groups and namespaces by name, all of the metadata version `version`."""

    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[str, GroupView] = field(default_factory=lambda: MappingProxyType({}))
    version: int = 0
    namespaces: Mapping[str, NamespaceView] = field(default_factory=lambda: MappingProxyType({}))
    settings: StoredSettings = NO_SETTINGS
    shards: Mapping[str, ShardView] = field(default_factory=lambda: MappingProxyType({}))
    subscriptions: Subscriptions = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(
        cls,
        topics: Iterable[TopicView],
        groups: Iterable[GroupView],
        version: int,
        namespaces: Iterable[NamespaceView] = (),
        settings: StoredSettings = NO_SETTINGS,
        shards: Iterable[ShardView] = (),
        subscriptions: Subscriptions = MappingProxyType({}),
    ) -> Self:
        return cls(
            MappingProxyType({topic.name: topic for topic in topics}),
            MappingProxyType({group.name: group for group in groups}),
            version,
            MappingProxyType({each.name: each for each in namespaces}),
            settings,
            MappingProxyType({shard.name: shard for shard in shards}),
            MappingProxyType(dict(subscriptions)),
        )

    def with_shards(self, shards: Iterable[ShardView], version: int) -> Self:
        """The next snapshot, after shards or their leaders were entered in `version`."""
        found = MappingProxyType({shard.name: shard for shard in shards})
        return replace(self, shards=found, version=version)

    def with_settings(self, settings: StoredSettings, version: int) -> Self:
        """The next snapshot, after settings were changed in `version`."""
        return replace(self, settings=settings, version=version)

    def with_namespace(self, namespace: NamespaceView) -> Self:
        """The next snapshot, after the namespace was made."""
        namespaces = MappingProxyType({**self.namespaces, namespace.name: namespace})
        return replace(self, namespaces=namespaces, version=namespace.version)

    def without_namespace(self, name: str, version: int) -> Self:
        """The next snapshot, after the namespace was deleted in `version`."""
        kept = {key: each for key, each in self.namespaces.items() if key != name}
        return replace(self, namespaces=MappingProxyType(kept), version=version)

    def with_topic(self, topic: TopicView) -> Self:
        """The next snapshot, after `topic` was put."""
        topics = MappingProxyType({**self.topics, topic.name: topic})
        return replace(self, topics=topics, version=topic.version)

    def without_topic(self, name: str, version: int) -> Self:
        """The next snapshot, after the topic was deleted in `version`."""
        kept = {key: topic for key, topic in self.topics.items() if key != name}
        left = {pair: each for pair, each in self.subscriptions.items() if pair[1] != name}
        subscriptions = MappingProxyType(left)
        topics = MappingProxyType(kept)
        return replace(self, topics=topics, subscriptions=subscriptions, version=version)

    def with_group(self, group: GroupView) -> Self:
        """The next snapshot, after `group` was put."""
        groups = MappingProxyType({**self.groups, group.name: group})
        return replace(self, groups=groups, version=group.version)

    def without_group(self, name: str, version: int) -> Self:
        """The next snapshot, after the group was deleted in `version`."""
        kept = {key: group for key, group in self.groups.items() if key != name}
        left = {pair: each for pair, each in self.subscriptions.items() if pair[0] != name}
        subscriptions = MappingProxyType(left)
        groups = MappingProxyType(kept)
        return replace(self, groups=groups, subscriptions=subscriptions, version=version)

    def with_subscription(
        self, group: str, topic: str, kept: KeptSubscription, version: int
    ) -> Self:
        """The next snapshot, after the filter of a group in a topic was kept in `version`."""
        found = MappingProxyType({**self.subscriptions, (group, topic): kept})
        return replace(self, subscriptions=found, version=version)
