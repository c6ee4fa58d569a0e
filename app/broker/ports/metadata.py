"""What the broker needs of the metadata, as protocols."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from app.broker.ports.consumptions import ConsumptionRows
from app.broker.ports.positions import FirstUses, OffsetSnapshots
from app.domain.access.caller import Caller
from app.domain.changes.conditions import Changed, Terms
from app.domain.changes.merging import Named
from app.domain.consumers.consumption import KeptSubscription, SubscriptionPair
from app.domain.consumers.membership import GroupPulse, Membership, Rebalance
from app.domain.identity import Deletion, Kind
from app.domain.positions import CommittedOffset, FlushMode, ReplicationMode
from app.domain.schedules import Firing, Schedule, ScheduleSettings
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
from app.domain.shards.takes import Takes


class Topic(Protocol):
    """A topic's settings and history."""

    @property
    def name(self) -> str: ...
    @property
    def queues(self) -> int: ...
    @property
    def type(self) -> TopicType: ...
    @property
    def flush(self) -> FlushMode: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def trace(self) -> TraceMode: ...
    @property
    def trace_rate(self) -> float: ...
    @property
    def permission(self) -> Permission: ...
    @property
    def write_queues(self) -> int:
        """Queues that take messages: the first so many."""
        ...

    @property
    def writable_here(self) -> Sequence[int]:
        """Queues that take messages and are of this node's shard."""
        ...

    @property
    def open_queues(self) -> Sequence[int]:
        """Queues, of all shards, that messages without a key go to."""
        ...

    @property
    def moved(self) -> Collection[int]:
        """Queues whose keys belong to others, as their shards drain."""
        ...

    @property
    def is_open_here(self) -> bool:
        """Whether any of `open_queues` is of this node's shard."""
        ...

    @property
    def key_queues(self) -> Sequence[int]:
        """Those of `write_queues` that messages with a key go to."""
        ...

    def queue_of_key(self, sharding_key: str) -> int:
        """The queue that messages with this key go to."""
        ...

    def takes_of(self, queue_id: int) -> Takes:
        """What of new messages one queue takes, whatever the topic's permission is."""
        ...

    def home_of(self, name: str) -> int:
        """The queue whose shard remembers an idempotency key or a producer."""
        ...

    @property
    def first_queues(self) -> int:
        """Queues that it was made with: what is aimed at its home by hash never moves."""
        ...

    @property
    def shards(self) -> Sequence[str]:
        """Of each queue, where the cluster has several; empty: all are here."""
        ...

    def shard_of(self, queue_id: int) -> str | None:
        """The shard of a queue, when it is not the one of this node."""
        ...

    @property
    def max_body_bytes(self) -> int | None: ...
    @property
    def max_rate(self) -> int | None: ...
    @property
    def max_stored_bytes(self) -> int | None: ...
    @property
    def replication(self) -> ReplicationMode | None:
        """None: as the shard has it, which is sync where it has replicas."""
        ...

    @property
    def is_readable(self) -> bool: ...
    @property
    def is_guarded(self) -> bool:
        """Whether its type, permission or limits may refuse a message."""
        ...

    def permission_of(self, queue_id: int) -> Permission: ...
    @property
    def settings(self) -> TopicSettings: ...
    @property
    def generation(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def updated_ms(self) -> int: ...
    @property
    def version(self) -> int: ...


class Group(Protocol):
    """A consumer group's settings and history."""

    @property
    def name(self) -> str: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def retry_policy(self) -> RetryPolicy: ...
    @property
    def order(self) -> DeliveryOrder: ...
    @property
    def invisible_ms(self) -> int: ...
    @property
    def start(self) -> StartPosition: ...
    @property
    def max_in_flight(self) -> int: ...
    @property
    def mode(self) -> GroupMode: ...
    @property
    def on_exhausted(self) -> WhenExhausted: ...
    @property
    def max_in_flight_per_member(self) -> int | None: ...
    @property
    def paused(self) -> bool: ...
    @property
    def max_in_flight_bytes(self) -> int | None: ...
    @property
    def max_span(self) -> int | None: ...
    @property
    def subscription(self) -> SubscriptionRule: ...
    @property
    def generation(self) -> int: ...
    @property
    def settings(self) -> GroupSettings: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def updated_ms(self) -> int: ...
    @property
    def version(self) -> int: ...


class Snapshot(Protocol):
    """Topics and groups at one moment; replaced as a whole."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...
    @property
    def groups(self) -> Mapping[str, Group]: ...
    @property
    def subscriptions(self) -> Mapping[tuple[str, str], KeptSubscription]:
        """(Group, topic) → the filter that an operator has set or taken away."""
        ...


class Memberships(Protocol):
    """Members of groups. A change is a pure step, run on the present truth under a lock that all
    nodes respect; what the step raises changes nothing."""

    async def read(self, group: str) -> Membership: ...

    async def change(
        self,
        group: str,
        step: Callable[[Membership], Membership],
        *,
        offsets_after: Sequence[CommittedOffset] = (),
        force: bool = False,
    ) -> Membership:
        """Also commits offsets, in the same transaction."""
        ...

    async def history(self, group: str) -> list[Rebalance]:
        """The newest rebalances, newest first."""
        ...

    async def pulses(self) -> list[GroupPulse]:
        """One short row for each group that has ever had members."""
        ...


class ScheduleBook(Protocol):
    """Schedules, and who fires which due time."""

    async def change(
        self,
        name: str,
        named: Named,
        due_of: Callable[[ScheduleSettings], int | None],
        terms: Terms | None = None,
        *,
        owner: str | None = None,
        check: Callable[[Schedule | None], None] = ...,
    ) -> Changed[Schedule]:
        """Make a schedule, or merge what is named into it. `due_of` says when settings are due
        next from now on, or raises what is wrong with them; `check` is given what is there."""
        ...

    async def get(self, name: str) -> Schedule:
        """The schedule, or `ScheduleNotFound`."""
        ...

    async def load(
        self, after: str, limit: int, namespace: str = ""
    ) -> tuple[list[Schedule], bool]:
        """Some schedules of a namespace behind a stored name, by name, and whether there are
        more."""
        ...

    async def remove(
        self,
        name: str,
        terms: Terms | None = None,
        *,
        check: Callable[[Schedule], None] = ...,
    ) -> Schedule: ...

    async def due(self, until_ms: int, limit: int) -> list[Schedule]: ...

    async def move_on(
        self, schedule: Schedule, next_due_ms: int, node_id: str | None
    ) -> Firing | None:
        """Claim the due time for a node, or pass over it (None). None: others were quicker."""
        ...

    async def firings(self, node_id: str) -> Sequence[Firing]: ...

    async def done(self, firing: Firing) -> None: ...


class Metadata(Protocol):
    """The cluster's metadata. `snapshot` is a plain attribute read; everything else is SQL.

    SQL that cannot be reached is `MetadataUnavailable`.
    """

    on_deletions: Callable[[Sequence[Deletion]], None]
    """Told of what this shard has not carried out, in the turn in which the snapshot lacks it."""

    @property
    def snapshot(self) -> Snapshot: ...

    async def refresh(self) -> bool:
        """Take over what other nodes changed; say whether there was anything."""
        ...

    async def change_topic(
        self, name: str, named: Named, terms: Terms | None = None
    ) -> Changed[Topic]:
        """Make a topic, or merge what is named into it; what changes nothing writes nothing."""
        ...

    async def ensure_topic(self, name: str, *, generation: int = 0) -> Topic:
        """The topic; made with the defaults when there is none."""
        ...

    async def delete_topic(self, name: str, terms: Terms | None = None) -> Topic: ...

    async def change_group(
        self, name: str, named: Named, terms: Terms | None = None
    ) -> Changed[Group]:
        """Make a group, or merge what is named into it; what changes nothing writes nothing."""
        ...

    async def ensure_group(self, name: str, *, generation: int = 0) -> Group:
        """The group; made with the defaults when there is none."""
        ...

    async def delete_group(self, name: str, terms: Terms | None = None) -> Group: ...

    async def change_subscription(
        self,
        pair: SubscriptionPair,
        step: Callable[[KeptSubscription | None], KeptSubscription | None],
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Keep what `step` makes of the filter that an operator has set, under a lock that all
        nodes respect; what it raises changes nothing. The same again writes nothing."""
        ...

    async def deletions(self) -> list[Deletion]:
        """Those that the store has not carried out, as far as the metadata knows."""
        ...

    async def carried_out(self, deletion: Deletion) -> None: ...

    async def set_generation(self, kind: Kind, name: str, generation: int, was: int) -> bool:
        """Give a topic or group the generation that the store knows it by. False: it has not the
        generation `was`, or is not there; the snapshot says what is."""
        ...

    def caller(self, principal: str | None) -> Caller:
        """Who has the rights of a principal at any moment; None: of nobody in particular."""
        ...

    @property
    def members(self) -> Memberships: ...

    @property
    def offset_snapshots(self) -> OffsetSnapshots: ...

    @property
    def first_uses(self) -> FirstUses: ...

    @property
    def consumptions(self) -> ConsumptionRows: ...

    @property
    def schedules(self) -> ScheduleBook: ...

    async def load_offsets(self, group: str | None = None) -> list[CommittedOffset]: ...

    async def delete_offsets(
        self,
        group: str,
        topic: str,
        first_use_ms: int | None = None,
        *,
        elsewhere: Collection[int] = (),
    ) -> None:
        """Forget the group's offsets in the topic, but for those of the queues `elsewhere`, which
        other shards forget, and its first use where that was then."""
        ...

    async def commit_offsets(
        self, rows: Sequence[CommittedOffset], *, force: bool = False
    ) -> list[CommittedOffset]:
        """In one transaction; lower than stored changes nothing unless forced.

        Returns the rows left out because their group or topic does not exist.
        """
        ...

    async def secret(self, name: str) -> bytes: ...
