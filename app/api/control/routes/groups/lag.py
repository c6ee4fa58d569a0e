"""How far a consumer group is behind, and why a message is not delivered to it."""

from collections.abc import Sequence
from typing import Annotated, Self

from fastapi import Query, Request, Response
from pydantic import Field

from app.api.aims import merges
from app.api.aims.across import Documents, Together
from app.api.aims.of_names import A_MESSAGE_ID
from app.api.control.dependencies import WithAccess, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.group_documents import consumption_states
from app.api.control.schemas.names import GroupName, TopicName
from app.api.control.schemas.schemas import AnswerModel, ConsumptionDocument, MergedModel
from app.api.large_documents import answer_of
from app.api.naming.request_namespace import stored
from app.api.operations.asked_work import lag_asked, lag_of
from app.api.operations.operation import Action, Answer
from app.broker.insight.delivery_status import DeliveryState, DeliveryStatus
from app.broker.insight.lag import GroupLag, QueueLag, TopicLag
from app.domain.access.actions import Kind
from app.domain.consumers.consumption import ConsumptionState

router = OperationRouter("groups")


class QueueLagDocument(AnswerModel):
    """One queue. What is not known is null, and `reason` says why.

    `expired` counts messages that were not done when they went past the topic's retention.
    """

    queue_id: int
    min_offset: int
    max_offset: int
    committed_offset: int | None
    ready: int | None
    in_flight: int
    delayed: int
    expired: int
    oldest_ms: int | None
    reason: str | None

    @classmethod
    def of(cls, queue: QueueLag) -> Self:
        return cls(**queue._asdict())


class TopicLagDocument(AnswerModel):
    """One topic. `retrying` counts failed messages that can be received again."""

    topic: str
    ready: int | None
    in_flight: int
    retrying: int
    retrying_in_flight: int
    delayed: int
    oldest_ms: int | None
    queues: list[QueueLagDocument]

    @classmethod
    def of(cls, topic: TopicLag) -> Self:
        fields = topic._asdict() | {"queues": [QueueLagDocument.of(each) for each in topic.queues]}
        return cls(**fields)


class GroupLagDocument(MergedModel):
    """What is not done for a group.

    `ready` may hold messages that a filter will leave out: it is not known before they are looked
    at. `delayed` counts failed messages that wait for their next attempt, or are parked.
    """

    group: str
    ready: int | None
    in_flight: int
    retrying: int
    delayed: int
    dead: int
    oldest_ms: int | None
    topics: list[TopicLagDocument]
    subscriptions: list[ConsumptionDocument] = Field(
        description="How the group consumes each of these topics; none in a broadcast group"
    )

    @classmethod
    def of(cls, lag: GroupLag, states: Sequence[ConsumptionState]) -> Self:
        shown = {each.topic for each in lag.topics}
        fields = lag._asdict() | {
            "topics": [TopicLagDocument.of(each) for each in lag.topics],
            "subscriptions": [
                ConsumptionDocument.of(each) for each in states if each.topic in shown
            ],
        }
        return cls(**fields)


class GroupLagSummary(AnswerModel):
    """What is not done for a group, in all the topics that the caller may know of."""

    group: str
    ready: int | None
    in_flight: int
    retrying: int
    delayed: int
    dead: int
    oldest_ms: int | None

    @classmethod
    def of(cls, lag: GroupLag) -> Self:
        return cls(
            group=lag.group,
            ready=lag.ready,
            in_flight=lag.in_flight,
            retrying=lag.retrying,
            delayed=lag.delayed,
            dead=lag.dead,
            oldest_ms=lag.oldest_ms,
        )


class DeliveryDocument(AnswerModel):
    """Where a message stands in a group, in a word and in a sentence, and what to do.

    `ahead` counts ready messages of its queue that come first.
    """

    message_id: str
    topic: str
    group: str
    standing: DeliveryState
    reason: str
    hint: str | None
    ahead: int | None
    attempt: int | None
    until_ms: int | None
    subscriptions: list[ConsumptionDocument] = Field(
        description="How the group consumes the topic; none in a broadcast group"
    )

    @classmethod
    def of(
        cls,
        topic: str,
        message_id: str,
        group: str,
        found: DeliveryStatus,
        states: Sequence[ConsumptionState],
    ) -> Self:
        subscriptions = [ConsumptionDocument.of(each) for each in states if each.topic == topic]
        fields = found._asdict() | {"subscriptions": subscriptions}
        return cls(message_id=message_id, topic=topic, group=group, **fields)


def _again(documents: Documents) -> dict[str, str]:
    found = merges.begun_elsewhere(documents)
    return {shard: lag_asked(topics) for shard, topics in found.items()}


@router.serve(
    "GET /v1/groups/{group}/lag",
    "How far a consumer group is behind",
    needs={"group": Action.GET},
    answers={200: Answer(content=GroupLagDocument)},
    across=Together(merges.lag, again=_again),
)
async def get_lag(
    group: str,
    request: Request,
    services: WithServices,
    access: WithAccess,
    topic: Annotated[TopicName | None, Query(description="this topic only")] = None,
) -> Response:
    """Per queue and in all: ready, in flight, retrying, delayed, dead, and the oldest of them; in
    the topics that the caller may know of."""
    if topic is not None:
        access.require(Action.GET, Kind.TOPIC, topic)
    asked = lag_of(request.scope)
    lag = await services.broker.lag.group_lag(
        group,
        topic=topic,
        visible=access.sees_topic,
        begun={
            **{stored("topic", name): True for name in asked.leased},
            **{stored("topic", name): False for name in asked.read},
        },
    )
    states = consumption_states(services, access, group)
    return await answer_of(GroupLagDocument.of, lag, states)


@router.serve(
    "GET /v1/topics/{topic}/messages/{message_id}/delivery",
    "Why a message is not delivered to a group",
    needs={"topic": Action.GET, "group": Action.GET},
    aim=A_MESSAGE_ID,
)
async def get_delivery(
    topic: str, message_id: str, services: WithServices, access: WithAccess, group: GroupName
) -> DeliveryDocument:
    """Where the message stands in the group, and what can be done about it."""
    access.require(Action.GET, Kind.GROUP, group)
    message = await services.broker.browser.message(topic, message_id)
    found = await services.broker.delivery_status.look(message, group)
    states = consumption_states(services, access, group)
    return DeliveryDocument.of(topic, message_id, group, found, states)
