"""The trace of a message: what became of it in each group."""

from typing import Annotated, Self

from fastapi import Query

from app.api.control.dependencies import WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.names import GroupName
from app.api.control.schemas.schemas import AnswerModel
from app.api.operations.operation import Action
from app.broker.message_copies import origin_of
from app.broker.topic_lookup import find_topic
from app.broker.tracing.message_trace import TraceEvent

router = OperationRouter("messages")


class TraceEventDocument(AnswerModel):
    """One thing that happened: delivered, acked, nacked, expired, extended, dead_lettered, …

    `attempt` is 1 for the first delivery; `detail` is a reason, or where the message went.
    """

    kind: str
    at_ms: int
    group: str
    attempt: int | None
    client_id: str | None
    detail: str | None

    @classmethod
    def of(cls, event: TraceEvent) -> Self:
        return cls(
            kind=event.kind.name.lower(),
            at_ms=event.at_ms,
            group=event.group,
            attempt=event.attempt,
            client_id=event.client_id,
            detail=event.detail,
        )


class TraceDocument(AnswerModel):
    """A message's trail, the oldest event first.

    `is_traced` is the topic's setting now; `is_complete` is false when older events were left out.
    """

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    born_time_ms: int
    store_time_ms: int
    is_traced: bool
    is_complete: bool
    events: list[TraceEventDocument]


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
    """When it was stored, and what happened to it since, for each group; as long as it is kept."""
    is_traced = find_topic(services.metadata, topic).trace
    message = await services.broker.browser.message(topic, message_id)
    origin = origin_of(message)
    trail = await services.broker.message_trace.trail(
        origin.topic, origin.queue_id, origin.queue_offset, group=group
    )
    return TraceDocument(
        message_id=message.message_id,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        born_time_ms=message.born_time_ms,
        store_time_ms=message.store_time_ms,
        is_traced=is_traced,
        is_complete=trail.is_complete,
        events=[TraceEventDocument.of(event) for event in trail.events],
    )
