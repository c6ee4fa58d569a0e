"""Any node takes any request that is aimed at one queue, one handle or one message."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.domain.errors import MetadataUnavailable
from app.domain.message import Message, queue_for_sharding_key
from tests.support.clients.frames import request_frame
from tests.support.cluster.three_nodes import PATIENCE_S, ServedNode
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEND = "/v1/topics/orders/messages"
KEYS = {queue_for_sharding_key(key, 3): key for key in ("k0", "k1", "k2", "k3", "k4", "k5", "k6")}
"""A sharding key for each queue."""


def problem(answer: httpx.Response) -> dict[str, object]:
    found: dict[str, object] = answer.json()
    return found


async def test_a_keyed_send_goes_to_its_queue_through_any_node(nodes: list[ServedNode]) -> None:
    for each in nodes:
        for queue_id, key in KEYS.items():
            headers = {"MQ-Sharding-Key": key}
            sent = await each.client.post(
                "/v1/topics/orders/messages", content=b"x", headers=headers
            )
            assert (sent.status_code, sent.json()["queue_id"]) == (201, queue_id)
    for queue_id in KEYS:
        found = await nodes[0].client.get(f"/v1/topics/orders/queues/{queue_id}/messages?offset=0")
        assert len(found.json()["messages"]) == 3


@pytest.mark.parametrize("kind", ["query", "header", "envelope"])
async def test_a_queue_may_be_named_in_each_way(nodes: list[ServedNode], kind: str) -> None:
    for queue_id in range(3):
        path, headers, body = "/v1/topics/orders/messages", {}, b"x"
        if kind == "query":
            path += f"?queue_id={queue_id}"
        elif kind == "header":
            headers = {"MQ-Queue-Id": str(queue_id)}
        else:
            headers = {"Content-Type": "application/vnd.curlew+json"}
            body = json.dumps({"body": "x", "queue_id": queue_id}).encode()
        sent = await nodes[1].client.post(path, content=body, headers=headers)
        assert sent.status_code == 201, sent.text
        assert sent.json()["queue_id"] == queue_id


async def test_unkeyed_sends_stay_where_the_topic_has_queues(nodes: list[ServedNode]) -> None:
    sent = [await each.client.post("/v1/topics/orders/messages", content=b"x") for each in nodes]
    assert [each.json()["queue_id"] for each in sent] == [0, 1, 2]


async def test_a_node_without_queues_of_a_topic_sends_to_those_that_have_some(
    nodes: list[ServedNode],
) -> None:
    await nodes[0].client.put("/v1/topics/bills", json={"queues": 2})
    await nodes[2].node.metadata.refresh()
    topic = nodes[2].node.metadata.snapshot.topics["bills"]
    away = next(each for each in nodes if each.name not in topic.shards)
    for each in nodes:
        await each.node.metadata.refresh()
    sent = [await away.client.post("/v1/topics/bills/messages", content=b"x") for _ in range(4)]
    assert {each.json()["queue_id"] for each in sent} == {0, 1}


@pytest.mark.parametrize("kib", [64, 512, 2_048, 2_049, 3_000])
async def test_large_bodies_go_and_come_in_parts(nodes: list[ServedNode], kib: int) -> None:
    """Up to 2 MiB are read to one piece, larger ones go as they come."""
    body = bytes(range(256)) * 4 * kib
    path = "/v1/topics/orders/messages?queue_id=2"
    sent = await nodes[0].client.post(path, content=body)
    assert sent.status_code == 201, sent.text
    message_id = sent.json()["message_id"]
    found = await nodes[1].client.get(f"/v1/topics/orders/messages/{message_id}?format=raw")
    assert found.content == body


async def test_frames_go_to_the_queue_that_they_name(nodes: list[ServedNode]) -> None:
    headers = {"Content-Type": "application/vnd.curlew.batch"}
    path = "/v1/topics/orders/messages:batch?queue_id=1"
    sent = await nodes[2].client.post(
        path, content=request_frame([Message(b"x")] * 50, "orders"), headers=headers
    )
    assert sent.status_code in (200, 201), sent.text
    assert (sent.json()["queue_id"], sent.json()["count"]) == (1, 50)


async def test_a_pull_waits_at_the_node_of_its_queue(nodes: list[ServedNode]) -> None:
    path = "/v1/topics/orders/queues/2/messages?offset=0&wait=20"
    waiting = asyncio.ensure_future(nodes[0].client.get(path))
    await until(lambda: nodes[2].node.broker.waiting_count == 1)
    await nodes[2].client.post("/v1/topics/orders/messages", content=b"late")
    assert len((await waiting).json()["messages"]) == 1


async def test_a_client_that_leaves_ends_the_wait_at_the_other_node(
    nodes: list[ServedNode],
) -> None:
    path = "/v1/topics/orders/queues/2/messages?offset=0&wait=20"
    waiting = asyncio.ensure_future(nodes[0].client.get(path))
    await until(lambda: nodes[2].node.broker.waiting_count == 1)
    waiting.cancel()
    await until(lambda: nodes[2].node.broker.waiting_count == 0)


async def test_handles_settle_through_any_node(nodes: list[ServedNode]) -> None:
    first, second, third = (each.client for each in nodes)
    for _ in range(2):
        await third.post("/v1/topics/orders/messages", content=b"x")
    received = await third.post("/v1/topics/orders/groups/billing/messages:receive?max_messages=2")
    one, two = (each["receipt_handle"] for each in received.json()["messages"])
    assert (await first.delete(f"/v1/receipts/{one}")).status_code == 204
    acked = await second.post(
        "/v1/topics/orders/groups/billing/messages:ack", json={"receipt_handles": [two]}
    )
    assert acked.status_code == 200, acked.text


async def test_transactions_and_delayed_messages_are_found_by_their_ids(
    nodes: list[ServedNode],
) -> None:
    first, second, third = (each.client for each in nodes)
    await first.put("/v1/topics/payments", json={"queues": 3, "type": "transaction"})
    await first.put("/v1/topics/reminders", json={"queues": 3, "type": "delay"})
    headers = {"MQ-Transaction": "prepare; group=shop", "MQ-Queue-Id": "2"}
    prepared = await first.post("/v1/topics/payments/messages", content=b"x", headers=headers)
    assert prepared.status_code == 202, prepared.text
    path = f"/v1/transactions/{prepared.json()['transaction_id']}"
    assert (await second.post(f"{path}:commit")).status_code == 200
    assert (await first.get(path)).json()["state"] == "COMMITTED"
    delayed = await first.post(
        "/v1/topics/reminders/messages?queue_id=2&delay=1h", content=b"later"
    )
    assert delayed.status_code == 201, delayed.text
    path = f"/v1/topics/reminders/scheduled/{delayed.json()['recall_handle']}"
    assert (await second.get(path)).status_code == 200
    assert (await second.delete(path)).status_code == 204
    assert (await third.get(path)).status_code in (404, 409)


async def test_an_idempotency_key_has_one_home(nodes: list[ServedNode]) -> None:
    headers = {"Idempotency-Key": '"order-17"'}
    path = "/v1/topics/orders/messages"
    sent = [await each.client.post(path, content=b"x", headers=headers) for each in nodes]
    assert [each.status_code for each in sent] == [201, 200, 200]
    assert len({each.json()["message_id"] for each in sent}) == 1


async def test_who_wants_no_relay_is_told_the_leader(nodes: list[ServedNode]) -> None:
    headers = {"MQ-Forward": "no", "MQ-Queue-Id": "2"}
    answer = await nodes[0].client.post("/v1/topics/orders/messages", content=b"x", headers=headers)
    assert answer.status_code == 421
    found = problem(answer)
    leader = str(nodes[2].client.base_url).rstrip("/")
    assert (found["code"], found["leader"], found["outcome"]) == (
        *("NOT_LEADER", leader),
        "not_stored",
    )
    assert found["epoch"] == nodes[2].node.broker.epochs.current
    sent = await nodes[2].client.post("/v1/topics/orders/messages", content=b"x", headers=headers)
    assert sent.status_code == 201


async def test_what_clients_write_into_the_envelope_does_not_count(
    nodes: list[ServedNode],
) -> None:
    headers = {"Curlew-Principal": "root", "Curlew-Versions": "9 9", "MQ-Queue-Id": "2"}
    sent = await nodes[0].client.post("/v1/topics/orders/messages", content=b"x", headers=headers)
    assert sent.status_code == 201


async def test_a_topic_that_was_just_made_is_known_where_a_request_is_carried(
    nodes: list[ServedNode],
) -> None:
    first = nodes[0].client
    await first.put("/v1/topics/fresh", json={"queues": 3})
    for queue_id in range(3):
        sent = await first.post(f"/v1/topics/fresh/messages?queue_id={queue_id}", content=b"x")
        assert sent.status_code == 201, sent.text


@pytest.mark.parametrize("named", ["path", "query", "header", "body"])
async def test_a_queue_that_was_just_added_is_known_at_other_nodes(
    nodes: list[ServedNode], monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    first, second = nodes[0].client, nodes[1]
    monkeypatch.setattr(second.node.metadata, "beat", _never)  # it hears of nothing by itself
    assert (await first.patch("/v1/topics/orders", json={"queues": 6})).status_code == 200
    path = "/v1/topics/orders/messages"
    if named == "path":
        answer = await second.client.get("/v1/topics/orders/queues/5/messages?offset=7")
        assert answer.json()["code"] == "OFFSET_OUT_OF_RANGE"
    elif named == "query":
        answer = await second.client.post(f"{path}?queue_id=5", content=b"x")
    elif named == "header":
        answer = await second.client.post(path, content=b"x", headers={"MQ-Queue-Id": "5"})
    else:
        rows = {"offsets": [{"queue_id": 5, "offset": 0}]}
        answer = await second.client.put("/v1/groups/billing/offsets/orders", json=rows)
    assert answer.json().get("code") != "QUEUE_NOT_FOUND", answer.text
    gone = await second.client.get("/v1/topics/orders/queues/6/messages?offset=0")
    assert (gone.status_code, gone.json()["queues"]) == (404, 6)


async def _never(*_: object, **__: object) -> None:
    raise MetadataUnavailable("not asked")


async def test_a_dead_node_refuses_what_is_its_own_and_the_others_go_on(
    nodes: list[ServedNode],
) -> None:
    await nodes[2].stop()
    first = nodes[0].client
    refused = await first.post("/v1/topics/orders/messages?queue_id=2", content=b"x")
    assert refused.status_code == 503
    assert (problem(refused)["code"], problem(refused)["outcome"]) == (
        *("SHARD_UNAVAILABLE",),
        "not_stored",
    )
    for queue_id in (0, 1):
        sent = await first.post(f"/v1/topics/orders/messages?queue_id={queue_id}", content=b"x")
        assert sent.status_code == 201


async def test_a_route_says_who_leads_each_queue(nodes: list[ServedNode]) -> None:
    urls = [str(each.client.base_url).rstrip("/") for each in nodes]
    known: dict[str, str] = {}
    for each in nodes:
        answer = await each.client.get("/v1/topics/orders/route")
        route = answer.json()
        assert [(q["queue_id"], q["shard"], q["perm"], q["leader"]) for q in route["queues"]] == [
            (0, "a", "rw", urls[0]),
            (1, "b", "rw", urls[1]),
            (2, "c", "rw", urls[2]),
        ]
        known = {"If-None-Match": answer.headers["etag"]}
        assert (await each.client.get("/v1/topics/orders/route", headers=known)).status_code == 304
    await nodes[2].stop()
    await nodes[0].client.post("/v1/topics/orders/messages?queue_id=2", content=b"x")
    route = (await nodes[0].client.get("/v1/topics/orders/route", headers=known)).json()
    assert [each["leader"] for each in route["queues"]] == [*urls[:2], None]


async def test_one_answer_has_the_routes_of_several_topics(nodes: list[ServedNode]) -> None:
    http = nodes[1].client
    answer = await http.get("/v1/route?topics=nothing,orders,orders")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    route = (await http.get("/v1/topics/orders/route")).json()
    assert found == {
        "metadata_version": route["metadata_version"],
        "valid_ms": route["valid_ms"],
        "routes": [route],
        "missing": ["nothing"],
    }
    known = {"If-None-Match": answer.headers["etag"]}
    again = await http.get("/v1/route?topics=nothing,orders,orders", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    other = await http.get("/v1/route?topics=orders", headers=known)
    assert (other.status_code, other.json()["missing"]) == (200, [])


@pytest.mark.parametrize(
    ("topics", "code"),
    [("", "BAD_REQUEST"), (",", "BAD_REQUEST"), ("a b", "ILLEGAL_TOPIC")],
)
async def test_routes_of_no_topics_are_refused(
    nodes: list[ServedNode], topics: str, code: str
) -> None:
    refused = await nodes[0].client.get("/v1/route", params={"topics": topics})
    assert (refused.status_code, refused.json()["code"]) == (400, code)


async def test_routes_of_too_many_topics_are_refused(nodes: list[ServedNode]) -> None:
    http = nodes[0].client
    most = ",".join(f"t{each}" for each in range(256))
    assert len((await http.get("/v1/route", params={"topics": most})).json()["missing"]) == 256
    refused = await http.get("/v1/route", params={"topics": f"{most},orders"})
    assert (refused.status_code, refused.json()["limit"]) == (400, 256)


async def test_the_cluster_shows_nodes_and_shards(nodes: list[ServedNode]) -> None:
    found = (await nodes[1].client.get("/v1/cluster")).json()
    assert found["shard"] == "b"
    assert [(each["name"], each["queues"], each["answers"]) for each in found["shards"]] == [
        *(("a", 1, True), ("b", 1, True)),
        ("c", 1, True),
    ]
    assert {each["shard"] for each in found["nodes"]} == {"a", "b", "c"}


async def test_what_is_changed_through_one_node_holds_at_the_others_with_the_answer(
    nodes: list[ServedNode],
) -> None:
    for number in range(6):
        one, other = nodes[number % 3].client, nodes[(number + 1) % 3].client
        permission, status = ("r", 403) if number % 2 == 0 else ("rw", 201)
        changed = await one.patch("/v1/topics/orders", json={"permission": permission})
        assert changed.status_code == 200, changed.text
        sent = await other.post("/v1/topics/orders/messages?queue_id=0", content=b"x")
        assert sent.status_code == status, sent.text
    for number, each in enumerate(nodes):
        level = ("debug", "warning", "info")[number]
        changed = await each.client.patch("/v1/config", json={"log_level": level})
        before = ("info", "debug", "warning")[number]
        assert changed.json()["changed"] == {"log_level": [before, level]}
    await nodes[0].client.patch("/v1/config", json={"log_level": None})


async def test_a_group_that_was_made_by_its_use_is_known_at_every_node(
    nodes: list[ServedNode],
) -> None:
    for number, node in enumerate(nodes):
        path = f"/v1/topics/orders/groups/group-{number}/messages:receive"
        assert (await node.client.post(path)).status_code == 200
        other = nodes[(number + 1) % 3].client
        found = await other.get(f"/v1/groups/group-{number}/subscriptions")
        assert found.status_code == 200, found.text


async def test_a_change_waits_for_no_node_that_is_away(nodes: list[ServedNode]) -> None:
    await nodes[2].stop()
    changed = await nodes[0].client.patch("/v1/topics/orders", json={"permission": "r"})
    assert changed.status_code == 200, changed.text
    sent = await nodes[1].client.post("/v1/topics/orders/messages?queue_id=0", content=b"x")
    assert sent.status_code == 403, sent.text


async def exchanged(node: ServedNode, request: bytes) -> bytes:
    """All that a node answers until it closes the connection."""
    port = httpx.URL(str(node.client.base_url)).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("kind", ["1.1", "1.0"])
async def test_a_client_that_keeps_no_connection_is_told_that_it_ends(
    nodes: list[ServedNode], kind: str
) -> None:
    line = f"POST {SEND}?queue_id=2 HTTP/{kind}\r\nHost: 127.0.0.1\r\n".encode()
    answer = await exchanged(nodes[0], line + b"Connection: close\r\nContent-Length: 1\r\n\r\nx")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201 ")
    assert head.lower().split(b"\r\n").count(b"connection: close") == 1
    assert json.loads(body)["queue_id"] == 2


async def test_requests_for_another_node_share_its_connections(nodes: list[ServedNode]) -> None:
    client, listener = nodes[0].client, nodes[2].server._cluster
    assert listener is not None
    for number in range(20):
        body = b"x" * number
        sent = await client.post(f"{SEND}?queue_id=2", content=body)
        assert (sent.status_code, sent.json()["queue_id"]) == (201, 2)
        read = await client.get(f"{SEND.removesuffix('messages')}queues/2/messages?offset=0")
        assert read.status_code == 200
    assert len(listener._state.connections) <= 2


async def test_a_head_is_aimed_anew_when_the_cluster_has_changed(
    nodes: list[ServedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its own node and at another one, on one connection."""
    relay, aimed_at = nodes[0].server.relay, nodes[0].server.relay.aimed_at
    aimed: list[object] = []

    def count(*asked: Any) -> Any:
        aimed.append(found := aimed_at(*asked))
        return found

    monkeypatch.setattr(relay, "aimed_at", count)
    client = nodes[0].client
    for name in ("aimed-a", "aimed-b"):
        made = await client.put(f"/v1/topics/{name}", json={"queues": 1})
        assert made.status_code == 201, made.text
        aimed.clear()
        for _ in range(4):
            for queue_id in (0, 2):
                sent = await client.post(f"{SEND}?queue_id={queue_id}", content=b"x")
                assert (sent.status_code, sent.json()["queue_id"]) == (201, queue_id)
        assert 1 <= aimed.count(None) < 4
        assert 1 <= aimed.count("c") < 4
