"""What goes wrong, as a tree of exceptions. Every error that this package raises at a call is one
of these, or a `TypeError` or `ValueError` for what no server was asked.

    CurlewError
    ├── ConnectionFailed          the node cannot be reached, or the connection broke
    ├── TimedOut                  no answer within the time budget
    ├── NotCurlew                 something answered, and it is not Curlew
    ├── ClientClosed              the client was closed, or belongs to another process
    ├── TooMuchUnderWay           the client holds as many messages as it may
    └── ServiceError              the node refused: `code`, `status`, `hint`, `fields`
        ├── InvalidRequest        it can never succeed as it is
        ├── NotAllowed            no key, a wrong key, or no right
        ├── NotFound              TopicNotFound, GroupNotFound, …
        ├── StateConflict         ReceiptHandleExpired, ProducerFenced, …
        ├── TryAgain              SystemBusy, TooManyRequests, …
        └── NodeFault             DiskFull, StoreFailed, …

`outcome` of a failed send says what became of the message: `not_stored`, `unknown`, `stored`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

Outcome = Literal["not_stored", "unknown", "stored"]


class CurlewError(Exception):
    """Root of the tree. `outcome` is set on errors of sends, `retryable` says whether the same
    call can succeed later."""

    outcome: Outcome | None = None
    retryable: bool = False


class ConnectionFailed(CurlewError):
    """The node could not be reached, or the connection broke before its answer was there."""

    retryable = True

    def __init__(self, text: str, outcome: Outcome) -> None:
        super().__init__(text)
        self.outcome = outcome


class TimedOut(CurlewError, TimeoutError):
    """The time budget of the call is over."""

    retryable = True

    def __init__(self, text: str, outcome: Outcome = "unknown") -> None:
        super().__init__(text)
        self.outcome = outcome


class NotCurlew(CurlewError):
    """Something answered at the address, and it is not a Curlew node."""

    outcome = "unknown"


class ClientClosed(CurlewError):
    """The client was closed, or is used in a process that was forked from its own."""

    outcome = "not_stored"


class TooMuchUnderWay(CurlewError):
    """The client holds as many messages, or bytes, that wait for their answers as it may."""

    outcome = "not_stored"
    retryable = True


class ServiceError(CurlewError):
    """A node refused the request, as a problem document says.

    `fields` has the members of the problem beyond the usual ones, for instance `expected_seq`.
    """

    code: str = ""

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int,
        hint: str | None = None,
        outcome: Outcome | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.hint = hint
        self.outcome = outcome
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self.fields = dict(fields or {})

    def __str__(self) -> str:
        text = f"{self.detail} ({self.code})"
        return f"{text}; {self.hint}" if self.hint else text


class InvalidRequest(ServiceError):
    """The request can never succeed as it is."""


class IdempotencyKeyReused(InvalidRequest):
    """The key came with another request before."""


class BodyTooLarge(InvalidRequest):
    """The body of a message is larger than the node takes."""


class IllegalFilter(InvalidRequest):
    """The filter cannot be understood."""


class InvalidReceiptHandle(InvalidRequest):
    """This is no receipt handle of the node."""


class NotAllowed(ServiceError):
    """Who asks has no right to it."""


class Unauthorized(NotAllowed):
    """The key is missing or wrong."""


class Forbidden(NotAllowed):
    """The key is good, and has no right to this."""


class NotFound(ServiceError):
    """What the request names does not exist."""


class TopicNotFound(NotFound):
    """The topic does not exist."""


class GroupNotFound(NotFound):
    """The consumer group does not exist."""


class QueueNotFound(NotFound):
    """The topic has no such queue."""


class MessageNotFound(NotFound):
    """There is no such message, or not any more."""


class TransactionNotFound(NotFound):
    """There is no such transaction, or not any more."""


class StateConflict(ServiceError):
    """The state of what the request names forbids it."""


class ReceiptHandleExpired(StateConflict):
    """The lease is over, or the handle was replaced by an extension."""


class ConsumptionConflict(StateConflict):
    """The group consumes the topic in the other way."""


class SubscriptionConflict(StateConflict):
    """The group reads the topic with another filter."""


class OffsetOutOfRange(StateConflict):
    """There is nothing at this offset yet."""


class OffsetExpired(StateConflict):
    """What was at this offset is gone."""


class TopicTypeConflict(StateConflict):
    """The type of the topic does not take such messages."""


class TransactionConflict(StateConflict):
    """The transaction was decided the other way."""


class PreconditionFailed(StateConflict):
    """Somebody was quicker, or it exists already."""


class StaleGeneration(StateConflict):
    """The assignment is not the newest one."""


class QueueNotOwned(StateConflict):
    """Another member owns the queue."""


class ProducerFenced(StateConflict):
    """Another client of the same id has started later."""


class ProducerSealed(StateConflict):
    """The producer was closed."""


class SequenceOutOfOrder(StateConflict):
    """The node misses messages of this producer, or has forgotten it."""


class AlreadyStored(StateConflict):
    """The message was stored before, and where is not remembered any more."""


class FlushDiskTimeout(ServiceError):
    """The message is written, and was not on the medium in time."""


class ReplicationTimeout(ServiceError):
    """The message is written, and replicas did not answer in time."""


class NoReply(ServiceError):
    """The request is stored, and no reply came in time."""


class TryAgain(ServiceError):
    """The same request may succeed later."""


class SystemBusy(TryAgain):
    """The node has too much to do."""


class TooManyRequests(TryAgain):
    """A bound of the node is reached."""


class RequestInProgress(TryAgain):
    """The first request with this number or key is still being stored."""


class ShuttingDown(TryAgain):
    """The node is stopping."""


class NotEnoughReplicas(TryAgain):
    """Too few replicas are in sync."""


class NodeFault(ServiceError):
    """The node is broken."""


class DiskFull(NodeFault):
    """The node's disk is full."""


