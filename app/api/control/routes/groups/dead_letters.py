"""Dead letters of a consumer group: browse, redrive, purge."""

from collections import Counter
from functools import partial
from typing import Annotated, Final, Self

from fastapi import Depends, Query, Request, Response
from msgspec import UNSET
from pydantic import Field, model_validator

from app.api.aims import merges
from app.api.aims.across import Document, Documents, InEach, InOrder, Together
from app.api.control.dependencies import (
    Services,
    WithAccess,
    WithPageSize,
    WithServices,
    json_body,
)
from app.api.control.operation_router import OperationRouter
from app.api.control.routes.operations import OperationDocument
from app.api.control.schemas.names import TopicName
from app.api.control.schemas.schemas import Count, DryRunBody, MergedModel
from app.api.formats.rendering import dead_letter_view
from app.api.formats.wire import DeadLetterList, encode
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.http.parameters import integer_of
from app.api.http.request_context import CONTEXT_KEY, RequestContext
from app.api.operations.asked_work import work_of
from app.api.operations.operation import Action, Answer, Body
from app.broker.failures.dead_letter_admin import RedrivePlan, Selection
from app.domain.access.actions import Kind
from app.domain.access.standing import Standing, Visible
from app.domain.errors import InvalidRequest
from app.domain.limits import Limits

TIME_MS_MAX: Final = 2**63 - 1

router = OperationRouter("dead letters")

SELECTED_MAX: Final = Limits().dead_letters_selected_max
"""Letters that a request can name one by one."""


class SelectionBody(DryRunBody):
    """Which letters: name them, or give conditions that all hold, or say `"all": true`. On a
    cluster `offsets` are those of one `shard`, or go with `message_ids`."""

    all: bool = False
    offsets: list[Count] | None = Field(default=None, min_length=1, max_length=SELECTED_MAX)
    message_ids: list[str] | None = Field(default=None, min_length=1, max_length=SELECTED_MAX)
    topic: TopicName | None = Field(default=None, description="the original topic")
    filter: str | None = Field(default=None, description="a filter expression")
    reason: str | None = Field(default=None, description="a part of the reason")
    from_ms: Count | None = Field(default=None, description="dead since then or later")
    until_ms: Count | None = Field(default=None, description="dead before then")
    shard: str | None = Field(default=None, description="where they are; default: anywhere")

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        if self.all == self._has_condition():
            raise ValueError(
                'give offsets, message_ids or conditions; or "all": true for every dead letter'
            )
        return self

    @property
    def looks_inside(self) -> bool:
        """Whether it chooses by what is in the letters."""
        return self.filter is not None or self.reason is not None

    def _has_condition(self) -> bool:
        return any(
            value is not None
            for value in (
                *(self.offsets, self.message_ids, self.topic, self.filter),
                *(self.reason, self.from_ms, self.until_ms),
            )
        )

    def selection(self, readable: Visible | None, shard: str) -> Selection:
        """`readable` says of which topics the caller may read letters; None: it is shown none of
        what is in them. In another shard than theirs there are none."""
        offsets = self.offsets if self.shard in (None, shard) else ()
        return Selection(
            readable=readable,
            offsets=None if offsets is None else frozenset(offsets),
            message_ids=None if self.message_ids is None else frozenset(self.message_ids),
            topic=self.topic,
            filter=self.filter,
            reason=self.reason,
            from_ms=self.from_ms,
            until_ms=self.until_ms,
        )


class RedriveBody(SelectionBody):
    """What to deliver again, where, and how fast."""

    to_topic: TopicName | None = Field(
        default=None, description="default: back to this group only, under the original topic"
    )
    rate_per_s: float | None = Field(default=None, gt=0, strict=False)


class PurgeBody(SelectionBody):
    """What to remove for ever."""


class DeadLetterSummaryDocument(MergedModel):
    """How many dead letters a group has; `oldest_ms` is null when there are none."""

    group: str
    messages: int
    oldest_ms: int | None


