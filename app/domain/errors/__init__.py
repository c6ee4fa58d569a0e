"""The error tree. Codes are stable; SDKs switch on them. HTTP statuses: `app.api.http.errors`.

    CurlewError
    ├── InvalidRequest            the request can never succeed as it is
    │   ├── IllegalTopic · IllegalGroup · IllegalTag · IllegalKey · IllegalProperty
    │   ├── IllegalOffset · IllegalInvisibleTime · IllegalFilter · IllegalWait · IllegalMessageId
    │   ├── IllegalDeliveryTime · InvalidRecallHandle · IllegalSetting · IllegalMember · IllegalPage
    │   ├── InvalidReceiptHandle · MalformedBody · MalformedFrame · UnsupportedContentType
    │   └── BodyTooLarge · PropertiesTooLarge · BatchTooLarge · IdempotencyKeyReused
    ├── NoPermission              a topic takes no messages, or gives none
    ├── NotFound                  TopicNotFound · QueueNotFound · GroupNotFound · MessageNotFound
    │   ├── ScheduleNotFound · ProducerNotFound · TransactionNotFound · RequestNotFound
    │   ├── OperationNotFound · NamespaceNotFound · MemberNotFound · SnapshotNotFound
    │   └── SubscriptionNotFound · ShardNotFound
    ├── StateConflict             the state of the resource forbids it
    │   ├── OffsetExpired · OffsetOutOfRange · ReceiptHandleExpired · TopicTypeConflict
    │   ├── AlreadyDelivered · PreconditionFailed · StaleGeneration · QueueNotOwned
    │   ├── BroadcastGroup · ConsumptionConflict · TransactionConflict · RequestExpired
    │   ├── NamespaceNotEmpty · SettingFixed · SequenceOutOfOrder · AlreadyStored
    │   ├── ProducerFenced · ProducerSealed · HandOverRefused · UncleanElectionRefused
    │   └── ReplicaNeeded · DrainRefused
    ├── NotPermitted              and others of who may do what: `domain.access.refusals`
    ├── NotLeader                 another node leads the shard
    ├── OtherShard                one step is of several shards
    ├── NoReply                   the request is stored, and no reply came in time
    ├── FlushDiskTimeout          the message is written, and not on the medium in time
    ├── ReplicationTimeout        written here, and not confirmed by other replicas in time
    ├── TryAgain                  the same request may succeed later
    │   ├── SystemBusy · TimersNotReady · TooManyRequests · TopicFull · RequestInProgress
    │   ├── ShuttingDown · MetadataUnavailable · ShardUnavailable · RelayInterrupted
    │   └── NotEnoughReplicas
    └── NodeFault                 we are broken: StoreFailed · DiskFull · InternalError

`outcome` is set on errors of sends: "not_stored" means that the message will never be delivered,
"unknown" means that it may have been stored, "stored" that it was: a request without an answer, or
a repetition whose first result is not known any more.
"""

