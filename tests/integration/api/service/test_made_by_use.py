"""Topics made by a send and groups made by their first use: where both have a bound, and where
nobody makes a group by using it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.limits import Limits
from tests.support.clients.wire import Served, served_node

pytestmark = pytest.mark.anyio

FEW = Limits(topics_max=3, groups_max=3)
USES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/topics/orders/groups/{}/messages:receive", {"json": {"wait": 0}}),
    ("GET", "/v1/topics/orders/groups/{}/stream?duration=1ms", {}),
    ("PUT", "/v1/groups/{}/offsets/orders", {"json": {"offsets": [{"queue_id": 0, "offset": 0}]}}),
    ("PUT", "/v1/groups/{}/members/c1", {"json": {"subscriptions": [{"topic": "orders"}]}}),
]


def client_of(served: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", timeout=60)


@pytest.fixture
async def bounded(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, FEW, auto_create_topics=True) as served:
        yield served


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, Limits(), auto_create_groups=False) as served:
        yield served


@pytest.mark.parametrize(
    ("path", "request_of"),
    [
        ("messages", {"content": b"x"}),
        ("messages:batch", {"json": {"messages": [{"text": "x"}]}}),
        ("messages?delay=5s", {"content": b"x"}),
        ("messages", {"content": b"x", "headers": {"Idempotency-Key": "k"}}),
        ("messages", {"content": b"x", "headers": {"MQ-Transaction": "prepare; group=shop"}}),
    ],
)
async def test_a_send_to_one_topic_too_many_is_not_stored(
    bounded: Served, path: str, request_of: dict[str, Any]
) -> None:
    async with client_of(bounded) as http:
        for number in range(2):
            made = await http.post(f"/v1/topics/t{number}/messages", content=b"x")
            assert made.status_code == 201
        for number in range(2, 12):
            refused = await http.post(f"/v1/topics/t{number}/{path}", **request_of)
            assert refused.status_code == 409, refused.text
            problem = refused.json()
            assert problem["code"] == "CONFLICT"
            assert (problem["limit"], problem["bound"]) == (3, "topics_max")
            assert problem["outcome"] == "not_stored"
            assert "delete topics" in problem["hint"]
        assert (await http.post("/v1/topics/t0/messages", content=b"x")).status_code == 201
    assert sorted(bounded.node.metadata.snapshot.topics) == ["orders", "t0", "t1"]


@pytest.mark.parametrize(("method", "path", "body"), USES)
async def test_one_group_too_many_is_not_made_by_its_use(
    bounded: Served, method: str, path: str, body: dict[str, Any]
) -> None:
    async with client_of(bounded) as http:
        for number in range(3):
            used = await http.request(method, path.format(f"g{number}"), **body)
            assert used.is_success, used.text
        for number in range(3, 13):
            refused = await http.request(method, path.format(f"g{number}"), **body)
            assert refused.status_code == 409, refused.text
            assert (refused.json()["limit"], refused.json()["bound"]) == (3, "groups_max")
        assert (await http.request(method, path.format("g0"), **body)).is_success
    assert sorted(bounded.node.metadata.snapshot.groups) == ["g0", "g1", "g2"]


@pytest.mark.parametrize(("method", "path", "body"), USES)
async def test_where_that_is_off_an_unknown_group_is_not_found(
    strict: Served, method: str, path: str, body: dict[str, Any]
) -> None:
    async with client_of(strict) as http:
        refused = await http.request(method, path.format("billing"), **body)
        assert refused.status_code == 404, refused.text
        assert refused.json()["code"] == "CONSUMER_GROUP_NOT_FOUND"
        assert "PUT /v1/groups/billing" in refused.json()["hint"]
        assert not strict.node.metadata.snapshot.groups
        await http.put("/v1/groups/billing", json={})
        used = await http.request(method, path.format("billing"), **body)
        assert used.is_success, used.text
        similar = await http.request(method, path.format("billin"), **body)
        assert "did you mean 'billing'?" in similar.json()["hint"]
    assert sorted(strict.node.metadata.snapshot.groups) == ["billing"]


async def test_where_that_is_off_a_commit_of_a_member_and_a_trial_find_no_group(
    strict: Served,
) -> None:
    async with client_of(strict) as http:
        offsets = {"offsets": [{"queue_id": 0, "offset": 0}]}
        for query, more in (("", {"client_id": "c", "generation": 1}), ("?dry_run=true", {})):
            refused = await http.put(
                f"/v1/groups/billing/offsets/orders{query}", json=offsets | more
            )
            assert refused.json()["code"] == "CONSUMER_GROUP_NOT_FOUND", refused.text
    assert not strict.node.metadata.snapshot.groups


async def test_the_bounds_are_served(bounded: Served) -> None:
    async with client_of(bounded) as http:
        limits = (await http.get("/v1/limits")).json()
    assert (limits["topics_max"], limits["groups_max"]) == (3, 3)
    assert {"queues_max", "nodes_kept_max"} <= limits.keys()
