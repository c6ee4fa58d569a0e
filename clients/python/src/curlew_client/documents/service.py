"""What the node says about the node, its configuration, namespaces and operations."""

from typing import Any, Literal, NotRequired, TypedDict

ConditionCode = Literal[
    "STARTING",
    "SHUTTING_DOWN",
    "NOT_LEADER",
    "STORE_FAILED",
    "DISK_FULL",
    "SYSTEM_BUSY",
    "STORE_DAMAGED",
    "CLOCK_BEHIND",
    "CLOCK_AHEAD",
    "CLOCK_APART",
    "METADATA_UNAVAILABLE",
    "POLICY_REGRESSED",
    "POLICY_TOO_OLD",
    "TIMERS_NOT_READY",
    "DELIVERY_FAILING",
    "SERVICE_FAILING",
]


class Condition(TypedDict):
    """One thing that is the matter, and what to do about it."""

    code: ConditionCode
    detail: str
    hint: str


class Readiness(TypedDict):
    """Whether the node takes requests, and why not."""

    status: Literal["ready", "not_ready"]
    reasons: list[Condition]
    degraded: list[Condition]


class Setting(TypedDict):
    """One setting. Its name is that in the file, without `limit_` in the table `[limits]`;
    in capitals behind `CURLEW_` it is that in the environment."""

    name: str
    value: Any
    default: Any
    unit: str | None
    source: Literal["default", "stored", "environment", "file", "flag"]
    changeable: bool
    restart: bool


class Config(TypedDict):
    """All settings of a node, by name."""

    settings: list[Setting]
    version: int


class ConfigChange(TypedDict):
    """All settings after a change; with `dry_run`, as they would be."""

    settings: list[Setting]
    version: int
    dry_run: bool
    changed: dict[str, list[Any]]
    overruled: list[str]


class ErrorCode(TypedDict):
    """A code that problem documents may carry."""

    code: str
    status: int
    title: str
    retryable: bool
    description: str


class ErrorCodeList(TypedDict):
    """All codes, by name."""

    error_codes: list[ErrorCode]


OperationState = Literal["running", "succeeded", "failed", "cancelled"]


class Operation(TypedDict):
    """One operation. `total` is an estimate while it runs; `skipped` could not be done."""

    operation_id: str
    kind: str
    state: OperationState
    total: int
    done: int
    skipped: int
    started_ms: int
    ended_ms: int | None
    problem: str | None
    namespace: str
    partial: NotRequired[list[str]]


class Namespace(TypedDict):
    """A namespace. `version` is also its ETag."""

    namespace: str
    topics: int
    groups: int
    created_ms: int
    version: int


class NamespaceList(TypedDict):
    """One page of namespaces, by name; the default one, which has no name, is not among
    them."""

    namespaces: list[Namespace]
    next_page_token: str | None


class NamespaceAnswer(Namespace):
    """A namespace after a change; with `dry_run`, as it would be."""

    dry_run: bool


class Node(TypedDict):
    """A node as it registered itself; `seen_ms` is its last sign of life."""

    node_id: str
    address: str
    store_id: str
    started_ms: int
    seen_ms: int
    shard: str
    advertise_url: str
    zone: str
    version: str


class Replica(TypedDict):
    """A node that has a replica of a shard."""

    node_id: str
    url: str | None
    in_sync: bool
    connected: bool | None
    lag_bytes: int | None
    lag_ms: int | None
    log_end: int | None
    out_of_sync_ms: int | None
    why: str | None


class Shard(TypedDict):
    """A shard: one log, led by one node."""

    name: str
    shard_id: str
    epoch: int
    leader: str | None
    leader_url: str | None
    answers: bool
    queues: int
    takes: str
    target_replicas: int
    min_in_sync: int
    high_watermark: int | None
    replicas: list[Replica]


class Cluster(TypedDict):
    """The nodes and shards, as the node that was asked knows them."""

    shard: str
    metadata_version: int
    nodes: list[Node]
    shards: list[Shard]


class HandOver(TypedDict):
    """A hand-over that has begun, or what it would be."""

    shard: str
    epoch: int
    leader: str
    to: str
    changed: bool
    dry_run: bool


class UncleanElection(TypedDict):
    """An unclean election that has begun, or what it would give up."""

    shard: str
    replica: str
    lost_from: int
    known_end: int | None
    newest_ms: int
    in_sync: list[str]
    answered: list[str]
    dry_run: bool


class ReplicaRemoval(TypedDict):
    """A node that was taken out of the replicas of a shard, or would be."""

    shard: str
    node_id: str
    was_in_sync: bool
    in_sync: list[str]
    left: list[str]
    dry_run: bool


class ReplicaReset(TypedDict):
    """A replica that begins anew, or would."""

    shard: str
    node_id: str
    was_in_sync: bool
    in_sync: list[str]
    keep_log: bool
    dry_run: bool


class GroupLeft(TypedDict):
    """What a group has not consumed of a topic in a shard."""

    group: str
    topic: str
    messages: int


class Left(TypedDict):
    """What is in a shard and would be lost with it."""

    groups: list[GroupLeft]
    not_consumed: int
    delayed: int
    transactions: int
    dead_letters: int
    stored: int


class Drain(TypedDict):
    """What a shard takes of new messages, or would, and what is in it."""

    shard: str
    takes: str
    changed: bool
    left: Left
    topics_only_here: list[str]
    empty: bool
    dry_run: bool


class ClusterEvent(TypedDict):
    """What happened to a node or a shard."""

    seq: int
    at_ms: int
    kind: str
    shard: str | None
    node_id: str | None
    epoch: int | None
    detail: str


class RouteQueue(TypedDict):
    """Where a queue is."""

    queue_id: int
    shard: str
    perm: str
    takes: str
    epoch: int
    leader: str | None
    replicas: list[str]


class Route(TypedDict):
    """Where the queues of a topic are."""

    topic: str
    generation: int
    metadata_version: int
    valid_ms: int
    write_queues: int
    queues: list[RouteQueue]


class Routes(TypedDict):
    """Where the queues of several topics are; topics that do not exist are `missing`."""

    metadata_version: int
    valid_ms: int
    routes: list[Route]
    missing: list[str]


class NodeList(TypedDict):
    """All nodes that ever registered."""

    nodes: list[Node]


class OperationList(TypedDict):
    """The operations that the nodes remember, the newest first."""

    operations: list[Operation]
    partial: NotRequired[list[str]]


class Cancel(Operation):
    """An operation that was asked to stop, or would be."""

    dry_run: bool
