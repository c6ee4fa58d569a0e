"""Delayed messages of a topic: list, look at, cancel, deliver now, move."""

from typing import Annotated, Self

from fastapi import Depends, Query, Response
from pydantic import Field

from app.api.aims.across import InOrder
from app.api.aims.of_names import A_RECALL_HANDLE
from app.api.bodies.delivery_times import due_of
from app.api.control.dependencies import (
    Services,
    WithAccess,
    WithPageSize,
    WithServices,
    json_body,
)
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.schemas import AnswerModel, DryRunMember, MergedModel, RequestModel
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.naming.request_namespace import current_namespace, stored
from app.api.operations.operation import Action, Body
from app.broker.delays.delayed_messages import ScheduledMessage, ScheduledPage
from app.domain.access.actions import Kind
from app.domain.errors import IllegalDeliveryTime
from app.domain.names import is_in

router = OperationRouter("delayed messages")


class MoveBody(RequestModel):
    """The new time: one of both."""

    delay: str | None = Field(default=None, description="from now: 30s, 2h, or level:3")
    deliver_at_ms: int | None = Field(default=None, ge=0, description="epoch milliseconds")


class ScheduledDocument(AnswerModel):
    """A delayed message that waits. The body is not shown before it is due."""

    message_id: str
    unique_id: str | None = Field(description="The producer's own id of the message")
    flag: int = Field(description="The producer's own number")
    topic: str
    queue_id: int
    deliver_time_ms: int
    store_time_ms: int
    born_time_ms: int
    tag: str | None
    keys: list[str]
    sharding_key: str | None
    properties: dict[str, str]
    content_type: str | None
    body_bytes: int
    recall_handle: str

    @classmethod
    def of(cls, waiting: ScheduledMessage) -> Self:
        message = waiting.message
        return cls(
            message_id=message.message_id,
            unique_id=message.unique_id,
            flag=message.flag,
            topic=waiting.topic,
            queue_id=waiting.queue_id,
            deliver_time_ms=waiting.deliver_time_ms,
            store_time_ms=message.store_time_ms,
            born_time_ms=message.born_time_ms,
            tag=message.tag,
            keys=list(message.keys),
            sharding_key=message.sharding_key,
            properties=dict(message.properties),
            content_type=message.content_type,
            body_bytes=len(message.body),
            recall_handle=waiting.recall_handle,
        )


class ScheduledAnswer(DryRunMember, ScheduledDocument):
    """A delayed message that was moved; or one that would be moved, cancelled or delivered."""

    @classmethod
    def of_message(cls, waiting: ScheduledMessage, *, is_dry_run: bool) -> Self:
        return cls(**ScheduledDocument.of(waiting).model_dump(), dry_run=is_dry_run)


class ScheduledList(MergedModel):
    """Delayed messages by delivery time; `next_page_token` is null at the end.

    A page may be empty and not the last, as messages of other topics were passed by. `scanned` does
    not count those: it is the number of `messages`.
    """

    messages: list[ScheduledDocument]
    scanned: int
    next_page_token: str | None

    @classmethod
    def of(cls, page: ScheduledPage) -> Self:
        return cls(
            messages=[ScheduledDocument.of(each) for each in page.messages],
            scanned=page.scanned,
            next_page_token=page.next_page_token,
        )


@router.serve(
    "GET /v1/topics/{topic}/scheduled",
    "Delayed messages of a topic, by delivery time",
    needs={"topic": Action.PUB},
    instead={"topic": Action.SUB},
    across=InOrder("messages"),
)
async def list_scheduled_messages(
    topic: str,
    services: WithServices,
    page_size: WithPageSize,
    page_token: Annotated[str | None, Query()] = None,
) -> ScheduledList:
    """What waits, the next one first; for those that send to the topic, and those that read it."""
    return ScheduledList.of(
        await services.broker.delayed_messages.page(topic, page_size, page_token)
    )


