"""The namespace of a request: how it is named, what names become in it, and how they come out."""

import pytest

from app.api.naming.request_namespace import (
    current_namespace,
    is_of_request,
    kinds_of_path,
    names_one,
    namespace_of_request,
    shown,
    shown_document,
    shown_error,
    stored,
    stored_path_names,
    within,
)
from app.domain.errors import (
    IllegalGroup,
    IllegalTopic,
    InvalidRequest,
    NamespaceNotFound,
    TopicNotFound,
)

KNOWN = frozenset({"eu", "us"})


def test_header_and_query_say_the_same() -> None:
    others = [(b"mq-tag", b"a")]
    by_header = namespace_of_request([(b"mq-namespace", b"eu"), *others], b"wait=1", KNOWN)
    by_query = namespace_of_request(others, b"wait=1&namespace=eu", KNOWN)
    assert by_header == by_query == ("eu", others, b"wait=1")
    both = namespace_of_request([(b"mq-namespace", b"eu")], b"namespace=eu", KNOWN)
    assert both == ("eu", [], b"")


def test_without_a_word_it_is_the_default_one() -> None:
    assert namespace_of_request([], b"", KNOWN).namespace == ""
    assert namespace_of_request([(b"mq-namespace", b"")], b"", KNOWN).namespace == ""
    assert not names_one([(b"mq-tag", b"eu")], b"wait=1")
    assert names_one([(b"mq-tag", b"eu"), (b"mq-namespace", b"eu")], b"")
    assert names_one([], b"wait=1&namespace=eu")


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ([b"eu", b"us"], b""),
        ([b"eu"], b"namespace=us"),
        ([], b"namespace=us&namespace=eu"),
        ([b"eu"], b"namespace="),
    ],
)
def test_two_that_differ_are_refused(headers: list[bytes], query: bytes) -> None:
    given = [(b"mq-namespace", each) for each in headers]
    with pytest.raises(InvalidRequest, match="two namespaces"):
        namespace_of_request(given, query, KNOWN)


def test_one_that_nobody_made_is_not_found() -> None:
    with pytest.raises(NamespaceNotFound, match="'asia'"):
        namespace_of_request([(b"mq-namespace", b"asia")], b"", KNOWN)


def test_names_become_stored_names_and_come_back() -> None:
    assert stored("topic", "orders") == "orders"
    with within("eu"):
        assert current_namespace() == "eu"
        assert stored("topic", "orders") == "eu%orders"
        assert shown("eu%orders") == "orders"
        assert shown("%RETRY%eu%billing+eu%orders") == "%RETRY%billing+orders"
        assert shown("us%orders") == "us%orders", "a foreign name that leaks is to be seen"
        assert is_of_request("eu%orders")
        assert not is_of_request("orders")
    assert is_of_request("orders")
    assert not is_of_request("eu%orders")


@pytest.mark.parametrize("namespace", ["", "eu"])
def test_no_name_reaches_into_another_namespace(namespace: str) -> None:
    with within(namespace):
        with pytest.raises(IllegalTopic):
            stored("topic", "us%orders")
        with pytest.raises(IllegalGroup):
            stored("group", "%DLQ%us%billing")
        with pytest.raises(InvalidRequest):
            stored("producer", "us%p")


def test_paths_say_which_of_their_names_are_of_a_namespace() -> None:
    given = {"topic": "orders", "group": "billing", "name": "first", "queue": "0"}
    with within("eu"):
        assert stored_path_names(kinds_of_path("/v1/groups/{group}/snapshots/{name}"), given) == {
            "topic": "eu%orders",
            "group": "eu%billing",
            "name": "first",
            "queue": "0",
        }
        nightly = stored_path_names(kinds_of_path("/v1/schedules/{name}"), {"name": "nightly"})
        assert nightly == {"name": "eu%nightly"}


def test_documents_and_errors_are_shown_without_the_namespace() -> None:
    document = {
        "name": "eu%orders",
        "missing": ["eu%a", "us%b"],
        "by_target": {"eu%orders": 3},
        "topics": [{"topic": "eu%orders", "queues": [1]}],
        "detail": "topic 'eu%orders' is there",
        "properties": {"topic": "eu%orders"},
        "message": {"body": {"name": "eu%orders"}},
    }
    error = TopicNotFound("no topic 'eu%x'", hint="PUT /v1/topics/eu%x", fields={"t": ["eu%x"]})
    with within("eu"):
        assert shown_document(document) == {
            "name": "orders",
            "missing": ["a", "us%b"],
            "by_target": {"orders": 3},
            "topics": [{"topic": "orders", "queues": [1]}],
            "detail": "topic 'orders' is there",
            "properties": {"topic": "eu%orders"},
            "message": {"body": {"name": "eu%orders"}},
        }
        told = shown_error(error)
    assert (told.detail, told.hint) == ("no topic 'x'", "PUT /v1/topics/x")
    assert told.fields == {"t": ["x"]}
    assert shown_document(document) is document
