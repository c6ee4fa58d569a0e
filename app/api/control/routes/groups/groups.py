"""Consumer groups: settings and listing."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal

from fastapi import Depends, Query, Response
from pydantic import Field

from app.api.control.dependencies import Services, WithAccess, WithPageSize, WithServices, json_body
from app.api.control.kept_to_rights import kept_to_rights
from app.api.control.operation_router import OperationRouter
from app.api.control.routes.groups.dead_letters import DeadLetterSummaryDocument
from app.api.control.routes.groups.lag import GroupLagSummary
from app.api.control.schemas.change_documents import GroupChangeDocument, deleted, dry_run_answer
from app.api.control.schemas.group_documents import (
    consumption_states,
    group_document,
    group_documents,
)
from app.api.control.schemas.schemas import AnswerModel, GroupDocument
from app.api.control.schemas.setting_bodies import GroupBody, GroupPatch
from app.api.formats.media import JSON, MERGE_PATCH, require_merge_patch
from app.api.http.conditions import WithPatchTerms, WithTerms, etag_of
from app.api.naming.request_namespace import current_namespace
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer, Body
from app.broker.groups.group_lookup import find_group
from app.broker.ports import Group
from app.domain.access.actions import Kind
from app.domain.changes.effects import SettingsChange

router = OperationRouter("groups")


class GroupList(AnswerModel):
    """One page of groups, by name; `next_page_token` is null on the last page."""

    groups: list[GroupDocument]
    lag: list[GroupLagSummary] | None = Field(
        description="With `show=lag`: of each of these groups that is still there"
    )
    dead_letters: list[DeadLetterSummaryDocument] | None = Field(
        description="With `show=dead_letters`: of each of these groups that still has some"
    )
    next_page_token: str | None


@router.serve(
    "PUT /v1/groups/{group}",
    "Make a consumer group, or change what is named of it",
    needs={"group": Action.UPDATE},
    makes=("group",),
    body=Body(
        GroupBody,
        examples={
            "make a group": {"max_attempts": 5, "invisible": "1m", "start": "latest"},
            "other delays": {"retry_policy": {"customized": ["1s", "10s", "1m"]}},
        },
    ),
    answers={
        200: Answer("The group was there; see `changed`", headers=ETAG_HEADER),
        201: Answer("The group was made", GroupChangeDocument, ETAG_HEADER),
    },
    problems=(409, 412),
)
async def put_group(
    group: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[GroupBody, Depends(json_body(GroupBody))],
    terms: WithTerms,
    response: Response,
) -> GroupChangeDocument:
    """Make the group; what is left out has its default. Or merge the settings into those that it
    has; what is left out stays. `If-None-Match: *` only makes."""
    with kept_to_rights(access, Kind.GROUP, group, terms) as kept:
        change = await services.broker.settings_changes.change_group(group, body.named(), kept)
    return _answer(change, services, access, response)


@router.serve(
    "PATCH /v1/groups/{group}",
    "Change what is named of a consumer group",
    needs={"group": Action.UPDATE},
    body=Body(
        {MERGE_PATCH: GroupPatch, JSON: GroupPatch},
        examples={
            "longer leases": {"invisible": "5m"},
            "a part of the policy": {"retry_policy": {"exponential": {"max": "1h"}}},
            "attempts as by default": {"max_attempts": None},
        },
    ),
    answers={200: Answer("The group; see `changed`", headers=ETAG_HEADER)},
    problems=(409, 412),
)
async def patch_group(
    group: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[GroupPatch, Depends(json_body(GroupPatch, require=require_merge_patch))],
    terms: WithPatchTerms,
    response: Response,
) -> GroupChangeDocument:
    """A JSON merge patch (RFC 7396): null is the default."""
    change = await services.broker.settings_changes.change_group(group, body.named(), terms)
    return _answer(change, services, access, response)


def _answer(
    change: SettingsChange[Group], services: Services, access: WithAccess, response: Response
) -> GroupChangeDocument:
    if not change.is_dry_run:
        response.status_code = 201 if change.is_made else 200
        response.headers["ETag"] = etag_of(change.after.version)
    states = consumption_states(services, access, change.after.name)
    return GroupChangeDocument.of_change(change, states)


@router.serve(
    "GET /v1/groups/{group}",
    "Read a consumer group's settings",
    needs={"group": Action.GET},
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def get_group(
    group: str, services: WithServices, access: WithAccess, response: Response
) -> GroupDocument:
    """The settings of the group, and how it consumes its topics."""
    view = find_group(services.metadata, group)
    response.headers["ETag"] = etag_of(view.version)
    return group_document(services, access, view)


@router.serve(
    "HEAD /v1/groups/{group}",
    "Whether the group is there, and its version",
    needs={"group": Action.GET},
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def head_group(group: str, services: WithServices) -> Response:
    """The headers of `GET`."""
    view = find_group(services.metadata, group)
    return Response(headers={"ETag": etag_of(view.version)})


@router.serve(
    "GET /v1/groups",
    "List consumer groups",
    needs={"group": Action.LIST},
)
async def list_groups(
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    prefix: str = "",
    page_token: str | None = None,
    show: Annotated[
        Literal["lag", "dead_letters"] | None,
        Query(
            description="lag: also what is not done for each of them; dead_letters: only groups "
            "that have dead letters, and how many; in a cluster both of the shard of the node that "
            "is asked"
        ),
    ] = None,
) -> GroupList:
    """Groups by name, a page at a time; those that the caller may know of."""
    access.for_anybody()
    is_wanted: Callable[[str], bool] = access.sees_group
    if show == "dead_letters":
        every = list(services.metadata.snapshot.groups)
        failed = await services.broker.dead_letters.groups_with_some(every)
        is_wanted = partial(_is_seen_in, failed, access)
    page = services.metadata.list_groups(
        namespace=current_namespace(),
        prefix=prefix,
        page_size=page_size,
        page_token=page_token,
        visible=is_wanted,
    )
    names = [group.name for group in page.items]
    return GroupList(
        groups=group_documents(services, access, page.items),
        lag=await _lag(services, access, names) if show == "lag" else None,
        dead_letters=await _dead_letters(services, names) if show == "dead_letters" else None,
        next_page_token=page.next_page_token,
    )


def _is_seen_in(names: frozenset[str], access: WithAccess, name: str) -> bool:
    return name in names and access.sees_group(name)


async def _lag(
    services: Services, access: WithAccess, names: Sequence[str]
) -> list[GroupLagSummary]:
    found = await services.broker.lag.group_lags(names, visible=access.sees_topic)
    return [GroupLagSummary.of(each) for each in found]


async def _dead_letters(
    services: Services, names: Sequence[str]
) -> list[DeadLetterSummaryDocument]:
    found = await services.broker.dead_letters.summaries(names)
    return [
        DeadLetterSummaryDocument(group=name, **summary._asdict())
        for name, summary in found.items()
    ]


@router.serve(
    "DELETE /v1/groups/{group}",
    "Delete a consumer group",
    needs={"group": Action.DELETE},
    status=204,
    answers={200: dry_run_answer(GroupChangeDocument)},
    problems=(412,),
)
async def delete_group(
    group: str, services: WithServices, access: WithAccess, terms: WithTerms
) -> Response:
    """Delete the group with its offsets."""
    change = await services.broker.settings_changes.delete_group(group, terms)
    states = consumption_states(services, access, group)
    return deleted(GroupChangeDocument.of_change(change, states))
