"""What an operator does to one replica of a shard: it is taken out, or begins anew."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Path, Request, Response
from pydantic import Field

from app.api.control.dependencies import WithAccess, WithServices, json_body
from app.api.control.known_shards import (
    NODE_CHARS_MAX,
    asked_there,
    asker,
    known_shard,
    own_replica,
)
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import AnswerModel, DryRunBody
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.operations.operation import Action, Answer, Body
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


class ResetReplicaBody(DryRunBody):
    """How a replica begins anew."""

    keep_log: bool = Field(
        default=False,
        description="Keep the log, and cut it where the leader's parts from it; all else is made of"
        " it again. Quick, and of no use where the log itself is damaged",
    )


class ReplicaResetDocument(AnswerModel):
    """A replica that begins anew, or would."""

    shard: str
    node_id: str
    was_in_sync: bool = Field(description="Whether it was in sync until now")
    in_sync: list[str] = Field(description="Ids of the nodes that are left in sync meanwhile")
    keep_log: bool = Field(description="Whether its log is kept, where it is the leader's")
    dry_run: bool = Field(description="Whether nothing was done")


@router.serve(
    "POST /v1/shards/{shard}/replicas/{node_id}/reset",
    "Have a replica begin anew",
    needs={"cluster": Action.ADMIN},
    body=Body(
        ResetReplicaBody,
        examples={
            "what it would be": {"dry_run": True},
            "copy everything again": {},
            "keep the log": {"keep_log": True},
        },
    ),
    answers={
        200: Answer("With dry_run: what would be", ReplicaResetDocument),
        202: Answer(
            "It has begun: `GET /v1/cluster` says how far it has come", ReplicaResetDocument
        ),
    },
    problems=(404, 409, 502, 503),
    by_each_node=True,
)
async def reset_replica(
    shard: str,
    node_id: NodeId,
    services: WithServices,
    access: WithAccess,
    body: Annotated[ResetReplicaBody, Depends(json_body(ResetReplicaBody))],
    request: Request,
    response: Response,
    dry_run: WithDryRun = None,
) -> ReplicaResetDocument | Response:
    """For a disk that was damaged and is mended, or a replica that has stopped because it disagrees
    with its leader (`CUT_BELOW_WATERMARK`). It leaves the set, what it has is thrown away, and is
    copied again from the leader. What it has promised stays, and so does its `lost+found/`. Refused
    with 409 `REPLICA_NEEDED` and a `reason` while it leads, is about to, or is in sync and fewer
    than `min_in_sync` would be without it, and while nobody leads. Any node may be asked; it is
    done at the node of the replica, which has to run. A kill at any moment does not stop it: the
    next start goes on."""
    known = known_shard(services, shard)
    member = next((each for each in known.members if each.node_id == node_id), None)
    if member is None:
        names = ", ".join(each.node_id for each in known.members)
        raise ReplicaNotFound(
            f"the node {node_id!r} has no replica of the shard {shard!r}",
            hint=f"those who have: {names}" if names else "it is a lone node's",
            fields={"shard": shard, "node": node_id},
        )
    is_dry = is_dry_run(dry_run, body.asks_for_dry_run)
    replicas = own_replica(services, shard, node_id)
    if replicas is None:
        return await asked_there(services, request, member, body, is_dry=is_dry)
    by = asker(access)
    found = await replicas.begin_anew(by, keeps_log=body.keep_log, is_dry_run=is_dry)
    if not is_dry:
        response.status_code = HTTPStatus.ACCEPTED
    return ReplicaResetDocument(
        shard=shard,
        node_id=node_id,
        was_in_sync=found.was_in_sync,
        in_sync=list(found.in_sync),
        keep_log=body.keep_log,
        dry_run=is_dry,
    )
