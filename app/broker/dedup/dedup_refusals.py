"""What is said to producers whose requests are not stored, or were before. Pure."""

from app.domain.errors import (
    AlreadyStored,
    IdempotencyKeyReused,
    ProducerFenced,
    ProducerSealed,
    RequestInProgress,
    SequenceOutOfOrder,
    TooManyRequests,
)


def in_progress() -> RequestInProgress:
    """The outcome of the first request is open."""
    return RequestInProgress(
        "the first request with this key or sequence is still being stored",
        hint="repeat the request after a pause; it then gets the first result",
        outcome="unknown",
        retry_after_s=1,
    )


def full(what: str, limit: int) -> TooManyRequests:
    """There is no room to remember one more."""
    return TooManyRequests(
        f"{limit} {what} are remembered, and no more can be",
        hint="send without, use fewer, or raise the limit",
        fields={"limit": limit},
        outcome="not_stored",
        retry_after_s=10,
    )


def closed(epoch: int, producer_id: str, sealed_epoch: int) -> ProducerSealed:
    """The epoch was closed by a seal."""
    return ProducerSealed(
        f"epoch {epoch} of producer {producer_id!r} is closed; what it sent before is stored",
        hint=f"send with an epoch above {sealed_epoch}",
        fields={"sealed_epoch": sealed_epoch},
        outcome="not_stored",
    )


def stored_before(producer_id: str, seq: int, count: int, expected_seq: int) -> AlreadyStored:
    """`count` messages from `seq` on are stored, and nobody knows where."""
    return AlreadyStored(
        f"messages {seq} to {seq + count - 1} of producer {producer_id!r} were stored before; where"
        " is not remembered any more",
        hint="take it as a success",
        fields={"expected_seq": expected_seq},
        outcome="stored",
    )


def too_far(producer_id: str, seq: int, expected_seq: int) -> SequenceOutOfOrder:
    """Messages between the last stored one and `seq` are missing."""
    return SequenceOutOfOrder(
        f"producer {producer_id!r} sends {seq}; the next one is {expected_seq}",
        hint=f"send on from {expected_seq}, or begin a new epoch at 0",
        fields={"expected_seq": expected_seq},
        outcome="not_stored",
    )


def fenced(producer_id: str, epoch: int, known_epoch: int) -> ProducerFenced:
    """A later epoch has begun."""
    return ProducerFenced(
        f"producer {producer_id!r} has epoch {known_epoch}; {epoch} is over",
        hint="another instance of this producer has taken over",
        fields={"epoch": known_epoch},
        outcome="not_stored",
    )


def reused(key: str) -> IdempotencyKeyReused:
    """A key came with two requests."""
    return IdempotencyKeyReused(
        f"idempotency key {key!r} came with another request before",
        hint="use a new key for each message, and the same one only to repeat a request",
        outcome="not_stored",
    )
