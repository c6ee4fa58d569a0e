"""Namespaces: a request in one sees and touches nothing of another, whatever it asks for.

Three namespaces have one of everything under the same names: the default one, `eu` and `us`. Each
operation of the document is asked for in `eu`, with the ids of `eu` and with those of `us`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from app.api.document.openapi import build_document
from app.cluster.metadata.schema.tables import metadata as tables
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.names import namespace_of, stored_name
from tests.support.clients.frames import read_frame, request_frame
from tests.support.clients.wire import Served, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

PATHS: Json = build_document()["paths"]
NAMESPACES = ("", "eu", "us")
OWN, FOREIGN = "eu", "us"
SEND = "/v1/topics/orders/messages"
SCHEDULE = {"cron": "0 3 * * *", "topic": "orders", "message": {"text": "x"}}
UNHURRIED = Limits(transaction_check_after_ms=3_600_000, member_lease_ms=3_600_000)
"""Nothing happens by itself that would be written down."""


def mark_of(namespace: str) -> str:
    """A word that stands in what this namespace has, and nowhere else."""
    return f"secret-of-{namespace or 'nobody'}"


@dataclass
class World:
    """A node with three namespaces."""

    http: httpx.AsyncClient
    served: Served
    seen: dict[str, dict[str, str]] = field(default_factory=dict)
    """Ids and handles, by namespace."""

    async def call(
        self, namespace: str, method: str, path: str, body: object = None, **headers: str
    ) -> Any:
        answer = await self.http.request(
            method, path, json=body, headers={"MQ-Namespace": namespace, **headers}
        )
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    async def foreign_state(self) -> Json:
        """All that SQL, the store and the node's memory hold of other namespaces than `OWN`."""
        broker = self.served.node.broker
        await broker.offset_cache.write()
        await until(lambda: broker.store.status().pending_bytes == 0)
        snapshot = self.served.node.metadata.snapshot
        names = [each for each in snapshot.topics if namespace_of(each) != OWN]
        groups = [each for each in snapshot.groups if namespace_of(each) != OWN]
        others = [each for each in NAMESPACES if each != OWN]
        return {
            "sql": await self._rows(),
            "bounds": {
                name: [broker.store.bounds(name, queue) for queue in range(2)]
                for topic in (*names, *(f"%DLQ%{group}" for group in groups))
                for name in (topic,)
            },
            "facts": {group: broker.groups.facts(group) for group in groups},
            "jobs": [
                (each.operation_id, each.is_cancelled)
                for namespace in others
                for each in broker.jobs.newest_first(namespace)
            ],
            "transactions": [
                (each.transaction_id, each.state)
                for namespace in others
                for each in broker.transactions.listed(namespace=namespace)
            ],
            "producers": [
                broker.producers.state(stored_name(namespace, "loader")) for namespace in others
            ],
        }

    async def _rows(self) -> dict[str, list[str]]:
        kept = [each for each in tables.sorted_tables if each.name not in NO_NAMES]
        async with self.served.node.metadata._database.reading() as connection:
            rows = {
                table.name: sorted(
                    str(tuple(row)) for row in await connection.execute(select(table))
                )
                for table in kept
            }
        return {
            table: [row for row in found if f"'{OWN}%" not in row] for table, found in rows.items()
        }


