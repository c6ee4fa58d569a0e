"""What the operations on shards and their replicas have in common."""

from typing import Final

from fastapi import Request, Response

from app.api.control.dependencies import Services
from app.api.control.schemas.schemas import DryRunBody
from app.api.http.request_context import CONTEXT_KEY, RequestContext
from app.api.ports import Replicas
from app.api.relay.calls import part_of, query_of
from app.cluster import ReplicaMember, ShardView
from app.domain.errors import ReplicaNotFound, ShardNotFound, ShardUnavailable

NODE_CHARS_MAX: Final = 64
"""Of the id of a node that a request names."""
ANSWER_SECONDS: Final = 12.0
"""How long the node of a replica is waited for, which asks the others and the database."""


def known_shard(services: Services, name: str) -> ShardView:
    """The shard of this name. Raises `ShardNotFound`."""
    known = services.metadata.snapshot.shards.get(name)
    if known is None:
        names = ", ".join(sorted(services.metadata.snapshot.shards)) or "none"
        raise ShardNotFound(f"there is no shard {name!r}", hint=f"there are: {names}")
    return known


def leader_answers(services: Services, shard: str) -> bool:
    """Whether a node that leads it answers, as far as this one knows."""
    relay = services.relay
    if relay is None or (services.led is not None and shard == services.metadata.shard):
        return True
    return relay.is_up(shard)


def own_replica(services: Services, shard: str, node_id: str) -> Replicas | None:
    """That of this node, if it is the one that is meant; None: another node has it. Raises
    `ReplicaNotFound` where this node has the replica of another shard by now."""
    replicas = services.replicas
    own = None if replicas is None else replicas.own()
    if own is None or own.node != node_id:
        return None
    if own.shard != shard:
        raise ReplicaNotFound(
            f"the node {node_id!r} has a replica of the shard {own.shard!r} by now",
            hint=f"take it out of {shard!r}, or name {own.shard!r}",
            fields={"shard": shard, "node": node_id},
        )
    return replicas


def asker(access: RequestContext) -> str:
    """Who asks, for events and logs."""
    return access.caller.name or "somebody without a key"


async def asked_there(
    services: Services, request: Request, member: ReplicaMember, body: DryRunBody, *, is_dry: bool
) -> Response:
    """The answer of the node that has the replica."""
    if services.relay is None:
        raise ShardUnavailable(
            f"the replica is at the node {member.node_id}, which this one cannot reach",
            hint=f"ask {member.advertise_url or member.cluster_url}",
        )
    exchange = request.scope[CONTEXT_KEY]
    sent = body.model_copy(update={"dry_run": is_dry}).model_dump_json().encode()
    part = part_of(exchange, query_of(exchange), sent)
    answer = await services.relay.call_node(
        exchange, member.node_id, member.cluster_url, part, seconds=ANSWER_SECONDS
    )
    headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in answer.own_headers
    }
    return Response(answer.body, answer.status, headers)
