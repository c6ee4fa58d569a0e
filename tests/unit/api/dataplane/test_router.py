"""Paths of the data prouter."""

import pytest

from app.api.dataplane import router as routing
from app.api.dataplane.router import Router
from app.api.dataplane.routes import OPERATIONS
from app.api.http.errors import MethodNotAllowed
from app.api.http.request_context import RequestContext, Scope


async def nothing(exchange: RequestContext, *names: str) -> None:
    """A handler that is not called."""


@pytest.fixture
def router() -> Router:
    return Router(dict.fromkeys(OPERATIONS, nothing))


def scope(method: str, raw_path: str, path: str | None = None) -> Scope:
    return {"method": method, "raw_path": raw_path.encode(), "path": path or raw_path}


@pytest.mark.parametrize(
    ("method", "path", "name", "names"),
    [
        ("POST", "/v1/topics/orders/messages", "send_message", ("orders",)),
        ("GET", "/v1/topics/orders/queues/3/messages", "pull_messages", ("orders", "3")),
        ("POST", "/v1/topics/o/groups/g/messages:receive", "receive_messages", ("o", "g")),
        ("POST", "/v1/topics/o/groups/g/messages%3Areceive", "receive_messages", ("o", "g")),
        ("POST", "/v1/topics/a%2Fb/messages", "send_message", ("a/b",)),
        ("POST", "/v1/topics/%E2%82%AC/messages", "send_message", ("€",)),
        ("DELETE", "/v1/receipts/abc", "ack_receipt", ("abc",)),
        ("PATCH", "/v1/receipts/abc", "change_receipt", ("abc",)),
    ],
)
def test_paths_name_operations(
    router: Router, method: str, path: str, name: str, names: tuple[str, ...]
) -> None:
    for _ in range(2):  # the second time it is remembered
        found = router.find(scope(method, path))
        assert found is not None
        assert (found[0].operation_id, found[2]) == (name, names)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1/topics",
        "/v1/topics/orders",
        "/v1/topics/orders/stats",
        "/v1/topics/orders/messages/",
        "/v1/topics/orders/messages/id",
        "/v2/topics/orders/messages",
        "/v1/topic/orders/messages",
        "/v1/topics/o/groups/g/messages",
        "/v1/topics/o/queues/1/messages:receive",
        "/v1/receipts",
        "/v1/receipt/abc",
    ],
)
def test_other_paths_fall_through(router: Router, path: str) -> None:
    assert router.find(scope("POST", path)) is None


def test_an_encoded_slash_does_not_change_the_path(router: Router) -> None:
    assert (
        router.find(scope("POST", "/v1/topics%2Forders/messages", "/v1/topics/orders/messages"))
        is None
    )


def test_another_method_is_refused_with_those_allowed(router: Router) -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        router.find(scope("GET", "/v1/receipts/abc"))
    assert caught.value.allow == "DELETE, PATCH"


def test_memory_of_paths_is_bounded(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_RECENT_MAX", 3)
    for number in range(10):
        router.find(scope("POST", f"/v1/topics/t{number}/messages"))
        router.find(scope("DELETE", f"/v1/receipts/{number}"))
    assert len(router._recent) <= 3


def test_long_paths_are_not_remembered(router: Router) -> None:
    assert router.find(scope("POST", f"/v1/topics/{'t' * 30_000}/messages")) is not None
    assert not router._recent
    assert router.find(scope("POST", f"/v1/topics/{'t' * 127}/messages")) is not None
    assert len(router._recent) == 1


def test_a_server_without_raw_path_is_served(router: Router) -> None:
    assert router.find({"method": "POST", "path": "/v1/topics/orders/messages"}) is not None
