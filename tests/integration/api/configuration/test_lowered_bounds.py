"""Bounds that are lowered under what a request has that names nothing; and sizes of pages."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.domain.limits import Limits
from tests.support.clients.wire import Served, served_node

pytestmark = pytest.mark.anyio

LISTINGS = (
    *("/v1/topics", "/v1/groups", "/v1/namespaces", "/v1/schedules", "/v1/transactions"),
    *("/v1/principals", "/v1/policies", "/v1/audit", "/v1/trace"),
    *("/v1/topics/orders/messages", "/v1/topics/orders/scheduled", "/v1/topics/orders/trace"),
    *("/v1/topics/orders/producers", "/v1/groups/billing/clients"),
    "/v1/groups/billing/dlq/messages",
)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, Limits()) as node:
        yield node


@pytest.fixture
async def http(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://127.0.0.1:{served.port}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        assert (await client.put("/v1/groups/billing")).status_code == 201
        yield client


async def lower(http: httpx.AsyncClient, **bounds: int) -> None:
    changed = await http.patch("/v1/config", json={f"limit_{k}": v for k, v in bounds.items()})
    assert changed.status_code == 200, changed.text


async def test_listings_that_name_no_size_have_smaller_pages(http: httpx.AsyncClient) -> None:
    for name in ("one", "two", "three"):
        assert (await http.put(f"/v1/topics/{name}")).status_code == 201
    await lower(http, page_size_max=2)
    for path in LISTINGS:
        answer = await http.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
    first = (await http.get("/v1/topics")).json()
    assert len(first["topics"]) == 2
    assert first["next_page_token"]


async def test_new_groups_have_what_of_the_usual_retries_is_allowed(
    http: httpx.AsyncClient,
) -> None:
    await lower(http, retry_delays_max=3, delay_ms_max=20_000)
    made = await http.put("/v1/groups/shipping")
    assert made.status_code == 201, made.text
    assert made.json()["retry_policy"] == {"customized": ["10s", "20s", "20s"]}
    received = await http.post("/v1/topics/orders/groups/by-use/messages:receive")
    assert received.status_code == 200, received.text
    changed = await http.patch(
        "/v1/groups/billing",
        json={"invisible": "40s"},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert changed.status_code == 200, changed.text  # what an older group has stays


async def test_a_stream_and_a_request_that_name_nothing_keep_to_the_bounds(
    http: httpx.AsyncClient,
) -> None:
    await lower(http, stream_credit_max=2, wait_seconds_max=1)
    path = "/v1/topics/orders/groups/billing/stream"
    async with http.stream("GET", path, params={"duration": "10ms"}) as stream:
        assert stream.status_code == 200, await stream.aread()
    asked = await http.post("/v1/topics/orders/messages:request", content=b"x")
    assert (asked.status_code, asked.json()["code"]) == (504, "REPLY_TIMEOUT"), (
        "after a second, not ten"
    )


@pytest.mark.parametrize("size", ["0", "-1", "1001", "10010", "x", "1.5", "", "9" * 30])
async def test_a_size_that_no_page_has_is_the_same_error_everywhere(
    http: httpx.AsyncClient, size: str
) -> None:
    details = set()
    for path in LISTINGS:
        answer = await http.get(path, params={"page_size": size})
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (400, "ILLEGAL_PAGE"), path
        assert problem["parameter"] == "page_size", path
        details.add(problem["detail"].replace("to 200", "to 1000"))  # of traces
    assert len(details) == 1


@pytest.mark.parametrize("rate", [True, "1", "0.5", [0.5]])
async def test_a_share_of_traces_is_a_number(http: httpx.AsyncClient, rate: object) -> None:
    refused = await http.put("/v1/topics/orders", json={"trace": "sampled", "trace_rate": rate})
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["pointer"] == "/trace_rate"
    taken = await http.put("/v1/topics/orders", json={"trace": "sampled", "trace_rate": 1})
    assert taken.json()["trace_rate"] == 1
    multiplied = {"exponential": {"initial": "1s", "max": "5s", "multiplier": rate}}
    refused = await http.put("/v1/groups/billing", json={"retry_policy": multiplied})
    assert refused.status_code == 400


async def test_bounds_that_contradict_each_other_are_refused(http: httpx.AsyncClient) -> None:
    shortest = {"limit_transaction_check_after_ms_min": 43_200_001}
    refused = await http.patch("/v1/config", json=shortest)
    assert (refused.status_code, refused.json()["code"]) == (400, "ILLEGAL_SETTING")
    assert "limit_transaction_check_after_ms_max" in refused.json()["detail"]
    longest = {"limit_transaction_check_after_ms_max": 2_000}
    refused = await http.patch("/v1/config", json=longest)
    assert (refused.status_code, refused.json()["code"]) == (400, "ILLEGAL_SETTING")
    await lower(http, transaction_check_after_ms_max=2_000, transaction_check_after_ms=2_000)
    half = {"MQ-Transaction": "prepare; group=shop"}
    prepared = await http.post("/v1/topics/orders/messages", content=b"x", headers=half)
    assert prepared.status_code == 202, prepared.text
