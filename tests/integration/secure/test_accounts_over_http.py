"""Principals, keys and policies over HTTP, held against the rows that the database has then.

Three teams, each with a key that HTTP gave it; what was refused has written nothing.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.domain.limits import Limits
from tests.support.clients.wire import Served, served_node
from tests.support.metadata.databases import sync_engine
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

TEAMS = ("red", "green", "blue")


class Cluster:
    """A closed node, its administrator, and its database."""

    def __init__(self, server: Served, admin: httpx.AsyncClient, stack: AsyncExitStack) -> None:
        self.server = server
        self.admin = admin
        self._stack = stack

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What the database has."""
        engine = sync_engine(f"sqlite:///{self.server.node.config.data_dir / 'metadata.db'}")
        with engine.connect() as connection:
            found = connection.execute(text(f"SELECT * FROM {table}")).mappings().all()
        engine.dispose()
        return [dict(row) for row in found]

    def row(self, table: str, **at: str) -> dict[str, Any]:
        [(name, value)] = at.items()
        [found] = [row for row in self.rows(table) if row[name] == value]
        return found

    async def client(self, key: str) -> httpx.AsyncClient:
        """Somebody with this key."""
        headers = {"authorization": f"Bearer {key}"}
        made = httpx.AsyncClient(base_url=self.admin.base_url, headers=headers, timeout=60)
        return await self._stack.enter_async_context(made)

    async def member(self, name: str, **settings: Any) -> httpx.AsyncClient:
        """A new principal, by HTTP alone."""
        made = await self.admin.put(f"/v1/principals/{name}", json=settings)
        assert made.status_code == 201, made.text
        key = await self.admin.post(f"/v1/principals/{name}/keys")
        assert (key.status_code, key.headers["cache-control"]) == (201, "no-store")
        return await self.client(key.json()["key"])

    async def team(self, name: str) -> httpx.AsyncClient:
        resources = [f"{kind}:{name}-*" for kind in ("topic", "group", "producer")]
        for topic in (f"{name}-in", f"{name}-out"):
            made = await self.admin.put(f"/v1/topics/{topic}", json={"queues": 1})
            assert made.status_code == 201
        return await self.member(name, roles=["producer", "consumer"], resources=resources)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    (tmp_path / "data").mkdir()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(served_node(tmp_path / "data", Limits()))
        principals = server.node.metadata.principals
        key = (await principals.make_first()).text
        await principals.refresh()
        admin = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}",
            headers={"authorization": f"Bearer {key}"},
            timeout=60,
        )
        yield Cluster(server, await stack.enter_async_context(admin), stack)


async def test_a_principal_is_what_the_database_says(cluster: Cluster) -> None:
    body = {"roles": ["viewer"], "resources": ["topic:orders-*", "group:g"], "namespace": "eu"}
    made = await cluster.admin.put("/v1/principals/ann", json=body)
    assert made.status_code == 201
    row = cluster.row("principals", name="ann")
    assert json.loads(row["roles"]) == ["viewer"]
    assert json.loads(row["patterns"]) == ["topic:orders-*", "group:g"]
    assert (row["namespace"], bool(row["disabled"])) == ("eu", False)
    assert made.json()["version"] == row["version"]
    assert made.headers["etag"] == f'"{row["version"]}"'
    same = await cluster.admin.put("/v1/principals/ann", json=body)
    assert (same.status_code, same.json()["version"]) == (200, row["version"])
    assert cluster.row("principals", name="ann") == row
    tried = await cluster.admin.put("/v1/principals/ann?dry_run=true", json={"roles": ["admin"]})
    assert (tried.json()["roles"], tried.json()["dry_run"]) == (["admin"], True)
    assert cluster.row("principals", name="ann") == row
    late = await cluster.admin.put(
        "/v1/principals/ann", json={"roles": ["admin"]}, headers={"if-match": '"1"'}
    )
    assert late.status_code == 412
    assert cluster.row("principals", name="ann") == row
    assert (await cluster.admin.get("/v1/principals/ann")).json()["roles"] == ["viewer"]
    assert (await cluster.admin.delete("/v1/principals/ann")).status_code == 204
    assert [each["name"] for each in cluster.rows("principals")] == ["admin"]
    assert (await cluster.admin.delete("/v1/principals/ann")).status_code == 404


