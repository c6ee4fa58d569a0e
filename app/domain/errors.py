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
    │   └── SubscriptionNotFound
    ├── StateConflict             the state of the resource forbids it
    │   ├── OffsetExpired · OffsetOutOfRange · ReceiptHandleExpired · TopicTypeConflict
    │   ├── AlreadyDelivered · PreconditionFailed · StaleGeneration · QueueNotOwned
    │   ├── BroadcastGroup · ConsumptionConflict · TransactionConflict · RequestExpired
    │   ├── NamespaceNotEmpty · SettingFixed · SequenceOutOfOrder · AlreadyStored
    │   └── ProducerFenced · ProducerSealed
    ├── NotPermitted              and others of who may do what: `domain.access.refusals`
    ├── NoReply                   the request is stored, and no reply came in time
    ├── FlushDiskTimeout          the message is written, and not on the medium in time
    ├── TryAgain                  the same request may succeed later
    │   ├── SystemBusy · TimersNotReady · TooManyRequests · TopicFull · RequestInProgress
    │   └── ShuttingDown · MetadataUnavailable
    └── NodeFault                 we are broken: StoreFailed · DiskFull · InternalError

`outcome` is set on errors of sends: "not_stored" means that the message will never be delivered,
"unknown" means that it may have been stored, "stored" that it was: a request without an answer, or
a repetition whose first result is not known any more.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from app.domain.quotas.quota import Quota

Outcome = Literal["not_stored", "stored", "unknown"]

Field = int | str | bool | list[str] | None
"""An extra member of a problem document."""


class CurlewError(Exception):
    """Root of the tree. `detail` says what is wrong, `hint` what to do about it.

    `fields` are extra members of the problem document; `pointer` is a JSON pointer into the body.
    """

    code: ClassVar[str] = "INTERNAL_SERVER_ERROR"
    title: ClassVar[str] = "The request failed"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        detail: str,
        *,
        hint: str | None = None,
        fields: Mapping[str, Field] | None = None,
        pointer: str | None = None,
        outcome: Outcome | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint
        self.fields = dict(fields or {})
        self.pointer = pointer
        self.outcome = outcome
        self.retry_after_s = retry_after_s
        self.suggest: Callable[[Callable[[str, str], bool]], str | None] | None = None
        """A better hint; it asks by kind and name whether the caller may know of a thing."""


class InvalidRequest(CurlewError):
    """The request can never succeed as it is."""

    code = "BAD_REQUEST"
    title = "The request is not valid"


class IllegalTopic(InvalidRequest):
    """A topic name that clients may not use."""

    code = "ILLEGAL_TOPIC"
    title = "The topic name is not allowed"


class IllegalGroup(InvalidRequest):
    """A group name that clients may not use."""

    code = "ILLEGAL_CONSUMER_GROUP"
    title = "The group name is not allowed"


class IllegalTag(InvalidRequest):
    """A tag that is too long or has forbidden characters."""

    code = "ILLEGAL_MESSAGE_TAG"
    title = "The tag is not allowed"


class IllegalKey(InvalidRequest):
    """Keys that are too many, empty, or have forbidden characters."""

    code = "ILLEGAL_MESSAGE_KEY"
    title = "A message key is not allowed"


class IllegalProperty(InvalidRequest):
    """A property whose name is reserved or whose text cannot be stored."""

    code = "ILLEGAL_MESSAGE_PROPERTY_KEY"
    title = "A message property is not allowed"


class IllegalMessageId(InvalidRequest):
    """A producer's id of a message that cannot be stored, or that another of the batch has."""

    code = "ILLEGAL_MESSAGE_ID"
    title = "The unique id is not allowed"


class IllegalOffset(InvalidRequest):
    """An offset that is negative or not a number."""

    code = "ILLEGAL_OFFSET"
    title = "The offset is not valid"


