"""Consumer groups: settings and listing."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from app.api.dependencies import IfVersion, Services, WithServices, etag_of, json_body
from app.api.documentation import json_request, problem_responses
from app.api.schemas import GroupBody, GroupDocument, GroupList
from app.broker.ports import Group
from app.domain.errors import GroupNotFound
from app.domain.names import check_group, nearest

router = APIRouter(tags=["groups"])

_ETAG_HEADER = {"ETag": {"description": "the version", "schema": {"type": "string"}}}


@router.put(
    "/v1/groups/{group}",
    operation_id="put_group",
    summary="Create or replace a consumer group",
    response_model=GroupDocument,
    responses={
        200: {"description": "The group was replaced", "headers": _ETAG_HEADER},
        201: {
            "description": "The group was made",
            "model": GroupDocument,
            "headers": _ETAG_HEADER,
        },
        **problem_responses(409, 412, 413, 415),
    },
    openapi_extra=json_request(GroupBody),
)
async def put_group(
    group: str,
    services: WithServices,
    body: Annotated[GroupBody, Depends(json_body(GroupBody))],
    if_version: IfVersion,
    response: Response,
) -> GroupDocument:
    """Make the group, or give it these settings; what is left out gets its default."""
    view, created = await services.broker.put_group(group, body.settings(), if_version=if_version)
    response.status_code = 201 if created else 200
    response.headers["ETag"] = etag_of(view.version)
    return GroupDocument.of(view)


@router.get(
    "/v1/groups/{group}",
    operation_id="get_group",
    summary="Read a consumer group's settings",
    responses={200: {"headers": _ETAG_HEADER}, **problem_responses(404)},
)
async def get_group(group: str, services: WithServices, response: Response) -> GroupDocument:
    """The settings of the group."""
    view = _find_group(services, group)
    response.headers["ETag"] = etag_of(view.version)
    return GroupDocument.of(view)


@router.get(
    "/v1/groups",
    operation_id="list_groups",
    summary="List consumer groups",
    responses=problem_responses(),
)
async def list_groups(
    services: WithServices, prefix: str = "", page_size: int = 100, page_token: str | None = None
) -> GroupList:
    """Groups by name, a page at a time."""
    page = services.metadata.list_groups(prefix=prefix, page_size=page_size, page_token=page_token)
    groups = [GroupDocument.of(group) for group in page.items]
    return GroupList(groups=groups, next_page_token=page.next_page_token)


@router.delete(
    "/v1/groups/{group}",
    operation_id="delete_group",
    summary="Delete a consumer group",
    status_code=204,
    responses=problem_responses(404),
)
async def delete_group(group: str, services: WithServices) -> None:
    """Delete the group with its offsets."""
    await services.broker.delete_group(group)


def _find_group(services: Services, name: str) -> Group:
    groups = services.metadata.snapshot.groups
    group = groups.get(name)
    if group is not None:
        return group
    check_group(name)
    similar = nearest(name, groups)
    hint = f"did you mean {similar!r}?" if similar else "a group is made by its first use"
    raise GroupNotFound(f"consumer group {name!r} does not exist", hint=hint)
