"""What an operator does to one replica of a shard: it is taken out."""

from typing import Annotated

from fastapi import Path
from pydantic import Field

from app.api.control.dependencies import WithAccess, WithServices
from app.api.control.known_shards import NODE_CHARS_MAX, asker, known_shard
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import AnswerModel
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.operations.operation import Action
from app.domain.errors import ReplicaNotFound

router = OperationRouter("cluster")

NodeId = Annotated[str, Path(max_length=NODE_CHARS_MAX, description="The id of the node")]


class ReplicaRemovalDocument(AnswerModel):
    """A node that was taken out of the replicas of a shard, or would be."""

    shard: str
    node_id: str
    was_in_sync: bool = Field(description="Whether it was in sync until now")
    in_sync: list[str] = Field(description="Ids of the nodes that are left in sync")
    left: list[str] = Field(description="Ids of the nodes that have a replica then")
    dry_run: bool = Field(description="Whether nothing was done")


@router.serve(
    "DELETE /v1/shards/{shard}/replicas/{node_id}",
    "Take a node out of the replicas of a shard",
    needs={"cluster": Action.ADMIN},
    problems=(404, 409, 503),
    by_each_node=True,
)
async def remove_replica(
    shard: str,
    node_id: NodeId,
    services: WithServices,
    access: WithAccess,
    dry_run: WithDryRun = None,
) -> ReplicaRemovalDocument:
    """For a node that is gone for good, or whose machine is needed elsewhere: another one may join
    in its place. A node that is at work hears of it within two seconds, keeps no replica any more
    and says so at `/readyz`; its data stays. Refused with 409 `REPLICA_NEEDED` and a `reason` while
    it leads, is about to, or is in sync and fewer than `min_in_sync` would be without it. The other
    replicas begin anew with the members that are left, which costs the leader its term, about a
    second."""
    known = known_shard(services, shard)
    if not known.members:
        raise ReplicaNotFound(
            f"the shard {shard!r} is a lone node's",
            hint="a node that is gone for good with its data: curlew release-store --shard NAME",
            fields={"shard": shard, "node": node_id},
        )
    is_dry = is_dry_run(dry_run)
    sets = services.metadata.replica_sets
    found = await sets.leave(shard, node_id, asker(access), is_dry_run=is_dry)
    return ReplicaRemovalDocument(
        shard=shard,
        node_id=node_id,
        was_in_sync=found.was_in_sync,
        in_sync=list(found.in_sync),
        left=list(found.left),
        dry_run=is_dry,
    )
