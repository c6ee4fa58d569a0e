"""What the state of a topic, a group, a producer or a message forbids."""

from app.domain.errors.error import CurlewError


class NoPermission(CurlewError):
    """The topic, or the queue, takes no messages, or gives none: its `permission` says so."""

    code = "NO_PERMISSION"
    title = "The topic's permission forbids it"


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


class SettingFixed(StateConflict):
    """A setting that is read at the start of a node only."""

    code = "SETTING_FIXED"
    title = "The setting cannot be changed while nodes run"


class NamespaceNotEmpty(StateConflict):
    """A namespace with topics, groups or schedules is not deleted."""

    code = "NAMESPACE_NOT_EMPTY"
    title = "The namespace is not empty"