class IllegalInvisibleTime(InvalidRequest):
    """An invisible time outside the limits."""

    code = "ILLEGAL_INVISIBLE_TIME"
    title = "The invisible time is outside the limits"


class IllegalWait(InvalidRequest):
    """A long-poll time outside the limits."""

    code = "ILLEGAL_POLLING_TIME"
    title = "The waiting time is outside the limits"


class IllegalFilter(InvalidRequest):
    """A filter expression that cannot be parsed; `fields["position"]` says where."""

    code = "ILLEGAL_FILTER_EXPRESSION"
    title = "The filter expression is not valid"


class IllegalSetting(InvalidRequest):
    """A setting of a topic or group outside its range; `pointer` says which."""

    code = "ILLEGAL_SETTING"
    title = "A setting is not allowed"


class IllegalMember(InvalidRequest):
    """What a member of a group says of itself does not make sense; `pointer` says where."""

    code = "ILLEGAL_MEMBER"
    title = "The member's particulars are not valid"


class IllegalPage(InvalidRequest):
    """A page size outside the limits, or a page token that this service did not issue."""

    code = "ILLEGAL_PAGE"
    title = "The page asked for is not valid"


class InvalidReceiptHandle(InvalidRequest):
    """A receipt handle that this cluster did not issue."""

    code = "INVALID_RECEIPT_HANDLE"
    title = "The receipt handle is not valid"


class IllegalDeliveryTime(InvalidRequest):
    """A delay or delivery time that cannot be read or is beyond the limit."""

    code = "ILLEGAL_DELIVERY_TIME"
    title = "The delivery time is not allowed"


class InvalidRecallHandle(InvalidRequest):
    """A recall handle that this cluster did not issue."""

    code = "INVALID_RECALL_HANDLE"
    title = "The recall handle is not valid"


class MalformedBody(InvalidRequest):
    """A body that does not parse, or has unknown or missing fields."""

    code = "MALFORMED_BODY"
    title = "The request body is not what is expected here"


class MalformedFrame(InvalidRequest):
    """A batch frame that does not check out; `fields["index"]` names the first bad record."""

    code = "MALFORMED_FRAME"
    title = "The batch frame is damaged"


