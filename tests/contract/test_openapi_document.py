"""The OpenAPI document is fresh, complete in itself, and what a generator expects."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.api import render_document
from app.api.control.operation_list import OPERATIONS

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> Json:
    loaded: Json = json.loads(COMMITTED.read_text())
    return loaded


def operations(document: Json) -> list[tuple[str, str, Json]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def answers(document: Json, operation: Json) -> Json:
    """The answers of an operation by status, in full."""
    shared = document["components"]["responses"]
    return {
        status: shared[answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
        for status, answer in operation["responses"].items()
    }


def references(node: object) -> set[str]:
    """Every `$ref` below `node`."""
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*map(references, node.values()))
    if isinstance(node, list):
        return set().union(*map(references, node))
    return set()


def test_the_committed_document_is_fresh() -> None:
    assert COMMITTED.read_text() == render_document(), "run `make openapi`"


def test_every_reference_is_defined_and_every_component_is_referred_to(document: Json) -> None:
    defined = {
        f"#/components/{kind}/{name}"
        for kind, components in document["components"].items()
        for name in components
    }
    used = references(document)
    assert used - defined == set()
    # The lines of NDJSON are described in words.
    assert defined - used <= {"#/components/schemas/BatchEntry"}


def test_schemas_are_schemas(document: Json) -> None:
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_operation_ids_are_stable_words(document: Json) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    assert all(each.replace("_", "").islower() for each in ids)


def test_every_operation_of_the_service_is_described_and_no_other(document: Json) -> None:
    described = {
        (f"{method.upper()} {path}", operation["operationId"], *operation["tags"])
        for method, path, operation in operations(document)
    }
    assert described == {(each.route, each.operation_id, each.tag) for each in OPERATIONS}


def test_every_operation_declares_its_failures_as_problems(document: Json) -> None:
    for method, path, operation in operations(document):
        responses = answers(document, operation)
        failures = {status for status in responses if status >= "400"}
        assert {"400", "403", "431", "500", "503"} <= failures, (method, path)
        if operation["operationId"] not in {"send_message", "send_batch"}:  # idempotency keys
            assert "422" not in failures, "FastAPI's own failure is never answered"
        for status in failures - ({"503"} if path == "/readyz" else set()):
            assert list(responses[status]["content"]) == ["application/problem+json"]


def test_common_failures_are_written_once(document: Json) -> None:
    for _, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            if status >= "400" and (path, status) != ("/readyz", "503"):
                assert answer == {"$ref": f"#/components/responses/Problem{status}"}


def test_request_bodies_name_every_form(document: Json) -> None:
    def forms(path: str) -> set[str]:
        return set(document["paths"][path]["post"]["requestBody"]["content"])

    assert forms("/v1/topics/{topic}/messages") == {
        "application/octet-stream",
        "application/vnd.curlew+json",
        "application/cloudevents+json",
        "*/*",
    }
    assert forms("/v1/topics/{topic}/messages:batch") == {
        "application/json",
        "application/x-ndjson",
        "application/vnd.curlew.batch",
    }
    batch = document["paths"]["/v1/topics/{topic}/messages:batch"]["post"]
    assert "application/cloudevents-batch+json" in batch["description"]