from app.domain.errors.conflicts import (
    AlreadyDelivered,
    AlreadyStored,
    BroadcastGroup,
    ConsumptionConflict,
    NamespaceNotEmpty,
    NoPermission,
    OffsetExpired,
    OffsetOutOfRange,
    PreconditionFailed,
    ProducerFenced,
    ProducerSealed,
    QueueNotOwned,
    ReceiptHandleExpired,
    RequestExpired,
    SequenceOutOfOrder,
    SettingFixed,
    StaleGeneration,
    StateConflict,
    SubscriptionConflict,
    TopicTypeConflict,
    TransactionConflict,
)
from app.domain.errors.error import CurlewError, Field, Outcome
from app.domain.errors.faults import (
    DiskFull,
    InternalError,
    NodeFault,
    StoreFailed,
)
from app.domain.errors.missing import (
    ClientNotFound,
    GroupNotFound,
    MemberNotFound,
    MessageNotFound,
    NamespaceNotFound,
    NotFound,
    OperationNotFound,
    ProducerNotFound,
    QueueNotFound,
    RequestNotFound,
    ScheduleNotFound,
    SnapshotNotFound,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionNotFound,
)
from app.domain.errors.requests import (
    BatchTooLarge,
    BodyTooLarge,
    IdempotencyKeyReused,
    IllegalDeliveryTime,
    IllegalFilter,
    IllegalGroup,
    IllegalInvisibleTime,
    IllegalKey,
    IllegalMember,
    IllegalMessageId,
    IllegalOffset,
    IllegalPage,
    IllegalProperty,
    IllegalSetting,
    IllegalTag,
    IllegalTopic,
    IllegalWait,
    InvalidRecallHandle,
    InvalidReceiptHandle,
    InvalidRequest,
    MalformedBody,
    MalformedFrame,
    PropertiesTooLarge,
    UnsupportedContentType,
)
from app.domain.errors.retries import (
    FlushDiskTimeout,
    MetadataUnavailable,
    NoReply,
    ReplicationTimeout,
    RequestInProgress,
    ShuttingDown,
    SystemBusy,
    TimersNotReady,
    TooManyRequests,
    TopicFull,
    TryAgain,
)
from app.domain.errors.shards import (
    DrainRefused,
    HandOverRefused,
    NotEnoughReplicas,
    NotLeader,
    OtherShard,
    RelayInterrupted,
    ReplicaNeeded,
    ReplicaNotFound,
    ShardNotFound,
    ShardUnavailable,
    UncleanElectionRefused,
)

__all__ = [
    "AlreadyDelivered",
    "AlreadyStored",
    "BatchTooLarge",
    "BodyTooLarge",
    "BroadcastGroup",
    "ClientNotFound",
    "ConsumptionConflict",
    "CurlewError",
    "DiskFull",
    "DrainRefused",
    "Field",
    "FlushDiskTimeout",
    "GroupNotFound",
    "HandOverRefused",
    "IdempotencyKeyReused",
    "IllegalDeliveryTime",
    "IllegalFilter",
    "IllegalGroup",
    "IllegalInvisibleTime",
    "IllegalKey",
    "IllegalMember",
    "IllegalMessageId",
    "IllegalOffset",
    "IllegalPage",
    "IllegalProperty",
    "IllegalSetting",
    "IllegalTag",
    "IllegalTopic",
    "IllegalWait",
    "InternalError",
    "InvalidRecallHandle",
    "InvalidReceiptHandle",
    "InvalidRequest",
    "MalformedBody",
    "MalformedFrame",
    "MemberNotFound",
    "MessageNotFound",
    "MetadataUnavailable",
    "NamespaceNotEmpty",
    "NamespaceNotFound",
    "NoPermission",
    "NoReply",
    "NodeFault",
    "NotEnoughReplicas",
    "NotFound",
    "NotLeader",
    "OffsetExpired",
    "OffsetOutOfRange",
    "OperationNotFound",
    "OtherShard",
    "Outcome",
    "PreconditionFailed",
    "ProducerFenced",
    "ProducerNotFound",
    "ProducerSealed",
    "PropertiesTooLarge",
    "QueueNotFound",
    "QueueNotOwned",
    "ReceiptHandleExpired",
    "RelayInterrupted",
    "ReplicaNeeded",
    "ReplicaNotFound",
    "ReplicationTimeout",
    "RequestExpired",
    "RequestInProgress",
    "RequestNotFound",
    "ScheduleNotFound",
    "SequenceOutOfOrder",
    "SettingFixed",
    "ShardNotFound",
    "ShardUnavailable",
    "ShuttingDown",
    "SnapshotNotFound",
    "StaleGeneration",
    "StateConflict",
    "StoreFailed",
    "SubscriptionConflict",
    "SubscriptionNotFound",
    "SystemBusy",
    "TimersNotReady",
    "TooManyRequests",
    "TopicFull",
    "TopicNotFound",
    "TopicTypeConflict",
    "TransactionConflict",
    "TransactionNotFound",
    "TryAgain",
    "UncleanElectionRefused",
    "UnsupportedContentType",
]
