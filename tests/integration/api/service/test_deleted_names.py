"""Names that are made and deleted for ever, the same and new ones, on a real node: what it
remembers of them has a bound.

Positive control: with the bounds far away the same loop makes the store remember every name.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.broker.ports import StoredNames
from app.domain.limits import Limits
from tests.integration.api.service.test_made_by_use import USES, client_of
from tests.support.clients.wire import Served, served_node

pytestmark = pytest.mark.anyio

MOST = 6
FEW = Limits(deleted_names_max=MOST, deleted_queues_max=10 * MOST)
FEW_QUEUES = Limits(deleted_queues_max=MOST)
AT_ONCE = {"retry_policy": {"customized": ["0s"]}}
MAKERS: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/v1/topics/{}", {"json": {}}),
    ("PUT", "/v1/topics/{}?dry_run=true", {"json": {}}),
    ("POST", "/v1/topics/{}/messages", {"content": b"x"}),
    ("POST", "/v1/topics/{}/messages:batch", {"json": {"messages": [{"text": "x"}]}}),
    ("POST", "/v1/topics/{}/messages?delay=5s", {"content": b"x"}),
    ("POST", "/v1/topics/{}/messages", {"content": b"x", "headers": {"Idempotency-Key": "k"}}),
    (
        "POST",
        "/v1/topics/{}/messages",
        {"content": b"x", "headers": {"MQ-Transaction": "prepare; group=shop"}},
    ),
    ("PUT", "/v1/groups/{}", {"json": {}}),
    *USES,
]


@pytest.fixture
async def few(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, FEW, auto_create_topics=True) as served:
        yield served


async def make_and_delete(http: httpx.AsyncClient, name: str) -> int:
    """The status of the making; with a message, so that a queue is left."""
    made = await http.put(f"/v1/topics/{name}", json={"queues": 1})
    if made.is_success:
        assert (await http.post(f"/v1/topics/{name}/messages", content=b"x")).status_code == 201
        assert (await http.delete(f"/v1/topics/{name}")).status_code == 204
    return made.status_code


def names_of(served: Served) -> StoredNames:
    return served.node.store.names


async def fill(http: httpx.AsyncClient, served: Served) -> None:
    """Delete as many topics and groups as are remembered."""
    for number in range(MOST // 2):
        assert await make_and_delete(http, f"t{number}") == 201
        assert (await http.put(f"/v1/groups/g{number}", json={})).status_code == 201
        assert (await http.delete(f"/v1/groups/g{number}")).status_code == 204
    assert names_of(served).deleted_names == MOST


def assert_refused(answer: httpx.Response, bound: str, limit: int) -> None:
    assert answer.status_code == 409, answer.text
    problem = answer.json()
    assert (problem["code"], problem["bound"], problem["limit"]) == ("CONFLICT", bound, limit)
    assert bound in problem["hint"]


async def test_new_names_are_refused_and_remembered_ones_are_not(
    few: Served, tmp_path: Path
) -> None:
    async with client_of(few) as http:
        await fill(http, few)
        for number in range(10 * MOST):
            assert await make_and_delete(http, f"new{number}") == 409
        for _ in range(3):
            for number in range(MOST // 2):
                assert await make_and_delete(http, f"t{number}") == 201
        assert names_of(few).deleted_names == MOST
        assert (await http.put("/v1/topics/t0", json={"queues": 1})).status_code == 201
        assert names_of(few).deleted_names == MOST - 1
        assert (await http.put("/v1/groups/another", json={})).status_code == 201


async def test_positive_control_without_a_bound_every_name_is_remembered(tmp_path: Path) -> None:
    async with served_node(tmp_path, Limits()) as served, client_of(served) as http:
        for number in range(3 * MOST):
            assert await make_and_delete(http, f"new{number}") == 201
        assert names_of(served).deleted_names == 3 * MOST


@pytest.mark.parametrize(("method", "path", "body"), MAKERS)
async def test_by_no_way_a_new_name_comes_in(
    few: Served, method: str, path: str, body: dict[str, Any]
) -> None:
    async with client_of(few) as http:
        await fill(http, few)
        refused = await http.request(method, path.format("new"), **body)
        assert_refused(refused, "deleted_names_max", MOST)
        if method == "POST" and "messages:receive" not in path:
            assert refused.json()["outcome"] == "not_stored"
        known = "g0" if "/groups/" in path else "t0"
        assert (await http.request(method, path.format(known), **body)).is_success
        missing = await http.patch("/v1/topics/new", json={"queues": 1})
        assert missing.status_code == 404
        illegal = await http.put("/v1/topics/a.b", json={})
        assert illegal.status_code == 400
    assert "new" not in few.node.metadata.snapshot.topics
    assert "new" not in few.node.metadata.snapshot.groups


@pytest.mark.parametrize(("method", "path", "body"), USES)
async def test_nor_that_of_retries(
    few: Served, method: str, path: str, body: dict[str, Any]
) -> None:
    async with client_of(few) as http:
        assert (await http.put("/v1/groups/mine", json={})).status_code == 201
        await fill(http, few)
        refused = await http.request(method, path.format("mine"), **body)
        assert_refused(refused, "deleted_names_max", MOST)


async def test_retries_of_deleted_subscriptions_are_counted_until_they_begin_again(
    few: Served,
) -> None:
    async with client_of(few) as http:
        assert (await http.put("/v1/groups/g", json=AT_ONCE)).status_code == 201
        receive = "/v1/topics/orders/groups/g/messages:receive"
        for count in (1, 2):
            await http.post("/v1/topics/orders/messages", content=b"x")
            (got,) = (await http.post(receive, json={"wait": "5s"})).json()["messages"]
            nack = {"nacks": [{"receipt_handle": got["receipt_handle"]}]}
            nacked = await http.post(receive.replace("receive", "settle"), json=nack)
            assert nacked.is_success, nacked.text
            (again,) = (await http.post(receive, json={"wait": "5s"})).json()["messages"]
            assert again["delivery_attempt"] == 2
            assert names_of(few).deleted_names == 0
            gone = await http.delete("/v1/groups/g/offsets/orders")
            assert gone.is_success, gone.text
            assert (names_of(few).deleted_names, count) == (1, count)


async def test_queues_of_deleted_topics_have_a_bound_of_their_own(tmp_path: Path) -> None:
    async with served_node(tmp_path, FEW_QUEUES) as served, client_of(served) as http:
        for number in range(MOST - 1):
            assert await make_and_delete(http, f"t{number}") == 201
        assert (await http.put("/v1/topics/wide", json={"queues": 8})).status_code == 201
        messages = [{"text": "x", "queue_id": number} for number in range(8)]
        for message in messages:
            queue_id = message.pop("queue_id")
            sent = await http.post(f"/v1/topics/wide/messages?queue_id={queue_id}", content=b"x")
            assert sent.status_code == 201, sent.text
        assert (await http.delete("/v1/topics/wide")).status_code == 204
        assert names_of(served).deleted_queues == MOST - 1 + 8
        for name, queues in (("new", 1), ("t0", 2), ("wide", 9)):
            refused = await http.put(f"/v1/topics/{name}", json={"queues": queues})
            assert_refused(refused, "deleted_queues_max", MOST)
        # with fewer queues than it had, it keeps the others
        assert (await http.put("/v1/topics/wide", json={"queues": 1})).status_code == 201
        assert_refused(
            await http.put("/v1/topics/new", json={"queues": 1}), "deleted_queues_max", MOST
        )
        assert_refused(
            await http.patch("/v1/topics/wide", json={"queues": 9}), "deleted_queues_max", MOST
        )
        assert (await http.patch("/v1/topics/wide", json={"queues": 8})).status_code == 200
        assert (await http.put("/v1/topics/new", json={"queues": 1})).status_code == 201


async def test_what_is_remembered_outlives_the_node(tmp_path: Path) -> None:
    async with served_node(tmp_path, FEW) as served, client_of(served) as http:
        await fill(http, served)
        before = names_of(served).deleted_queues
    async with served_node(tmp_path, FEW) as served, client_of(served) as http:
        assert names_of(served).deleted_names == MOST
        assert names_of(served).deleted_queues == before == MOST // 2
        assert await make_and_delete(http, "new") == 409
        assert await make_and_delete(http, "t0") == 201