class UnsupportedContentType(InvalidRequest):
    """A content type that the operation does not take."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    title = "The content type is not supported here"


class BodyTooLarge(InvalidRequest):
    """A message body over the limit."""

    code = "MESSAGE_BODY_TOO_LARGE"
    title = "The message body is too large"


class BatchTooLarge(InvalidRequest):
    """A batch with too many messages or bytes."""

    code = "PAYLOAD_TOO_LARGE"
    title = "The batch is too large"


class PropertiesTooLarge(InvalidRequest):
    """Properties over the limit in number or bytes."""

    code = "MESSAGE_PROPERTIES_TOO_LARGE"
    title = "The message properties are too large"


class NoPermission(CurlewError):
    """The topic, or the queue, takes no messages, or gives none: its `permission` says so."""

    code = "NO_PERMISSION"
    title = "The topic's permission forbids it"


class NotFound(CurlewError):
    """The thing named does not exist."""

    code = "NOT_FOUND"
    title = "Not found"


class TopicNotFound(NotFound):
    """No such topic."""

    code = "TOPIC_NOT_FOUND"
    title = "The topic does not exist"


class QueueNotFound(NotFound):
    """The topic has no such queue."""

    code = "QUEUE_NOT_FOUND"
    title = "The queue does not exist"


class GroupNotFound(NotFound):
    """No such consumer group."""

    code = "CONSUMER_GROUP_NOT_FOUND"
    title = "The consumer group does not exist"


class ScheduleNotFound(NotFound):
    """No such schedule."""

    code = "SCHEDULE_NOT_FOUND"
    title = "The schedule does not exist"


class ProducerNotFound(NotFound):
    """No such producer has sent, or it is forgotten."""

    code = "PRODUCER_NOT_FOUND"
    title = "The producer does not exist"


class MessageNotFound(NotFound):
    """No such message, or no longer."""

    code = "MESSAGE_NOT_FOUND"
    title = "The message does not exist"


class MemberNotFound(NotFound):
    """The group has no such member, or no longer."""

    code = "MEMBER_NOT_FOUND"
    title = "The member does not exist"


class ClientNotFound(NotFound):
    """Nobody of that client id was heard of lately."""

    code = "CLIENT_NOT_FOUND"
    title = "The client is not known"


class SnapshotNotFound(NotFound):
    """The group has no snapshot of its offsets under that name."""

    code = "SNAPSHOT_NOT_FOUND"
    title = "The snapshot does not exist"


class SubscriptionNotFound(NotFound):
    """The group has committed nothing in the topic."""

    code = "SUBSCRIPTION_NOT_FOUND"
    title = "The group has no offsets in the topic"


class OperationNotFound(NotFound):
    """No operation of this id is known to the node."""

    code = "OPERATION_NOT_FOUND"
    title = "The operation does not exist"


class RequestNotFound(NotFound):
    """No request was made here under that correlation id."""

    code = "REQUEST_NOT_FOUND"
    title = "The request does not exist"


class TransactionNotFound(NotFound):
    """No transaction of this id is prepared or remembered."""

    code = "TRANSACTION_NOT_FOUND"
    title = "The transaction does not exist"


class StateConflict(CurlewError):
    """The state of the resource forbids the request."""

    code = "CONFLICT"
    title = "The request conflicts with the present state"


class OffsetExpired(StateConflict):
    """The offset lies below the first readable one."""

    code = "OFFSET_EXPIRED"
    title = "The offset is no longer available"


class OffsetOutOfRange(StateConflict):
    """The offset lies beyond the end of the queue."""

    code = "OFFSET_OUT_OF_RANGE"
    title = "The offset is beyond the end of the queue"


class ReceiptHandleExpired(StateConflict):
    """The lease behind the handle has ended or was superseded."""

    code = "RECEIPT_HANDLE_EXPIRED"
    title = "The receipt handle has expired"


class TopicTypeConflict(StateConflict):
    """A message of another kind than the topic's type declares."""

    code = "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    title = "The topic's type does not take such a message"


class AlreadyDelivered(StateConflict):
    """The delayed message was delivered before the request."""

    code = "ALREADY_DELIVERED"
    title = "The message is delivered already"


class PreconditionFailed(StateConflict):
    """The resource has changed since the version that the request names (`If-Match`)."""

    code = "PRECONDITION_FAILED"
    title = "The resource has another version"


class TransactionConflict(StateConflict):
    """The transaction is decided otherwise; `fields` has its `state`."""

    code = "TRANSACTION_CONFLICT"
    title = "The transaction is decided otherwise"


class StaleGeneration(StateConflict):
    """A member speaks for a generation, or a process, that is no longer the present one."""

    code = "STALE_GENERATION"
    title = "The member's generation is not the present one"


class QueueNotOwned(StateConflict):
    """A commit or lock for a queue that belongs to another member, or to nobody yet."""

    code = "QUEUE_NOT_OWNED"
    title = "The queue is not owned by this client"


class BroadcastGroup(StateConflict):
    """The group is in broadcast mode, where clients keep their own offsets."""

    code = "BROADCAST_GROUP"
    title = "The group is in broadcast mode"


class ConsumptionConflict(StateConflict):
    """The group consumes the topic in the other way: by leases, or by assigned queues."""

    code = "CONSUMPTION_CONFLICT"
    title = "The group consumes this topic in another way"


class SubscriptionConflict(StateConflict):
    """The group reads the topic with another filter."""

    code = "SUBSCRIPTION_CONFLICT"
    title = "The group reads this topic with another filter"


class ProducerFenced(StateConflict):
    """A newer epoch of the same producer has sent."""

    code = "PRODUCER_FENCED"
    title = "A newer instance of the producer is at work"


