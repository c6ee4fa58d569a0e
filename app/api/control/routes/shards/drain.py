"""A shard is emptied before it is taken away: what is new goes to others."""

import asyncio
from typing import Annotated, Final, Self

from fastapi import Depends
from pydantic import Field

from app.api.aims.of_names import A_SHARD
from app.api.control.dependencies import Services, WithAccess, WithServices, json_body
from app.api.control.known_shards import asker, known_shard
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import AnswerModel, DryRunBody
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.operations.operation import Action, Body
from app.broker.insight.lag import PairLag
from app.cluster import DrainChange
from app.domain.errors import NotLeader
from app.domain.shards.takes import Takes

router = OperationRouter("cluster")

GROUPS_SHOWN_MAX: Final = 100
"""Groups in topics that an answer names: those with most that is not consumed."""
TOPICS_SHOWN_MAX: Final = 100
"""Topics that an answer names."""
TOPICS_A_TURN: Final = 128
"""Topics whose queues one turn of the event loop looks at."""


class GroupLeftDocument(AnswerModel):
    """What a group has not consumed of a topic."""

    group: str = Field(description="With its namespace, if it has one: `namespace%group`")
    topic: str = Field(description="As the group")
    messages: int = Field(description="That wait or are in flight, retries too")

    @classmethod
    def of(cls, lag: PairLag) -> Self:
        return cls(group=lag.group, topic=lag.topic, messages=lag.lag)


class LeftDocument(AnswerModel):
    """What is in a shard and would be lost with it. All counts are of messages."""

    groups: list[GroupLeftDocument] = Field(
        description="Of groups in topics, the 100 with most that is not consumed, the most first"
    )
    not_consumed: int = Field(description="Of all groups together")
    delayed: int = Field(description="That wait for their time: delayed ones and retries")
    transactions: int = Field(description="Halves of transactions that nobody has decided")
    dead_letters: int = Field(description="Of all groups: to be redriven or purged")
    stored: int = Field(
        description="That its queues still have, consumed or not: they expire by the retention of"
        " their topics"
    )


class DrainDocument(AnswerModel):
    """What a shard takes of new messages, or would, and what is in it."""

    shard: str
    takes: Takes = Field(
        description="`all`; `keyed`: it drains, and takes those whose sharding key, idempotency key"
        " or producer belongs there; `none`: it drains, and all keys have moved"
    )
    changed: bool = Field(description="Whether it took something else before")
    left: LeftDocument = Field(description="What is in it")
    topics_only_here: list[str] = Field(
        description="The first 100 topics, by name, that have queues in no shard that takes all:"
        " their messages go on coming here until the topics have more queues"
    )
    empty: bool = Field(
        description="Whether it may be taken away: it drains, all keys had moved before it was"
        " asked, no topic is only here, and nothing waits in it, although messages that all have"
        " consumed may be stored"
    )
    dry_run: bool = Field(description="Whether nothing was changed")


class DrainBody(DryRunBody):
    """How far a shard is drained."""

    keys: bool = Field(
        default=False,
        description="Have keys move, too: from now on, the messages of a sharding key, of an"
        " idempotency key and of a producer go to other shards, and order and idempotence do not"
        " hold across this moment",
    )


@router.serve(
    "POST /v1/shards/{shard}/drain",
    "Drain a shard that is to be taken away",
    needs={"cluster": Action.ADMIN},
    body=Body(
        DrainBody,
        examples={
            "what is in it": {"dry_run": True},
            "keep keys where they are": {},
            "have keys move": {"keys": True},
        },
    ),
    problems=(404, 409, 421, 503),
    aim=A_SHARD,
)
async def drain_shard(
    shard: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[DrainBody, Depends(json_body(DrainBody))],
    dry_run: WithDryRun = None,
) -> DrainDocument:
    """No queue of a new topic is placed there any more, and messages that name no queue and have no
    key go to other shards, at any node within two seconds. Messages of a key follow with `keys`,
    and a queue there that is named is refused then (403 `NO_PERMISSION`); they stay away until the
    drain is undone. All that is there is read, comes due, is retried and decided as ever. Asked
    again, with `dry_run` too, it says what is left; with `empty` the shard may be taken away.
    Refused with 409 `DRAIN_REFUSED` where no other shard takes messages, or nobody leads one that
    does."""
    takes = Takes.NONE if body.keys else Takes.KEYED
    is_dry = is_dry_run(dry_run, body.asks_for_dry_run)
    return await _changed(services, access, shard, takes, is_dry=is_dry)


@router.serve(
    "DELETE /v1/shards/{shard}/drain",
    "Have a shard that drains take messages again",
    needs={"cluster": Action.ADMIN},
    problems=(404, 421, 503),
    aim=A_SHARD,
)
async def undo_drain(
    shard: str, services: WithServices, access: WithAccess, dry_run: WithDryRun = None
) -> DrainDocument:
    """All is as before: keys that had moved come back, and order and idempotence do not hold across
    this moment either."""
    return await _changed(services, access, shard, Takes.ALL, is_dry=is_dry_run(dry_run))


async def _changed(
    services: Services, access: WithAccess, shard: str, takes: Takes, *, is_dry: bool
) -> DrainDocument:
    known = known_shard(services, shard)
    if shard != services.metadata.shard:
        raise NotLeader("what is in it", shard, known.advertise_url or None, known.epoch)
    drains = services.metadata.shard_drains
    found = await drains.change(shard, takes, asker(access), is_dry_run=is_dry)
    left = await _left(services)
    waits = left.not_consumed + left.delayed + left.transactions + left.dead_letters
    return DrainDocument(
        shard=shard,
        takes=found.after,
        changed=found.after is not found.before,
        left=left,
        topics_only_here=list(found.only_here[:TOPICS_SHOWN_MAX]),
        empty=_took_nothing(found) and not found.only_here and not waits,
        dry_run=is_dry,
    )


def _took_nothing(change: DrainChange) -> bool:
    """Before it was asked: of what was changed just now other nodes have not heard."""
    return change.before is Takes.NONE and change.after is Takes.NONE


async def _left(services: Services) -> LeftDocument:
    """What the shard of this node has; many turns of the event loop."""
    broker, snapshot = services.broker, services.metadata.snapshot
    named, rest = await broker.lag.pair_lags(GROUPS_SHOWN_MAX)
    stored = 0
    for number, topic in enumerate(snapshot.topics.values(), 1):
        here = (each for each in range(topic.queues) if topic.shard_of(each) is None)
        bounds = (broker.store.bounds(topic.name, each) for each in here)
        stored += sum(high - low for low, high in bounds)
        if not number % TOPICS_A_TURN:
            await asyncio.sleep(0)
    return LeftDocument(
        groups=[GroupLeftDocument.of(each) for each in named if each.lag],
        not_consumed=rest.lag + sum(each.lag for each in named),
        delayed=broker.delayed_messages.waiting_count,
        transactions=broker.transactions.pending_count,
        dead_letters=await broker.dead_letters.count_all(list(snapshot.groups)),
        stored=stored,
    )
