"""Traces: of one message, and a search over all of a topic or of the node."""

from typing import Annotated, Final

from fastapi import Query

from app.api.control.dependencies import Services, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.names import GroupName
from app.api.control.schemas.trace_schemas import (
    Kind,
    TraceDeliveryDocument,
    TraceDocument,
    TraceEventDocument,
    TraceList,
    TraceProducerDocument,
)
from app.api.naming.request_namespace import is_of_request
from app.api.operations.operation import Action
from app.broker.message_copies import origin_of
from app.broker.topic_lookup import find_topic
from app.broker.tracing.trace_notes import TraceKind
from app.broker.tracing.trace_search import TraceQuery
from app.broker.tracing.traced_deliveries import deliveries_of

router = OperationRouter("messages")

_HOUR_MS: Final = 3_600_000
_TIME_MS_MAX: Final = 2**53

Group = Annotated[
    GroupName | None, Query(description="of this consumer group, or sent by this producer group")
]
ClientId = Annotated[str | None, Query(description="received or sent by this client")]
Key = Annotated[str | None, Query(description="of the newest 32 messages with this key")]
Result = Annotated[Kind | None, Query(description="only what happened so")]
Since = Annotated[
    int | None,
    Query(ge=0, le=_TIME_MS_MAX, description="at this time or later; an hour before `until_ms`"),
]
Until = Annotated[
    int | None, Query(ge=0, le=_TIME_MS_MAX, description="before this time; left out: now")
]
PageSize = Annotated[int, Query(description="events of a page, at most 200")]
PageToken = Annotated[str | None, Query(description="`next_page_token` of the page before")]


@router.serve(
    "GET /v1/topics/{topic}/messages/{message_id}/trace",
    "What became of a message",
    needs={"topic": Action.GET},
)
async def get_trace(
    topic: str,
    message_id: str,
    services: WithServices,
    group: Annotated[GroupName | None, Query(description="of this group only")] = None,
) -> TraceDocument:
    """Who sent it and when it was stored, and what happened to it since, for each group; as long as
    it is kept. A retry's events are those of its original, as is a dead letter's id."""
    is_traced = services.broker.message_trace.is_kept(find_topic(services.metadata, topic).name)
    message = await services.broker.browser.message(topic, message_id)
    origin = origin_of(message)
    trail = await services.broker.message_trace.trail(
        origin.topic, origin.queue_id, origin.queue_offset, group=group
    )
    return TraceDocument(
        **TraceDocument.about(message),
        is_traced=is_traced,
        is_complete=trail.is_complete,
        producer=None if trail.sent is None else TraceProducerDocument.of(trail.sent),
        deliveries=[TraceDeliveryDocument.of(each) for each in deliveries_of(trail.events)],
        events=[TraceEventDocument.of(event) for event in trail.events],
    )


@router.serve(
    "GET /v1/topics/{topic}/trace",
    "Search the traces of a topic",
    needs={"topic": Action.GET},
)
async def search_topic_traces(
    topic: str,
    services: WithServices,
    group: Group = None,
    client_id: ClientId = None,
    key: Key = None,
    result: Result = None,
    since_ms: Since = None,
    until_ms: Until = None,
    page_size: PageSize = 50,
    page_token: PageToken = None,
) -> TraceList:
    """What happened to the messages of a topic within a time, the oldest first: sends, deliveries
    and how they ended. The notes of that time are gone through, a bounded number for a page; with
    `key` those of the messages that have it are looked up, in one page."""
    wanted = _query(services, (since_ms, until_ms), topic, group, client_id, result)
    search = services.broker.trace_search
    if key is None:
        found = await search.search(wanted, page_size=page_size, cursor=page_token)
    else:
        found = await search.with_key(wanted, key, page_size=page_size)
    return TraceList.of(*found)


@router.serve(
    "GET /v1/trace",
    "Search the traces of all topics",
    needs={"cluster": Action.GET},
)
async def search_traces(
    services: WithServices,
    group: Group = None,
    client_id: ClientId = None,
    result: Result = None,
    since_ms: Since = None,
    until_ms: Until = None,
    page_size: PageSize = 50,
    page_token: PageToken = None,
) -> TraceList:
    """The same for all topics: which messages a client was given, what a group failed with."""
    wanted = _query(services, (since_ms, until_ms), None, group, client_id, result)
    search = services.broker.trace_search
    return TraceList.of(*await search.search(wanted, page_size=page_size, cursor=page_token))


def _query(
    services: Services,
    times: tuple[int | None, int | None],
    topic: str | None,
    group: str | None,
    client_id: str | None,
    result: Kind | None,
) -> TraceQuery:
    since_ms, until_ms = times
    if until_ms is None:
        until_ms = services.broker.store_now_ms() + 1
    if since_ms is None:
        since_ms = max(until_ms - _HOUR_MS, 0)
    kind = None if result is None else TraceKind[result.upper()]
    return TraceQuery(since_ms, until_ms, topic, group, client_id, kind, is_of_request)
