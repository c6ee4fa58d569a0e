"""What the broker needs from its neighbours: the store and the metadata, as protocols.

`app.store.MessageStore` and `app.cluster.Metadata` satisfy them; so do the fakes of the tests.
The value types are the store's own and the domain's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from app.broker.position_ports import FirstUses, OffsetSnapshots
from app.domain.access.caller import Caller
from app.domain.changes.conditions import Changed, Terms
from app.domain.changes.merging import Named
from app.domain.consumers.consumption import KeptSubscription, SubscriptionPair
from app.domain.consumers.membership import GroupPulse, Membership, Rebalance
from app.domain.identity import Deletion, Kind
from app.domain.message import Message, StoredMessage
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
from app.runtime.shortage_log import Lack
from app.store import (
    Answer,
    Appended,
    Done,
    FirstSteps,
    KeyedRecords,
    QueueBounds,
    ReadResult,
    RetentionHolds,
    StepPart,
    TimerLog,
    Unit,
)
from app.store.formats.frame.batch_frame import RequestFrame


class StoreStatus(Protocol):
    """The part of the store's status that the broker reports."""

    @property
    def failed(self) -> str | None: ...
    @property
    def refusal(self) -> str | None: ...
    @property
    def start(self) -> int: ...
    @property
    def written_end(self) -> int: ...
    @property
    def flushed_end(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def lacks(self) -> tuple[Lack, ...]: ...
    @property
    def clock_lead_ms(self) -> int:
        """How far store times are ahead of the clock, when that is more than a clock's errors."""
        ...

    @property
    def clock_jump_ms(self) -> int:
        """How far the clock has jumped ahead of the time by which messages grow old."""
        ...

    @property
    def damages(self) -> Mapping[str, int]:
        """What was found damaged since the start, by kind; kinds without any are left out."""
        ...

    @property
    def damages_left(self) -> Mapping[str, int]: ...  # without what was put right


class Frame(Protocol):
    """A batch frame that has been parsed and checked."""

    @property
    def count(self) -> int: ...


class StoredNames(Protocol):
    """The names of topics that a store knows: those that live, and those that were deleted."""

    @property
    def deleted_names(self) -> int:
        """Names of which nothing lives."""
        ...

    @property
    def deleted_queues(self) -> int:
        """Their queues that ever had a message."""
        ...

    @property
    def queue_total(self) -> int:
        """Queues of all names that ever had a message."""
        ...

    def queue_count(self, topic: str) -> int | None:
        """The same of one name; None: not known."""
        ...


class QueueRecords(Protocol):
    """What reading a queue by offset needs of a store: of one that leads, or one that only follows.
    Event loop, and reader threads with `wait_for_disk`."""

    def bounds(self, topic: str, queue_id: int) -> QueueBounds: ...

    def next_offset(self, topic: str, queue_id: int) -> int:
        """What the next message of a queue gets."""
        ...

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        tag_hashes: frozenset[int] | None = None,
        end_offset: int | None = None,
        in_place: bool = False,
        wait_for_disk: bool = False,
    ) -> ReadResult: ...

    def decode(self, record: memoryview) -> StoredMessage: ...


