"""The quota of requests that wait, over HTTP: of each principal, where the key was shown.

Positive controls: one that is not counted out when its client leaves, one that is counted at the
node that answers, and one that is counted after something was done for it are each seen here.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.http.request_context import RequestContext
from app.domain.limits import Limits
from tests.support.clients.wire import Served, served_node
from tests.support.cluster.closed_cluster import ClosedCluster, closed_cluster
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

MOST = 2
RECEIVE = "/v1/topics/orders/groups/g/messages:receive"
PULL = "/v1/topics/orders/queues/0/messages?offset=0"


@contextlib.asynccontextmanager
async def closed(
    directory: Path, **settings: Any
) -> AsyncIterator[tuple[Served, httpx.AsyncClient]]:
    """A closed node, and an administrator."""
    async with served_node(directory, Limits(), quota_parked_polls=MOST, **settings) as server:
        key = (await server.node.metadata.principals.make_first()).text
        await server.node.metadata.principals.refresh()
        bearer = {"authorization": f"Bearer {key}"}
        url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=url, headers=bearer, timeout=60) as admin:
            yield server, admin


def refused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_REQUESTS"), answer.text
    assert answer.headers["ratelimit-policy"] == (
        f'"principal-parked-polls";q={MOST};qu="concurrent-requests"'
    )
    assert "retry-after" in answer.headers


async def parked(client: httpx.AsyncClient) -> float:
    text = (await client.get("/metrics")).text
    return float(text.split("\ncurlew_parked_polls ")[1].split("\n")[0])


@pytest.fixture(autouse=True)
def _not_muted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are used again at once."""

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr(RequestContext, "mute", nothing)


WAITING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "pull": ("GET", f"{PULL}&wait=50s", {}),
    "pull by a preference": ("GET", PULL, {"headers": {"prefer": "wait=50"}}),
    "receive by its query": ("POST", f"{RECEIVE}?wait=50", {}),
    "receive by its body": ("POST", RECEIVE, {"json": {"wait": "50s"}}),
    "receive by a packed body": (
        *("POST", RECEIVE),
        {"content": b'{"wait":50}', "headers": {"content-encoding": "identity"}},
    ),
    "poll by its body": (
        *("POST", "/v1/groups/h/members:poll"),
        {"json": {"client_id": "c", "subscriptions": [{"topic": "orders"}], "wait": 50}},
    ),
    "poll by a preference": (
        *("POST", "/v1/groups/h/members:poll"),
        {
            "json": {"client_id": "c", "subscriptions": [{"topic": "orders"}]},
            "headers": {"prefer": "wait=50"},
        },
    ),
    "heartbeat": (
        *("PUT", "/v1/groups/k/members/c?wait=50"),
        {"json": {"subscriptions": [{"topic": "orders"}]}},
    ),
    "news": ("GET", "/v1/topics:positions?topics=orders&known=x&wait=50", {}),
    "checks": ("POST", "/v1/producer-groups/pg/transactions:receive?wait=50", {}),
    "request": ("POST", "/v1/topics/orders/messages:request?wait=50", {"content": b"?"}),
}


@pytest.mark.parametrize("what", WAITING)
async def test_each_way_to_wait_counts(tmp_path: Path, what: str) -> None:
    method, path, more = WAITING[what]
    async with closed(tmp_path) as (_, admin):
        tasks = [asyncio.ensure_future(admin.get(f"{PULL}&wait=50")) for _ in range(MOST)]

        async def all_wait() -> bool:
            return await parked(admin) == MOST

        while not await all_wait():
            pass
        refused(await admin.request(method, path, **more))
        for each in tasks:
            each.cancel()
        while await parked(admin):
            pass
        last = asyncio.ensure_future(admin.request(method, path, **more))
        while await parked(admin) != 1 and not last.done():
            pass
        last.cancel()
        assert 'curlew_quota_refusals_total{quota="principal-parked-polls"} 1' in (
            (await admin.get("/metrics")).text
        )


