"""Namespaces: what parts topics, groups and all else by name, for teams that share a cluster."""

from collections.abc import Mapping
from typing import Self

from fastapi import Response
from pydantic import Field

from app.api.control.dependencies import Services, WithAccess, WithPageSize, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.schemas import AnswerModel, DryRunMember
from app.api.http.conditions import WithTerms, etag_of
from app.api.operations.answers import ETAG_HEADER
from app.api.operations.operation import Action, Answer
from app.cluster import NamespaceView
from app.domain.access.standing import Standing, Visible, every
from app.domain.errors import NamespaceNotFound
from app.domain.names import check_namespace, stored_name

router = OperationRouter("namespaces")


class NamespaceDocument(AnswerModel):
    """A namespace. `version` is also its ETag."""

    namespace: str = Field(description="The namespace", examples=["eu"])
    topics: int = Field(description="Topics that are in it", examples=[12])
    groups: int = Field(description="Consumer groups that are in it", examples=[4])
    created_ms: int = Field(description="When it was made, epoch milliseconds")
    version: int = Field(description="The cluster's metadata version that made it", examples=[7])

    @classmethod
    def of(
        cls, namespace: NamespaceView, services: Services, access: Standing | None = None
    ) -> Self:
        """Of the topics and groups that the caller may know of; without `access` of all."""
        snapshot = services.metadata.snapshot
        sees_topic = every if access is None else access.sees_topic
        sees_group = every if access is None else access.sees_group
        return cls(
            namespace=namespace.name,
            topics=_count_in(snapshot.topics, namespace.name, sees_topic),
            groups=_count_in(snapshot.groups, namespace.name, sees_group),
            created_ms=namespace.created_ms,
            version=namespace.version,
        )


class NamespaceAnswer(DryRunMember, NamespaceDocument):
    """A namespace after a change; with `dry_run`, as it would be."""

    @classmethod
    def of_change(cls, namespace: NamespaceView, services: Services, *, is_dry_run: bool) -> Self:
        document = NamespaceDocument.of(namespace, services)
        return cls(**document.model_dump(), dry_run=is_dry_run)


class NamespaceList(AnswerModel):
    """One page of namespaces, by name; the default one, which has no name, is not among them."""

    namespaces: list[NamespaceDocument] = Field(description="The namespaces of this page")
    next_page_token: str | None = Field(
        description="Where the next page begins; null on the last page"
    )


def _count_in(names: Mapping[str, object], namespace: str, visible: Visible) -> int:
    start = stored_name(namespace, "")
    return sum(1 for name in names if name.startswith(start) and visible(name))


@router.serve(
    "PUT /v1/namespaces/{namespace}",
    "Make a namespace",
    needs={"cluster": Action.ADMIN},
    answers={
        200: Answer("The namespace was there", headers=ETAG_HEADER),
        201: Answer("The namespace was made", NamespaceAnswer, ETAG_HEADER),
    },
    problems=(409, 412),
)
async def put_namespace(
    namespace: str, services: WithServices, terms: WithTerms, response: Response
) -> NamespaceAnswer:
    """Make the namespace; one that is there stays as it is. Requests name it in the header
    `MQ-Namespace` or the query parameter `namespace`; the names in them are then names of it."""
    changed = await services.metadata.put_namespace(namespace, terms)
    if not terms.is_dry_run:
        response.status_code = 201 if changed.is_made else 200
        response.headers["ETag"] = etag_of(changed.after.version)
    return NamespaceAnswer.of_change(changed.after, services, is_dry_run=terms.is_dry_run)


@router.serve(
    "GET /v1/namespaces/{namespace}",
    "Read a namespace",
    needs={"cluster": Action.GET},
    answers={200: Answer(headers=ETAG_HEADER)},
    problems=(404,),
)
async def get_namespace(
    namespace: str, services: WithServices, response: Response
) -> NamespaceDocument:
    """How much is in the namespace."""
    found = services.metadata.snapshot.namespaces.get(check_namespace(namespace))
    if found is None:
        raise NamespaceNotFound(
            f"there is no namespace {namespace!r}",
            hint=f"make it with PUT /v1/namespaces/{namespace}",
        )
    response.headers["ETag"] = etag_of(found.version)
    return NamespaceDocument.of(found, services)


@router.serve(
    "GET /v1/namespaces",
    "List namespaces",
    needs={"service": Action.LIST},
)
async def list_namespaces(
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    prefix: str = "",
    page_token: str | None = None,
) -> NamespaceList:
    """Namespaces in which the caller may do anything, by name, a page at a time; with the number of
    topics and groups that it may know of."""
    access.for_anybody()
    page = services.metadata.list_namespaces(
        prefix=prefix,
        page_size=page_size,
        page_token=page_token,
        visible=access.caller.reaches,
    )
    found = [NamespaceDocument.of(each, services, access) for each in page.items]
    return NamespaceList(namespaces=found, next_page_token=page.next_page_token)


@router.serve(
    "DELETE /v1/namespaces/{namespace}",
    "Delete a namespace",
    needs={"cluster": Action.ADMIN},
    status=204,
    answers={200: dry_run_answer(NamespaceAnswer)},
    problems=(404, 409, 412),
)
async def delete_namespace(namespace: str, services: WithServices, terms: WithTerms) -> Response:
    """Only while no topic, group or schedule is in it: 409 `NAMESPACE_NOT_EMPTY`."""
    removed = await services.metadata.delete_namespace(namespace, terms)
    return deleted(NamespaceAnswer.of_change(removed, services, is_dry_run=terms.is_dry_run))
