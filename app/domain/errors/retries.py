"""What may succeed later, or did not end in the time that the client gave."""

from collections.abc import Mapping

from app.domain.errors.error import CurlewError, Outcome
from app.domain.quotas.quota import Quota


class NoReply(CurlewError):
    """A request is stored, and no reply came in time."""

    code = "REPLY_TIMEOUT"
    title = "No reply came in time"


class FlushDiskTimeout(CurlewError):
    """Written, and not on the medium in the time that the sender gave; synced all the same."""

    code = "FLUSH_DISK_TIMEOUT"
    title = "The message is not on the medium yet"
    retryable = True


class ReplicationTimeout(CurlewError):
    """Written here, and not confirmed by the other replicas in time; it may be all the same."""

    code = "REPLICATION_TIMEOUT"
    title = "The other replicas did not confirm the message in time"
    retryable = True


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
