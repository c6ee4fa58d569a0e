"""Which nodes lead the queues of a topic: routes, for clients that ask leaders themselves."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, Self

from fastapi import Request, Response
from pydantic import Field
from pydantic.main import IncEx

from app.api.control.dependencies import (
    Services,
    TopicNames,
    WithAccess,
    WithServices,
    named_topics,
)
from app.api.control.known_shards import leader_answers
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import AnswerModel
from app.api.http.entity_tags import is_known
from app.api.http.json_line import JsonLine
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer
from app.api.ports import Snapshot
from app.broker.read.topic_ends import check_count
from app.broker.topic_lookup import find_topic
from app.cluster import ShardView
from app.domain.shards.takes import Takes

router = OperationRouter("cluster")

VALID_MS: Final = 30_000
"""How long a client may keep a route without asking whether it is still this one."""

_VERSION: Final[IncEx] = {"metadata_version"}
_OF_EACH: Final[Mapping[str, IncEx]] = {"__all__": _VERSION}
_VERSIONS: Final[Mapping[str, IncEx | bool]] = {"metadata_version": True, "routes": _OF_EACH}
"""What makes no other route, or no other routes: it rises with any change."""


class RouteQueueDocument(AnswerModel):
    """Where a queue is."""

    queue_id: int = Field(description="The queue within its topic")
    shard: str = Field(description="The shard that has it")
    perm: str = Field(description="What clients may do with it: rw, r, w or none")
    takes: Takes = Field(
        description="Of new messages: `all`; `keyed`: its shard drains, those whose sharding key"
        " belongs there; `none`: keys of a shard that drains have moved to the queues that take"
        " all, by the hash over their number"
    )
    epoch: int = Field(description="In which its shard is led; it rises with each start")
    leader: str | None = Field(
        description="The URL of the node that leads the shard; null: none that answers is known"
    )
    replicas: list[str] = Field(description="URLs of the nodes that have it in sync")


class RouteDocument(AnswerModel):
    """Where the queues of a topic are."""

    topic: str
    generation: int = Field(description="Tells topics of the same name apart")
    metadata_version: int = Field(description="What the node that was asked knows")
    valid_ms: int = Field(description="How long it may be kept; NOT_LEADER ends it earlier")
    write_queues: int = Field(description="Over so many queues a sharding key is hashed")
    queues: list[RouteQueueDocument] = Field(description="All queues, in order")


class RoutesDocument(AnswerModel):
    """Where the queues of several topics are."""

    metadata_version: int = Field(description="What the node that was asked knows")
    valid_ms: int = Field(description="How long they may be kept; NOT_LEADER ends it earlier")
    routes: list[RouteDocument] = Field(description="Of the topics that exist, as they were named")
    missing: list[str] = Field(description="Topics that do not exist")


@router.serve(
    "GET /v1/topics/{topic}/route",
    "Which node leads each queue of a topic",
    needs={"topic": Action.GET},
    answers={
        200: Answer("Where the queues are", RouteDocument, ETAG_HEADER),
        304: Answer("It is still the one of `If-None-Match`", headers=ETAG_HEADER),
    },
)
async def get_route(topic: str, services: WithServices, request: Request) -> Response:
    """For clients that ask the node of a queue themselves; any node takes any request all the same.
    `NOT_LEADER` says that it is another one by now."""
    find_topic(services.metadata, topic)
    places = _Places.of(services)
    return _tagged(request, lambda: places.route_of(topic), _VERSION)


@router.serve(
    "GET /v1/route",
    "Which node leads each queue of several topics",
    needs={"topic": Action.GET},
    answers={
        200: Answer("Where the queues are", RoutesDocument, ETAG_HEADER),
        304: Answer("They are still those of `If-None-Match`", headers=ETAG_HEADER),
    },
)
async def get_routes(
    topics: TopicNames, services: WithServices, access: WithAccess, request: Request
) -> Response:
    """As `get_route`, for several topics; those that do not exist are in `missing`."""
    names, hidden = named_topics(access, topics)
    if names or not hidden:
        check_count(names, services.limits)
    places = _Places.of(services)
    made = partial(places.routes_of, names, hidden)
    return await asyncio.to_thread(_tagged, request, made, _VERSIONS)


class _Places(NamedTuple):
    """What the node that was asked knows of shards, at one moment; nobody changes it."""

    snapshot: Snapshot
    own: str
    leaders: Mapping[str, str | None]
    """The URL of who leads, by shard."""

    @classmethod
    def of(cls, services: Services) -> Self:
        snapshot = services.metadata.snapshot
        shards = snapshot.shards.items()
        leaders = {name: _leader_of(services, shard) for name, shard in shards}
        return cls(snapshot, services.metadata.shard, leaders)

    def route_of(self, topic: str) -> RouteDocument:
        """Of a topic that exists."""
        view = self.snapshot.topics[topic]
        queues = []
        for queue_id in range(view.queues):
            name = view.shard_of(queue_id) or self.own
            known, url = self.snapshot.shards.get(name), self.leaders.get(name)
            queues.append(
                RouteQueueDocument(
                    queue_id=queue_id,
                    shard=name,
                    perm=view.permission_of(queue_id).value,
                    takes=view.takes_of(queue_id),
                    epoch=0 if known is None else known.epoch,
                    leader=url,
                    replicas=_in_sync_at(known, url),
                )
            )
        return RouteDocument(
            topic=topic,
            generation=view.generation,
            metadata_version=self.snapshot.version,
            valid_ms=VALID_MS,
            write_queues=view.write_queues,
            queues=queues,
        )

    def routes_of(self, names: Sequence[str], hidden: Sequence[str]) -> RoutesDocument:
        """Of those that exist. `hidden` ones are missing to the caller."""
        named = dict.fromkeys(names)
        return RoutesDocument(
            metadata_version=self.snapshot.version,
            valid_ms=VALID_MS,
            routes=[self.route_of(name) for name in named if name in self.snapshot.topics],
            missing=[*(name for name in named if name not in self.snapshot.topics), *hidden],
        )


def _tagged(request: Request, make: Callable[[], AnswerModel], rest: IncEx) -> Response:
    """The document, unless the request knows it. `rest` is what makes no other one."""
    document = make()
    said = document.model_dump_json(exclude=rest).encode()
    tag = f'W/"{blake2b(said, digest_size=12).hexdigest()}"'
    if is_known(request.headers.get("if-none-match", "").encode("latin-1") or None, tag.encode()):
        return Response(status_code=304, headers={"ETag": tag})
    return JsonLine(document.model_dump(mode="json"), headers={"ETag": tag})


def _in_sync_at(shard: ShardView | None, leader_url: str | None) -> list[str]:
    """URLs of the nodes that have it in sync; of a lone node's that of who leads."""
    if shard is None or not shard.members:
        return [] if leader_url is None else [leader_url]
    return [
        each.advertise_url
        for each in shard.members
        if each.node_id in shard.in_sync and each.advertise_url is not None
    ]


def _leader_of(services: Services, shard: ShardView | None) -> str | None:
    if shard is None or not leader_answers(services, shard.name):
        return None
    return shard.advertise_url or None
