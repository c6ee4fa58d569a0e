"""The service itself: health, readiness, limits, error codes, nodes."""

from dataclasses import asdict

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from app.api.control.dependencies import WithServices
from app.api.control.documentation import NOT_KEPT, problem_responses
from app.api.control.schemas.schemas import (
    ConditionDocument,
    ErrorCodeDocument,
    ErrorCodeList,
    Health,
    NodeDocument,
    NodeList,
    Readiness,
)
from app.api.http.errors import error_codes
from app.api.telemetry.metrics import CONTENT_TYPE, Sources, render_metrics
from app.domain.limits import FIXED_LIMITS

router = APIRouter(tags=["service"])


@router.get(
    "/healthz",
    operation_id="get_health",
    summary="Whether the process answers",
    responses=problem_responses(),
)
async def get_health() -> Health:
    """Always ok: a process that cannot answer does not answer."""
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="get_readiness",
    summary="Whether the node takes requests",
    responses={
        **problem_responses(),
        503: {
            "description": "Not ready; `reasons` says why",
            "model": Readiness,
            "headers": NOT_KEPT,
        },
    },
)
async def get_readiness(services: WithServices, response: Response) -> Readiness:
    """Ready, or 503 with the reasons; and what works in part only."""
    health = services.broker.health
    reasons = [ConditionDocument(**each._asdict()) for each in health.obstacles()]
    if reasons:
        response.status_code = 503
    return Readiness(
        status="not_ready" if reasons else "ready",
        reasons=reasons,
        degraded=[ConditionDocument(**each._asdict()) for each in health.troubles()],
    )


@router.get(
    "/metrics",
    operation_id="get_metrics",
    summary="Figures for Prometheus",
    response_class=PlainTextResponse,
    responses=problem_responses(),
)
async def get_metrics(services: WithServices) -> PlainTextResponse:
    """Aggregates in the Prometheus text format; names are RocketMQ 5's where it has one."""
    broker, metadata = services.broker, services.metadata
    dead_letters = await broker.dead_letters.count_all(list(metadata.snapshot.groups))
    sources = Sources(broker, metadata, services.traffic, services.connections, dead_letters)
    return PlainTextResponse(render_metrics(sources), media_type=CONTENT_TYPE)


@router.get(
    "/v1/limits",
    operation_id="get_limits",
    summary="Every bound of this service",
    responses=problem_responses(),
)
async def get_limits(services: WithServices) -> dict[str, int]:
    """Sizes in bytes, durations in milliseconds or seconds as named."""
    return {**asdict(services.limits), **FIXED_LIMITS}


@router.get(
    "/v1/error-codes",
    operation_id="list_error_codes",
    summary="Every code that a problem document may carry",
    responses=problem_responses(),
)
async def list_error_codes() -> ErrorCodeList:
    """Codes are stable; statuses and titles may be made more precise."""
    return ErrorCodeList(error_codes=[ErrorCodeDocument(**row._asdict()) for row in error_codes()])


@router.get(
    "/v1/nodes",
    operation_id="list_nodes",
    summary="The nodes of the cluster",
    responses=problem_responses(),
)
async def list_nodes(services: WithServices) -> NodeList:
    """All nodes that ever registered, with their last sign of life."""
    nodes = [
        NodeDocument(
            node_id=node.node_id,
            address=node.address,
            store_id=node.store_id.hex(),
            started_ms=node.started_ms,
            seen_ms=node.seen_ms,
        )
        for node in await services.metadata.list_nodes()
    ]
    return NodeList(nodes=nodes)
