"""What stands in the body of a poll and in its answer. msgspec structs only, as in `wire`."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from app.api.formats.wire import (
    Count,
    DeliveredMessage,
    Duration,
    FilterText,
    GapView,
    MessageView,
    Positive,
    ReasonText,
    SettleBody,
    SettleResult,
    TopicText,
    Wait,
)
from app.domain.consumers.allocation import VIRTUAL_NODES
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.consumers.membership import ConflictKind, StrategyName
from app.domain.limits import CLIENT_ID_CHARS_MAX, VIRTUAL_NODES_MAX
from app.domain.settings import GroupMode

QueueId = Annotated[int, Meta(ge=0, le=2**31 - 1, description="number of the queue, from 0 on")]
MemberId = Annotated[
    str,
    Meta(
        description="the member's own; two processes must not use the same",
        extra_json_schema={"maxLength": CLIENT_ID_CHARS_MAX},
    ),
]
Nodes = Annotated[
    int,
    Meta(ge=1, le=VIRTUAL_NODES_MAX, description="consistent_hash: places of a member on the ring"),
]

# --- request --------------------------------------------------------------------------------


class PollSubscription(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A topic that the member reads."""

    topic: TopicText
    filter: (
        Annotated[FilterText, Meta(description="a tag expression, or `sql:` and a condition")]
        | None
    ) = None


