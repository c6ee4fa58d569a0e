"""The OpenAPI 3.1 document: FastAPI's for the control plane, the lane's own, one set of schemas.

`curlew openapi` prints it; `make openapi` puts that into `openapi/openapi.json`, and a test fails
when the file is stale.
"""

import json
from typing import Any, Final

import msgspec
from fastapi.openapi.utils import get_openapi

from app.api.control.control_plane import build_control_plane
from app.api.control.documentation import NOT_KEPT, problem_components, schemas_of
from app.api.control.routes.groups.dead_letters import PurgeBody, RedriveBody
from app.api.control.routes.groups.parked import ReleaseBody
from app.api.control.routes.producers import PlanBody, SealBody
from app.api.control.routes.scheduled import MoveBody
from app.api.control.schemas.member_schemas import HeartbeatBody, LockBody, UnlockBody
from app.api.control.schemas.offset_schemas import CommitBody, ResetBody, RestoreBody
from app.api.control.schemas.schedule_schemas import ScheduleBody, SchedulePatch
from app.api.control.schemas.setting_bodies import GroupBody, GroupPatch, TopicBody, TopicPatch
from app.api.document.dataplane_paths import lane_paths
from app.api.formats import wire
from app.api.http.errors import STATUS_OF_CODE, EntryProblem, Problem
from app.api.http.request_context import STATE_PATHS

Json = dict[str, Any]

_REQUEST_MODELS: Final = (
    *(TopicBody, GroupBody, CommitBody, RedriveBody, PurgeBody),
    *(HeartbeatBody, LockBody, UnlockBody, ResetBody, RestoreBody, SealBody, MoveBody),
    *(PlanBody, ReleaseBody),
    *(ScheduleBody, SchedulePatch, TopicPatch, GroupPatch),
)
_STRUCTS: Final = (
    *(wire.Envelope, wire.BatchRequest, wire.BatchEntry, wire.ReceiveBody, wire.SettleBody),
    *(wire.AckBody, wire.NackBody, wire.ExtendBody, wire.DeadLetterBody, wire.ReceiptChange),
    *(wire.SendAnswer, wire.PreparedAnswer, wire.BatchAnswer, wire.FrameAnswer),
    *(wire.PullAnswer, wire.ReceiveAnswer, wire.BrowseAnswer, wire.SettleAnswer),
    *(wire.RequestAnswer, wire.ReplyAnswer),
    *(wire.ReceiptAnswer, wire.MessageView, wire.DeadLetterList, wire.CheckList),
    *(Problem, EntryProblem),
)
_OURS_IN_FASTAPI: Final = frozenset({"HTTPValidationError", "ValidationError"})
"""Schemas that FastAPI adds for its own 422, which this service never answers."""


def build_document() -> Json:
    """The document of the whole interface."""
    app = build_control_plane()
    document: Json = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        openapi_version="3.1.0",
        routes=app.routes,
    )
    paths: Json = document["paths"]
    for methods in paths.values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
            operation.setdefault("parameters", [])
    _declare_not_kept(paths)
    for path, methods in lane_paths().items():
        paths.setdefault(path, {}).update(methods)
    document["paths"] = dict(sorted(paths.items()))
    document["components"]["responses"] = _share_problems(paths)
    schemas: Json = document["components"]["schemas"]
    for name in _OURS_IN_FASTAPI:
        schemas.pop(name, None)
    schemas.update(schemas_of(_REQUEST_MODELS))
    schemas.update(_struct_schemas())
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _declare_not_kept(paths: Json) -> None:
    """What the shell adds to the answers of the control plane that say nothing of caches."""
    for path, methods in paths.items():
        reads = [methods[name] for name in ("get", "head") if name in methods]
        for operation in reads if path.startswith(STATE_PATHS) else ():
            for status, answer in operation["responses"].items():
                if status[0] in "23":
                    answer["headers"] = NOT_KEPT | answer.get("headers", {})


def _share_problems(paths: Json) -> Json:
    """Put references into `paths` for the error answers that operations have in common.

    Written out under each operation they would be a third of the document. Done here, since FastAPI
    adds a description to every answer of its routes, and a reference stands alone.
    """
    shared = problem_components()
    used = set()
    for methods in paths.values():
        for operation in methods.values():
            answers = dict(operation["responses"])
            for status, answer in answers.items():
                name = f"Problem{status}"
                if answer == shared.get(name):
                    answers[status] = {"$ref": f"#/components/responses/{name}"}
                    used.add(name)
            operation["responses"] = answers
    return {name: shared[name] for name in sorted(used)}


def _struct_schemas() -> Json:
    _, schemas = msgspec.json.schema_components(
        _STRUCTS, ref_template="#/components/schemas/{name}"
    )
    problem: Json = schemas["Problem"]
    problem["properties"]["code"] = {"type": "string", "enum": sorted(STATUS_OF_CODE)}
    problem["description"] = (
        "RFC 9457. Further members may be present: min_offset, max_offset, limit_bytes, parameter, "
        "header, results and others, by code."
    )
    return schemas


def render_document(document: Json | None = None) -> str:
    """The document as it is committed and served."""
    return json.dumps(document or build_document(), indent=1, ensure_ascii=False) + "\n"
