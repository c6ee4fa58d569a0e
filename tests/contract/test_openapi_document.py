"""The OpenAPI document is fresh, complete in itself, and what a generator expects."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.api import render_document
from app.api.control.operation_list import OPERATIONS
from app.api.document.property_meanings import (
    HEADERS,
    IN_ONE_SCHEMA,
    MEANINGS,
    PARAMETERS,
    properties_of,
)
from app.api.operations.operation import WHEN_ASKED

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


def test_an_answer_has_one_type(document: Json) -> None:
    """What a status answers unless the request asks for something else; generated clients need no
    look at the type of what came."""
    for _, _, operation in operations(document):
        named = operation["operationId"]
        for status, answer in answers(document, operation).items():
            content = answer.get("content", {})
            assert len(content) <= 1, f"{named} {status}: {list(content)}"
            for described in content.values():
                kinds = len(described["schema"].get("anyOf", ()))
                assert kinds == (2 if (named, status) == ("send_message", "202") else 0), named
        bare = [s for s, each in operation["responses"].items() if s[0] == "2" and "$ref" in each]
        assert bare == []


def test_what_is_answered_when_asked_is_said_apart(document: Json) -> None:
    def apart(path: str, method: str) -> tuple[set[str], set[str]]:
        operation = document["paths"][path][method]
        answer = operation["responses"]["200"]
        return set(answer.get(WHEN_ASKED, ())), set(operation.get(WHEN_ASKED, ()))

    topic = "/v1/topics/{topic}"
    octets = {"application/octet-stream"}
    assert apart(f"{topic}/groups/{{group}}/messages:receive", "post") == (octets, {"204"})
    assert apart("/v1/groups/{group}/members:poll", "post") == ({"multipart/mixed"}, set())
    assert apart(f"{topic}/messages:batch", "post") == ({"application/json"}, {"202"})
    frames_and_others = {
        "application/x-ndjson",
        "application/vnd.curlew.batch",
        "application/cloudevents-batch+json",
    }
    assert apart(f"{topic}/queues/{{queue}}/messages", "get") == (frames_and_others, set())


def types_of(schema: Json) -> set[str]:
    """The JSON types that a schema names, null left out."""
    kinds = [each.get("type", "?") for each in schema.get("anyOf", [schema])]
    named = {one for each in kinds for one in (each if isinstance(each, list) else [each])}
    return named - {"null"}


def types_by_place(document: Json, name: str) -> dict[str, set[str]]:
    """Of a parameter or a member of a body that is called so, wherever it stands."""
    found = {
        operation["operationId"]: types_of(each["schema"])
        for _, _, operation in operations(document)
        for each in operation["parameters"]
        if each["name"] == name
    }
    of_members = {
        schema: types_of(each) for schema, member, each in properties(document) if member == name
    }
    return found | of_members


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("wait", "string"), ("delay", "string"), ("invisible", "string"), ("timeout", "string")),
        *(("deliver_at_ms", "integer"), ("deliver_time_ms", "integer"), ("offset", "integer")),
        *(("queue_id", "integer"), ("topic", "string"), ("client_id", "string")),
    ],
)
def test_one_name_has_one_type(document: Json, name: str, kind: str) -> None:
    places = types_by_place(document, name)
    assert {place: each for place, each in places.items() if each != {kind}} == {}
    assert places


def test_no_parameter_is_null(document: Json) -> None:
    for _, _, operation in operations(document):
        for parameter in operation["parameters"]:
            assert {"type": "null"} not in parameter["schema"].get("anyOf", ()), parameter


def test_what_may_be_missing_is_not_required(document: Json) -> None:
    """A delayed message has no offset yet, and generated clients read what is required."""
    schemas = document["components"]["schemas"]
    assert "queue_offset" not in schemas["SendAnswer"]["required"]
    assert {"queue_id", "message_id", "store_time_ms"} <= {*schemas["SendAnswer"]["required"]}
    assert "first_queue_offset" not in schemas["FrameAnswer"]["required"]


def properties(document: Json) -> list[tuple[str, str, Json]]:
    """Schema, name and description of every property of every component, at any depth."""
    return [
        (schema, name, described)
        for schema, content in document["components"]["schemas"].items()
        for name, described in properties_of(content)
    ]


def undescribed(document: Json) -> list[str]:
    """Properties, parameters and headers that do not say what they are."""
    found = [f"{schema}.{name}" for schema, name, each in properties(document) if not said(each)]
    for _, _, operation in operations(document):
        named = operation["operationId"]
        found += [f"{named}: {each['name']}" for each in operation["parameters"] if not said(each)]
        for status, answer in answers(document, operation).items():
            headers = answer.get("headers", {}).items()
            found += [f"{named} {status}: {name}" for name, each in headers if not said(each)]
    return found


def said(described: Json) -> bool:
    return bool(described.get("description"))


def test_every_property_parameter_and_header_is_described(document: Json) -> None:
    assert undescribed(document) == []
    assert len(properties(document)) > 900


def test_what_is_not_described_is_noticed(document: Json) -> None:
    broken = json.loads(json.dumps(document))
    del broken["components"]["schemas"]["TopicDocument"]["properties"]["queues"]["description"]
    assert undescribed(broken) == ["TopicDocument.queues"]


def test_every_meaning_is_needed(document: Json) -> None:
    names = {name for _, name, _ in properties(document)}
    places = {f"{schema}.{name}" for schema, name, _ in properties(document)}
    parameters = {each["name"] for _, _, op in operations(document) for each in op["parameters"]}
    headers = {
        name
        for _, _, operation in operations(document)
        for answer in answers(document, operation).values()
        for name in answer.get("headers", {})
    }
    assert MEANINGS.keys() - names == set()
    assert IN_ONE_SCHEMA.keys() - places == set()
    assert PARAMETERS.keys() - parameters == set()
    assert HEADERS.keys() - headers == set()


def bodies(document: Json) -> list[tuple[str, str, Json]]:
    """Operation, media type and content of every request body."""
    return [
        (operation["operationId"], kind, content)
        for _, _, operation in operations(document)
        for kind, content in operation.get("requestBody", {"content": {}})["content"].items()
    ]


def test_every_request_body_has_an_example(document: Json) -> None:
    assert [each[:2] for each in bodies(document) if not each[2].get("examples")] == []
    assert len(bodies(document)) > 40


def test_examples_are_what_their_schemas_ask_for(document: Json) -> None:
    for operation_id, kind, content in bodies(document):
        if not kind.endswith("json"):  # lines and bytes are described in words
            continue
        schema = {**content["schema"], "components": document["components"]}
        validator = jsonschema.Draft202012Validator(schema)
        for name, example in content["examples"].items():
            faults = [error.message for error in validator.iter_errors(example["value"])]
            assert faults == [], f"{operation_id}: {name}"


def anonymous(node: object, place: str = "") -> list[str]:
    """Where an object with properties stands that is no component."""
    if isinstance(node, list):
        return [found for each in node for found in anonymous(each, place)]
    if not isinstance(node, dict):
        return []
    own = [place] if "properties" in node and "type" in node else []
    return own + [
        found for key, each in node.items() for found in anonymous(each, f"{place}/{key}")
    ]


def test_no_schema_is_anonymous(document: Json) -> None:
    assert anonymous(document["paths"]) == []
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        assert name.isidentifier()
        assert "__" not in name, f"two classes are called {name}"
        assert anonymous({key: each for key, each in schema.items() if key != "type"}, name) == []
        assert said(schema) or "enum" in schema, f"{name} does not say what it is"
