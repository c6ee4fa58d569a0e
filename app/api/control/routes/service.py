"""The service itself: health, readiness, limits, error codes, nodes."""

import asyncio
from dataclasses import asdict

from fastapi import Response
from fastapi.responses import PlainTextResponse

from app.api.control.dependencies import WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.config_schemas import ConfigDocument, SettingDocument
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
from app.api.operations.answers import NOT_KEPT
from app.api.operations.operation import Action, Answer
from app.api.telemetry.metrics import CONTENT_TYPE, Sources, metric_parts
from app.domain.limits import FIXED_LIMITS, METRIC_LABELS_MAX

router = OperationRouter("service")


@router.serve(
    "GET /healthz",
    "Whether the process answers",
    needs={"service": Action.GET},
    is_open=True,
)
async def get_health() -> Health:
    """Always ok: a process that cannot answer does not answer."""
    return Health(status="ok")


@router.serve(
    "GET /readyz",
    "Whether the node takes requests",
    needs={"service": Action.GET},
    is_open=True,
    answers={503: Answer("Not ready; `reasons` says why", Readiness, NOT_KEPT)},
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


@router.serve(
    "GET /metrics",
    "Figures for Prometheus",
    needs={"cluster": Action.GET},
)
async def get_metrics(services: WithServices) -> PlainTextResponse:
    """The Prometheus text format; names and labels are RocketMQ 5's where it has one. By topic and
    group the 500 with most in them; the rest together, under the name `_other`."""
    broker, metadata = services.broker, services.metadata
    dead_letters = await broker.dead_letters.count_all(list(metadata.snapshot.groups))
    lags = await broker.lag.pair_lags(METRIC_LABELS_MAX)
    connections = services.connections
    sources = Sources(broker, metadata, services.traffic, connections, dead_letters, lags)
    parts = []
    for part in metric_parts(sources):
        parts.append(part)
        await asyncio.sleep(0)
    return PlainTextResponse("".join(parts), media_type=CONTENT_TYPE)


@router.serve(
    "GET /v1/config",
    "Every setting of this node",
    needs={"cluster": Action.ADMIN},
)
async def get_config(services: WithServices) -> ConfigDocument:
    """What the node runs with, and where each value comes from: environment, file, flag, or none
    of them. Passwords are left out. All are read at the start: change them and restart."""
    return ConfigDocument(settings=[SettingDocument.of(each) for each in services.settings])


@router.serve(
    "GET /v1/limits",
    "Every bound of this service",
    needs={"service": Action.GET},
)
async def get_limits(services: WithServices) -> dict[str, int]:
    """Sizes in bytes, durations in milliseconds or seconds as named."""
    return {**asdict(services.limits), **FIXED_LIMITS}


@router.serve(
    "GET /v1/error-codes",
    "Every code that a problem document may carry",
    needs={"service": Action.GET},
)
async def list_error_codes() -> ErrorCodeList:
    """Codes are stable; statuses and titles may be made more precise."""
    return ErrorCodeList(error_codes=[ErrorCodeDocument(**row._asdict()) for row in error_codes()])


@router.serve(
    "GET /v1/nodes",
    "The nodes of the cluster",
    needs={"cluster": Action.GET},
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
