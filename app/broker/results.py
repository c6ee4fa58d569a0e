"""Values that go into the parts of the broker and come out of them. No behaviour.

Used by `api` and by tests. Wall times end in `_ms`, waiting times in `_s`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from msgspec import Struct
from typing_extensions import override

from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.delays import Due
from app.domain.errors import CurlewError
from app.domain.limits import DEFAULT_PULL_MESSAGES, DEFAULT_RECEIVE_MESSAGES, MIB
from app.domain.message import Message, StoredMessage
from app.store import ReadResult


class SendResult(NamedTuple):
    """One stored message. A result always means SEND_OK; anything else is an error."""

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    """-1 when the message is delayed: it has no place in its queue yet."""
    store_time_ms: int
    deliver_time_ms: int | None = None
    """When a delayed message is due."""
    recall_handle: str | None = None
    """Names a delayed message until it is delivered."""


class BatchItem(Struct, frozen=True):
    """One entry of a batch; `queue_id` overrides the choice of queue for this entry."""

    message: Message
    queue_id: int | None = None
    due: Due | None = None
    """Deliver it then, not at once."""


@dataclass(frozen=True, slots=True)
class FrameResult:
    """A stored batch frame: `count` messages at dense offsets of one queue, or delayed."""

    topic: str
    queue_id: int
    first_queue_offset: int
    """-1 when all are delayed."""
    count: int
    store_time_ms: int
    message_ids: Sequence[str]
    delayed_count: int = 0
    """Of the messages, how many are delivered later."""
    first_waiting_offset: int = -1
    """Where the first of those waits, the others behind it."""


class PullStatus(StrEnum):
    """RocketMQ's pull results, but for OFFSET_ILLEGAL, which is an error here."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Where to read and how much. Exactly one of `offset`, `timestamp_ms` and `tail` is given."""

    offset: int | None = None
    timestamp_ms: int | None = None
    """Start at the first message stored at or after this time."""
    tail: int | None = None
    """Start so many messages before the end."""
    max_messages: int = DEFAULT_PULL_MESSAGES
    max_bytes: int = MIB
    min_messages: int = 1
    """A waiting pull is answered as soon as so many messages match."""
    wait_s: float = 0.0
    filter: str | None = None
    clamp: bool = False
    """Move an offset outside the bounds to the nearest one instead of failing."""
    end_offset: int | None = None
    """Read below this offset only."""
    until_ms: int | None = None
    """Read what was stored before this time only."""
    in_place: bool = False
    """Messages may be left where they are, as `RecordsInPlace`; only without waiting."""


class PullResult(NamedTuple):
    """Answer to a pull; `read` has the records as stored (decode with `Broker.decode`)."""

    status: PullStatus
    read: ReadResult
    next_offset: int
    min_offset: int
    max_offset: int
    up_to_date: bool
    scanned: int
    clamped: bool
    is_ended: bool = False
    """The range that was asked for is read; nothing more can come into it."""
    suggests_any: bool = False
    """It came from the disk, far behind: another replica had better be read."""


class Takes(StrEnum):
    """What of a receive is to be done, where it is of several shards and not all is this one's."""

    WHAT_IS_THERE = "there"
    ENOUGH = "enough"
    """Nothing, when fewer than `min_messages` are ready."""
    EARLIER = "earlier"
    """What the same attempt was given before, and nothing else."""
    NOTHING = "nothing"
    """Only begin: the group has the topic, its filter, and what `force` ends."""
    COUNT = "count"
    """Only tell how much is left, or would be if the group began now; it makes no group and begins
    nothing, but the group has its filter."""


class ReceiveRequest(Struct, frozen=True):
    """How much to lease, for how long, and how long to wait for it."""

    max_messages: int = DEFAULT_RECEIVE_MESSAGES
    max_bytes: int = MIB
    wait_s: float = 0.0
    min_messages: int = 1
    """A waiting receive is answered as soon as so many are ready; nothing is leased meanwhile."""
    invisible_ms: int | None = None
    """None: the group's."""
    filter: str | None = None
    attempt_id: str | None = None
    """Repeating a request with the same id returns the same messages while they are leased."""
    client_id: str | None = None
    """Who receives, for the bound of one member."""
    force: bool = False
    """Lease although members of the group read the topic: they lose it."""
    replace_subscription: bool = False
    """Read with this filter although the group reads the topic with another one."""
    takes: Takes = Takes.WHAT_IS_THERE
    principal: str | None = None
    """Whose key it was asked with, for the quota on leases."""


class Delivery(Struct, eq=False, gc=False):
    """One leased message. `attempt` is 1 for the first delivery.

    It is the record as stored, and becomes a message when somebody asks for it.
    """

    content: StoredMessage | memoryview
    receipt_handle: str
    attempt: int
    max_attempts: int
    invisible_until_ms: int
    decode: Callable[[memoryview], StoredMessage] | None = None
    """Goes with a record."""

    @property
    def message(self) -> StoredMessage:
        content = self.content
        if isinstance(content, StoredMessage):
            return content
        assert self.decode is not None
        self.content = message = self.decode(content)
        return message

    @override
    def __eq__(self, other: object) -> bool:
        """Whether a client would be told the same."""
        return isinstance(other, Delivery) and self._told() == other._told()

    __hash__ = None  # type: ignore[assignment]  # its content changes

    def _told(self) -> tuple[StoredMessage, str, int, int, int]:
        lease = self.receipt_handle, self.attempt, self.max_attempts, self.invisible_until_ms
        return self.message, *lease


class ReceiveResult(NamedTuple):
    """Leased messages, and how many more were ready for the group when they were taken."""

    deliveries: list[Delivery]
    backlog: int
    is_paused: bool = False
    """An operator has paused the group: nothing is handed out."""
    effects: Sequence[ConsumptionEffect] = ()
    """What `force` has ended."""


class Nack(NamedTuple):
    """Return a message now, or after a delay (None: as the group's policy says), or give it up."""

    receipt_handle: str
    delay_ms: int | None = None
    reason: str | None = None
    is_counted: bool = True
    """False, in a group in order: the delivery is no attempt."""


class Extend(NamedTuple):
    """Keep a message for `invisible_ms` from now; the answer has a new handle."""

    receipt_handle: str
    invisible_ms: int


SettleAction = Literal["ack", "nack", "extend", "dead_letter", "release"]


class SettleResult(Struct, frozen=True):
    """What became of one handle. `error` is None when it succeeded."""

    receipt_handle: str
    action: SettleAction
    error: CurlewError | None = None
    new_handle: str | None = None
    invisible_until_ms: int | None = None


class Send(NamedTuple):
    """A message and the topic that it goes to."""

    topic: str
    item: BatchItem | CurlewError


class AckedAndSent(NamedTuple):
    """One result per handle and per message, in order. Either all succeeded or nothing was done."""

    acks: list[SettleResult]
    sends: list[SendResult | CurlewError]
    refused: CurlewError | None
    """Why nothing was done: the first error of an entry."""


class QueuePosition(NamedTuple):
    """An offset in one queue of the topic that was asked about."""

    queue_id: int
    offset: int


class Committed(NamedTuple):
    """What is committed after a commit, and what it has ended by `take_over`."""

    offsets: list[QueuePosition]
    effects: Sequence[ConsumptionEffect]


class QueueRange(NamedTuple):
    """Readable offsets of one queue, half-open."""

    queue_id: int
    min_offset: int
    max_offset: int