NO_NAMES = {"nodes", "metadata_version", "stored_settings", "audit_entries", "audit_heads"}
"""Tables of the cluster: signs of life, the one version of all, settings, who changed what."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with served_node(tmp_path, UNHURRIED) as served:
        url = f"http://127.0.0.1:{served.port}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            made = World(http, served)
            for namespace in NAMESPACES:
                if namespace:
                    await made.call("", "PUT", f"/v1/namespaces/{namespace}")
                await fill(made, namespace)
            yield made


async def fill(world: World, namespace: str) -> None:
    """One of everything. Nothing is traced: the log rests then."""
    mark = mark_of(namespace)
    seen = world.seen[namespace] = {}

    async def call(method: str, path: str, body: object = None) -> Any:
        return await world.call(namespace, method, path, body)

    await call("PUT", "/v1/topics/orders", {"trace": True, "queues": 2})
    sent = [
        await world.http.post(
            SEND, content=f"{mark} {number}", headers={"MQ-Namespace": namespace, "MQ-Keys": "k"}
        )
        for number in range(24)
    ]
    seen["message_id"] = sent[-1].json()["message_id"]
    for name in ("recall_handle", "move"):
        later = await world.http.post(
            SEND, content=mark, headers={"MQ-Namespace": namespace, "MQ-Delay": "2h"}
        )
        seen[name] = later.json()["recall_handle"]
    half = await world.http.post(
        SEND,
        content=mark,
        headers={
            "MQ-Namespace": namespace,
            "MQ-Transaction": "prepare",
            "MQ-Producer-Group": "payer",
        },
    )
    seen["transaction_id"] = half.json()["transaction_id"]
    loader = {"MQ-Producer-Id": "loader", "MQ-Producer-Epoch": "1", "MQ-Producer-Seq": "0"}
    await world.http.post(SEND, content=mark, headers={"MQ-Namespace": namespace, **loader})
    await call("PUT", "/v1/groups/inorder", {"order": "fifo", "on_exhausted": "park"})
    await call("PATCH", "/v1/groups/inorder", {"max_attempts": 1})
    billing = "/v1/topics/orders/groups/billing/messages"
    for group, action, count in (("billing", "dead_letters", 4), ("inorder", "nacks", 1)):
        base = f"/v1/topics/orders/groups/{group}/messages"
        asked = {"max_messages": count, "client_id": mark}
        received = (await call("POST", f"{base}:receive", asked))["messages"]
        handles = [{"receipt_handle": each["receipt_handle"], "reason": mark} for each in received]
        await call("POST", f"{base}:settle", {action: handles})
    received = await call("POST", f"{billing}:receive", {"max_messages": 12, "invisible": "1h"})
    seen["handles"] = " ".join(each["receipt_handle"] for each in received["messages"])
    beat = {"subscriptions": [{"topic": "orders"}], "generation": 0}
    await call("PUT", f"/v1/groups/readers/members/{mark}", beat)
    await call("PUT", "/v1/groups/done/offsets/orders", {"offsets": [{"queue_id": 0, "offset": 3}]})
    await call("PUT", f"/v1/groups/done/snapshots/{mark}")
    seen["mark"] = mark
    await call("PUT", "/v1/schedules/nightly", {**SCHEDULE, "message": {"text": mark}})
    selection = {"offsets": [0, 1], "rate_per_s": 0.001}
    running = await call("POST", "/v1/groups/billing/dlq/messages:redrive", selection)
    seen["operation_id"] = running["operation_id"]
    job = world.served.node.broker.jobs.find(running["operation_id"], namespace)
    await until(lambda: job.done == 1)
    [parked] = (await call("GET", "/v1/groups/inorder/parked"))["parked"]
    seen["parked"] = json.dumps(
        {name: parked[name] for name in ("topic", "queue_id", "queue_offset")}
    )


OFFSETS = {"offsets": [{"queue_id": 0, "offset": 4}]}
QUEUES = {"queues": [{"topic": "orders", "queue_id": 0}]}
HANDLES = {"receipt_handles": ["{handle}"]}
BODIES: dict[str, object] = {
    "put_topic": {"retention": "1h"},
    "patch_topic": {"retention": "2h"},
    "put_group": {"max_attempts": 7},
    "patch_group": {"max_attempts": 8},
    "put_schedule": SCHEDULE,
    "patch_schedule": {"paused": True},
    "send_message": {"text": "x"},
    "send_batch": {"messages": [{"text": "x"}]},
    "request_reply": {"text": "x"},
    "reply_to_request": {"text": "x"},
    "receive_messages": {"max_messages": 1, "client_id": "{mark}"},
    "settle_messages": {"acks": ["{handle}"]},
    "ack_messages": HANDLES,
    "nack_messages": HANDLES,
    "extend_messages": {**HANDLES, "invisible": "1h"},
    "dead_letter_messages": HANDLES,
    "change_receipt": {"action": "extend", "invisible": "1h"},
    "commit_group_offsets": OFFSETS,
    "reset_group_offsets": {"to": "earliest"},
    "reset_all_group_offsets": {"to": "latest"},
    "restore_snapshot": {},
    "put_member": {"subscriptions": [{"topic": "orders"}], "generation": 0},
    "poll_queues": {
        "client_id": "{mark}",
        "subscriptions": [{"topic": "orders"}],
        "generation": 0,
        "commits": [{"topic": "orders", "queue_id": 0, "offset": 1}],
    },
    "lock_queues": {"client_id": "{mark}", "generation": 1, **QUEUES},
    "unlock_queues": {"client_id": "{mark}", **QUEUES},
    "release_parked": "{parked}",
    "redrive_dead_letters": {"offsets": [2]},
    "purge_dead_letters": {"offsets": [3]},
    "move_scheduled_message": {"delay": "3h"},
    "plan_epoch": {"producer": "loader", "epoch": 1, "topic": "orders"},
    "seal_producer": {"producer": "loader", "epoch": 1},
}
QUERIES: dict[str, dict[str, str]] = {
    "pull_messages": {"offset": "0"},
    "get_positions": {"topics": "orders,nothing"},
    "get_routes": {"topics": "orders,nothing"},
    "get_offsets_of_topics": {"topics": "orders", "at": "earliest"},
    "get_topic_offsets": {"at": "earliest"},
    "get_delivery": {"group": "billing"},
    "stream_topic": {"duration": "50ms", "offset": "0"},
    "stream_group": {"duration": "50ms"},
    "request_reply": {"wait": "0.05"},
}
NAMES = {
    "topic": "orders",
    "group": "billing",
    "queue": "0",
    "producer": "loader",
    "producer_group": "payer",
    "namespace": OWN,
}
GROUPS = {
    **dict.fromkeys(("release_parked", "list_parked"), "inorder"),
    **dict.fromkeys(
        (
            *("put_member", "delete_member", "list_members", "list_rebalances"),
            *("lock_queues", "unlock_queues", "poll_queues"),
        ),
        "readers",
    ),
    **dict.fromkeys(
        (
            *("put_snapshot", "list_snapshots", "get_snapshot", "restore_snapshot"),
            *("delete_snapshot", "commit_group_offsets", "reset_group_offsets"),
            *("delete_group_offsets", "get_group_offsets", "list_group_offsets"),
            "reset_all_group_offsets",
        ),
        "done",
    ),
}
LAST = ("delete_group", "delete_schedule", "delete_topic", "delete_namespace")
CLUSTER = {
    "get_metrics",
    "list_nodes",
    "get_config",
    "patch_config",
    "list_namespaces",
    "get_readiness",
}
"""Operations on the cluster: they tell of all namespaces to whoever may ask."""
OF_THE_CLUSTER = ("/v1/principals", "/v1/policies", "/v1/roles", "/v1/audit", "/v1/shards")
"""Paths of what is of no namespace: who may do what, and who leads."""
REFUSED = {
    "reply_to_request": 404,  # nobody waits
    "request_reply": 504,  # nobody replies
    "put_snapshot": 409,  # it is there
    "delete_namespace": 409,  # it is not empty
    "lock_queues": 409,  # of another generation
    "unlock_queues": 409,
    "rollback_transaction": 409,  # it was committed
    "deliver_scheduled_message": 404,  # it was cancelled
}
"""What is refused, though it is about what there is."""


def operations() -> Iterator[tuple[str, str, str]]:
    """Id, method and path of every operation; those that delete come last."""
    found = [
        (operation["operationId"], method.upper(), path)
        for path, methods in PATHS.items()
        for method, operation in methods.items()
        if not path.startswith(OF_THE_CLUSTER)
    ]
    return iter(sorted(found, key=lambda each: (_turn(each[0]), each[2])))


def _turn(operation_id: str) -> int:
    if operation_id in LAST:
        return LAST.index(operation_id) + 2
    return int(operation_id.startswith(("delete_", "cancel_", "ack_receipt", "deliver_")))


def example_of(operation_id: str) -> object:
    """A body from the document, for operations that have none here."""
    for methods in PATHS.values():
        for operation in methods.values():
            if operation["operationId"] == operation_id and "requestBody" in operation:
                for shape in operation["requestBody"]["content"].values():
                    for example in shape.get("examples", {}).values():
                        return example["value"]
    return None


def request_of(
    operation_id: str, path: str, seen: dict[str, str]
) -> tuple[str, object, dict[str, str]]:
    """Path, body and query of an operation on what there is, with the ids in `seen`."""
    handle, _, seen["handles"] = seen["handles"].partition(" ")
    names = {**NAMES, **seen, "handle": handle, "client_id": seen["mark"], "correlation_id": "0-0"}
    names["group"] = GROUPS.get(operation_id, "billing")
    names["name"] = "nightly" if path.startswith("/v1/schedules") else seen["mark"]
    body = BODIES.get(operation_id, example_of(operation_id))
    if body == "{parked}":
        body = {**json.loads(seen["parked"]), "action": "skip"}
    text = json.dumps(body)
    text = text.replace("{mark}", seen["mark"]).replace("{handle}", handle)
    return path.format(**names), json.loads(text), QUERIES.get(operation_id, {})


async def ask(
    world: World, namespace: str, seen: dict[str, str], operation: tuple[str, str, str]
) -> httpx.Response:
    """Each request with a handle takes one that was not used before."""
    operation_id, method, template = operation
    if "{handle}" not in template + json.dumps(BODIES.get(operation_id)):
        seen = {**seen, "handles": "-"}
    path, body, query = request_of(operation_id, template, seen)
    headers = {"MQ-Namespace": namespace}
    if operation_id.startswith(("send_message", "request_reply", "reply")):
        headers["content-type"] = "application/vnd.curlew+json"
    content = None if body is None else json.dumps(body)
    if content is not None and "content-type" not in headers:
        headers["content-type"] = "application/json"
    return await world.http.request(method, path, content=content, headers=headers, params=query)


def check_answer(operation_id: str, answer: httpx.Response) -> None:
    """Nothing in it is of another namespace, and no name is shown as it is stored."""
    told = answer.text + str(answer.headers)
    if operation_id in CLUSTER:
        return
    for namespace in NAMESPACES:
        if namespace != OWN:
            assert mark_of(namespace) not in told, f"{operation_id}: {told}"
        if namespace:
            assert f"{namespace}%" not in told, f"{operation_id}: {told}"


async def test_every_operation_keeps_to_the_namespace_of_its_request(world: World) -> None:
    before = await world.foreign_state()
    refused = []
    for operation in operations():
        operation_id = operation[0]
        answer = await ask(world, OWN, world.seen[OWN], operation)
        if answer.status_code >= 400 and answer.status_code != REFUSED.get(operation_id):
            refused.append(f"{operation_id}: {answer.status_code} {answer.text}")
        check_answer(operation_id, answer)
        assert await world.foreign_state() == before, operation_id
    assert not refused, "\n".join(refused) + "say what these need, or that they are refused"


BY_ID = {"message_id", "recall_handle", "transaction_id", "operation_id", "handle"}


async def test_ids_of_another_namespace_name_nothing(world: World) -> None:
    before = await world.foreign_state()
    tried = set()
    for operation in operations():
        operation_id, _, path = operation
        by_id = {name for name in BY_ID if f"{{{name}}}" in path}
        by_body = "{handle}" in json.dumps(BODIES.get(operation_id))
        if not (by_id or by_body):
            continue
        tried |= by_id
        answer = await ask(world, OWN, world.seen[FOREIGN], operation)
        assert answer.status_code in {400, 404, 410}, f"{operation_id}: {answer.text}"
        check_answer(operation_id, answer)
        assert await world.foreign_state() == before, operation_id
    assert tried == BY_ID


async def test_a_name_may_not_carry_a_namespace(world: World) -> None:
    for path in (
        "/v1/topics/us%25orders",
        "/v1/groups/us%25billing/lag",
        "/v1/producers/us%25loader",
    ):
        for namespace in ("", OWN):
            answer = await world.http.get(path, headers={"MQ-Namespace": namespace})
            assert answer.status_code == 400, answer.text
    pulled = await world.http.get("/v1/topics/us%25orders/queues/0/messages?offset=0")
    assert pulled.json()["code"] == "ILLEGAL_TOPIC"
    body = {"producer": "us%loader", "epoch": 2}
    assert (await world.http.post("/v1/producers:seal", json=body)).status_code == 400


async def test_what_a_namespace_has_is_told_without_its_name(world: World) -> None:
    listed = await world.call(OWN, "GET", "/v1/topics")
    assert [(each["name"], each["namespace"]) for each in listed["topics"]] == [("orders", OWN)]
    default = await world.call("", "GET", "/v1/topics")
    assert [(each["name"], each["namespace"]) for each in default["topics"]] == [("orders", "")]
    schedules = await world.call(OWN, "GET", "/v1/schedules?page_size=1")
    assert [each["name"] for each in schedules["schedules"]] == ["nightly"]
    assert schedules["next_page_token"] is None
    by_query = await world.http.get("/v1/groups", params={"namespace": OWN})
    assert {each["name"] for each in by_query.json()["groups"]} == {
        *("billing", "done", "inorder", "readers")
    }


async def test_unknown_and_contradictory_namespaces_are_refused(world: World) -> None:
    unknown = await world.http.post(SEND, content=b"x", headers={"MQ-Namespace": "asia"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "NAMESPACE_NOT_FOUND")
    assert unknown.json()["outcome"] == "not_stored"
    two = await world.http.get("/v1/topics?namespace=us", headers={"MQ-Namespace": OWN})
    assert two.status_code == 400
    long = await world.http.put("/v1/topics/" + "t" * 125, headers={"MQ-Namespace": OWN})
    assert long.status_code == 400
    assert "126" in long.json()["hint"]
    fits = await world.http.put("/v1/topics/" + "t" * 124, headers={"MQ-Namespace": OWN})
    assert fits.status_code == 201


async def test_namespaces_are_made_read_and_deleted_when_empty(world: World) -> None:
    tried = await world.http.put("/v1/namespaces/asia", params={"dry_run": "true"})
    assert (tried.status_code, tried.json()["dry_run"]) == (200, True)
    assert (await world.http.get("/v1/namespaces/asia")).status_code == 404
    made = await world.http.put("/v1/namespaces/asia", headers={"If-None-Match": "*"})
    assert made.status_code == 201
    again = await world.http.put("/v1/namespaces/asia", headers={"If-None-Match": "*"})
    assert again.status_code == 412
    assert (await world.http.put("/v1/namespaces/asia")).status_code == 200
    assert (await world.http.put("/v1/namespaces/a.b")).status_code == 400
    listed = (await world.http.get("/v1/namespaces")).json()["namespaces"]
    assert [each["namespace"] for each in listed] == ["asia", "eu", "us"]
    full = await world.http.delete("/v1/namespaces/eu")
    assert (full.status_code, full.json()["code"]) == (409, "NAMESPACE_NOT_EMPTY")
    assert full.json()["topics"] == 1
    assert (await world.http.delete("/v1/namespaces/asia")).status_code == 204
    sent = await world.http.post(SEND, content=b"x", headers={"MQ-Namespace": "asia"})
    assert sent.status_code == 404


async def test_what_a_body_names_is_of_the_namespace_too(world: World) -> None:
    """Targets of a redrive and of sends with acks, and what a frame says."""
    before = await world.foreign_state()
    redrive = "/v1/groups/billing/dlq/messages:redrive"
    await world.call(OWN, "PUT", "/v1/topics/again", {"queues": 1})
    moved = {"offsets": [2], "to_topic": "again"}
    plan = await world.call(OWN, "POST", redrive + "?dry_run=true", moved)
    assert plan["by_target"] == {"again": 1}
    for to_topic, status in (("again", 404), ("eu%again", 400)):
        refused = await world.http.post(
            redrive, json={**moved, "to_topic": to_topic}, headers={"MQ-Namespace": FOREIGN}
        )
        assert refused.status_code == status, refused.text
    handle = world.seen[OWN]["handles"].split(" ")[0]
    settled = await world.call(
        OWN,
        "POST",
        "/v1/topics/orders/groups/billing/messages:settle",
        {"acks": [handle], "sends": [{"topic": "again", "text": "next"}]},
    )
    assert settled["sends"][0]["status"] == 201
    view = await world.call(OWN, "GET", "/v1/topics/again/queues/0/messages?offset=0")
    assert [each["topic"] for each in view["messages"]] == ["again"]
    assert await world.foreign_state() == before


async def test_records_of_a_frame_name_the_topic_as_it_is_stored(world: World) -> None:
    headers = {"MQ-Namespace": OWN, "content-type": "application/vnd.curlew.batch"}
    batch = f"{SEND}:batch?queue_id=1"
    plain = request_frame([Message(b"x")], "orders")
    refused = await world.http.post(batch, content=plain, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "MALFORMED_FRAME")
    sent = await world.http.post(
        batch, content=request_frame([Message(b"framed")], f"{OWN}%orders"), headers=headers
    )
    assert sent.status_code == 200, sent.text
    assert sent.json()["topic"] == "orders"
    pulled = await world.http.get(
        "/v1/topics/orders/queues/1/messages?tail=1",
        headers={"MQ-Namespace": OWN, "accept": "application/vnd.curlew.batch"},
    )
    [message] = read_frame(pulled.content)
    assert (message.topic, message.body) == (f"{OWN}%orders", b"framed")


async def test_a_reply_goes_to_a_request_of_its_namespace(world: World) -> None:
    own = {"MQ-Namespace": OWN}
    await world.call(OWN, "PUT", "/v1/topics/asked", {"queues": 1})
    request = "/v1/topics/asked/messages:request?wait=30"
    async with asyncio.TaskGroup() as asking:
        asked = asking.create_task(world.http.post(request, content=b"question", headers=own))
        received = await world.call(
            OWN, "POST", "/v1/topics/asked/groups/answerers/messages:receive", {"wait": "30s"}
        )
        reply = f"/v1/replies/{received['messages'][0]['correlation_id']}"
        for namespace in ("", FOREIGN):
            stray = await world.http.post(reply, content=b"no", headers={"MQ-Namespace": namespace})
            assert stray.status_code in {404, 410}, stray.text
        assert (await world.http.post(reply, content=b"yes", headers=own)).status_code == 200
    answer = asked.result().json()
    assert (answer["topic"], answer["reply"]["text"]) == ("asked", "yes")
