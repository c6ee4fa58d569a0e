"""Producers that send in sequence: what is known of one, planning and closing its epochs."""

from collections.abc import Sequence
from typing import Annotated, Self

from fastapi import Depends, Request, Response
from pydantic import Field

from app.api.aims import merges
from app.api.aims.across import Closed, Ended, Together
from app.api.aims.of_sends import A_PLAN
from app.api.control.dependencies import WithAccess, WithServices, json_body
from app.api.control.log_changes import WithBeginning
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.names import ProducerName, TopicName
from app.api.control.schemas.schemas import (
    INT64_MAX,
    AnswerModel,
    Count,
    DryRunMember,
    MergedModel,
    RequestModel,
)
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.http.request_context import ASKED
from app.api.operations.operation import Action, Body
from app.broker.dedup.dedup_entries import ProducerState
from app.broker.topic_lookup import find_topic
from app.domain.access.actions import Kind
from app.domain.names import namespace_of

router = OperationRouter("producers")


class SealBody(RequestModel):
    """The producer, and the epoch that is complete; all before it are closed with it.

    `messages`: how many were sent in this epoch under all names that are closed. With fewer in the
    log the epoch stays open.
    """

    producer: ProducerName
    epoch: Count
    messages: Count = 0


class SealDocument(DryRunMember):
    """The highest epoch that is closed; with `dry_run`, that would be."""

    producer: str
    sealed_epoch: int


class PlanBody(RequestModel):
    """The producer, or the common name of several; an epoch of it; a topic that it fills.

    `messages_per_turn`: how many messages in a row it gives to a queue before the next one's turn.
    """

    producer: ProducerName
    epoch: Count
    topic: TopicName
    messages_per_turn: Annotated[int, Field(ge=1, le=INT64_MAX)] | None = None


class PlanDocument(DryRunMember):
    """The epoch spreads over queues 0 to `queues` - 1 of the topic, or over as many `queue_ids` in
    their place, where shards drain (else null); in turns of `messages_per_turn` messages, null when
    the epoch has not said how many when it first asked."""

    producer: str
    epoch: int
    topic: str
    queues: int
    queue_ids: list[int] | None = Field(
        description="The queues in the place of the first ones, where shards drain; null: the first"
    )
    write_queues: int | None = Field(
        description="Where shards drain: over so many queues a sharding key is hashed, whether they"
        " are in `queue_ids` or not; null: over `queues`"
    )
    key_queue_ids: list[int] | None = Field(
        description="Where shards drain: the queues that keep their keys. A key of another one goes"
        " to the one of these with the highest score for it, as the service sends it; null: all"
    )
    messages_per_turn: int | None


class SequenceDocument(AnswerModel):
    """The next number of one sequence; `queue_id` is null where requests left the queue open."""

    topic: str
    queue_id: int | None
    next_seq: int


class SequencedProducer(MergedModel):
    """A producer. `epoch` is null when it has sent nothing, or its epoch was closed."""

    producer: str
    epoch: int | None
    sealed_epoch: int | None
    sequences: list[SequenceDocument]
    namespace: str

    @classmethod
    def of(cls, producer: str, state: ProducerState) -> Self:
        return cls(
            producer=producer,
            namespace=namespace_of(producer),
            epoch=state.epoch,
            sealed_epoch=state.sealed_epoch,
            sequences=[SequenceDocument(**each._asdict()) for each in state.sequences],
        )


@router.serve(
    "GET /v1/producers/{producer}",
    "What is known of a producer",
    needs={"producer": Action.GET},
    across=Together(merges.producer),
)
async def get_producer(
    producer: str, services: WithServices, access: WithAccess
) -> SequencedProducer:
    """Its epoch and the next number of each of its sequences, in topics that the caller may know
    of: where to go on after a crash."""
    state = services.broker.producers.state(producer)
    shown = [each for each in state.sequences if access.sees_topic(each.topic)]
    return SequencedProducer.of(producer, state._replace(sequences=shown))