@router.serve(
    "GET /v1/scheduled",
    "Delayed messages of all topics, by delivery time",
    needs={"topic": Action.LIST},
    across=InOrder("messages"),
)
async def list_all_scheduled_messages(
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    prefix: Annotated[str, Query(description="of topics whose names begin with it")] = "",
    page_token: Annotated[str | None, Query()] = None,
) -> ScheduledList:
    """What waits, the next one first; of topics that the caller sends to or reads. In a cluster all
    of one shard, then all of the next."""
    access.for_anybody()
    namespace = current_namespace()
    beginning = stored("topic", prefix)

    def is_wanted(topic: str) -> bool:
        return (
            topic.startswith(beginning)
            and is_in(namespace, topic)
            and (
                access.may(Action.PUB, Kind.TOPIC, topic)
                or access.may(Action.SUB, Kind.TOPIC, topic)
            )
        )

    messages = services.broker.delayed_messages
    return ScheduledList.of(await messages.page_of_all(is_wanted, page_size, page_token))


@router.serve(
    "GET /v1/topics/{topic}/scheduled/{recall_handle}",
    "One delayed message",
    needs={"topic": Action.PUB},
    problems=(409,),
    aim=A_RECALL_HANDLE,
)
async def get_scheduled_message(
    topic: str, recall_handle: str, services: WithServices
) -> ScheduledDocument:
    """409 `ALREADY_DELIVERED`, with its place, when it is in its queue."""
    return ScheduledDocument.of(await services.broker.delayed_messages.get(topic, recall_handle))


@router.serve(
    "DELETE /v1/topics/{topic}/scheduled/{recall_handle}",
    "Cancel a delayed message",
    needs={"topic": Action.PUB},
    status=204,
    answers={200: dry_run_answer(ScheduledAnswer)},
    problems=(409, 507),
    aim=A_RECALL_HANDLE,
)
async def cancel_scheduled_message(
    topic: str, recall_handle: str, services: WithServices, dry_run: WithDryRun = None
) -> Response:
    """204: it will never be delivered. 409 `ALREADY_DELIVERED`: it is too late."""
    if is_dry_run(dry_run):
        return await _as_it_is(services, topic, recall_handle)
    await services.broker.delayed_messages.cancel(topic, recall_handle)
    return Response(status_code=204)


async def _as_it_is(services: Services, topic: str, recall_handle: str) -> Response:
    """The dry run of what ends the waiting: it could be done."""
    waiting = await services.broker.delayed_messages.get(topic, recall_handle)
    return deleted(ScheduledAnswer.of_message(waiting, is_dry_run=True))


@router.serve(
    "PATCH /v1/topics/{topic}/scheduled/{recall_handle}",
    "Deliver a delayed message at another time",
    needs={"topic": Action.PUB},
    body=Body(MoveBody, required=True, examples={"in two hours": {"delay": "2h"}}),
    problems=(409, 507),
    aim=A_RECALL_HANDLE,
)
async def move_scheduled_message(
    topic: str,
    recall_handle: str,
    body: Annotated[MoveBody, Depends(json_body(MoveBody))],
    services: WithServices,
    dry_run: WithDryRun = None,
) -> ScheduledAnswer:
    """The handle stays the same. A time in the past delivers it at once."""
    due = due_of(body.delay, body.deliver_at_ms)
    if due is None:
        raise IllegalDeliveryTime("no time is given", hint='send {"delay":"30s"} or deliver_at_ms')
    tries, scheduled = is_dry_run(dry_run), services.broker.delayed_messages
    move = scheduled.preview_move if tries else scheduled.move
    return ScheduledAnswer.of_message(await move(topic, recall_handle, due), is_dry_run=tries)


@router.serve(
    "POST /v1/topics/{topic}/scheduled/{recall_handle}:deliver",
    "Deliver a delayed message now",
    needs={"topic": Action.PUB},
    status=204,
    answers={200: dry_run_answer(ScheduledAnswer)},
    problems=(409, 507),
    aim=A_RECALL_HANDLE,
)
async def deliver_scheduled_message(
    topic: str, recall_handle: str, services: WithServices, dry_run: WithDryRun = None
) -> Response:
    """204: it is in its queue."""
    if is_dry_run(dry_run):
        return await _as_it_is(services, topic, recall_handle)
    await services.broker.delayed_messages.deliver(topic, recall_handle)
    return Response(status_code=204)
