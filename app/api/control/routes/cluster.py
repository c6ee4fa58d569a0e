"""The nodes and shards of the cluster, and what happened to them."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Final, NamedTuple

from fastapi import Query
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import astuple
from pydantic import Field

from app.api.control.dependencies import (
    Services,
    WithAccess,
    WithPageSize,
    WithServices,
)
from app.api.control.known_shards import leader_answers
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import AnswerModel, NodeDocument
from app.api.formats.decoding import DECODE_FAULTS
from app.api.http.request_context import RequestContext
from app.api.operations.operation import Action
from app.api.ports import Replicas
from app.api.relay.calls import CallRequest
from app.api.relay.envelope import is_at_its_end
from app.api.relay.relay import Relay
from app.cluster import ClusterEvent
from app.domain.errors import CurlewError, IllegalPage
from app.domain.shards.takes import Takes

router = OperationRouter("cluster")

_SEQ_DIGITS_MAX: Final = 18
LEADER_SECONDS: Final = 1.0
"""How long the leader of another shard is waited for."""


class ReplicaDocument(AnswerModel):
    """A node that has a replica of a shard."""

    node_id: str
    url: str | None = Field(description="Where clients reach the node; null: nowhere")
    in_sync: bool = Field(description="Whether it has all that is confirmed, and may lead next")
    connected: bool | None = Field(
        description="Whether the leader hears it. This and what follows the leader says: null for"
        " the leader itself, and where it does not answer the node that was asked"
    )
    lag_bytes: int | None = Field(description="Of the leader's log, that it does not have yet")
    lag_ms: int | None = Field(description="Since when it lacks something of the log; 0: nothing")
    log_end: int | None = Field(
        description="Where its log ends, in bytes, as far as the leader has heard; of the leader"
        " its own"
    )
    out_of_sync_ms: int | None = Field(
        description="For how long it is not in sync, at most since the shard is led in this epoch;"
        " null: it is in sync"
    )
    why: str | None = Field(description="Why it is not in sync")


class ShardDocument(AnswerModel):
    """A shard: one log, led by one node."""

    name: str
    shard_id: str = Field(description="The id of its store, 8 hex digits")
    epoch: int = Field(description="In which it is led; it rises with each start")
    leader: str | None = Field(description="The id of the node that leads it")
    leader_url: str | None = Field(description="Where clients reach that node")
    answers: bool = Field(description="Whether that node answers the one that was asked")
    queues: int = Field(description="Queues of topics that are in it")
    takes: Takes = Field(
        description="Of new messages: `all`; `keyed` or `none`: it drains (`drain_shard`)"
    )
    target_replicas: int = Field(description="How many replicas it is to have; 1: a lone node's")
    min_in_sync: int = Field(description="With fewer replicas in sync no send is taken")
    high_watermark: int | None = Field(
        description="Where what is confirmed ends, in bytes; null: a lone node has it, or its"
        " leader does not answer the node that was asked"
    )
    replicas: list[ReplicaDocument] = Field(
        description="The nodes that have a replica, as they joined; none: a lone node has it"
    )


class ClusterDocument(AnswerModel):
    """The nodes and shards, as the node that was asked knows them."""

    shard: str = Field(description="The shard of the node that was asked")
    metadata_version: int = Field(description="What the node that was asked knows")
    nodes: list[NodeDocument] = Field(description="All nodes that ever registered")
    shards: list[ShardDocument] = Field(description="All shards, by name")


class ClusterEventDocument(AnswerModel):
    """What happened to a node or a shard."""

    seq: int = Field(description="It rises by one with each event", examples=[17])
    at_ms: int = Field(description="When, by the database's clock, in epoch milliseconds")
    kind: str = Field(
        description="`node_registered`; `shard_made`, `shard_claimed` (a start has it), `shard_led`"
        " (and leads it in this epoch), `shard_left` (that start ended in order), `shard_released`,"
        " `shard_drains` (what is new goes to other shards), `shard_keys_moved` (of keys, too),"
        " `shard_takes_all` (it drains no more);"
        " `node_fenced` (it heard that another leads its shard, and takes no writes). Of replicas:"
        " `replica_joined`, `replica_moved`, `replica_removed`, `replica_reset`, `shard_elected`,"
        " `replica_cut` (the end of its log, which nothing had confirmed, was cut off),"
        " `replica_gave_up` (the same of what an unclean election had given up),"
        " `shard_elected_after_loss`, `shard_elected_unclean`,"
        " `in_sync_changed`, `shard_handed_over` (to this node),"
        " `metadata_regressed`, `shard_written_back`"
    )
    shard: str | None = Field(description="Which shard; null: none")
    node_id: str | None = Field(description="Which node; null: none")
    epoch: int | None = Field(description="In which the shard was led then; null: in none")
    detail: str = Field(description="More of it, in words; may be empty")

    @classmethod
    def of(cls, event: ClusterEvent) -> "ClusterEventDocument":
        return cls(
            seq=event.seq,
            at_ms=event.at_ms,
            kind=event.kind,
            shard=event.shard or None,
            node_id=event.node_id or None,
            epoch=event.epoch,
            detail=event.detail,
        )


class ClusterEventsDocument(AnswerModel):
    """What happened to nodes and shards. Of each cluster the newest are kept."""

    events: list[ClusterEventDocument] = Field(description="The newest first")
    next_page_token: str | None = Field(description="Of the next page; null: this is the last")


@router.serve(
    "GET /v1/cluster",
    "The nodes and shards of the cluster",
    needs={"cluster": Action.GET},
    by_each_node=True,
)
async def get_cluster(services: WithServices, access: WithAccess) -> ClusterDocument:
    """A lone node is a cluster of one shard."""
    metadata = services.metadata
    said = await _said_by_leaders(services, access)
    snapshot = metadata.snapshot
    counts = dict.fromkeys(snapshot.shards, 0)
    for view in snapshot.topics.values():
        for queue_id in range(view.queues):
            name = view.shard_of(queue_id) or metadata.shard
            counts[name] = counts.get(name, 0) + 1
    shards = [
        ShardDocument(
            name=each.name,
            shard_id=each.shard_id.hex(),
            epoch=each.epoch,
            leader=each.leader or None,
            leader_url=each.advertise_url or None,
            answers=leader_answers(services, each.name) and each.name not in said.silent,
            queues=counts[each.name],
            takes=each.takes,
            target_replicas=each.target_replicas,
            min_in_sync=each.min_in_sync,
            high_watermark=said.high_watermarks.get(each.name),
            replicas=[
                ReplicaDocument(
                    node_id=member.node_id,
                    url=member.advertise_url,
                    in_sync=member.node_id in each.in_sync,
                    **said.replicas.get((each.name, member.node_id), _UNSAID)._asdict(),
                )
                for member in each.members
            ],
        )
        for each in sorted(snapshot.shards.values(), key=lambda each: each.name)
    ]
    return ClusterDocument(
        shard=metadata.shard,
        metadata_version=snapshot.version,
        nodes=[NodeDocument.of(node) for node in await metadata.list_nodes()],
        shards=shards,
    )


@router.serve(
    "GET /v1/cluster/events",
    "What happened to the nodes and shards",
    needs={"cluster": Action.GET},
    by_each_node=True,
)
async def get_cluster_events(
    services: WithServices,
    page_size: WithPageSize,
    page_token: Annotated[str | None, Query(description="Of the page before")] = None,
) -> ClusterEventsDocument:
    """Starts, ends, who led which shard in which epoch, and nodes that heard that another leads
    their shard. `events_kept_max` of `GET /v1/limits` are kept. Any node answers it."""
    before = None if page_token is None else _seq_in(page_token)
    found = await services.metadata.events.page(before, page_size + 1)
    shown = [ClusterEventDocument.of(each) for each in found[:page_size]]
    more = str(shown[-1].seq) if len(found) > page_size else None
    return ClusterEventsDocument(events=shown, next_page_token=more)


def _seq_in(token: str) -> int:
    if not (token.isascii() and token.isdigit() and len(token) <= _SEQ_DIGITS_MAX):
        raise IllegalPage("the page token was not issued by this service")
    return int(token)


class _Said(NamedTuple):
    """What its leader says of a replica; as `ReplicaDocument` has it."""

    connected: bool | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    log_end: int | None = None
    out_of_sync_ms: int | None = None
    why: str | None = None


_UNSAID: Final = _Said()


class _AllSaid(NamedTuple):
    """What all leaders say that answer."""

    replicas: dict[tuple[str, str], _Said]
    """By shard and node."""
    high_watermarks: dict[str, int]
    """By shard."""
    silent: set[str]
    """Shards whose leader does not answer, or says that it does not lead them yet."""


class _Replica(Struct):
    node_id: str
    connected: bool | None
    lag_bytes: int | None
    lag_ms: int | None
    log_end: int | None = None
    """A node of an older version does not tell of it."""
    out_of_sync_ms: int | None = None
    why: str | None = None


class _Shard(Struct):
    name: str
    replicas: list[_Replica]
    high_watermark: int | None = None
    answers: bool = True


class _Cluster(Struct):
    shards: list[_Shard]


_decode_cluster: Final = Decoder(_Cluster).decode


async def _said_by_leaders(services: Services, access: RequestContext) -> _AllSaid:
    """Leaders of other shards are asked all at once; one that does not answer in `LEADER_SECONDS`
    says nothing."""
    found = _AllSaid({}, {}, set())
    own, relay = services.metadata.shard, services.relay
    if services.replicas is not None:
        _say(found, services.replicas)
    if relay is None or is_at_its_end(access.scope) or access.forward == b"no":
        return found
    asked = [
        name
        for name, shard in services.metadata.snapshot.shards.items()
        if shard.members and shard.leader and (name != own or services.led is None)
    ]
    for name, answer in zip(
        asked, await asyncio.gather(*(_asked(relay, access, name) for name in asked)), strict=True
    ):
        if answer is None:
            found.silent.add(name)
            continue
        for said in answer.shards:
            if said.name == name:
                if not said.answers:
                    found.silent.add(name)
                for node, *figures in map(astuple, said.replicas):
                    found.replicas[name, node] = _Said(*figures)
                if said.high_watermark is not None:
                    found.high_watermarks[name] = said.high_watermark
    return found


def _say(found: _AllSaid, replicas: Replicas) -> None:
    """What this node says, where it leads."""
    own = replicas.own()
    if not own.leads:
        return
    found.high_watermarks[own.shard] = own.high_watermark
    found.replicas[own.shard, own.node] = _Said(log_end=own.written_end)
    for each in replicas.followers():
        found.replicas[own.shard, each.node] = _Said(
            each.is_connected,
            each.lag_bytes,
            each.lag_ms,
            each.written,
            each.out_ms,
            each.why_not,
        )


async def _asked(relay: Relay, access: RequestContext, shard: str) -> _Cluster | None:
    """None: the leader does not answer. One that refuses says nothing of its replicas."""
    request = CallRequest("GET", b"/v1/cluster", [])
    try:
        answer = await relay.call(access, shard, request, seconds=LEADER_SECONDS)
        if answer.status == HTTPStatus.OK:
            return _decode_cluster(answer.body)
    except DECODE_FAULTS:
        pass
    except CurlewError:
        return None
    return _Cluster([])
