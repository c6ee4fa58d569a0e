"""A path that leads nowhere gets the one that was meant, or where to look."""

import pytest

from app.api.control.path_hints import hint_of_path

TEMPLATES = (
    "/v1/topics",
    "/v1/topics/{topic}",
    "/v1/topics/{topic}/stats",
    "/v1/topics/{topic}/groups/{group}/messages:receive",
    "/v1/topics/{topic}/groups/{group}/messages:settle",
    "/v1/receipts/{handle}",
    "/v1/transactions/{transaction_id}:commit",
)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/topic/orders", "/v1/topics/orders"),
        ("/v1/topics/orders/stat", "/v1/topics/orders/stats"),
        ("/v1/topics/a/groups/b/messages:recieve", "/v1/topics/a/groups/b/messages:receive"),
        ("/v1/topic/a/group/b/messages:settle", "/v1/topics/a/groups/b/messages:settle"),
        ("/v1/receipt/x", "/v1/receipts/x"),
    ],
)
def test_what_was_meant(path: str, meant: str) -> None:
    assert hint_of_path(path, TEMPLATES) == f"did you mean '{meant}'?"


@pytest.mark.parametrize(
    "path", ["/", "/favicon.ico", "/v1", "/v2/topics", "/v1/queues", "/v1/a/b"]
)
def test_where_to_look_when_nothing_is_like_it(path: str) -> None:
    assert "/openapi.json" in hint_of_path(path, TEMPLATES)


def test_a_slash_at_the_end() -> None:
    assert hint_of_path("/v1/topics/", TEMPLATES) == "leave out the '/' at the end"