async def test_a_key_is_kept_as_its_digest_and_gone_at_once(cluster: Cluster) -> None:
    await cluster.admin.put("/v1/principals/ann", json={"roles": ["viewer"]})
    keys = [
        (await cluster.admin.post("/v1/principals/ann/keys", json=body)).json()
        for body in ({}, {"expires": "90d"})
    ]
    third = await cluster.admin.post("/v1/principals/ann/keys")
    assert (third.status_code, third.json()["code"]) == (409, "CONFLICT")
    for key in keys:
        row = cluster.row("api_keys", key_id=key["id"])
        assert bytes(row["digest"]) == sha256(key["key"].encode()).digest()
        assert (row["principal"], row["expires_ms"]) == ("ann", key["expires_ms"])
        assert key["key"] not in str(cluster.rows("api_keys"))
    listed = (await cluster.admin.get("/v1/principals/ann")).json()["keys"]
    assert {each["id"] for each in listed} == {each["id"] for each in keys}
    ann = await cluster.client(keys[0]["key"])
    assert (await ann.get("/v1/whoami")).json()["principal"] == "ann"
    path = f"/v1/principals/ann/keys/{keys[0]['id']}"
    assert (await cluster.admin.delete(f"{path}?dry_run=true")).status_code == 200
    assert (await ann.get("/v1/whoami")).status_code == 200
    assert (await cluster.admin.delete(path)).status_code == 204
    assert (await ann.get("/v1/whoami")).status_code == 401
    assert [each["key_id"] for each in cluster.rows("api_keys") if each["principal"] == "ann"] == [
        keys[1]["id"]
    ]


async def test_a_policy_counts_from_its_answer_on_and_is_what_the_database_says(
    cluster: Cluster,
) -> None:
    red = await cluster.team("red")
    send = "/v1/topics/green-in/messages"
    assert (await red.post(send, content=b"x")).status_code == 403
    allow = {"subject": "principal:red", "actions": ["PUB"], "resources": ["topic:green-*"]}
    made = await cluster.admin.put("/v1/policies/lent", json=allow)
    assert made.status_code == 201
    assert made.json()["warnings"] == ["topic:green-* matches nothing that there is now"]
    row = cluster.row("policies", name="lent")
    assert (row["subject_kind"], row["subject"], row["effect"]) == ("principal", "red", "ALLOW")
    assert (json.loads(row["actions"]), json.loads(row["patterns"])) == (["PUB"], ["topic:green-*"])
    await cluster.admin.put("/v1/topics/green-in", json={"queues": 1})
    assert (await red.post(send, content=b"x")).status_code == 201
    deny = {**allow, "effect": "DENY", "resources": ["topic:*"], "subject": "role:producer"}
    assert (await cluster.admin.put("/v1/policies/no", json=deny)).status_code == 201
    assert (await red.post(send, content=b"x")).status_code == 403, "a deny wins"
    assert (await red.post("/v1/topics/red-in/messages", content=b"x")).status_code == 403
    asked = {"action": "PUB", "topic": "red-in"}
    said = (await red.get("/v1/whoami", params=asked)).json()
    assert (said["allowed"], said["rule"]) == (False, {"policy": "no", "effect": "DENY"})
    assert (await cluster.admin.delete("/v1/policies/no")).status_code == 204
    assert [each["name"] for each in cluster.rows("policies")] == ["lent"]
    assert (await red.post(send, content=b"x")).status_code == 201


