"""Who may hand a shard over by the pages, and what the page of a node says of replicas."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx
import pytest

from app.web.serving.api import Answer, Api
from tests.support.nodes.closed import ClosedNode, closed_node, key_of

WAY: Final = "/ui/nodes/shards/orders/hand-over"
REPLICA: Final = {
    "url": None,
    "in_sync": True,
    "connected": True,
    "lag_bytes": 0,
    "lag_ms": 0,
    "log_end": 900,
    "out_of_sync_ms": None,
    "why": None,
}
SHARD: Final[dict[str, Any]] = {
    "name": "orders",
    "shard_id": "00000001",
    "leader": "n1",
    "leader_url": None,
    "epoch": 7,
    "queues": 4,
    "takes": "all",
    "answers": True,
    "target_replicas": 3,
    "min_in_sync": 2,
    "high_watermark": 900,
    "replicas": [
        {**REPLICA, "node_id": "n1", "connected": None, "lag_bytes": None, "lag_ms": None},
        {**REPLICA, "node_id": "n2"},
        {
            **REPLICA,
            "node_id": "n3",
            "in_sync": False,
            "lag_bytes": 700,
            "lag_ms": 61_000,
            "log_end": 200,
            "out_of_sync_ms": 58_000,
            "why": "700 bytes are missing",
        },
    ],
}


def with_replicas(
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[httpx.AsyncClient, list[str]], Awaitable[None]],
    *,
    is_closed: bool = False,
) -> None:
    """A node whose API knows a shard of three replicas; `use` gets what was asked to change."""
    changes: list[str] = []
    ask = Api.ask

    async def answered(api: Api, method: str, where: str, **more: Any) -> Answer:
        if where == "/v1/cluster":
            return Answer(200, {}, json.dumps({"nodes": [], "shards": [SHARD]}).encode())
        if method != "GET":
            changes.append(where)
        return await ask(api, method, where, **more)

    async def run(node: ClosedNode) -> None:
        transport = httpx.ASGITransport(node.app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost:8710"
        ) as client:
            await use(client, changes)

    async def with_node() -> None:
        async with closed_node(is_closed=is_closed, with_pages=True) as node:
            await run(node)

    monkeypatch.setattr(Api, "ask", answered)
    asyncio.run(with_node())


async def sign_in(client: httpx.AsyncClient, who: str) -> None:
    answer = await client.post("/ui/sign-in", data={"key": key_of(who).decode()})
    assert answer.status_code == 303


def test_the_page_says_who_is_behind_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(client: httpx.AsyncClient, _: list[str]) -> None:
        text = (await client.get("/ui/nodes")).text
        for said in ("2 of 3 in sync, at least 2 for sends", "bytes are missing", "1 min 1 s"):
            assert said in text
        assert "confirmed up to byte 900" in text
        assert WAY.rpartition("/nodes")[2] in text
        plan = (await client.get(WAY)).text
        assert plan.count('type="radio"') == 3
        assert plan.count(" disabled>") == 1
        zh = (await client.get("/ui/nodes?lang=zh")).text
        assert "缺少 700 字节" in zh

    with_replicas(monkeypatch, use)


def test_who_may_not_has_no_button_and_a_made_up_form_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use(client: httpx.AsyncClient, changes: list[str]) -> None:
        await sign_in(client, "viewer")
        text = (await client.get("/ui/nodes")).text
        assert "Replicas of orders" in text
        assert "hand-over" not in text
        plan = (await client.get(WAY)).text
        assert "You may not hand it over" in plan
        assert 'name="node"' not in plan
        changes.clear()
        answer = await client.post(WAY, data={"node": "n2"})
        assert answer.status_code == 403
        assert changes == ["/v1/shards/orders/hand-over"]  # the API decides

    with_replicas(monkeypatch, use, is_closed=True)


def test_a_form_of_another_page_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(client: httpx.AsyncClient, changes: list[str]) -> None:
        await sign_in(client, "admin")
        changes.clear()
        headers = {"Sec-Fetch-Site": "cross-site", "Origin": "http://elsewhere"}
        answer = await client.post(WAY, data={"node": "n2"}, headers=headers)
        assert answer.status_code == 403
        assert changes == []

    with_replicas(monkeypatch, use, is_closed=True)