class StoreFailed(NodeFault):
    """The node's store failed."""


BY_CODE: Final[dict[str, type[ServiceError]]] = {
    "IDEMPOTENCY_KEY_REUSED": IdempotencyKeyReused,
    "MESSAGE_BODY_TOO_LARGE": BodyTooLarge,
    "ILLEGAL_FILTER_EXPRESSION": IllegalFilter,
    "INVALID_RECEIPT_HANDLE": InvalidReceiptHandle,
    "UNAUTHORIZED": Unauthorized,
    "FORBIDDEN": Forbidden,
    "TOPIC_NOT_FOUND": TopicNotFound,
    "CONSUMER_GROUP_NOT_FOUND": GroupNotFound,
    "QUEUE_NOT_FOUND": QueueNotFound,
    "MESSAGE_NOT_FOUND": MessageNotFound,
    "TRANSACTION_NOT_FOUND": TransactionNotFound,
    "RECEIPT_HANDLE_EXPIRED": ReceiptHandleExpired,
    "CONSUMPTION_CONFLICT": ConsumptionConflict,
    "SUBSCRIPTION_CONFLICT": SubscriptionConflict,
    "OFFSET_OUT_OF_RANGE": OffsetOutOfRange,
    "OFFSET_EXPIRED": OffsetExpired,
    "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE": TopicTypeConflict,
    "TRANSACTION_CONFLICT": TransactionConflict,
    "PRECONDITION_FAILED": PreconditionFailed,
    "STALE_GENERATION": StaleGeneration,
    "QUEUE_NOT_OWNED": QueueNotOwned,
    "PRODUCER_FENCED": ProducerFenced,
    "PRODUCER_SEALED": ProducerSealed,
    "SEQUENCE_OUT_OF_ORDER": SequenceOutOfOrder,
    "ALREADY_STORED": AlreadyStored,
    "FLUSH_DISK_TIMEOUT": FlushDiskTimeout,
    "REPLICATION_TIMEOUT": ReplicationTimeout,
    "REPLY_TIMEOUT": NoReply,
    "SYSTEM_BUSY": SystemBusy,
    "TOO_MANY_REQUESTS": TooManyRequests,
    "REQUEST_IN_PROGRESS": RequestInProgress,
    "SHUTTING_DOWN": ShuttingDown,
    "NOT_ENOUGH_REPLICAS": NotEnoughReplicas,
    "DISK_FULL": DiskFull,
    "STORE_FAILED": StoreFailed,
}
"""The codes that have a class of their own; the others go by their status."""

_BY_STATUS: Final[dict[int, type[ServiceError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: StateConflict,
    410: StateConflict,
    412: StateConflict,
    416: StateConflict,
    429: TryAgain,
    503: TryAgain,
}


def class_of(code: str, status: int) -> type[ServiceError]:
    """The exception of a problem's code, or of its status when a newer node has a new code."""
    known = BY_CODE.get(code) or _BY_STATUS.get(status)
    if known is not None:
        return known
    return NodeFault if status >= 500 else InvalidRequest


class Retry(Exception):
    """Raised or returned by a handler: deliver the message again, after `delay` if it is given."""

    def __init__(self, reason: str = "", *, delay: "str | float | None" = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class DeadLetter(Exception):
    """Raised or returned by a handler: give the message up, for this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
