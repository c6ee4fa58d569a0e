"""Builds the HTTP application: the gateway before the data plane, with FastAPI behind it.

The composition root calls `build_api` with open collaborators and mounts the result; nothing here
opens or closes anything, and nothing is global but the document, which is the same for all.
"""

import asyncio
from collections.abc import Sequence
from functools import cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from app.api.access.client_owners import ClientOwners
from app.api.access.credentials import Credentials
from app.api.access.named_elsewhere import NamedElsewhere
from app.api.access.operation_rights import OperationRights
from app.api.admission import Admission
from app.api.control.control_plane import build_control_plane
from app.api.control.dependencies import Services
from app.api.control.operation_list import OPERATIONS
from app.api.dataplane.router import Router
from app.api.dataplane.routes import build_router
from app.api.document.docs_page import POLICY, STATIC, docs_page, page_files
from app.api.document.openapi import build_document, render_document
from app.api.following.followed_pulls import FollowedPulls
from app.api.following.following_router import following_router
from app.api.gateway import Gateway
from app.api.http.forwarded import Forwarded
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import CONTEXT_KEY, RequestContext
from app.api.operations.quota_gate import QuotaGate
from app.api.ports import Configuration, Following, Metadata, Replicas
from app.api.quotas.failures import Failures
from app.api.quotas.quotas import Quotas
from app.api.relay.relay import Relay
from app.api.telemetry.callers import note_send_failed
from app.api.telemetry.metrics import ConnectionCounts
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.domain.access.actions import Kind
from app.domain.access.audit import AuditLog
from app.domain.limits import Limits
from app.runtime.system_clock import SystemClock

if TYPE_CHECKING:  # an extra, imported where it is on
    from opentelemetry.trace import Tracer


def build_api(
    broker: Broker | None,
    metadata: Metadata,
    limits: Limits,
    *,
    local_only: bool,
    web: ASGIApp | None = None,
    connections: ConnectionCounts | None = None,
    access_log: bool = False,
    trusted_proxies: Sequence[str] = (),
    configuration: Configuration | None = None,
    credentials: Credentials | None = None,
    quotas: Quotas | None = None,
    failures: Failures | None = None,
    audit: AuditLog | None = None,
    relay: Relay | None = None,
    tracer: "Tracer | None" = None,
    traffic: RequestMetrics | None = None,
    following: Following | None = None,
    replicas: Replicas | None = None,
    pulls: FollowedPulls | None = None,
) -> Gateway:
    """The ASGI application. Without a `broker` it is that of a node that is `following` the leader
    of its shard: it tells of itself, and `relay` has all else answered by a node that leads.

    `local_only` refuses Host names that are not local and foreign Origins; it is for an open server
    on loopback, and off when authentication or the operator's `--insecure-anonymous` takes its
    place. `web` is mounted at `/ui`, for anybody, and asks this application for what it shows.
    `connections` are those of the server, for the metrics. `trusted_proxies` are addresses and
    networks whose `X-Forwarded-*` headers count. `credentials` ask for a key once the node is
    closed; without them it is open. `quotas` bound what a principal or topic may take; `failures`
    count wrong credentials; `audit` is told of refusals; `tracer` makes spans. `replicas` are of
    the shard that this node leads, `pulls` are answered of one that it follows.
    """
    traffic = traffic or RequestMetrics()
    pressure = MemoryBudget(limits) if connections is None else connections.pressure
    rights = _rights(broker, metadata, following)
    owners = _owners(broker, metadata, limits, credentials)
    control_plane = build_control_plane(
        Services(
            *(broker, metadata, limits, traffic, connections),
            *(pressure, configuration, rights, owners, relay),
            following=following,
            replicas=replicas,
        )
    )
    control_plane.router.routes += _documentation_routes()
    if web is not None:
        control_plane.router.routes += _page_routes(web)
    named = NamedElsewhere(rights, owners)
    return Gateway(
        _router(broker, limits, traffic, named, tracer, relay, pulls),
        control_plane,
        _admission(metadata, limits, credentials, rights, local_only=local_only),
        traffic=traffic,
        access_log=access_log,
        pressure=pressure,
        forwarded=Forwarded(trusted_proxies) if trusted_proxies else None,
        quotas=None if quotas is None else QuotaGate(quotas, limits, traffic),
        failures=failures,
        audit=audit,
        send_failed=None if broker is None else partial(_count_failed_send, broker),
        relay=relay,
    )


