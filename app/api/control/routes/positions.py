"""Where topics stand: all queues of several topics in one call, with waiting; offsets by time."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, Self

from fastapi import Query, Request, Response

from app.api.aims import merges
from app.api.aims.across import Together
from app.api.control.dependencies import TopicNames, WithAccess, WithServices, named_topics
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import AnswerModel, MergedModel, TopicOffsets
from app.api.dataplane.client_watch import unless_gone
from app.api.http.parameters import point_of, wait_s_of
from app.api.large_documents import answer_of
from app.api.operations.operation import Action, Answer
from app.broker.read.topic_ends import QueueState, TopicState, TopicStates
from app.broker.results import QueuePosition
from app.domain.errors import InvalidRequest, TopicNotFound

router = OperationRouter("topics")


class QueueStateDocument(AnswerModel):
    """One queue: readable from `min_offset` on, below `max_offset`.

    `average_bytes` is the size of a stored record, from a sample; null when the queue is empty.
    """

    queue_id: int
    min_offset: int
    max_offset: int
    average_bytes: int | None

    @classmethod
    def of(cls, queue: QueueState) -> Self:
        return cls(**queue._asdict())


class TopicStateDocument(AnswerModel):
    """One topic; `generation` grows when it is deleted and made anew under its name."""

    topic: str
    generation: int
    queues: list[QueueStateDocument]

    @classmethod
    def of(cls, topic: TopicState) -> Self:
        queues = [QueueStateDocument.of(queue) for queue in topic.queues]
        return cls(topic=topic.topic, generation=topic.generation, queues=queues)


class TopicStateList(MergedModel):
    """Where the topics stand, those that do not exist, and a token for exactly this state."""

    state: str
    topics: list[TopicStateDocument]
    missing: list[str]

    @classmethod
    def of(cls, found: TopicStates, hidden: Sequence[str]) -> Self:
        topics = [TopicStateDocument.of(topic) for topic in found.topics]
        return cls(state=found.state, topics=topics, missing=[*found.missing, *hidden])


class OffsetsOfTopics(MergedModel):
    """Where reading would start in every queue of the topics that exist."""

    topics: list[TopicOffsets]
    missing: list[str]


@router.serve(
    "GET /v1/topics:positions",
    "Bounds, sizes and generation of several topics, with waiting",
    needs={"topic": Action.GET},
    answers={200: Answer(content=TopicStateList)},
    problems=(429,),
    across=Together(merges.positions, waits=True),
)
async def get_positions(
    topics: TopicNames,
    services: WithServices,
    access: WithAccess,
    request: Request,
    known: Annotated[
        str | None, Query(description="`state` of an answer before; needed to wait")
    ] = None,
    wait: Annotated[
        str | None,
        Query(description="how long to wait for another state than `known`: 20, 0.5, 20s"),
    ] = None,
    durability: Annotated[
        Literal["memory", "flushed"],
        Query(description="flushed: answer after all below the ends is on the medium"),
    ] = "memory",
) -> Response:
    """All queues of all topics in one answer.

    With `known` and `wait`, the answer comes as soon as the state is another one: a queue's end has
    moved, queues were added, a topic was made, deleted, or made anew. A topic that does not exist
    is listed in `missing`.

    With `durability=flushed` no power loss takes what is below the ends, also of topics with
    `flush: async`, and no offset below them is given to another message.
    """
    wait_s = 0.0 if wait is None else wait_s_of(wait, services.limits.wait_seconds_max)
    if wait_s and known is None:
        raise InvalidRequest(
            "wait needs known: without a state there is nothing that could change",
            hint="ask without wait first, then pass the answer's state as known",
            fields={"parameter": "wait"},
        )
    look = partial(services.broker.topic_ends.look, flushed=durability == "flushed")
    names, hidden = named_topics(access, topics)
    if hidden and not names:
        return await answer_of(TopicStateList.of, TopicStates("", [], []), hidden)
    if not wait_s:
        return await answer_of(TopicStateList.of, await look(names), hidden)
    found = await unless_gone(
        request.receive,
        access,
        lambda _gone: look(names, known=known, wait_s=wait_s),
        lambda _found: None,
    )
    return await answer_of(TopicStateList.of, found, hidden)


@router.serve(
    "GET /v1/topics:offsets",
    "Offsets of all queues of several topics at a point",
    needs={"topic": Action.GET},
    answers={200: Answer(content=OffsetsOfTopics)},
    across=Together(merges.offsets_of_topics),
)
async def get_offsets_of_topics(
    topics: TopicNames,
    services: WithServices,
    access: WithAccess,
    at: Annotated[str, Query(description="earliest, latest, or epoch milliseconds")],
) -> Response:
    """As `get_topic_offsets`, for several topics; those that do not exist are in `missing`."""
    names, hidden = named_topics(access, topics)
    if hidden and not names:
        return await answer_of(OffsetsOfTopics, topics=[], missing=list(hidden))
    found = await services.broker.topic_ends.look(names)
    moment = point_of(at)
    offsets: list[tuple[str, Sequence[QueuePosition]]] = []
    missing = [*found.missing, *hidden]
    for each in found.topics:
        try:
            positions = await services.broker.topic_ends.offsets_at(each.topic, moment)
        except TopicNotFound:  # deleted since the look
            missing.append(each.topic)
        else:
            offsets.append((each.topic, positions))
            await asyncio.sleep(0)  # a topic is a turn's work, when it has very many queues

    def document() -> OffsetsOfTopics:
        topics = [TopicOffsets.of(topic, at, positions) for topic, positions in offsets]
        return OffsetsOfTopics(topics=topics, missing=missing)

    return await answer_of(document)
