"""The service itself: health, readiness, limits, error codes, nodes."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import Depends, Response
from fastapi.responses import PlainTextResponse

from app.api.control.dependencies import Services, WithAccess, WithServices, json_body
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.config_schemas import ConfigChange, ConfigDocument, ConfigPatch
from app.api.control.schemas.schemas import (
    ConditionDocument,
    ErrorCodeDocument,
    ErrorCodeList,
    Health,
    NodeDocument,
    NodeList,
    Readiness,
)
from app.api.formats.media import JSON, MERGE_PATCH, require_merge_patch
from app.api.http.conditions import WithPatchTerms, etag_of
from app.api.http.errors import error_codes
from app.api.operations.answers import ETAG_HEADER, NOT_KEPT
from app.api.operations.operation import Action, Answer, Body
from app.api.ports import Configuration
from app.api.telemetry.metrics import CONTENT_TYPE, Sources, following_metrics, metric_parts
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
async def get_readiness(
    services: WithServices, access: WithAccess, response: Response
) -> Readiness:
    """Ready, or 503. The reasons, and what works in part only, are for who may GET the cluster."""
    health = services.health
    reasons = [ConditionDocument(**each._asdict()) for each in health.obstacles()]
    if reasons:
        response.status_code = 503
    status: Literal["ready", "not_ready"] = "not_ready" if reasons else "ready"
    if not access.may_run(Action.GET):
        return Readiness(status=status, reasons=[], degraded=[])
    return Readiness(
        status=status,
        reasons=reasons,
        degraded=[ConditionDocument(**each._asdict()) for each in health.troubles()],
    )


@router.serve(
    "GET /metrics",
    "Figures for Prometheus",
    needs={"cluster": Action.GET},
    by_each_node=True,
)
async def get_metrics(services: WithServices) -> PlainTextResponse:
    """The Prometheus text format; names and labels are RocketMQ 5's where it has one. By topic and
    group the 500 with most in them; the rest together, under the name `_other`."""
    broker, metadata = services.led, services.metadata
    if broker is None:
        text = following_metrics(
            services.health,
            services.traffic,
            services.connections,
            metadata.audit.unnamed_count,
            services.replicas,
        )
        return PlainTextResponse(text, media_type=CONTENT_TYPE)
    dead_letters = await broker.dead_letters.count_all(list(metadata.snapshot.groups))
    lags = await broker.lag.pair_lags(METRIC_LABELS_MAX)
    connections = services.connections
    unnamed = metadata.audit.unnamed_count
    sources = Sources(
        broker,
        metadata,
        services.traffic,
        connections,
        dead_letters,
        lags,
        unnamed,
        services.replicas,
        metadata.snapshot.shards.get(metadata.shard),
    )
    parts = []
    for part in metric_parts(sources):
        parts.append(part)
        await asyncio.sleep(0)
    return PlainTextResponse("".join(parts), media_type=CONTENT_TYPE)


@router.serve(
    "GET /v1/config",
    "Every setting of this node",
    needs={"cluster": Action.ADMIN},
    by_each_node=True,
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def get_config(services: WithServices, response: Response) -> ConfigDocument:
    """What the node runs with, and where each value comes from. Passwords are left out. Those that
    are `changeable` can be changed here; the others are read at the start."""
    configuration = _configuration_of(services)
    response.headers["ETag"] = etag_of(configuration.version)
    return ConfigDocument.of(configuration)


@router.serve(
    "PATCH /v1/config",
    "Change settings while nodes run",
    needs={"cluster": Action.ADMIN},
    by_each_node=True,
    body=Body(
        {MERGE_PATCH: ConfigPatch, JSON: ConfigPatch},
        required=True,
        examples={
            "log more for a while": {"log_level": "debug"},
            "another bound": {"limit_topics_max": 20_000},
            "as by default": {"log_level": None},
        },
    ),
    answers={200: Answer("The settings; see `changed`", headers=ETAG_HEADER)},
    problems=(409, 412),
)
async def patch_config(
    services: WithServices,
    body: Annotated[ConfigPatch, Depends(json_body(ConfigPatch, require=require_merge_patch))],
    terms: WithPatchTerms,
    response: Response,
) -> ConfigChange:
    """Kept in the metadata database for all nodes that use it, which follow within two seconds. A
    stored value outweighs the default only: what a node's environment, file or flags say wins on
    that node (`overruled`). 409 `SETTING_FIXED`: the setting is read at the start."""
    configuration = _configuration_of(services)
    patch = await configuration.change(body.root, terms)
    response.headers["ETag"] = etag_of(configuration.version)
    return ConfigChange.of_patch(configuration, patch, is_dry_run=terms.is_dry_run)


def _configuration_of(services: Services) -> Configuration:
    assert services.configuration is not None, "this application serves no node"
    return services.configuration


@router.serve(
    "GET /v1/limits",
    "Every bound of this service",
    needs={"service": Action.GET},
    by_each_node=True,
)
async def get_limits(services: WithServices) -> dict[str, int]:
    """Sizes in bytes, durations in milliseconds or seconds as named."""
    return {**asdict(services.limits), **FIXED_LIMITS}


@router.serve(
    "GET /v1/error-codes",
    "Every code that a problem document may carry",
    needs={"service": Action.GET},
    by_each_node=True,
)
async def list_error_codes() -> ErrorCodeList:
    """Codes are stable; statuses and titles may be made more precise."""
    return ErrorCodeList(error_codes=[ErrorCodeDocument(**row._asdict()) for row in error_codes()])


@router.serve(
    "GET /v1/nodes",
    "The nodes of the cluster",
    needs={"cluster": Action.GET},
    by_each_node=True,
)
async def list_nodes(services: WithServices) -> NodeList:
    """All nodes that ever registered, with their last sign of life."""
    return NodeList(nodes=[NodeDocument.of(node) for node in await services.metadata.list_nodes()])