class RedrivePlanDocument(MergedModel):
    """What would happen: letters by target topic, and by the reason why they would be left."""

    matched: int
    by_target: dict[str, int]
    skipped: dict[str, int]
    dry_run: bool = True

    @classmethod
    def of(cls, plan: RedrivePlan, access: Standing) -> Self:
        """What concerns topics that the caller may not know of is counted under `*`."""
        targets = Counter[str]()
        for topic, count in plan.by_target.items():
            targets[topic if access.sees_topic(topic) else "*"] += count
        skipped = Counter[str]()
        for (topic, why), count in plan.skipped.items():
            skipped[why if access.sees_topic(topic) else "*"] += count
        return cls(matched=plan.matched, by_target=targets, skipped=skipped)


class PurgeAnswer(MergedModel):
    """How many letters were removed, or would be."""

    removed: int
    dry_run: bool


def _begun(documents: Documents) -> Document:
    """A plan, or work that has begun."""
    is_plan = "matched" in next(iter(documents.values()))
    return merges.figures_of_change(documents) if is_plan else merges.work(documents)


@router.serve(
    "GET /v1/groups/{group}/dlq",
    "How many dead letters a group has",
    needs={"group": Action.GET},
    across=Together(merges.dead_letters),
)
async def get_dead_letters(group: str, services: WithServices) -> DeadLetterSummaryDocument:
    """Their number and the age of the oldest."""
    summary = await services.broker.dead_letters.summary(group)
    return DeadLetterSummaryDocument(group=group, **summary._asdict())


@router.serve(
    "GET /v1/groups/{group}/dlq/messages",
    "Browse the dead letters of a group",
    needs={"group": Action.SUB},
    answers={200: Answer("A page of dead letters", DeadLetterList)},
    across=InOrder("messages", cursor="cursor", following="next_cursor", shard="shard"),
)
async def list_dead_letters(
    group: str,
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    topic: Annotated[TopicName | None, Query(description="the original topic")] = None,
    filter: Annotated[  # noqa: A002  # the name in the URL
        str | None, Query(description="a filter expression")
    ] = None,
    reason: Annotated[str | None, Query(description="a part of the reason")] = None,
    from_ms: Annotated[
        int | None, Query(ge=0, le=TIME_MS_MAX, description="dead since then or later")
    ] = None,
    until_ms: Annotated[
        int | None, Query(ge=0, le=TIME_MS_MAX, description="dead before then")
    ] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    body: Annotated[
        str, Query(pattern="^(auto|base64)$", description="base64: the bytes")
    ] = "auto",
) -> Response:
    """The oldest first, a page at a time; work is bounded, so a page may be empty and go on. On a
    cluster those of one shard come after those of another.
    Letters whose original topic the caller may not read are left out."""
    if topic is not None:
        access.require(Action.SUB, Kind.TOPIC, topic)
    selection = Selection(
        topic=topic,
        filter=filter,
        reason=reason,
        from_ms=from_ms,
        until_ms=until_ms,
        readable=_readable(access),
    )
    offset = 0 if cursor is None else integer_of("cursor", cursor, error=InvalidRequest)
    page = await services.broker.dead_letters.browse(
        group, selection, offset=offset, max_letters=page_size
    )
    views = [dead_letter_view(each, force_base64=body == "base64") for each in page.letters]
    following = UNSET if page.next_offset is None else str(page.next_offset)
    listing = DeadLetterList(views, page.scanned, following)
    return Response(encode(listing), media_type="application/json")