def _admission(
    metadata: Metadata,
    limits: Limits,
    credentials: Credentials | None,
    rights: OperationRights,
    *,
    local_only: bool,
) -> Admission:
    return Admission(
        header_block_bytes_max=limits.header_block_bytes_max,
        local_only=local_only,
        credentials=credentials,
        rights=rights,
        open_paths=[operation.path for operation in OPERATIONS if operation.is_open],
        namespaces=lambda: metadata.snapshot.namespaces,
    )


def _owners(
    broker: Broker | None, metadata: Metadata, limits: Limits, credentials: Credentials | None
) -> ClientOwners:
    clock = SystemClock() if credentials is None else credentials.clock
    members = None if broker is None else lambda: broker.members
    return ClientOwners(clock, limits, members, lambda: metadata.snapshot.groups)


def _count_failed_send(broker: Broker, exchange: RequestContext, topic: str, code: str) -> None:
    broker.statistics.failed(topic, code)
    note_send_failed(broker.clients, exchange, topic)


def _router(
    broker: Broker | None,
    limits: Limits,
    traffic: RequestMetrics,
    named: NamedElsewhere,
    tracer: "Tracer | None",
    relay: Relay | None,
    pulls: FollowedPulls | None,
) -> Router:
    if broker is not None:
        return build_router(broker, limits, traffic, named, tracer)
    assert relay is not None, "whoever follows asks others"
    return following_router(relay, pulls)


def _rights(
    broker: Broker | None, metadata: Metadata, following: Following | None
) -> OperationRights:
    def is_there(kind: Kind, name: str) -> bool:
        snapshot = metadata.snapshot
        return name in (snapshot.topics if kind is Kind.TOPIC else snapshot.groups)

    made_by_use = _MadeWhereFollowed(following) if broker is None else broker.made_by_use
    return OperationRights(OPERATIONS, made_by_use, is_there)


class _MadeWhereFollowed:
    """What a node that leads nothing knows of what is made by its use."""

    def __init__(self, following: Following | None) -> None:
        self._following = following

    @property
    def topics(self) -> bool:
        return self._following is not None and self._following.is_made_by_use(Kind.TOPIC)

    @property
    def groups(self) -> bool:
        return self._following is not None and self._following.is_made_by_use(Kind.GROUP)


def _for_anybody(request: Request) -> None:
    """Note that every caller may have the answer."""
    context: RequestContext = request.scope[CONTEXT_KEY]
    context.for_anybody()


async def _to_the_pages(request: Request) -> Response:
    """`/ui` itself lies outside of what is mounted there. Relative: `/` and `/ui` lie beside each
    other, whatever a proxy has before them."""
    _for_anybody(request)
    return RedirectResponse("./ui/")


async def _entrance(request: Request) -> Response:
    """`/` leads a browser to the pages; for a program it is no address (404)."""
    accepted = request.headers.get("accept", "").split(",")
    if "text/html" not in {each.partition(";")[0].strip().lower() for each in accepted}:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    answer = await _to_the_pages(request)
    answer.headers["Vary"] = "Accept"
    return answer


def _page_routes(web: ASGIApp) -> list[BaseRoute]:
    return [Mount("/ui", app=web), Route("/ui", _to_the_pages), Route("/", _entrance)]


def _documentation_routes() -> list[Route]:
    """The document of the whole interface, and a page made from it.

    Made at the first request, in a thread: it takes a third of a second, which would be a sixth
    of a node's start.
    """

    async def openapi(request: Request) -> Response:
        _for_anybody(request)
        encoded, _page = await asyncio.to_thread(_documents)
        return Response(encoded, media_type="application/json")

    async def docs(request: Request) -> Response:
        _for_anybody(request)
        _encoded, page = await asyncio.to_thread(_documents)
        return HTMLResponse(page, headers=_PAGE_HEADERS)

    async def page_file(request: Request) -> Response:
        _for_anybody(request)
        found = (await asyncio.to_thread(_page_files)).get(request.path_params["name"])
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(found.content, media_type=found.media_type, headers=_PAGE_HEADERS)

    return [
        Route("/openapi.json", openapi),
        Route("/docs", docs),
        Route(f"/{STATIC}{{name}}", page_file),
    ]


_PAGE_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_page_files: Final = cache(page_files)


@cache
def _documents() -> tuple[str, str]:
    """`/openapi.json` and `/docs`. Any thread."""
    document = build_document()
    return render_document(document), docs_page(document)