class PollQueue(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A queue of a topic."""

    topic: TopicText
    queue_id: QueueId


class PollStrategy(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """An allocation strategy with its particulars."""

    name: StrategyName
    virtual_nodes: Nodes = VIRTUAL_NODES
    rooms: Annotated[
        list[str], Meta(description="machine_room: rooms whose queues are consumed")
    ] = []
    brokers: Annotated[
        dict[str, list[str]],
        Meta(description="per topic the broker name of each queue; `room@broker` for rooms"),
    ] = {}
    inner: Annotated[
        StrategyName, Meta(description="machine_room_nearby: how the queues of a room are shared")
    ] = StrategyName.AVERAGELY


class PollCommitEntry(PollQueue, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """All messages of the queue below `offset` are done."""

    offset: Annotated[Count, Meta(description="one past the last message that is done")]
    since_generation: (
        Annotated[
            Count, Meta(description="of the queue, as `assigned` has it; the fence of the commit")
        ]
        | None
    ) = None


class HandBackEntry(PollQueue, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A message that was read and could not be dealt with."""

    queue_offset: Annotated[Count, Meta(description="of the message in its queue")]
    delay: (
        Annotated[Duration, Meta(description="until it comes again; default: the group's policy")]
        | None
    ) = None
    delay_ms: Annotated[Count, Meta(description="the same in milliseconds")] | None = None
    reason: ReasonText | None = None
    dead_letter: Annotated[bool, Meta(description="give it up instead")] = False


class PollPosition(PollQueue, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Where to read on in a queue."""

    offset: Annotated[Count, Meta(description="`next_offset` of the answer before")]


class PollBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything that a member says: who it is, what it has done, and what it wants."""

    client_id: MemberId
    subscriptions: Annotated[
        list[PollSubscription], Meta(min_length=1, description="all topics that the member reads")
    ]
    strategy: (
        Annotated[
            StrategyName | PollStrategy,
            Meta(description="default: what the oldest member names, else averagely"),
        ]
        | None
    ) = None
    room: Annotated[str, Meta(description="machine_room_nearby: where the member runs")] = ""
    queues: Annotated[
        list[PollQueue], Meta(description="configuration: the queues that the member wants")
    ] = []
    generation: (
        Annotated[
            Count,
            Meta(
                description="the last that was put into effect: revoked queues are let go. 0: the "
                "process has just started. Left out: nothing is confirmed"
            ),
        ]
        | None
    ) = None
    assignment_id: (
        Annotated[str, Meta(description="of the last answer; the wait ends when it changes")] | None
    ) = None
    wait: Wait | None = None
    max_messages: Annotated[Positive, Meta(description="default 256")] | None = None
    max_bytes: Annotated[Positive, Meta(description="of stored records; default 8 MiB")] | None = (
        None
    )
    max_poll_interval: (
        Annotated[
            Duration,
            Meta(description="without a poll for that long the member is taken out"),
        ]
        | None
    ) = None
    commits: list[PollCommitEntry] = []
    hand_backs: Annotated[
        list[HandBackEntry],
        Meta(description="to the group's retries of the topic, with the attempt counted"),
    ] = []
    settles: (
        Annotated[SettleBody, Meta(description="retries by receipt handle, as messages:settle")]
        | None
    ) = None
    positions: Annotated[
        list[PollPosition],
        Meta(
            description="`queues` of the answer before, in its order: the first has its turn "
            "first. A queue without one is read from its committed offset on"
        ),
    ] = []
    paused: Annotated[list[PollQueue], Meta(description="queues that are not read now")] = []


# --- answer ---------------------------------------------------------------------------------


class QueueNameView(Struct, frozen=True, gc=False):
    """A queue of a topic."""

    topic: str
    queue_id: int


class AssignedQueueView(Struct, frozen=True, gc=False):
    """A queue of the member. When `since_generation` is not the one that it remembers, what it has
    of the queue is void, and the queue begins at `offset`."""

    topic: str
    queue_id: int
    since_generation: int
    offset: Annotated[int, Meta(description="committed by the group")]


class PendingQueueView(Struct, frozen=True, gc=False):
    """A queue that comes to the member when `held_by` confirms the generation, or is gone."""

    topic: str
    queue_id: int
    held_by: str


class ConflictValueView(Struct, frozen=True):
    """One of the values that do not agree, and who holds it."""

    value: str
    client_ids: list[str]


class ConflictView(Struct, frozen=True):
    """What the members do not agree on, or what keeps queues without a reader."""

    kind: ConflictKind
    topic: str | None
    detail: str
    values: list[ConflictValueView]


PollStatus = Literal[
    "FOUND",
    "NO_NEW_MSG",
    "NO_MATCHED_MSG",
    "NOT_READ",
    "OFFSET_EXPIRED",
    "OFFSET_OUT_OF_RANGE",
    "FLOW_CONTROL",
    "NO_PERMISSION",
]


class PolledQueueView(Struct, frozen=True, gc=False):
    """How far a queue was read."""

    topic: str
    queue_id: int
    status: Annotated[
        PollStatus,
        Meta(
            description="NOT_READ: the answer was full before its turn, or it has to be read from "
            "the disk next time. OFFSET_EXPIRED, OFFSET_OUT_OF_RANGE: the position is not "
            "readable, `next_offset` is the nearest that is. FLOW_CONTROL: more than the group's "
            "`max_span` was read and not committed. NO_PERMISSION: the topic is not to be read"
        ),
    ]
    next_offset: Annotated[int, Meta(description="the position for the next poll")]
    min_offset: int
    max_offset: int
    gaps: list[GapView] | UnsetType = UNSET


class CommittedQueueView(Struct, frozen=True, gc=False):
    """What is committed in a queue by now."""

    topic: str
    queue_id: int
    offset: int


class RefusedEntryView(Struct, frozen=True, gc=False):
    """A commit or a hand-back that was not done."""

    topic: str
    queue_id: int
    offset: Annotated[int, Meta(description="`offset` or `queue_offset` of the entry")]
    code: str
    detail: str


class TakenAnswer(Struct, frozen=True):
    """To another node: what became of what a member has done."""

    committed: list[CommittedQueueView]
    refused: list[RefusedEntryView]
    settled: list[SettleResult]


class PollAnswer(Struct, frozen=True, kw_only=True):
    """The member's share, the messages of its queues, and what became of what it asked for."""

    group: str
    client_id: str
    generation: Annotated[int, Meta(description="put it into effect, and name it next time")]
    assignment_id: str
    lease_ms: Annotated[int, Meta(description="the next poll or heartbeat comes within that time")]
    mode: GroupMode
    strategy: StrategyName
    members: list[str]
    assigned: list[AssignedQueueView]
    revoked: Annotated[
        list[QueueNameView],
        Meta(description="stop reading, commit, and name the generation with the next poll"),
    ]
    pending: list[PendingQueueView]
    conflicts: list[ConflictView]
    effects: list[ConsumptionEffect]
    messages: Annotated[
        list[MessageView], Meta(description="queue by queue; each queue in its order")
    ]
    queues: Annotated[
        list[PolledQueueView],
        Meta(description="in the order of their turns next time: send them back as `positions`"),
    ]
    retries: Annotated[
        list[DeliveredMessage],
        Meta(description="handed back before and due now: settle each by its receipt handle"),
    ]
    committed: list[CommittedQueueView]
    refused: list[RefusedEntryView]
    poll_again_ms: Annotated[int, Meta(description="when to poll next; 0: at once")]
    settled: Annotated[list[SettleResult], Meta(description="one for each entry of `settles`")] | (
        UnsetType
    ) = UNSET
    paused: Annotated[bool, Meta(description="an operator has paused the group")] | UnsetType = (
        UNSET
    )
    partial: (
        Annotated[
            list[str],
            Meta(
                description="shards that did not answer: of the member's queues there nothing is "
                "here, and nothing was done; left out: none"
            ),
        ]
        | UnsetType
    ) = UNSET
