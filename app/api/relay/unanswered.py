"""What a client is told when another node does not answer for it. Pure."""

from app.domain.errors import CurlewError, RelayInterrupted, ShardUnavailable


class LeaderMoved(ShardUnavailable):
    """The node that was asked leads the shard no more; nothing was done."""


def moved(shard: str) -> LeaderMoved:
    """The node that was asked says that it does not lead the shard."""
    return LeaderMoved(
        f"the node that is said to lead shard {shard!r} does not",
        hint="send again in a moment",
        fields={"shard": shard},
    )


def interrupted(shard: str, *, sends: bool) -> RelayInterrupted:
    """The connection ended behind the request."""
    return RelayInterrupted(
        f"the connection to the node that leads shard {shard!r} ended behind the request: it may"
        " have been carried out",
        hint="look before you send it again, or send under an idempotency key",
        fields={"shard": shard},
        outcome="unknown" if sends else None,
    )


def too_slow(shard: str, seconds: float, *, sends: bool) -> CurlewError:
    """No answer in so many seconds."""
    detail = f"the node that leads shard {shard!r} has not answered in {seconds:g} s"
    if sends:
        return RelayInterrupted(
            detail + ": it may have been carried out",
            hint="look before you send it again, or send under an idempotency key",
            fields={"shard": shard},
            outcome="unknown",
        )
    return ShardUnavailable(detail, hint="ask again in a moment", fields={"shard": shard})