class ProducerSealed(StateConflict):
    """The producer's epoch is complete and closed; what it sent is stored."""

    code = "PRODUCER_SEALED"
    title = "The producer's epoch is closed"


class SequenceOutOfOrder(StateConflict):
    """The sequence number is not the next one of the producer."""

    code = "SEQUENCE_OUT_OF_ORDER"
    title = "The sequence has a gap"


class AlreadyStored(StateConflict):
    """The messages were stored by an earlier request whose result is not remembered any more."""

    code = "ALREADY_STORED"
    title = "The messages are stored already"


class RequestExpired(StateConflict):
    """A reply to a request that nobody waits for any more."""

    code = "REQUEST_EXPIRED"
    title = "Nobody waits for the reply"


class NoReply(CurlewError):
    """A request is stored, and no reply came in time."""

    code = "REPLY_TIMEOUT"
    title = "No reply came in time"


class FlushDiskTimeout(CurlewError):
    """Written, and not on the medium in the time that the sender gave; synced all the same."""

    code = "FLUSH_DISK_TIMEOUT"
    title = "The message is not on the medium yet"
    retryable = True


class IdempotencyKeyReused(InvalidRequest):
    """The key came with another request before."""

    code = "IDEMPOTENCY_KEY_REUSED"
    title = "The idempotency key belongs to another request"


class TryAgain(CurlewError):
    """The same request may succeed later."""

    title = "The service cannot answer now"
    retryable = True

    def __init__(
        self,
        detail: str,
        *,
        hint: str | None = None,
        fields: Mapping[str, int | str | bool | None] | None = None,
        pointer: str | None = None,
        outcome: Outcome | None = None,
        retry_after_s: int | None = None,
        quota: Quota | None = None,
    ) -> None:
        super().__init__(
            detail,
            hint=hint,
            fields=fields,
            pointer=pointer,
            outcome=outcome,
            retry_after_s=retry_after_s,
        )
        self.quota = quota


class SystemBusy(TryAgain):
    """Too many bytes are in flight on the node."""

    code = "SYSTEM_BUSY"
    title = "The node has too much in flight"


class TooManyRequests(TryAgain):
    """A bound on work in flight is reached."""

    code = "TOO_MANY_REQUESTS"
    title = "Too many requests"


class TopicFull(TryAgain):
    """The topic holds as many bytes as its `max_stored_bytes` allows."""

    code = "TOPIC_FULL"
    title = "The topic is full"


class TimersNotReady(TryAgain):
    """The order of the delayed messages is being made again from the log."""

    code = "TIMERS_NOT_READY"
    title = "Delayed messages are being read"


class RequestInProgress(TryAgain):
    """The first request of the same key or sequence has not been answered yet."""

    code = "REQUEST_IN_PROGRESS"
    title = "The first request is still at work"


class ShuttingDown(TryAgain):
    """The node is draining."""

    code = "SHUTTING_DOWN"
    title = "The node is shutting down"


class MetadataUnavailable(TryAgain):
    """The SQL database cannot be reached."""

    code = "METADATA_UNAVAILABLE"
    title = "The metadata database cannot be reached"

    for_log: str | None = None
    """More than clients may know: where the database is, and what its driver said. None: the
    detail is all."""


class NodeFault(CurlewError):
    """We are broken; another node may do better."""

    title = "The node failed"


class InternalError(NodeFault):
    """An unexpected failure; the log has the traceback under the request id."""

    code = "INTERNAL_SERVER_ERROR"
    title = "The node met an unexpected failure"


class StoreFailed(NodeFault):
    """A write or sync failed. Sticky: the node takes no further writes until it is restarted."""

    code = "STORE_FAILED"
    title = "The store takes no writes"


class DiskFull(NodeFault):
    """The disk has no room; sending resumes by itself when there is."""

    code = "DISK_FULL"
    title = "The disk is full"
    retryable = True
