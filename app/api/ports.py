"""What the HTTP shell needs of the broker and of the cluster's metadata.

Declared here, by the user of the ports, so that the shell can be tested against small fakes; the
real ones fit structurally.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from app.broker import ports as broker_ports
from app.broker.dedup.deduplicator import Deduplicator
from app.broker.delays.delayed_messages import DelayedMessages
from app.broker.failures.blocked_keys import BlockedKeys
from app.broker.failures.dead_letters import DeadLetters
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_pause import GroupPause
from app.broker.groups.members import Members
from app.broker.groups.offset_admin import Committer, OffsetAdmin
from app.broker.health import Health
from app.broker.insight.delivery_status import DeliveryStatusReader
from app.broker.insight.lag import LagReader
from app.broker.jobs import Jobs
from app.broker.ports import Group, StoreStatus, Topic
from app.broker.produce.request_reply import Requests
from app.broker.read.browser import Browser
from app.broker.read.topic_ends import TopicEnds
from app.broker.results import (
    AckedAndSent,
    BatchItem,
    Committed,
    Delivery,
    Extend,
    FrameResult,
    Nack,
    PullRequest,
    PullResult,
    QueuePosition,
    QueueRange,
    ReceiveRequest,
    ReceiveResult,
    Send,
    SendResult,
    SettleAction,
    SettleResult,
)
from app.broker.schedules.schedules import Schedules
from app.broker.settings_changes import SettingsChanges
from app.broker.streams.stream_registry import StreamRegistry
from app.broker.tracing.message_trace import MessageTrace
from app.broker.transactions.transactions import Transactions
from app.domain.delays import Due
from app.domain.errors import CurlewError, Quota
from app.domain.message import Message, StoredMessage
from app.domain.positions import FlushMode
from app.runtime.loop_lag import LoopLag


class DataPlane(Protocol):
    """The broker's facade, as far as HTTP uses it."""

    @property
    def browser(self) -> Browser: ...

    @property
    def requests(self) -> Requests: ...

    @property
    def store_id(self) -> bytes: ...

    @property
    def streams(self) -> StreamRegistry: ...

    @property
    def waiting_quota(self) -> Quota: ...

    async def send(
        self,
        topic: str,
        message: Message,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        due: Due | None = None,
    ) -> SendResult: ...

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[BatchItem | CurlewError],
        *,
        queue_id: int | None = None,
        spread: bool = False,
        strict: bool = False,
        flush: FlushMode | None = None,
    ) -> list[SendResult | CurlewError]: ...

    async def send_frame(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
    ) -> FrameResult: ...

    @property
    def producers(self) -> Deduplicator:
        """Sends that are stored once."""
        ...

    async def pull(self, topic: str, queue_id: int, request: PullRequest) -> PullResult: ...

    def decode(self, record: memoryview) -> StoredMessage: ...

    async def receive(
        self, topic: str, group: str, request: ReceiveRequest, *, gone: Callable[[], bool]
    ) -> ReceiveResult: ...

    def give_back(self, deliveries: Sequence[Delivery]) -> None: ...

    async def settle(
        self,
        topic: str,
        group: str,
        *,
        acks: Sequence[str] = (),
        nacks: Sequence[Nack] = (),
        extends: Sequence[Extend] = (),
        dead_letters: Sequence[Nack] = (),
    ) -> list[SettleResult]: ...

    async def ack_and_send(
        self, topic: str, group: str, acks: Sequence[str], sends: Sequence[Send]
    ) -> AckedAndSent: ...

    async def settle_one(
        self,
        handle: str,
        action: SettleAction,
        *,
        delay_ms: int | None = None,
        invisible_ms: int | None = None,
        reason: str | None = None,
    ) -> SettleResult: ...

    @property
    def transactions(self) -> Transactions:
        """Messages that become visible when their producer says so."""
        ...


class Broker(DataPlane, Protocol):
    """The whole facade: the data plane, and what the control plane asks of the broker."""

    async def offsets(
        self, topic: str, at: Literal["earliest", "latest"] | int
    ) -> list[QueuePosition]:
        """Where reading would start in every queue of the topic."""
        ...

    def queue_bounds(self, topic: str) -> list[QueueRange]: ...

    @property
    def positions(self) -> TopicEnds:
        """Where several topics stand, with waiting."""
        ...

    @property
    def schedules(self) -> Schedules:
        """Messages that are sent again and again."""
        ...

    @property
    def scheduled(self) -> DelayedMessages:
        """Delayed messages that wait."""
        ...

    @property
    def dead_letters(self) -> DeadLetters:
        """The dead letters of all groups."""
        ...

    @property
    def operations(self) -> Jobs:
        """Work that outlives its request."""
        ...

    @property
    def trails(self) -> MessageTrace:
        """What became of messages."""
        ...

    @property
    def lag(self) -> LagReader:
        """How far groups are behind."""
        ...

    @property
    def whereabouts(self) -> DeliveryStatusReader:
        """Where a message stands in a group."""
        ...

    async def message(self, topic: str, message_id: str) -> StoredMessage: ...

    def committed_offsets(self, group: str, topic: str) -> list[QueuePosition]: ...

    async def commit_offsets(
        self,
        group: str,
        topic: str,
        rows: Sequence[QueuePosition],
        *,
        force: bool = False,
        take_over: bool = False,
        committer: Committer | None = None,
    ) -> Committed: ...

    @property
    def consumptions(self) -> Consumptions:
        """How groups consume topics: by leases, or by assigned queues."""
        ...

    @property
    def members(self) -> Members:
        """Members of groups, and their queues."""
        ...

    @property
    def flow(self) -> GroupPause:
        """Pausing and resuming groups."""
        ...

    @property
    def parking(self) -> BlockedKeys:
        """Blocked keys of groups in order."""
        ...

    @property
    def group_positions(self) -> OffsetAdmin:
        """Committed offsets of groups: resets and snapshots."""
        ...

    @property
    def settings_changes(self) -> SettingsChanges:
        """Changing and deleting topics and groups."""
        ...

    def store_status(self) -> StoreStatus: ...

    @property
    def waiting_count(self) -> int: ...

    @property
    def health(self) -> Health: ...

    @property
    def loop_lag(self) -> LoopLag: ...


_Item_co = TypeVar("_Item_co", covariant=True)


class Page(Protocol[_Item_co]):
    """One page of a listing."""

    @property
    def items(self) -> Sequence[_Item_co]: ...
    @property
    def next_page_token(self) -> str | None: ...


class Node(Protocol):
    """A node as it registered itself."""

    @property
    def node_id(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def store_id(self) -> bytes: ...
    @property
    def started_ms(self) -> int: ...
    @property
    def seen_ms(self) -> int: ...


class Metadata(broker_ports.Metadata, Protocol):
    """The cluster's metadata: what the broker needs of it, and listings."""

    def list_topics(
        self, *, prefix: str = "", page_size: int = 100, page_token: str | None = None
    ) -> Page[Topic]: ...

    def list_groups(
        self, *, prefix: str = "", page_size: int = 100, page_token: str | None = None
    ) -> Page[Group]: ...

    async def list_nodes(self) -> Sequence[Node]: ...
