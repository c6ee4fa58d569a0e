"""Builds the HTTP application: the shell around the lane, with FastAPI behind it.

The composition root calls `build_api` with open collaborators and mounts the result; nothing here
opens or closes anything, and nothing is global.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from app.api.control_plane import build_control_plane
from app.api.dependencies import Services
from app.api.docs_page import docs_page
from app.api.lane.operations import build_lane
from app.api.middleware import RequestShell, ServingState
from app.api.openapi import build_document, encode_document
from app.api.ports import Broker, Metadata
from app.domain.limits import Limits


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """How the HTTP face behaves."""

    local_only: bool = True
    """Refuse Host names that are not local and foreign Origins: for an open loopback server. Off
    when authentication or the operator's `--insecure-anonymous` takes its place."""


def build_api(
    broker: Broker,
    metadata: Metadata,
    limits: Limits,
    *,
    state: ServingState,
    config: ApiConfig | None = None,
    mounts: Mapping[str, ASGIApp] | None = None,
) -> RequestShell:
    """The ASGI application. `state` is the caller's, to be switched to draining on shutdown.

    `mounts` are neighbours (the pages) by path, served behind the same shell.
    """
    config = config or ApiConfig()
    control_plane = build_control_plane(Services(broker, metadata, limits, state))
    control_plane.router.routes += _documentation_routes()
    for path, app in (mounts or {}).items():
        control_plane.mount(path, app)
    return RequestShell(
        build_lane(broker, limits),
        control_plane,
        state,
        header_block_bytes_max=limits.header_block_bytes_max,
        local_only=config.local_only,
    )


def _documentation_routes() -> list[Route]:
    """The document of the whole interface, lane included, and a page made from it."""
    document = build_document()
    encoded, page = encode_document(document), docs_page(document)

    async def openapi(_: Request) -> Response:
        return Response(encoded, media_type="application/json")

    async def docs(_: Request) -> Response:
        return HTMLResponse(page)

    return [Route("/openapi.json", openapi), Route("/docs", docs)]
