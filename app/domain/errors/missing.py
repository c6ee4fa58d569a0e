"""What a request names and does not exist, or no longer."""

from app.domain.errors.error import CurlewError


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


class NamespaceNotFound(NotFound):
    """No such namespace."""

    code = "NAMESPACE_NOT_FOUND"
    title = "The namespace does not exist"
