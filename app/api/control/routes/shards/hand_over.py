"""Having another replica lead a shard."""

from typing import Annotated

from fastapi import Depends, Response
from pydantic import Field

from app.api.aims.of_names import A_SHARD
from app.api.control.dependencies import (
    WithAccess,
    WithServices,
    json_body,
)
from app.api.control.known_shards import NODE_CHARS_MAX, asker, known_shard
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import AnswerModel, DryRunBody
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.operations.operation import Action, Answer, Body
from app.domain.errors import HandOverRefused, NotLeader

router = OperationRouter("cluster")


class HandOverBody(DryRunBody):
    """Which node is to lead a shard."""

    node: str | None = Field(
        default=None,
        max_length=NODE_CHARS_MAX,
        description="Its id; left out: the replica in sync that has most",
        examples=["4f1d0a2b"],
    )


class HandOverDocument(AnswerModel):
    """A hand-over that has begun, or what it would be."""

    shard: str
    epoch: int = Field(description="In which the shard is led now; the next one is higher")
    leader: str = Field(description="The id of the node that leads it now")
    to: str = Field(description="The id of the node that is to lead it")
    changed: bool = Field(description="Whether that is another node")
    dry_run: bool = Field(description="Whether nothing was done")


@router.serve(
    "POST /v1/shards/{shard}/hand-over",
    "Have another node lead a shard",
    needs={"cluster": Action.ADMIN},
    body=Body(
        HandOverBody,
        examples={"to a certain node": {"node": "4f1d0a2b"}, "to whoever has most": {}},
    ),
    answers={
        200: Answer("The node leads it already; or with dry_run, what would be", HandOverDocument),
        202: Answer("The hand-over has begun: `GET /v1/cluster` says who leads", HandOverDocument),
    },
    problems=(404, 409, 421, 503),
    aim=A_SHARD,
)
async def hand_over_shard(
    shard: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[HandOverBody, Depends(json_body(HandOverBody))],
    response: Response,
    dry_run: WithDryRun = None,
) -> HandOverDocument:
    """Only a replica in sync can take over, so nothing that is confirmed is lost: the leader takes
    no new work, waits until the other one has everything, and names it. Requests in between are
    carried there, or refused with 503, `not_stored`, for a fraction of a second. Where the other
    one does not come in two seconds, the leader begins a new term itself. A node that cannot take
    over is 409 `HAND_OVER_REFUSED`, with the reason and how far it is behind. Asked again while it
    is under way nothing is done twice."""
    known = known_shard(services, shard)
    if shard != services.metadata.shard:
        raise NotLeader("the hand-over", shard, known.advertise_url or None, known.epoch)
    if services.replicas is None:
        raise HandOverRefused(
            f"the shard {shard!r} is a lone node's: no other node has a replica of it",
            hint="a shard that is made with --replicas can be handed over",
            fields={"shard": shard, "node": body.node, "reason": "one_replica"},
        )
    to, is_dry = services.replicas.successor(body.node), is_dry_run(dry_run, body.asks_for_dry_run)
    changed = to != known.leader
    if changed and not is_dry:
        services.replicas.hand_over_to(to, asker(access))
        response.status_code = 202
    return HandOverDocument(
        shard=shard,
        epoch=known.epoch,
        leader=known.leader,
        to=to,
        changed=changed,
        dry_run=is_dry,
    )
