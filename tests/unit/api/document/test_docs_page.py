"""`/docs` and the descriptions of the OpenAPI document."""

from app.api.document.docs_page import docs_page, page_files
from app.api.document.openapi import build_document
from app.api.document.property_meanings import MEANINGS


def test_the_page_has_a_search_and_every_operation() -> None:
    document = build_document()
    page = docs_page(document)
    assert "<input type=search" in page
    for methods in document["paths"].values():
        for operation in methods.values():
            assert f"<details id={operation['operationId']}>" in page


def test_what_the_document_says_is_text_in_the_page() -> None:
    document = build_document()
    document["info"]["description"] = "<script>alert(1)</script>"
    assert "&lt;script&gt;alert(1)" in docs_page(document)


def test_what_stands_between_backticks_is_code() -> None:
    document = build_document()
    document["info"]["description"] = "ask `a<b>` now"
    page = docs_page(document)
    assert "ask <code>a&lt;b&gt;</code> now" in page
    assert "`" not in page


def test_the_page_loads_nothing_but_files_of_the_node() -> None:
    page = docs_page(build_document())
    for name in page_files():
        if not name.endswith((".css", ".js", ".svg")):
            raise AssertionError(name)
        assert f"docs/static/{name}" in page
    assert "src=http" not in page
    assert "href=http" not in page


def test_a_meaning_is_of_a_property_that_is_there() -> None:
    text = str(build_document())
    assert [name for name in MEANINGS if f"'{name}'" not in text] == []