async def test_the_last_administrator_stays_whichever_way_is_tried(cluster: Cluster) -> None:
    me = (await cluster.admin.get("/v1/principals/admin")).json()
    deny = {
        "subject": "role:admin",
        "effect": "DENY",
        "actions": ["ADMIN"],
        "resources": ["cluster"],
    }
    tries = [
        ("DELETE", "/v1/principals/admin", None),
        ("DELETE", f"/v1/principals/admin/keys/{me['keys'][0]['id']}", None),
        ("PUT", "/v1/principals/admin", {"roles": ["viewer"]}),
        ("PUT", "/v1/principals/admin", {"roles": ["admin"], "disabled": True}),
        ("PUT", "/v1/principals/admin", {"roles": ["admin"], "resources": ["topic:x"]}),
        ("PUT", "/v1/principals/admin", {"roles": ["admin"], "namespace": "eu"}),
        ("PUT", "/v1/policies/no", deny),
        ("PUT", "/v1/policies/no", {**deny, "subject": "principal:admin"}),
    ]
    before = [cluster.rows(table) for table in ("principals", "api_keys", "policies")]
    for method, path, body in tries:
        refused = await cluster.admin.request(method, path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT"), path
        assert "administrator" in refused.json()["detail"]
    assert [cluster.rows(table) for table in ("principals", "api_keys", "policies")] == before
    assert (await cluster.admin.get("/v1/principals")).status_code == 200


async def test_what_is_refused_writes_nothing(cluster: Cluster) -> None:
    red = await cluster.team("red")
    before = [cluster.rows(table) for table in ("principals", "api_keys", "policies")]
    for method, path, body in (
        ("PUT", "/v1/principals/red", {"roles": ["admin"]}),
        ("PUT", "/v1/principals/mine", {"roles": ["admin"]}),
        ("POST", "/v1/principals/admin/keys", {}),
        ("POST", "/v1/principals/red/keys", {}),
        ("DELETE", "/v1/principals/admin", None),
        ("PUT", "/v1/policies/mine", {"subject": "principal:red", "actions": ["ADMIN"]}),
        ("GET", "/v1/principals", None),
        ("GET", "/v1/policies", None),
        ("GET", "/v1/audit", None),
    ):
        assert (await red.request(method, path, json=body)).status_code == 403, path
    for path, body in (
        ("/v1/principals/a%20b", {"roles": ["viewer"]}),
        ("/v1/principals/a", {"resources": ["queue:x"]}),
        ("/v1/principals/a", {"resources": ["topic:a*b"]}),
        ("/v1/principals/a", {"role": ["viewer"]}),
        ("/v1/policies/a", {"subject": "red", "actions": ["PUB"], "resources": ["topic:x"]}),
        ("/v1/policies/a", {"subject": "role:x", "actions": ["READ"], "resources": ["topic:x"]}),
        ("/v1/policies/a", {"subject": "role:x", "actions": [], "resources": ["topic:x"]}),
    ):
        assert (await cluster.admin.put(path, json=body)).status_code == 400, body
    assert [cluster.rows(table) for table in ("principals", "api_keys", "policies")] == before


async def test_three_teams_on_one_node_know_nothing_of_each_other(cluster: Cluster) -> None:
    """Sends, receives, receipts, transactions and lists of one with the ids and names of others."""
    clients = {name: await cluster.team(name) for name in TEAMS}
    receipts: dict[str, str] = {}
    transactions: dict[str, str] = {}
    for name, client in clients.items():
        sent = await client.post(f"/v1/topics/{name}-in/messages", content=f"of {name}".encode())
        assert sent.status_code == 201
        path = f"/v1/topics/{name}-in/groups/{name}-g/messages:receive"
        received = (await client.post(path)).json()["messages"]
        assert [each["text"] for each in received] == [f"of {name}"]
        receipts[name] = received[0]["receipt_handle"]
        prepare = {"MQ-Transaction": f"prepare; group={name}-pg"}
        half = await client.post(f"/v1/topics/{name}-in/messages", content=b"?", headers=prepare)
        assert half.status_code == 202
        transactions[name] = half.json()["transaction_id"]
    for name, client in clients.items():
        seen = (await client.get("/v1/topics")).json()["topics"]
        assert {each["name"] for each in seen} == {f"{name}-in", f"{name}-out"}
        groups = (await client.get("/v1/groups")).json()["groups"]
        assert {each["name"] for each in groups} == {f"{name}-g"}
        halves = (await client.get("/v1/transactions")).json()["transactions"]
        assert [each["transaction_id"] for each in halves] == [transactions[name]]
        for other in set(TEAMS) - {name}:
            handle = receipts[other]
            ack = {"acks": [handle], "sends": [{"topic": f"{other}-in", "text": "x"}]}
            own_settle = f"/v1/topics/{name}-in/groups/{name}-g/messages:settle"
            assert (await client.post(own_settle, json=ack)).status_code == 403
            stolen = await client.post(own_settle, json={"acks": [handle]})
            assert stolen.status_code >= 400 or "SETTLED" not in stolen.text.upper()
            assert (await client.delete(f"/v1/receipts/{handle}")).status_code in {400, 404, 410}
            commit = f"/v1/transactions/{transactions[other]}:commit"
            assert (await client.post(commit)).status_code == 404
    for name, client in clients.items():  # nothing of the others was touched
        assert (await client.delete(f"/v1/receipts/{receipts[name]}")).status_code == 204
        assert (
            await client.post(f"/v1/transactions/{transactions[name]}:rollback")
        ).status_code == 200


async def test_a_principal_of_a_namespace_reaches_no_other(cluster: Cluster) -> None:
    for namespace in ("eu", "us"):
        assert (await cluster.admin.put(f"/v1/namespaces/{namespace}")).status_code == 201
        made = await cluster.admin.put(
            "/v1/topics/orders", json={"queues": 1}, headers={"MQ-Namespace": namespace}
        )
        assert made.status_code == 201
    ann = await cluster.member("ann", roles=["producer", "consumer", "operator"], namespace="eu")
    send = "/v1/topics/orders/messages"
    assert (await ann.post(send, content=b"eu")).status_code == 201
    named = await ann.post(send, content=b"eu", headers={"MQ-Namespace": "eu"})
    assert named.status_code == 201
    for other in ("us", "none"):
        by_header = await ann.post(send, content=b"x", headers={"MQ-Namespace": other})
        by_query = await ann.post(f"{send}?namespace={other}", content=b"x")
        for refused in (by_header, by_query):
            assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        listed = await ann.get(f"/v1/topics?namespace={other}")
        assert listed.status_code == 403
    both = await ann.post(f"{send}?namespace=us", content=b"x", headers={"MQ-Namespace": "eu"})
    assert both.status_code == 400
    assert (await ann.post("/v1/topics/us%25orders/messages", content=b"x")).status_code >= 400
    inside = {"subscriptions": [{"topic": "us%orders"}]}
    assert (await ann.put("/v1/groups/g/members/c1", json=inside)).status_code == 400
    assert (await ann.get("/v1/nodes")).status_code == 403, "it runs no nodes"
    topics = (await ann.get("/v1/topics")).json()["topics"]
    assert [(each["name"], each["namespace"]) for each in topics] == [("orders", "eu")]
    stored = {
        name: cluster.server.node.store.bounds(name, 0).max_offset
        for name in ("eu%orders", "us%orders", "orders")
    }
    assert stored == {"eu%orders": 2, "us%orders": 0, "orders": 0}


async def test_an_old_copy_of_the_database_changes_nothing_while_the_node_runs(
    cluster: Cluster,
) -> None:
    ann = await cluster.member("ann", roles=["viewer"])
    await cluster.admin.delete("/v1/principals/ann")
    assert (await ann.get("/v1/whoami")).status_code == 401
    engine = sync_engine(f"sqlite:///{cluster.server.node.config.data_dir / 'metadata.db'}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE access_state SET version = 1"))
    engine.dispose()
    principals = cluster.server.node.metadata.principals
    await until(lambda: principals.regressed_to is not None)
    refused = await cluster.admin.put("/v1/principals/bob", json={"roles": ["viewer"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "POLICY_REGRESSED")
    await until(lambda: cluster.server.node.broker.health.node.policy_problem is not None)
    ready = (await cluster.admin.get("/readyz")).json()
    assert "POLICY_REGRESSED" in {each["code"] for each in ready["degraded"]}
    assert (await ann.get("/v1/whoami")).status_code == 401


async def test_the_lists_of_clients_say_whose_key_each_uses(cluster: Cluster) -> None:
    red = await cluster.team("red")
    sent = await red.post("/v1/topics/red-in/messages", content=b"x", headers={"mq-client-id": "s"})
    assert sent.status_code == 201
    beat = {"subscriptions": [{"topic": "red-out"}], "generation": 0}
    asked = [
        ("POST", "/v1/topics/red-in/groups/red-a/messages:receive", {"client_id": "w"}),
        ("PUT", "/v1/groups/red-b/members/w", beat),
        ("POST", "/v1/groups/red-c/members:poll", {"client_id": "w", **beat}),
    ]
    for method, path, body in asked:
        answer = await red.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
    lists = [f"/v1/groups/red-{group}/clients" for group in "abc"]
    for path in (*lists, "/v1/topics/red-in/producers"):
        [row] = (await cluster.admin.get(path)).json()["clients"]
        assert row["principal"] == "red", path
    [own] = (await cluster.admin.get("/v1/clients/s")).json()["produces"]
    assert own["principal"] == "red"
