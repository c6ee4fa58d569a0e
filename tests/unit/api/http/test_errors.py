"""One table of codes: complete, used, documented."""

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from app.api import build_api  # noqa: F401  # all error classes are imported with it
from app.api.document.openapi import build_document
from app.api.http.errors import (
    STATUS_OF_CODE,
    FieldError,
    InvalidBody,
    MethodNotAllowed,
    error_codes,
    render_problem,
    with_outcome_of_send,
)
from app.domain.errors import (
    CurlewError,
    IllegalTag,
    MetadataUnavailable,
    OffsetExpired,
    StoreFailed,
)

APP = Path(__file__).parents[4] / "app"


def kinds(kind: type[CurlewError] = CurlewError) -> Iterator[type[CurlewError]]:
    if kind.__module__.startswith("app."):
        yield kind
        for child in kind.__subclasses__():
            yield from kinds(child)


def classes_made_in_app() -> set[str]:
    """Every name in app/ that is called, or handed to a function that may call it."""
    names: set[str] = set()
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            handed: list[ast.expr | None] = []
            if isinstance(node, ast.Call) and ast.unparse(node.func) != "isinstance":
                handed = [node.func, *node.args, *(each.value for each in node.keywords)]
            elif isinstance(node, ast.arguments):
                handed = [*node.defaults, *node.kw_defaults]
            names.update(each.id for each in handed if isinstance(each, ast.Name))
    return names


def test_every_code_has_a_status_and_every_status_a_code() -> None:
    assert {kind.code for kind in kinds()} == STATUS_OF_CODE.keys()
    assert [row.code for row in error_codes()] == sorted(STATUS_OF_CODE)


def test_every_code_is_used() -> None:
    made = classes_made_in_app()
    used = {kind.code for kind in kinds() if kind.__name__ in made}
    assert STATUS_OF_CODE.keys() - used == set()


def test_every_class_has_one_meaning_per_code() -> None:
    rows: dict[str, set[int]] = {}
    for kind in kinds():
        rows.setdefault(kind.code, set()).add(STATUS_OF_CODE[kind.code])
    assert all(len(statuses) == 1 for statuses in rows.values())


def test_the_document_names_every_code_and_every_status() -> None:
    document = build_document()
    problem = document["components"]["schemas"]["Problem"]
    assert problem["properties"]["code"]["enum"] == sorted(STATUS_OF_CODE)
    declared = {
        int(status)
        for methods in document["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
    }
    # A path that does not exist and a wrong method belong to no operation.
    assert set(STATUS_OF_CODE.values()) - {405} <= declared


def problem_of(error: CurlewError) -> dict[str, object]:
    status, headers, body = render_problem(error, instance="/v1/x", request_id=b"r-1")
    document: dict[str, object] = msgspec.json.decode(body)
    assert document["status"] == status
    assert dict(headers)[b"content-type"] == b"application/problem+json"
    return document


def test_a_problem_has_all_its_members() -> None:
    error = OffsetExpired("too old", hint="start later", fields={"min_offset": 5, "status": 1})
    assert problem_of(error) == {
        "type": "/v1/error-codes#OFFSET_EXPIRED",
        "title": "The offset is no longer available",
        "status": 410,
        "code": "OFFSET_EXPIRED",
        "detail": "too old",
        "instance": "/v1/x",
        "request_id": "r-1",
        "retryable": False,
        "hint": "start later",
        "min_offset": 5,
    }


def test_faults_have_pointers() -> None:
    error = InvalidBody("two faults", [FieldError("/a", "bad"), FieldError("/b/0", "worse")])
    assert problem_of(error)["errors"] == [
        {"pointer": "/a", "detail": "bad"},
        {"pointer": "/b/0", "detail": "worse"},
    ]
    assert problem_of(IllegalTag("bad", pointer="/tag"))["errors"] == [
        {"pointer": "/tag", "detail": "bad"}
    ]


def test_headers_that_belong_to_a_problem() -> None:
    _, headers, _ = render_problem(MetadataUnavailable("down"), instance="/", request_id=b"r")
    assert (b"retry-after", b"1") in headers
    _, headers, _ = render_problem(
        MetadataUnavailable("down", retry_after_s=7), instance="/", request_id=b"r"
    )
    assert (b"retry-after", b"7") in headers
    _, headers, _ = render_problem(MethodNotAllowed("PUT", "GET"), instance="/", request_id=b"r")
    assert (b"allow", b"GET") in headers


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (IllegalTag("bad"), "not_stored"),
        (MetadataUnavailable("down"), "not_stored"),
        (StoreFailed("disk"), "unknown"),
        (StoreFailed("disk", outcome="not_stored"), "not_stored"),
    ],
)
def test_every_failed_send_says_what_became_of_it(error: CurlewError, outcome: str) -> None:
    assert problem_of(with_outcome_of_send(error))["outcome"] == outcome