class Store(QueueRecords, Protocol):
    """The local log. Event loop only, but for reads with `wait_for_disk`."""

    on_arrival: Callable[[str, int], object]

    @property
    def names(self) -> StoredNames: ...

    @property
    def pins(self) -> RetentionHolds:
        """What retention must leave."""
        ...

    @property
    def store_id(self) -> bytes:
        """Four bytes; part of the message ids that the store derives from positions."""
        ...

    @property
    def has_gate(self) -> bool:
        """Whether what is written is confirmed later, by other replicas."""
        ...

    @property
    def first_steps(self) -> FirstSteps:
        """What must be in the log before anything else that is appended from now on."""
        ...

    def append(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[Message],
        flush: FlushMode,
        done: Done,
        generation: int = 0,
        answer: Answer | None = None,
    ) -> Appended:
        """`answer` hears when this node has it, where there is a gate. Raises `TopicNotFound` when
        this generation of the topic was deleted. 0: of a name without generations."""
        ...

    def append_frame(
        self,
        topic: str,
        queue_id: int,
        frame: RequestFrame,
        flush: FlushMode,
        done: Done,
        entry: StepPart | None = None,
        generation: int = 0,
        answer: Answer | None = None,
    ) -> Appended:
        """With an `entry` before the frame: a crash may leave it with the first records only."""
        ...

    def append_step(
        self,
        parts: Sequence[StepPart],
        flush: FlushMode,
        done: Done,
        *,
        is_send: bool = False,
        answer: Answer | None = None,
    ) -> list[Appended]:
        """Messages for several queues; all become readable together, also across a crash.

        With records for system topics it is taken on a nearly full disk, unless it `is_send`.
        """
        ...

    def trim(self, topic: str, queue_id: int, min_offset: int) -> None: ...

    def flush(self, done: Done) -> None:
        """Bring everything appended so far to the medium."""
        ...

    def timer_log(self) -> TimerLog:
        """The timer log beside this store. For one owner."""
        ...

    def read_known(
        self, asked: Sequence[tuple[str, int, int, int]], max_bytes: int
    ) -> Sequence[ReadResult | None]:
        """Of several queues (topic, queue id, first offset, end) all that is asked for, or None
        where `read` is to be asked; never waits for the disk."""
        ...

    def read_message(
        self, message_id: str, *, topic: str | None = None, wait_for_disk: bool = False
    ) -> StoredMessage | None:
        """By an id that the store gave; with `topic` also by one that a client gave."""
        ...

    def find_by_key_before(
        self,
        wanted: tuple[str, str, int, int],
        before: int | None,
        *,
        max_messages: int,
        max_bytes: int,
        wait_for_disk: bool = False,
    ) -> KeyedRecords:
        """The newest records with a topic, key, and store time, before a physical offset."""
        ...

    def units(
        self, topic: str, queue_id: int, offset: int, end: int, *, wait_for_disk: bool = False
    ) -> list[Unit]:
        """Physical offset, size and tag hash of messages, without reading them."""
        ...

    def offset_behind(
        self, topic: str, queue_id: int, physical_offset: int, *, wait_for_disk: bool = False
    ) -> int:
        """The first offset of a queue stored at a physical offset or behind it."""
        ...

    def find_by_key(
        self,
        topic: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = ...,
        max_messages: int = 64,
        *,
        wait_for_disk: bool = False,
    ) -> list[memoryview]:
        """The newest records of a topic with a key or client-given id, in the log's order."""
        ...

    def average_bytes(self, topic: str, queue_id: int) -> int | None:
        """Size of a stored record of the queue, from a sample; None when there is none."""
        ...

    def delete_topic(self, topic: str, generation: int = 0, done: Done | None = None) -> bool:
        """Make all of a generation unreadable at once; `done` when that is safe. False: it was."""
        ...

    def begin_topic(self, topic: str, generation: int) -> None:
        """Let a generation begin, before its first message. 0: a deleted retry topic is used
        again."""
        ...

    def generation(self, topic: str) -> int:
        """What lives in the topic's queues; 0: nothing that is known."""
        ...

    def is_gone(self, topic: str, generation: int) -> bool:
        """Whether a generation that the metadata does not name was deleted, or replaced."""
        ...

    def hidden_topics(self, known: Iterable[str]) -> list[str]:
        """Names that hold messages or a generation, were not deleted, and are not `known`."""
        ...

    def status(self) -> StoreStatus: ...


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
    def schedules(self) -> ScheduleBook: ...

    async def load_offsets(self, group: str | None = None) -> list[CommittedOffset]: ...

    async def delete_offsets(self, group: str, topic: str, first_use_ms: int | None = None) -> None:
        """Forget the group's offsets in the topic, and its first use where that was then."""
        ...

    async def commit_offsets(
        self, rows: Sequence[CommittedOffset], *, force: bool = False
    ) -> list[CommittedOffset]:
        """In one transaction; lower than stored changes nothing unless forced.

        Returns the rows left out because their group or topic does not exist.
        """
        ...

    async def secret(self, name: str) -> bytes: ...