@router.serve(
    "POST /v1/groups/{group}/dlq/messages:redrive",
    "Deliver dead letters again",
    needs={"group": Action.UPDATE},
    body=Body(
        RedriveBody,
        required=True,
        examples={
            "all to the group again": {"all": True, "rate_per_s": 100},
            "some to another topic": {"offsets": [0, 1], "to_topic": "orders-again"},
        },
    ),
    answers={
        200: Answer("With dry_run: what would happen", RedrivePlanDocument),
        202: Answer(
            "The operation that does it",
            OperationDocument,
            {"Location": {"schema": {"type": "string"}}},
        ),
        207: Answer("Not in all shards: `partial` names the others", OperationDocument),
    },
    problems=(429,),
    across=InEach(_begun, begins_work=True),
)
async def redrive_dead_letters(
    request: Request,
    group: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[RedriveBody, Depends(json_body(RedriveBody))],
    response: Response,
    dry_run: WithDryRun = None,
) -> RedrivePlanDocument | OperationDocument:
    """Send letters back to the group (or to `to_topic`) and remove them, each exactly once.

    Their attempts are counted anew. Watch and cancel it under `/v1/operations`. What the caller may
    is asked again at each step. To another topic, or by a filter, only letters go whose original
    topic the caller may read.
    """
    letters = services.broker.dead_letters
    if body.to_topic is not None:
        access.require(Action.PUB, Kind.TOPIC, body.to_topic)
    is_read = body.to_topic is not None or body.looks_inside
    later = Standing(access.caller.for_later)
    shard = _own_shard(request, services, body)
    selection = body.selection(_readable(later) if is_read else None, shard)
    owner = access.caller.name
    if is_dry_run(dry_run, body.asks_for_dry_run):
        plan = await letters.plan_redrive(
            group, selection, to_topic=body.to_topic, rate_per_s=body.rate_per_s, owner=owner
        )
        return RedrivePlanDocument.of(plan, access)

    def check() -> None:
        later.require(Action.UPDATE, Kind.GROUP, group)
        if body.to_topic is not None:
            later.require(Action.PUB, Kind.TOPIC, body.to_topic)

    work = work_of(request.scope)
    job = letters.redrive(
        group,
        selection,
        to_topic=body.to_topic,
        rate_per_s=None if body.rate_per_s is None else body.rate_per_s / work.parts,
        check=check,
        owner=owner,
        name=work.name,
    )
    response.status_code = 202
    response.headers["Location"] = f"/v1/operations/{job.operation_id}"
    return OperationDocument.model_validate(job)


@router.serve(
    "POST /v1/groups/{group}/dlq/messages:purge",
    "Remove dead letters for ever",
    needs={"group": Action.DELETE},
    body=Body(
        PurgeBody,
        required=True,
        examples={"what failed for one reason": {"topic": "orders", "reason": "no such customer"}},
    ),
    answers={207: Answer("Not in all shards: `partial` names the others", PurgeAnswer)},
    across=InEach(merges.figures_of_change),
)
async def purge_dead_letters(
    request: Request,
    group: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[PurgeBody, Depends(json_body(PurgeBody))],
    dry_run: WithDryRun = None,
) -> PurgeAnswer:
    """Remove what is chosen; by a filter, of letters whose original topic the caller may read."""
    letters = services.broker.dead_letters
    shard = _own_shard(request, services, body)
    selection = body.selection(_readable(access) if body.looks_inside else None, shard)
    if is_dry_run(dry_run, body.asks_for_dry_run):
        matched = (await letters.plan(group, selection)).matched
        return PurgeAnswer(removed=matched, dry_run=True)
    return PurgeAnswer(removed=await letters.purge(group, selection), dry_run=False)


def _readable(access: Standing) -> Visible:
    """Which topics the caller may read, asked anew each time."""
    return partial(access.may, Action.SUB, Kind.TOPIC)


def _own_shard(request: Request, services: Services, body: SelectionBody) -> str:
    """The shard whose letters are looked at. Raises `InvalidRequest` for one that there is not, and
    for offsets that are in several."""
    metadata = services.metadata
    shards = metadata.snapshot.shards
    if body.shard is not None and body.shard not in {*shards, metadata.shard}:
        raise InvalidRequest(
            f"there is no shard {body.shard!r}", hint="see GET /v1/cluster", pointer="/shard"
        )
    is_vague = body.offsets is not None and body.shard is None and body.message_ids is None
    if is_vague and len(shards) > 1 and _forward(request) != b"no":
        raise InvalidRequest(
            "each shard counts the offsets of its own dead letters",
            hint='say the "shard" of the letters, or give their message_ids too',
            pointer="/offsets",
        )
    return metadata.shard


def _forward(request: Request) -> bytes | None:
    context: RequestContext = request.scope[CONTEXT_KEY]
    return context.forward
