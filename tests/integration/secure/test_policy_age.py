"""A node whose metadata database is away: it sends and receives, changes nothing, and is done where
`policy_age_max` says so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from app.domain.limits import POLICY_FRESH_S, Limits
from tests.support.clients.wire import Served, served_node
from tests.support.metadata.databases import sync_engine
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

SEND, TOPIC = "/v1/topics/orders/messages", "/v1/topics/orders"


class Node:
    """A closed node, an administrator, and a database that may be away."""

    def __init__(self, server: Served, http: httpx.AsyncClient) -> None:
        self.server = server
        self.http = http
        self.principals = server.node.metadata.principals
        self.file = server.node.config.data_dir / "metadata.db"

    async def _say(self, statement: str) -> None:
        """In a thread: a transaction of the node, which holds the file, goes on meanwhile."""
        await asyncio.to_thread(self._execute, statement)

    def _execute(self, statement: str) -> None:
        engine = sync_engine(f"sqlite:///{self.file}")
        with engine.begin() as connection:
            connection.execute(text(statement))
        engine.dispose()

    async def lose_database(self, age_s: float) -> None:
        """It does not answer, and has not for so long."""
        await self._say("ALTER TABLE access_state RENAME TO away")
        self.principals.age._seen_s -= age_s

    async def find_database(self) -> None:
        """It answers again."""
        await self._say("ALTER TABLE away RENAME TO access_state")

    async def send(self) -> httpx.Response:
        return await self.http.post(SEND, content=b"x")

    async def change(self) -> httpx.Response:
        return await self.http.put(TOPIC, json={"queues": 2})


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    (tmp_path / "data").mkdir()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            served_node(tmp_path / "data", Limits(), policy_age_max=60)
        )
        principals = server.node.metadata.principals
        key = (await principals.make_first()).text
        await principals.refresh()
        url, headers = f"http://127.0.0.1:{server.port}", {"authorization": f"Bearer {key}"}
        http = httpx.AsyncClient(base_url=url, headers=headers, timeout=60)
        made = Node(server, await stack.enter_async_context(http))
        assert (await made.change()).status_code == 200
        yield made


async def test_sending_goes_on_and_changes_wait(node: Node) -> None:
    await node.lose_database(POLICY_FRESH_S + 1)
    await until(lambda: node.principals.age.is_stale)
    assert (await node.send()).status_code == 201
    refused = await node.change()
    assert (refused.status_code, refused.json()["code"]) == (503, "POLICY_TOO_OLD")
    assert "nothing is changed" in refused.json()["detail"]
    assert "curlew_policy_age_seconds 1" in (await node.http.get("/metrics")).text
    await node.find_database()
    await until(lambda: not node.principals.age.is_stale)
    assert (await node.change()).status_code == 200


async def test_a_node_that_hears_nothing_for_policy_age_max_serves_nobody(node: Node) -> None:
    await node.lose_database(61)
    await until(lambda: node.principals.age.is_over)
    refused = await node.send()
    assert (refused.status_code, refused.json()["code"]) == (503, "POLICY_TOO_OLD")
    assert refused.headers["retry-after"]
    assert refused.json()["retryable"]
    wrong = await node.http.get(TOPIC, headers={"authorization": "Bearer x"})
    assert wrong.status_code == 401
    async with httpx.AsyncClient(base_url=node.http.base_url) as anybody:
        assert (await anybody.get("/healthz")).status_code == 200
        assert (await anybody.get("/readyz")).status_code == 503
    await node.find_database()
    await until(lambda: not node.principals.age.is_over)
    assert (await node.send()).status_code == 201
