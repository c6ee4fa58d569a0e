"""Settings that change while a node runs, over HTTP and from another node."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.cluster import ClusterConfig, Metadata
from app.config import load_config
from app.domain.limits import Limits
from app.node import Node
from app.runtime.system_clock import SystemClock
from tests.support.clients.wire import Served, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, Limits()) as node:
        yield node


@pytest.fixture
async def http(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://127.0.0.1:{served.port}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


async def setting(http: httpx.AsyncClient, name: str) -> tuple[object, str]:
    found = (await http.get("/v1/config")).json()["settings"]
    [row] = [each for each in found if each["name"] == name]
    return row["value"], row["source"]


async def test_changed_settings_count_at_once(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    read = await http.get("/v1/config")
    change = {"limit_topics_max": 1, "auto_create_groups": False, "access_log": True}
    made = await http.patch("/v1/config", json=change, headers={"If-Match": read.headers["ETag"]})
    assert made.status_code == 200, made.text
    assert made.json()["changed"]["limit_topics_max"] == [10_000, 1]
    assert made.headers["ETag"] == f'"{made.json()["version"]}"' != read.headers["ETag"]
    assert await setting(http, "limit_topics_max") == (1, "stored")
    assert (await http.get("/v1/limits")).json()["topics_max"] == 1
    assert (await http.put("/v1/topics/one")).status_code == 409, "orders is there already"
    unknown = await http.post("/v1/topics/orders/groups/new/messages:receive")
    assert unknown.status_code == 404
    assert any(each.name.endswith("access_log") for each in caplog.records)
    back = {"limit_topics_max": None, "auto_create_groups": None, "access_log": None}
    assert (await http.patch("/v1/config", json=back)).status_code == 200
    assert (await http.put("/v1/topics/one")).status_code == 201
    assert await setting(http, "limit_topics_max") == (10_000, "default")


async def test_the_interval_of_syncs_and_the_age_of_trails_follow(
    http: httpx.AsyncClient, served: Served
) -> None:
    change = {"flush_interval_ms": 20, "trace_hours": 5, "auto_create_topics": True}
    assert (await http.patch("/v1/config", json=change)).status_code == 200
    assert served.node.leading._flushing._interval_s == 0.02
    assert served.node.running.config.trace_hours == 5
    assert (await http.post("/v1/topics/made/messages", content=b"x")).status_code == 201


async def test_another_nodes_change_is_seen(http: httpx.AsyncClient, served: Served) -> None:
    config = served.node.config
    other = await Metadata.open(ClusterConfig(config.database), SystemClock())
    try:
        await other.change_settings({"limit_groups_max": "7", "log_level": "error"})
        await until(lambda: served.node.limits.groups_max == 7)
    finally:
        await other.close()
    assert await setting(http, "log_level") == ("error", "stored")


async def test_what_cannot_be_changed_is_refused(http: httpx.AsyncClient) -> None:
    fixed = await http.patch("/v1/config", json={"segment_mib": 8})
    assert (fixed.status_code, fixed.json()["code"]) == (409, "SETTING_FIXED")
    assert fixed.json()["errors"][0]["pointer"] == "/segment_mib"
    typo = await http.patch("/v1/config", json={"log_levle": "debug"})
    assert typo.status_code == 400
    assert "log_level" in typo.json()["hint"]
    wrong = await http.patch("/v1/config", json={"trace_hours": 1.5})
    assert wrong.status_code == 400
    late = await http.patch("/v1/config", json={"trace_hours": 5}, headers={"If-Match": '"99"'})
    assert late.status_code == 412
    assert await setting(http, "trace_hours") == (72, "default")


async def test_a_stored_value_outlives_the_node_and_yields_to_its_flags(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_node(tmp_path, Limits()) as served:
        config = served.node.config
        await served.node.metadata.change_settings({"trace_hours": "9", "log_level": "error"})
    given = load_config(
        {}, {"data_dir": str(config.data_dir), "segment_mib": "8", "log_level": "warning"}
    )
    node = await Node.open(given)
    try:
        assert node.running.config.trace_hours == 9
        assert node.running.config.log_level == "warning"
    finally:
        await node.close()
    lines = [each.getMessage() for each in caplog.records if "overruled" in each.getMessage()]
    assert lines == ["the stored setting log_level = error is overruled by the flag: warning"]
