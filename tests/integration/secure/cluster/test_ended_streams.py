"""A stream that another node answers ends by the same event as one of the node that was asked.

Positive controls: a stream that is cut off, one that ends twice, and a cursor that was not passed
on are each seen here.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.api.http.request_context import RequestContext
from app.api.relay.envelope import RELAYED
from tests.support.cluster.closed_cluster import ClosedCluster, closed_cluster
from tests.support.metadata.databases import PostgresDatabases

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

EVENTS, LINES = "text/event-stream", "application/x-ndjson"


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def cluster(
    postgres_databases: PostgresDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClosedCluster]:
    directory, url = tmp_path_factory.mktemp("closed"), postgres_databases.migrated()
    async with closed_cluster(directory, url) as made:
        yield made


async def new_key(cluster: ClosedCluster) -> tuple[str, str]:
    """One more of alpha's, which is known everywhere, and its path."""
    made = (await cluster.ask(0, "root", "POST", "/v1/principals/alpha/keys", json={})).json()
    await cluster.refresh()
    return made["key"], f"/v1/principals/alpha/keys/{made['id']}"


async def stream(
    cluster: ClosedCluster, key: str, queue: int | None, accept: str, seen: "asyncio.Queue[str]"
) -> list[str]:
    """The lines of a stream through the first node, until it ends properly; None: of all queues."""
    path = "/v1/topics/alpha-in/stream?duration=50s&offset=0"
    if queue is not None:
        path += f"&queue_id={queue}"
    headers = {"authorization": f"Bearer {key}", "accept": accept}
    lines = []
    async with cluster.nodes[0].client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            lines.append(line)
            seen.put_nowait(line)
    return lines


def end_of(lines: list[str], accept: str) -> tuple[list[str], dict[str, Any]]:
    """What came before the one end, and what that said."""
    if accept == LINES:
        ends = [each for each in lines if each.startswith('{"end":')]
        assert ends == [lines[-1]]
        return lines[:-1], json.loads(lines[-1])["end"]
    assert lines.count("event: end") == 1
    at = lines.index("event: end")
    name, value = lines[at + 1].split(": ")
    end = json.loads(lines[at + 2].removeprefix("data: "))
    assert (name, value) == ("id", end["cursor"])
    assert lines[at + 3 :] == [""]
    return lines[:at], end


@pytest.mark.parametrize("accept", [EVENTS, LINES])
async def test_it_ends_by_the_same_event(cluster: ClosedCluster, accept: str) -> None:
    for queue in (0, 2):
        path = f"/v1/topics/alpha-in/messages?queue_id={queue}"
        assert (await cluster.ask(0, "alpha", "POST", path, content=b"x")).status_code == 201
    key, place = await new_key(cluster)
    seen: dict[int | None, asyncio.Queue[str]] = {queue: asyncio.Queue() for queue in (0, 2, None)}
    tasks = {
        queue: asyncio.ensure_future(stream(cluster, key, queue, accept, lines))
        for queue, lines in seen.items()
    }
    for lines in seen.values():
        while '"message_id"' not in await asyncio.wait_for(lines.get(), 20):
            pass
    assert (await cluster.ask(0, "root", "DELETE", place)).status_code == 204
    ends: dict[int | None, dict[str, Any]] = {}
    for followed, task in tasks.items():
        before, end = end_of(await asyncio.wait_for(task, 20), accept)
        told = [each for each in before if end["cursor"] in each]
        assert told, "the cursor was told before"
        ends[followed] = end
    assert ends[0]["reason"] == "access_ended"
    assert ends[0]["error"]["code"] == "UNAUTHORIZED"
    for end in ends.values():
        assert end.pop("cursor")
    assert ends[2] == ends[None] == ends[0]


async def test_a_reader_that_takes_nothing_holds_no_end_up(
    cluster: ClosedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, is_held = RequestContext.go_on, asyncio.Event()

    async def take_nothing(exchange: RequestContext, part: bytes) -> None:
        if RELAYED not in exchange.scope and not part:
            is_held.set()
            await asyncio.Event().wait()
        await go_on(exchange, part)

    monkeypatch.setattr(RequestContext, "go_on", take_nothing)
    key, place = await new_key(cluster)
    task = asyncio.ensure_future(stream(cluster, key, 2, EVENTS, asyncio.Queue()))
    await asyncio.wait_for(is_held.wait(), 20)
    assert (await cluster.ask(0, "root", "DELETE", place)).status_code == 204
    lines = await asyncio.wait_for(task, 20)
    assert lines[0] == "event: end"
    assert '"reason":"access_ended"' in lines[1]
