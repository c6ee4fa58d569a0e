"""An election that an operator asks for, of a replica that is not in sync."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request, Response
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
from app.cluster import ShardView
from app.domain.errors import InvalidRequest, UncleanElectionRefused

router = OperationRouter("cluster")


class ElectBody(DryRunBody):
    """Which replica is to lead, and that something may be lost."""

    replica: str = Field(
        max_length=NODE_CHARS_MAX,
        description="The id of its node",
        examples=["4f1d0a2b"],
    )
    unclean: bool = Field(
        default=False,
        description="Has to be true: what replicas in sync have, and this one has not, is given up",
    )


class UncleanElectionDocument(AnswerModel):
    """An unclean election that has begun, or what it would give up."""

    shard: str
    replica: str = Field(description="The id of the node that is to lead")
    lost_from: int = Field(
        description="Where its log ends, a physical offset: what was confirmed behind it is lost"
    )
    known_end: int | None = Field(
        description="How far the log went, as far as anybody who answers has heard; null: nobody"
        " has heard of more. Those in sync may have more all the same"
    )
    newest_ms: int = Field(
        description="When the newest message was stored that this replica has made readable, in"
        " epoch milliseconds; 0: none. What was stored later may be lost"
    )
    in_sync: list[str] = Field(description="Ids of the nodes that may have what would be lost")
    answered: list[str] = Field(description="Ids of the other nodes that answer")
    dry_run: bool = Field(description="Whether nothing was done")


@router.serve(
    "POST /v1/shards/{shard}/elect",
    "Have a replica lead that is not in sync",
    needs={"cluster": Action.ADMIN},
    body=Body(
        ElectBody,
        examples={
            "what it would lose": {"replica": "4f1d0a2b", "unclean": True, "dry_run": True},
            "elect it": {"replica": "4f1d0a2b", "unclean": True},
        },
    ),
    answers={
        200: Answer("With dry_run: what would be lost", UncleanElectionDocument),
        202: Answer(
            "The election has begun: `GET /v1/cluster` says who leads", UncleanElectionDocument
        ),
    },
    problems=(400, 404, 409, 503),
    by_each_node=True,
)
async def elect_replica(
    shard: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[ElectBody, Depends(json_body(ElectBody))],
    request: Request,
    response: Response,
    dry_run: WithDryRun = None,
) -> UncleanElectionDocument | Response:
    """For a shard whose replicas in sync are all lost for good. What they had confirmed, and this
    one has not, is given up; where one of them returns, it cuts what is too much, keeps it in
    `store/lost+found/` of its data directory, and follows. Refused with 409
    `UNCLEAN_ELECTION_REFUSED` and a `reason` while a replica in sync answers, a lease holds, or
    another one has more. Any node may be asked; the one that has the replica asks the others."""
    known = known_shard(services, shard)
    if not body.unclean:
        raise InvalidRequest(
            "an election by command may lose messages, and the request does not say that it may",
            hint='say "unclean": true; with "dry_run": true it tells what may be lost',
            fields={"parameter": "unclean"},
        )
    member = next((each for each in known.members if each.node_id == body.replica), None)
    if member is None:
        raise _not_a_member(known, body.replica)
    is_dry = is_dry_run(dry_run, body.asks_for_dry_run)
    replicas = own_replica(services, shard, member.node_id)
    if replicas is None:
        return await asked_there(services, request, member, body, is_dry=is_dry)
    loss = await replicas.elect_unclean(asker(access), is_dry_run=is_dry)
    if not is_dry:
        response.status_code = HTTPStatus.ACCEPTED
    return UncleanElectionDocument(
        shard=shard,
        replica=member.node_id,
        lost_from=loss.lost_from,
        known_end=loss.known_end,
        newest_ms=loss.newest_ms,
        in_sync=list(loss.in_sync),
        answered=list(loss.answered),
        dry_run=is_dry,
    )


def _not_a_member(known: ShardView, replica: str) -> UncleanElectionRefused:
    names = ", ".join(each.node_id for each in known.members)
    return UncleanElectionRefused(
        f"the node {replica!r} has no replica of the shard {known.name!r}",
        hint=f"those who have: {names}" if names else "it is a lone node's: start that node",
        fields={"shard": known.name, "replica": replica, "reason": "not_a_member"},
    )
