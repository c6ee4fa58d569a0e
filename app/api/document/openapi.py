"""The OpenAPI 3.1 document: FastAPI's for the control plane, ours for the data plane.

`curlew openapi` prints it; `make openapi` puts that into `openapi/openapi.json`, and a test fails
when the file is stale.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from fastapi.openapi.utils import get_openapi
from msgspec import Struct
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.control.control_plane import build_control_plane
from app.api.control.operation_list import OPERATIONS
from app.api.dataplane import routes
from app.api.document.property_meanings import describe, describe_operation
from app.api.document.typed_clients import (
    say_members_of_others,
    say_nulls_as_types,
    say_parameters,
    say_waits,
    say_what_may_be_missing,
)
from app.api.formats import wire
from app.api.http.errors import STATUS_OF_CODE, EntryProblem, Problem
from app.api.http.request_context import STATE_PATHS
from app.api.operations.answers import NOT_KEPT, SHARED_SCHEMAS, answers_of, problem_components
from app.api.operations.operation import WHEN_ASKED, Json, Operation, models_of, permissions_of
from app.api.operations.parameters import NAMESPACE, parameters_of

_OTHER_STRUCTS: Final = (wire.BatchEntry, Problem, EntryProblem)
"""Those that no operation names: problems, and the lines of a batch, described in words."""
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
            operation.setdefault("parameters", []).append(NAMESPACE)
    _declare_not_kept(paths)
    for operation in routes.OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    for operation in OPERATIONS:
        paths[operation.path][operation.method.lower()] |= permissions_of(operation)
    for methods in paths.values():
        for described in methods.values():
            describe_operation(described)
            say_parameters(described["parameters"])
    document["paths"] = dict(sorted(paths.items()))
    document["components"]["responses"] = _share_problems(paths)
    schemas: Json = document["components"]["schemas"] | _model_schemas()
    for name in _OURS_IN_FASTAPI:
        schemas.pop(name, None)
    say_waits(schemas)
    describe(schemas)
    say_nulls_as_types(schemas)
    say_members_of_others(schemas)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return {name: _with_widths(each) for name, each in document.items()}


def _with_widths(value: Any) -> Any:  # noqa: ANN401  # JSON
    """The same with the width of every integer: generated Java, Go and C# take 32 bits otherwise,
    and times, offsets and sizes have more."""
    if isinstance(value, list):
        return [_with_widths(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _with_widths(each) for name, each in value.items()}
    kinds = found.get("type")
    if kinds == "integer" or (isinstance(kinds, list) and "integer" in kinds):
        found.setdefault("format", "int64")
    return found


def _described(operation: Operation) -> Json:
    """An operation of the data plane, as FastAPI describes those of the control plane."""
    answers = {str(status): answer for status, answer in answers_of(operation).items()}
    apart = {
        str(status): answers.pop(str(status))
        for status, answer in operation.answers.items()
        if answer.is_asked_for
    }
    described: Json = {
        "tags": [operation.tag],
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "description": operation.description,
        "parameters": parameters_of(operation),
        "requestBody": operation.body and operation.body.rendered(),
        "responses": answers,
        WHEN_ASKED: apart,
    }
    return {name: value for name, value in described.items() if value or name == "parameters"}


def _declare_not_kept(paths: Json) -> None:
    """What the gateway adds to the answers of the control plane that say nothing of caches."""
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


def _model_schemas() -> Json:
    """Schemas of the bodies of both planes, and of the answers that FastAPI does not describe."""
    bodies = [each.body.content for each in OPERATIONS if each.body is not None]
    answers = [answer for each in OPERATIONS for answer in each.answers.values()]
    taken = [model for content in bodies for model in models_of(content)]
    given = [
        model
        for each in answers
        for content in (each.content, each.when_asked)
        for model in models_of(content)
    ]
    structs = [model for model in (*taken, *given) if issubclass(model, Struct)]
    models = [model for model in taken if issubclass(model, BaseModel)]
    _, ours = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)],
        ref_template="#/components/schemas/{model}",
    )
    return {**ours["$defs"], **_struct_schemas(structs), **SHARED_SCHEMAS}


def _struct_schemas(structs: Sequence[type[Struct]]) -> Json:
    all_structs: list[type[Struct]] = [*dict.fromkeys(structs), *_OTHER_STRUCTS]
    _, schemas = msgspec.json.schema_components(
        all_structs, ref_template="#/components/schemas/{name}"
    )
    say_what_may_be_missing(all_structs, schemas)
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
