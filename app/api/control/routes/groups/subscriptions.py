"""The filters with which groups read topics: list, look at, set, delete."""

from typing import Annotated

from fastapi import Depends, Response

from app.api.control.dependencies import WithAccess, WithServices, json_body
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.member_schemas import (
    GroupSubscriptionDocument,
    GroupSubscriptionList,
    SubscriptionChangeDocument,
    SubscriptionSettingBody,
)
from app.api.http.conditions import WithTerms, etag_of
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer, Body
from app.domain.access.actions import Kind

router = OperationRouter("groups")

_ONE = "/v1/groups/{group}/subscriptions/{topic}"


@router.serve(
    "GET /v1/groups/{group}/subscriptions",
    "The filters with which a group reads topics",
    needs={"group": Action.GET},
)
async def list_group_subscriptions(
    group: str, services: WithServices, access: WithAccess
) -> GroupSubscriptionList:
    """Those that were set or used, of the topics that the caller may know of; in other topics
    whoever consumes next names one."""
    found = services.broker.group_filters.all(services.broker.settler.find_group(group))
    names = access.visible(Action.GET, Kind.TOPIC, found)
    documents = [GroupSubscriptionDocument.of(name, found[name]) for name in names]
    return GroupSubscriptionList(group=group, subscriptions=documents)


@router.serve(
    f"GET {_ONE}",
    "The filter with which a group reads a topic",
    needs={"group": Action.GET, "topic": Action.GET},
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def get_group_subscription(
    group: str, topic: str, services: WithServices, response: Response
) -> GroupSubscriptionDocument:
    """404 when nobody has set or used one."""
    settings = services.broker.settler.find_group(group)
    found = services.broker.group_filters.find(settings, topic)
    response.headers["ETag"] = etag_of(found.version)
    return GroupSubscriptionDocument.of(topic, found)


@router.serve(
    f"PUT {_ONE}",
    "Set the filter with which a group reads a topic",
    needs={"group": Action.UPDATE, "topic": Action.GET},
    body=Body(
        SubscriptionSettingBody,
        required=True,
        examples={"two tags": {"filter": "created || paid"}},
    ),
    answers={
        200: Answer(headers=ETAG_HEADER),
        201: Answer("There was none before", headers=ETAG_HEADER),
    },
    problems=(409, 412),
)
async def put_group_subscription(
    group: str,
    topic: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[SubscriptionSettingBody, Depends(json_body(SubscriptionSettingBody))],
    response: Response,
    terms: WithTerms,
) -> SubscriptionChangeDocument:
    """Requests without a filter read with it from now on; others are 409 `SUBSCRIPTION_CONFLICT`,
    unless the group has `"subscription": "free"`."""
    settings = services.broker.settler.find_group(group)
    done = await services.broker.group_filters.set(
        settings, topic, body.filter, set_by=access.caller.name, terms=terms
    )
    response.status_code = 201 if done.is_new and not terms.is_dry_run else 200
    if not terms.is_dry_run:
        response.headers["ETag"] = etag_of(done.subscription.version)
    document = GroupSubscriptionDocument.of(topic, done.subscription)
    return SubscriptionChangeDocument(**document.model_dump(), dry_run=terms.is_dry_run)


@router.serve(
    f"DELETE {_ONE}",
    "Let whoever consumes next name the filter",
    needs={"group": Action.UPDATE, "topic": Action.GET},
    status=204,
    answers={200: dry_run_answer(SubscriptionChangeDocument)},
    problems=(412,),
)
async def delete_group_subscription(
    group: str, topic: str, services: WithServices, terms: WithTerms
) -> Response:
    """What is consumed meanwhile goes on with the filter that it began with."""
    settings = services.broker.settler.find_group(group)
    found = await services.broker.group_filters.delete(settings, topic, terms)
    document = GroupSubscriptionDocument.of(topic, found)
    return deleted(SubscriptionChangeDocument(**document.model_dump(), dry_run=terms.is_dry_run))
