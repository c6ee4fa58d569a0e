"""What is in a shard that another node leads, or that nobody does."""

from app.domain.errors.conflicts import StateConflict
from app.domain.errors.error import CurlewError
from app.domain.errors.missing import NotFound
from app.domain.errors.retries import TryAgain


class NotLeader(CurlewError):
    """What the request is aimed at is in a shard that another node leads; nothing was done."""

    code = "NOT_LEADER"
    title = "Another node leads the shard"
    retryable = True

    def __init__(
        self, what: str, shard: str, leader: str | None = None, epoch: int | None = None
    ) -> None:
        """`what` is in `shard`, of which `leader` is the URL, if it is known."""
        super().__init__(
            f"{what} is in shard {shard!r}, which another node leads",
            hint=f"ask {leader}" if leader else "GET /v1/topics/{topic}/route says which",
            fields={"shard": shard, "leader": leader, "epoch": epoch},
        )
        self.shard = shard


class OtherShard(CurlewError):
    """What is one step is of several shards, whose logs no step spans; nothing was done."""

    code = "OTHER_SHARD"
    title = "One step cannot be of several shards"

    def __init__(self, what: str, shard: str) -> None:
        super().__init__(
            f"{what} is in shard {shard!r}; what is one step is of one shard",
            hint="leave out its sharding_key or queue_id, or send it by itself",
            fields={"shard": shard},
            outcome="not_stored",
        )


class ShardUnavailable(TryAgain):
    """The node that leads the shard does not answer; nothing was done, unless it says otherwise."""

    code = "SHARD_UNAVAILABLE"
    title = "The shard does not answer"


class ShardNotFound(NotFound):
    """The cluster has no shard of this name."""

    code = "SHARD_NOT_FOUND"
    title = "Shard not found"


class HandOverRefused(StateConflict):
    """The node that is asked for cannot lead the shard now; nothing was changed."""

    code = "HAND_OVER_REFUSED"
    title = "The node cannot lead the shard now"


class DrainRefused(StateConflict):
    """The shard is not drained, as nothing new could go elsewhere; nothing was changed."""

    code = "DRAIN_REFUSED"
    title = "The shard is not drained"


class UncleanElectionRefused(StateConflict):
    """The replica is not made to lead: something need not be lost yet. Nothing was changed."""

    code = "UNCLEAN_ELECTION_REFUSED"
    title = "The replica is not made to lead"


class ReplicaNotFound(NotFound):
    """The node has no replica of the shard."""

    code = "REPLICA_NOT_FOUND"
    title = "The node has no replica of the shard"


class ReplicaNeeded(StateConflict):
    """The shard cannot do without the replica now; nothing was changed."""

    code = "REPLICA_NEEDED"
    title = "The shard needs the replica"


class NotEnoughReplicas(TryAgain):
    """Too few replicas of the shard are in sync to confirm anything; nothing was done."""

    code = "NOT_ENOUGH_REPLICAS"
    title = "Too few replicas are in sync"


class RelayInterrupted(TryAgain):
    """The connection to the node that leads the shard ended behind the request."""

    code = "RELAY_INTERRUPTED"
    title = "It is not known whether the request was carried out"
