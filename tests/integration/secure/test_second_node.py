"""What was changed elsewhere in the same database is in force on a node within two seconds, also in
requests that wait and in streams. On both engines.

Elsewhere is another connection to the metadata, as a second node or a command has it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from app.cluster import ClusterConfig, Metadata
from app.domain.access.accounts import PrincipalSettings
from app.domain.access.actions import Action
from app.domain.access.policies import Effect, Policy, Subject, SubjectKind, read_pattern
from app.domain.limits import Limits
from app.domain.positions import FlushMode
from app.runtime.system_clock import SystemClock
from tests.support.clients.wire import Served, served_node
from tests.support.metadata.databases import Databases
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

WITHIN_S = 20
"""Ten times what is promised, for a machine that does much else; the requests wait for 50 s."""
RECEIVE = "/v1/topics/orders/groups/g/messages:receive?wait=50s"
STREAM = "/v1/topics/orders/stream?duration=50s"

Change = Callable[[Metadata], Awaitable[object]]


class Pair:
    def __init__(self, server: Served, other: Metadata, http: httpx.AsyncClient) -> None:
        self.server = server
        self.other = other
        self.http = http


@pytest.fixture
async def pair(databases: Databases, tmp_path: Path) -> AsyncIterator[Pair]:
    (tmp_path / "data").mkdir()
    url = databases.migrated()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            served_node(tmp_path / "data", Limits(), database_url=url)
        )
        other = await Metadata.open(ClusterConfig(url, FlushMode.SYNC), SystemClock())
        stack.push_async_callback(other.close)
        await other.principals.make_first()
        settings = PrincipalSettings(("consumer", "producer"))
        key = (await other.principals.create("ann", settings, None)).text
        http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}",
            headers={"authorization": f"Bearer {key}"},
            timeout=60,
        )
        made = Pair(server, other, await stack.enter_async_context(http))
        await until(lambda: "ann" in server.node.metadata.principals.keyring.principals)
        yield made


async def revoke(other: Metadata) -> None:
    await other.principals.revoke("ann")


async def deny(other: Metadata) -> None:
    who = Subject(SubjectKind.PRINCIPAL, "ann")
    pattern = (read_pattern("topic:orders"),)
    await other.policies.put(Policy("no", who, Effect.DENY, frozenset({Action.SUB}), pattern))


async def disable(other: Metadata) -> None:
    settings = PrincipalSettings(("consumer", "producer"), is_disabled=True)
    await other.principals.put("ann", settings)


@pytest.mark.parametrize(
    ("change", "status"), [(revoke, 401), (deny, 403), (disable, 403)], ids=["key", "deny", "off"]
)
async def test_what_waits_ends_within_two_seconds(pair: Pair, change: Change, status: int) -> None:
    waits = asyncio.ensure_future(pair.http.post(RECEIVE))
    streams = asyncio.ensure_future(pair.http.get(STREAM))
    broker = pair.server.node.broker
    await until(lambda: broker.long_polls.count >= 2)
    await change(pair.other)
    began_s = time.monotonic()
    answer = await waits
    said = (await streams).text
    assert time.monotonic() - began_s < WITHIN_S
    assert answer.status_code == status
    assert '"reason":"access_ended"' in said
    now = await pair.http.post("/v1/topics/orders/groups/g/messages:receive")
    assert now.status_code == status
