"""Traces: of one message, and a search over all of a topic or of the node."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Final

from fastapi import Query

from app.api.aims.across import InOrder
from app.api.aims.of_names import A_MESSAGE_ID
from app.api.control.dependencies import Services, WithAccess, WithServices, WithTraceSize
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
from app.broker.retries_and_dead_letters import origin_of
from app.broker.topic_lookup import find_topic
from app.broker.tracing.message_trace import Sent
from app.broker.tracing.trace_notes import Note, TraceKind
from app.broker.tracing.trace_search import TraceQuery
from app.broker.tracing.traced_deliveries import deliveries_of
from app.domain.access.actions import Kind as ResourceKind
from app.domain.access.standing import Standing
from app.domain.limits import DEFAULT_TRACE_PAGE_SIZE

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
PageToken = Annotated[str | None, Query(description="`next_page_token` of the page before")]


@router.serve(
    "GET /v1/topics/{topic}/messages/{message_id}/trace",
    "What became of a message",
    needs={"topic": Action.GET},
    aim=A_MESSAGE_ID,
)
async def get_trace(
    topic: str,
    message_id: str,
    services: WithServices,
    access: WithAccess,
    group: Annotated[GroupName | None, Query(description="of this group only")] = None,
) -> TraceDocument:
    """Who sent it and when it was stored, and what happened to it since, for each group that the
    caller may know of; as long as it is kept. A retry's events are those of its original, as is a
    dead letter's id."""
    if group is not None:
        access.require(Action.GET, ResourceKind.GROUP, group)
    is_traced = services.broker.message_trace.is_kept(find_topic(services.metadata, topic).name)
    message = await services.broker.browser.message(topic, message_id)
    origin = origin_of(message)
    trail = await services.broker.message_trace.trail(
        origin.topic, origin.queue_id, origin.queue_offset, group=group
    )
    events = [event for event in trail.events if access.sees_group(event.group)]
    return TraceDocument(
        **TraceDocument.about(message),
        is_traced=is_traced,
        is_complete=trail.is_complete,
        producer=_producer(access, trail.sent),
        deliveries=[TraceDeliveryDocument.of(each) for each in deliveries_of(events)],
        events=[TraceEventDocument.of(event) for event in events],
    )


@router.serve(
    "GET /v1/topics/{topic}/trace",
    "Search the traces of a topic",
    needs={"topic": Action.GET},
    across=InOrder("events", page_size=DEFAULT_TRACE_PAGE_SIZE),
)
async def search_topic_traces(
    topic: str,
    services: WithServices,
    access: WithAccess,
    page_size: WithTraceSize,
    group: Group = None,
    client_id: ClientId = None,
    key: Key = None,
    result: Result = None,
    since_ms: Since = None,
    until_ms: Until = None,
    page_token: PageToken = None,
) -> TraceList:
    """What happened to the messages of a topic within a time, the oldest first: sends, deliveries
    and how they ended. The notes of that time are gone through, a bounded number for a page; with
    `key` those of the messages that have it are looked up, in one page."""
    wanted = _query(services, (since_ms, until_ms), topic, group, client_id, result)
    wanted = replace(wanted, sees=partial(_sees, access))
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
    across=InOrder("events", page_size=DEFAULT_TRACE_PAGE_SIZE),
)
async def search_traces(
    services: WithServices,
    page_size: WithTraceSize,
    access: WithAccess,
    group: Group = None,
    client_id: ClientId = None,
    result: Result = None,
    since_ms: Since = None,
    until_ms: Until = None,
    page_token: PageToken = None,
) -> TraceList:
    """The same for all topics and groups that the caller may know of: which messages a client was
    given, what a group failed with."""
    wanted = _query(services, (since_ms, until_ms), None, group, client_id, result)
    wanted = replace(wanted, sees=partial(_sees, access), sees_topic=access.sees_topic)
    search = services.broker.trace_search
    return TraceList.of(*await search.search(wanted, page_size=page_size, cursor=page_token))


def _producer(access: Standing, sent: Sent | None) -> TraceProducerDocument | None:
    """How it was sent, to who may know of the producer group that it names."""
    group = None if sent is None else sent.producer[1]
    if sent is None or (group and not access.may(Action.GET, ResourceKind.PRODUCER, group)):
        return None
    return TraceProducerDocument.of(sent)


def _sees(access: Standing, note: Note) -> bool:
    """Whether the caller may know of the group of an event, or of the producer group of a send."""
    kind = (
        ResourceKind.PRODUCER
        if note.kind in (TraceKind.SENT, TraceKind.SENT_AGAIN)
        else ResourceKind.GROUP
    )
    return not note.group or access.may(Action.GET, kind, note.group)


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
