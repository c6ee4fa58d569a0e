"""What a poll asks for and what it gives. No behaviour. Times end in `_ms` (epoch) or `_s`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from app.broker.results import Delivery, Extend, Nack, SettleResult
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.consumers.membership import (
    Assignment,
    Conflict,
    Profile,
    QueueName,
    StrategyName,
)
from app.domain.errors import CurlewError
from app.domain.limits import DEFAULT_POLL_BYTES, DEFAULT_POLL_MESSAGES
from app.domain.settings import GroupMode
from app.store import ReadResult


class PollCommit(NamedTuple):
    """All below `offset` is done. `since_generation` as the assignment has it; None: the member
    has put the queue's newest into effect, by the poll's own generation."""

    queue: QueueName
    offset: int
    since_generation: int | None = None


class HandBack(NamedTuple):
    """A message that was read and not done: to the group's retries, or to its dead letters."""

    queue: QueueName
    queue_offset: int
    delay_ms: int | None = None
    """None: as the group's policy says."""
    reason: str | None = None
    is_dead_letter: bool = False


class Settles(Struct, frozen=True):
    """Retries that are settled, by receipt handle; of any topics."""

    acks: Sequence[str] = ()
    nacks: Sequence[Nack] = ()
    extends: Sequence[Extend] = ()
    dead_letters: Sequence[Nack] = ()
    releases: Sequence[str] = ()


class PollRequest(Struct, frozen=True):
    """Everything that a member says in one poll."""

    profile: Profile
    generation: int | None = None
    assignment_id: str | None = None
    wait_s: float = 0.0
    max_messages: int = DEFAULT_POLL_MESSAGES
    max_bytes: int = DEFAULT_POLL_BYTES
    max_interval_ms: int | None = None
    """Without a poll for that long, the member is taken out, whatever its heartbeats say."""
    commits: Sequence[PollCommit] = ()
    hand_backs: Sequence[HandBack] = ()
    settles: Settles | None = None
    positions: Mapping[QueueName, int] = {}
    """Where to read on, in the order in which the queues have their turn."""
    paused: frozenset[QueueName] = frozenset()
    force: bool = False
    """Join although the group leases one of the topics."""
    principal: str | None = None
    """Whose key it was asked with, for the quota on leases."""
    replace_subscription: bool = False
    """Read with these filters although the group reads a topic with another one."""
    joins: bool = True
    """The member may join, and its generation counts. False: another node has seen to that."""
    kept: frozenset[QueueName] = frozenset()
    """Queues that the member lets go of in no case yet: what it has done there is not written."""


class QueuePart(Struct):
    """What a poll has of one queue. `offset` is where to read on."""

    queue: QueueName
    offset: int
    status: str = "NOT_READ"
    min_offset: int = 0
    max_offset: int = 0
    reads: list[ReadResult] = []
    """At most two."""
    is_error: bool = False
    """The position is not readable; `offset` is the nearest that is."""

    @property
    def has_records(self) -> bool:
        """Messages were found."""
        return any(read.records for read in self.reads)

    @property
    def has_more(self) -> bool:
        """Messages are there that this part does not have."""
        return self.offset < self.max_offset


class Refused(NamedTuple):
    """An entry that was not done, and why. `offset` as the entry has it."""

    queue: QueueName
    offset: int
    error: CurlewError
    is_over: bool = False
    """Of a hand-back: the message is done or past its retention, so a commit may pass it."""


class CommittedQueue(NamedTuple):
    """What is committed in a queue now."""

    queue: QueueName
    offset: int


class Share(Struct, frozen=True):
    """What a member is told of the group and of its own queues."""

    assignment: Assignment
    offsets: Mapping[QueueName, int]
    """Of the assigned queues of this node's shard: where each begins."""
    mode: GroupMode
    strategy: StrategyName
    client_ids: Sequence[str]
    conflicts: Sequence[Conflict]
    effects: Sequence[ConsumptionEffect] = ()
    elsewhere: Sequence[str] = ()
    """Other shards that have queues of the member; nothing of them is here."""


class Taken(NamedTuple):
    """What became of what a member has done."""

    settled: Sequence[SettleResult]
    committed: Sequence[CommittedQueue]
    refused: Sequence[Refused]


class PollResult(Struct, frozen=True):
    """The answer."""

    share: Share
    parts: Sequence[QueuePart]
    """In the order in which the queues have their turn next time."""
    retries: Sequence[Delivery] = ()
    committed: Sequence[CommittedQueue] = ()
    refused: Sequence[Refused] = ()
    settled: Sequence[SettleResult] = ()
    poll_again_ms: int = 0
    is_paused: bool = False
    state: str = ""
    """Of the group and its queues here, before they were read; see `Poller.news`."""
    has_found: bool = False
    """There is something in it for which nobody waits any longer."""