async def test_who_does_not_wait_is_let_in(tmp_path: Path) -> None:
    async with closed(tmp_path) as (_, admin):
        tasks = [asyncio.ensure_future(admin.get(f"{PULL}&wait=50")) for _ in range(MOST)]
        while await parked(admin) < MOST:
            pass
        for answer in (
            await admin.post(RECEIVE),
            await admin.post(RECEIVE, json={"wait": 0}),
            await admin.get(f"{PULL}&wait=0"),
            await admin.post("/v1/topics/orders/messages", content=b"x"),
            await admin.get("/v1/topics"),
        ):
            assert answer.is_success, answer.text
        for each in tasks:
            assert (await each).json()["messages"], "the message has come"
        assert await parked(admin) == 0


async def test_what_is_wrong_with_a_wait_is_said_as_ever(tmp_path: Path) -> None:
    async with closed(tmp_path) as (_, admin):
        for body in (
            *(b'{"wait":"soon"}', b'{"wait":1e9}', b"{", b'{"wait":[]}'),
            *(b'{"wait":"\xff"}', b'{"x":' + b"[" * 100_000),
        ):
            answer = await admin.post(
                RECEIVE, content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 400, answer.text
        assert (await admin.get(f"{PULL}&wait=1&wait=2")).status_code == 400
        assert await parked(admin) == 0


TWICE = {
    "pull": ("GET", f"{PULL}&"),
    "receive": ("POST", f"{RECEIVE}?"),
    "poll": ("POST", "/v1/groups/h/members:poll?"),
    "heartbeat": ("PUT", "/v1/groups/k/members/c?"),
    "news": ("GET", "/v1/topics:positions?topics=orders&known=x&"),
    "checks": ("POST", "/v1/producer-groups/pg/transactions:receive?"),
    "request": ("POST", "/v1/topics/orders/messages:request?"),
}


@pytest.mark.parametrize("what", TWICE)
async def test_a_wait_that_is_given_twice_or_is_damaged_is_refused(
    tmp_path: Path, what: str
) -> None:
    """Nobody waits by a value that the quota did not see."""
    method, path = TWICE[what]
    body = {"client_id": "c", "subscriptions": [{"topic": "orders"}]} if what != "pull" else None
    async with closed(tmp_path) as (_, admin):
        for query in ("wait=50&wait=50", "wait=50&wait=%ff&wait=50", "wait=50&x=%ff"):
            answer = await admin.request(method, path + query, json=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST"), answer.text
        assert await parked(admin) == 0


async def test_one_too_many_has_done_nothing(tmp_path: Path) -> None:
    """Its offsets are not committed, and nothing is leased or stored."""
    async with closed(tmp_path) as (_, admin):
        poll = "/v1/groups/h/members:poll"
        asked: dict[str, Any] = {"client_id": "c", "subscriptions": [{"topic": "orders"}]}
        tasks = [asyncio.ensure_future(admin.get(f"{PULL}&wait=50")) for _ in range(MOST)]
        while await parked(admin) < MOST:
            pass
        refused(await admin.post(poll, json={**asked, "wait": "5s"}))
        assert (await admin.get("/v1/groups/h")).status_code == 404, "it was made"
        refused(await admin.post("/v1/topics/orders/messages:request", content=b"?"))
        assert (await admin.get("/v1/topics/orders/stats")).json()["depth"] == 0
        for each in tasks:
            each.cancel()


async def test_others_have_their_own(tmp_path: Path) -> None:
    async with closed(tmp_path) as (server, admin):
        made = {"roles": ["consumer"], "resources": ["topic:orders"]}
        assert (await admin.put("/v1/principals/ann", json=made)).is_success
        key = (await admin.post("/v1/principals/ann/keys")).json()["key"]
        tasks = [asyncio.ensure_future(admin.get(f"{PULL}&wait=50")) for _ in range(MOST)]
        while await parked(admin) < MOST:
            pass
        bearer = {"authorization": f"Bearer {key}"}
        other = asyncio.ensure_future(admin.get(f"{PULL}&wait=50", headers=bearer))
        while await parked(admin) < MOST + 1:
            assert not other.done(), other.result().text
        for each in (*tasks, other):
            each.cancel()
        await until(lambda: server.node.broker.waiting_count == 0)


async def test_an_end_of_the_right_gives_the_place_back(tmp_path: Path) -> None:
    async with closed(tmp_path) as (_, admin):
        made = {"roles": ["consumer"], "resources": ["topic:orders"]}
        assert (await admin.put("/v1/principals/ann", json=made)).is_success
        key = (await admin.post("/v1/principals/ann/keys")).json()["key"]
        bearer = {"authorization": f"Bearer {key}"}
        waiting = asyncio.ensure_future(admin.get(f"{PULL}&wait=50", headers=bearer))
        while await parked(admin) < 1:
            assert not waiting.done(), waiting.result().text
        assert (await admin.delete("/v1/principals/ann")).status_code == 204
        assert (await waiting).status_code == 401
        assert await parked(admin) == 0


# --- in a cluster


@pytest.fixture
async def cluster(
    tmp_path: Path, postgres_databases: PostgresDatabases
) -> AsyncIterator[ClosedCluster]:
    url = postgres_databases.migrated()
    async with closed_cluster(tmp_path, url, quota_parked_polls=MOST) as opened:
        yield opened


CARRIED = {
    "pull": ("GET", "/v1/topics/alpha-in/queues/{}/messages?offset=0&wait=50", None),
    "receive": ("POST", "/v1/topics/alpha-in/groups/alpha-g/messages:receive", {"wait": 50}),
    "request": ("POST", "/v1/topics/alpha-in/messages:request?queue_id={}&wait=50", {"a": 1}),
}


@pytest.mark.postgres
async def test_a_wait_that_is_given_twice_is_refused_over_shards(cluster: ClosedCluster) -> None:
    for method, path, body in (
        ("GET", "/v1/topics:positions?topics=alpha-in&known=x&", None),
        ("POST", "/v1/producer-groups/alpha-p/transactions:receive?", None),
        ("PUT", "/v1/groups/alpha-g/members/c?", {"subscriptions": [{"topic": "alpha-in"}]}),
    ):
        for query in ("wait=50&wait=50", "wait=%ff"):
            answer = await cluster.ask(0, "root", method, path + query, json=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST"), answer.text


@pytest.mark.postgres
@pytest.mark.parametrize("what", CARRIED)
async def test_it_counts_where_the_key_was_shown(cluster: ClosedCluster, what: str) -> None:
    """As many as may be through one node, all answered by others, and as many through the next."""
    method, path, body = CARRIED[what]
    content = None if body is None else json.dumps(body)

    async def one(node: int, queue: int) -> httpx.Response:
        headers = {"content-type": "application/json"}
        return await cluster.ask(
            node, "alpha", method, path.format(queue), content=content, headers=headers
        )

    async def count(node: int) -> int:
        text = (await cluster.ask(node, "root", "GET", "/metrics")).text
        return int(text.split("\ncurlew_parked_polls ")[1].split("\n")[0])

    tasks = []
    for node, queue in ((0, 2), (1, 2)):
        tasks += [asyncio.ensure_future(one(node, queue)) for _ in range(MOST)]
        while await count(node) < MOST:
            assert not any(each.done() for each in tasks)
        answer = await one(node, queue)
        assert answer.headers.get("ratelimit-policy", "").startswith('"principal-parked-polls"')
        assert answer.status_code == 429, answer.text
    assert await count(2) == 0, "it only answers"
    third = asyncio.ensure_future(one(2, 2))
    while await count(2) < 1:
        assert not third.done(), third.result().text
    for each in (*tasks, third):
        each.cancel()
    for node in range(3):
        while await count(node):
            pass