@router.serve(
    "DELETE /v1/producers/{producer}",
    "Forget a producer and all whose ids begin with it",
    needs={"producer": Action.PUB},
    status=204,
    answers={200: dry_run_answer(SealDocument)},
    problems=(429, 507),
    across=Ended(),
)
async def delete_producer(
    producer: str,
    request: Request,
    services: WithServices,
    access: WithAccess,
    dry_run: WithDryRun = None,
) -> Response:
    """It sends no more: its numbers are forgotten, and so are those of every `<producer>:<part>`.

    What it sent is stored, and its epoch stays closed: a request of it that is still on its way is
    refused. It may begin again with a higher epoch. Repeating is harmless. In a cluster the highest
    epoch that any shard knows is closed in all.
    """
    access.require_family(Action.PUB, Kind.PRODUCER, producer)
    tries, producers = is_dry_run(dry_run), services.broker.producers
    known = request.scope.get(ASKED)  # by a node that has asked all shards
    if known:
        sealed = await producers.seal(producer, int(known))
    else:
        sealed = await producers.forget(producer, is_dry_run=tries)
    return deleted(SealDocument(producer=producer, sealed_epoch=sealed, dry_run=tries))


@router.serve(
    "POST /v1/producers:plan",
    "Fix over how many queues of a topic an epoch spreads",
    needs={"producer": Action.PUB, "topic": Action.PUB},
    body=Body(
        PlanBody,
        required=True,
        examples={"plan an epoch": {"producer": "loader", "epoch": 7, "topic": "orders"}},
    ),
    problems=(403, 409, 429, 507),
    aim=A_PLAN,
)
async def plan_epoch(
    services: WithServices,
    access: WithAccess,
    body: Annotated[PlanBody, Depends(json_body(PlanBody))],
    dry_run: WithDryRun = None,
) -> PlanDocument:
    """As many as the topic has when the epoch first asks, and the same ever after; so with
    `messages_per_turn`, of which the first one holds.

    For producers that choose queues themselves, by key or in turn: when an epoch is repeated, each
    message goes to the queue where it may be stored already, though the topic has more queues now.
    """
    access.require(Action.PUB, Kind.PRODUCER, body.producer)
    access.require(Action.PUB, Kind.TOPIC, body.topic)
    topic = find_topic(services.metadata, body.topic)
    tries = is_dry_run(dry_run)
    plan = await services.broker.producers.plan(
        body.producer, body.epoch, topic, body.messages_per_turn, is_dry_run=tries
    )
    return PlanDocument(
        producer=body.producer,
        epoch=body.epoch,
        topic=body.topic,
        queues=plan.queues,
        queue_ids=_listed(plan.queue_ids),
        write_queues=plan.write_queues,
        key_queue_ids=_listed(plan.key_queue_ids),
        messages_per_turn=plan.messages_per_turn,
        dry_run=tries,
    )


@router.serve(
    "POST /v1/producers:seal",
    "Close an epoch of a producer and of all whose ids begin with it",
    needs={"producer": Action.PUB},
    body=Body(
        SealBody,
        required=True,
        examples={"close an epoch": {"producer": "loader", "epoch": 7, "messages": 1_000}},
    ),
    problems=(409, 507),
    across=Closed(),
)
async def seal_producer(
    services: WithServices,
    access: WithAccess,
    begins: WithBeginning,
    body: Annotated[SealBody, Depends(json_body(SealBody))],
    dry_run: WithDryRun = None,
) -> SealDocument:
    """From now on the producer, and every producer `<producer>:<part>`, is refused in this epoch.

    For work in parts: when all are done, sealing keeps stragglers and repetitions from sending
    again, whatever their number. Repeating is harmless; a lower epoch changes nothing.

    What was sent asynchronously and acknowledged can be lost with the power. With `messages` that
    is noticed (409, `stored`): the epoch is then sent again, and only what is missing is stored.
    After the answer all of it is on the disk. In a cluster the messages of all shards count, and
    all close the epoch; a dry run brings to the disk what it counts.
    """
    access.require_family(Action.PUB, Kind.PRODUCER, body.producer)
    tries = is_dry_run(dry_run)
    await begins(f"producer:{body.producer}")  # of a dry run nothing is noted
    if tries and body.messages:
        await services.broker.topic_ends.flush()
    sealed = await services.broker.producers.seal(
        body.producer, body.epoch, body.messages, is_dry_run=tries
    )
    return SealDocument(producer=body.producer, sealed_epoch=sealed, dry_run=tries)


def _listed(queues: Sequence[int] | None) -> list[int] | None:
    return None if queues is None else list(queues)
