"""A shard is drained: what is new goes elsewhere, and what is there is consumed."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from curlew_client import AsyncClient
from curlew_client.command.entry import main

from app.domain.message import queue_for_sharding_key
from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

MESSAGES = "/v1/topics/orders/messages"
DRAIN = "/v1/shards/a/drain"
OF_A = next(key for key in map(str, range(99)) if queue_for_sharding_key(key, 3) == 0)
"""A key, or a name, of the queue in the shard `a`."""


async def heard(nodes: list[ServedNode]) -> None:
    for each in nodes:
        await each.node.metadata.refresh()


async def drained(nodes: list[ServedNode], **body: object) -> dict[str, Any]:
    """Asked of another node; all have heard of it."""
    done = await nodes[1].client.post(DRAIN, json=body)
    assert done.status_code == 200, done.text
    await heard(nodes)
    found: dict[str, Any] = done.json()
    return found


async def sent(at: ServedNode, query: str = "", **headers: str) -> int:
    """The queue that a message went to."""
    done = await at.client.post(f"{MESSAGES}?{query}", content=b"1", headers=headers)
    assert done.is_success, done.text
    return int(done.json()["queue_id"])


async def sent_past(at: ServedNode) -> int:
    """As `sent`, past a shard that is away: who finds that out has stored nothing."""
    done = await at.client.post(MESSAGES, content=b"1")
    if done.is_success:
        return int(done.json()["queue_id"])
    problem = done.json()
    assert (problem["code"], problem["outcome"]) == ("SHARD_UNAVAILABLE", "not_stored"), done.text
    return await sent(at)


async def receive(at: ServedNode, **query: Any) -> list[str]:
    """The handles of what the group gets."""
    path = "/v1/topics/orders/groups/billing/messages:receive"
    got = await at.client.post(path, params={"max_messages": 32, **query})
    assert got.status_code == 200, got.text
    return [each["receipt_handle"] for each in got.json()["messages"]]


async def test_messages_without_a_key_go_elsewhere_at_once_and_those_of_keys_when_asked(
    nodes: list[ServedNode],
) -> None:
    first = nodes[0]
    assert await sent(first) == 0
    tried = await drained(nodes, dry_run=True)
    assert (tried["takes"], tried["changed"], tried["dry_run"]) == ("keyed", True, True)
    assert await sent(first) == 0, "nothing was changed"
    assert (await drained(nodes))["takes"] == "keyed"
    for at in nodes:
        assert {await sent(at) for _ in range(6)} <= {1, 2}
        assert await sent(at, f"sharding_key={OF_A}") == 0
        assert await sent(at, "queue_id=0") == 0
        assert await sent(at, **{"idempotency-key": f"{OF_A}"}) == 0
    messages = [{"text": "1"}]
    plan = {"producer": "loader", "epoch": 1, "topic": "orders"}
    planned = (await nodes[2].client.post("/v1/producers:plan", json=plan)).json()
    assert (planned["queues"], planned["queue_ids"]) == (2, [1, 2])
    assert (planned["write_queues"], planned["key_queue_ids"]) == (3, [0, 1, 2])
    batch = await first.client.post(f"{MESSAGES}:batch", json={"messages": messages})
    assert batch.is_success, batch.text
    assert batch.json()["results"][0]["queue_id"] in (1, 2)
    assert (await drained(nodes, keys=True))["takes"] == "none"
    for number, at in enumerate(nodes):
        moved = {await sent(at, f"sharding_key={OF_A}") for _ in range(3)}
        assert len(moved) == 1, "a key has one queue"
        assert moved <= {1, 2}
        named = await at.client.post(f"{MESSAGES}?queue_id=0", content=b"1")
        assert (named.status_code, named.json()["code"]) == (403, "NO_PERMISSION"), number
        assert "its shard drains" in named.json()["detail"]
    home = await sent(first, **{"idempotency-key": f"{OF_A}"})
    assert home in (1, 2)
    again = await nodes[2].client.post(
        MESSAGES, content=b"1", headers={"idempotency-key": f"{OF_A}"}
    )
    assert again.json()["queue_id"] == home, "its new home remembers it"
    undone = await first.client.delete(DRAIN)
    assert (undone.json()["takes"], undone.json()["changed"]) == ("all", True)
    await heard(nodes)
    assert await sent(nodes[2], f"sharding_key={OF_A}") == 0
    assert await sent(first) == 0


async def test_a_route_says_what_queues_take_and_the_cluster_what_shards_do(
    nodes: list[ServedNode],
) -> None:
    async def rows() -> list[tuple[str, str]]:
        route = (await nodes[2].client.get("/v1/topics/orders/route")).json()
        assert route["write_queues"] == 3
        return [(each["perm"], each["takes"]) for each in route["queues"]]

    assert await rows() == [("rw", "all")] * 3
    await drained(nodes)
    assert await rows() == [("r", "keyed"), ("rw", "all"), ("rw", "all")]
    await drained(nodes, keys=True)
    assert await rows() == [("r", "none"), ("rw", "all"), ("rw", "all")]
    shards = (await nodes[1].client.get("/v1/cluster")).json()["shards"]
    assert {each["name"]: each["takes"] for each in shards} == {"a": "none", "b": "all", "c": "all"}


async def test_it_is_empty_when_all_is_consumed_and_nothing_waits(nodes: list[ServedNode]) -> None:
    first = nodes[0]
    for _ in range(3):
        await sent(first, "queue_id=0")
    assert len(await receive(first, max_messages=1)) == 1
    await sent(first, "queue_id=0&delay=1h")
    prepare = {"mq-transaction": "prepare; group=payers", "mq-queue-id": "0"}
    half = await first.client.post(MESSAGES, content=b"1", headers=prepare)
    assert half.status_code == 202, half.text
    found = await drained(nodes, keys=True)
    left = found["left"]
    assert left["groups"] == [{"group": "billing", "topic": "orders", "messages": 3}]
    assert (left["not_consumed"], left["delayed"], left["transactions"]) == (3, 1, 1)
    assert (left["stored"], left["dead_letters"], found["empty"]) == (3, 0, False)


async def test_it_is_not_said_to_be_empty_before_all_have_heard(nodes: list[ServedNode]) -> None:
    tried = await drained(nodes, keys=True, dry_run=True)
    assert (tried["takes"], tried["empty"]) == ("none", False), "it takes all messages"
    done = await drained(nodes, keys=True)
    assert (done["changed"], done["empty"]) == (True, False), "others may be sending there"
    again = await drained(nodes, keys=True)
    assert (again["changed"], again["empty"]) == (False, True)


async def test_what_is_stored_in_queues_that_are_only_read_counts_too(
    nodes: list[ServedNode],
) -> None:
    made = await nodes[1].client.put("/v1/topics/narrow", json={"queues": 3})
    assert made.status_code == 201
    await heard(nodes)
    for queue_id in range(3):
        path = f"/v1/topics/narrow/messages?queue_id={queue_id}"
        assert (await nodes[1].client.post(path, content=b"1")).is_success
    shards = nodes[0].node.metadata.snapshot.topics["narrow"].shards
    last = next(each for each in nodes if each.node.metadata.shard == shards[2])
    narrowed = await nodes[1].client.patch("/v1/topics/narrow", json={"write_queues": 2})
    assert narrowed.status_code == 200, narrowed.text
    await heard(nodes)
    found = await last.client.post(f"/v1/shards/{shards[2]}/drain", json={"dry_run": True})
    assert found.json()["left"]["stored"] == 1


async def test_its_last_messages_are_consumed_at_any_node(nodes: list[ServedNode]) -> None:
    for _ in range(3):
        await sent(nodes[0], "queue_id=0")
    assert await receive(nodes[1], max_messages=1, invisible="1s") != []
    assert not (await drained(nodes, keys=True))["empty"]
    done = 0
    async with asyncio.timeout(60):
        while done < 3:
            handles = await receive(nodes[2], wait="1s")
            for handle in handles:
                acked = await nodes[1].client.delete(f"/v1/receipts/{handle}")
                done += acked.status_code == 204
    found = await drained(nodes, keys=True)
    assert (found["empty"], found["changed"], found["left"]["stored"]) == (True, False, 3)


async def test_a_letter_of_a_key_that_has_moved_is_redriven_where_the_key_is(
    nodes: list[ServedNode],
) -> None:
    await drained(nodes, keys=True)
    await sent(nodes[0], f"sharding_key={OF_A}")
    handles = await receive(nodes[1])
    path = "/v1/topics/orders/groups/billing/messages:dead-letter"
    killed = await nodes[1].client.post(path, json={"receipt_handles": handles})
    assert killed.status_code == 200, killed.text
    plan = {"all": True, "to_topic": "orders", "dry_run": True}
    found = await nodes[2].client.post("/v1/groups/billing/dlq/messages:redrive", json=plan)
    assert found.status_code == 200, found.text
    assert found.json()["by_target"] == {"orders": 1}


async def test_a_topic_that_is_only_there_goes_on_until_it_has_more_queues(
    nodes: list[ServedNode],
) -> None:
    first = nodes[0]
    path = "/v1/topics/lonely/messages"
    made = await first.client.put("/v1/topics/lonely", json={"queues": 1})
    assert made.status_code == 201
    await heard(nodes)
    found = await drained(nodes, keys=True)
    assert (found["topics_only_here"], found["empty"]) == (["lonely"], False)
    assert (await nodes[2].client.post(path, content=b"1")).json()["queue_id"] == 0
    grown = await first.client.put("/v1/topics/lonely", json={"queues": 2})
    assert grown.status_code == 200, grown.text
    await heard(nodes)
    queues = Counter(
        [(await at.client.post(path, content=b"1")).json()["queue_id"] for at in nodes]
    )
    assert queues == {1: 3}
    assert (await drained(nodes, keys=True))["topics_only_here"] == []


async def test_an_unknown_shard_and_the_last_one_are_refused(nodes: list[ServedNode]) -> None:
    unknown = await nodes[0].client.post("/v1/shards/nowhere/drain")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "SHARD_NOT_FOUND")
    for name in "ab":
        assert (await nodes[2].client.post(f"/v1/shards/{name}/drain")).status_code == 200
    last = await nodes[0].client.post("/v1/shards/c/drain")
    assert (last.status_code, last.json()["code"]) == (409, "DRAIN_REFUSED")
    assert last.json()["reason"] == "last_shard"
    entries = (await nodes[0].client.get("/v1/audit?action=UPDATE")).json()["entries"]
    assert {"shard:a", "shard:b"} <= {each["resource"] for each in entries}


async def test_a_drain_goes_on_while_another_shard_is_away_and_leaves_one_that_is_led(
    nodes: list[ServedNode],
) -> None:
    await nodes.pop().stop()
    for change in ("POST", "DELETE"):
        away = await nodes[0].client.request(change, "/v1/shards/c/drain")
        assert (away.status_code, away.json()["code"]) == (503, "SHARD_UNAVAILABLE")
    assert (await drained(nodes, keys=True))["takes"] == "none"
    for at in nodes:
        assert {await sent_past(at) for _ in range(4)} == {1}
    for body in ({"dry_run": True}, {}, {"keys": True}):
        refused = await nodes[0].client.post("/v1/shards/b/drain", json=body)
        problem = refused.json()
        assert (refused.status_code, problem["code"]) == (409, "DRAIN_REFUSED"), refused.text
        assert problem["reason"] == "others_away"
        assert "start a node" in problem["hint"]
    assert {await sent_past(at) for at in nodes} == {1}
    assert (await nodes[1].client.delete(DRAIN)).json()["takes"] == "all"


async def test_by_the_command_and_by_the_client(
    nodes: list[ServedNode],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CURLEW_CONTEXTS", str(tmp_path / "contexts.json"))
    at = f"http://127.0.0.1:{nodes[1].node.config.port}"

    async def command(*words: str) -> tuple[int, str]:
        arguments = ["cluster", *words, "--url", at, "--timeout", "60s"]
        status = await asyncio.to_thread(main, arguments)
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    await sent(nodes[0], "queue_id=0")
    await receive(nodes[0])
    status, said = await command("drain", "a", "--dry-run")
    assert (status, "would be so: the shard a drains" in said) == (0, True), said
    status, said = await command("drain", "a")
    assert (status, "Say --yes" in said) == (2, True), said
    status, said = await command("drain", "a", "--keys", "--undo")
    assert (status, "keys come back" in said) == (2, True), said
    status, said = await command("drain", "a", "--yes")
    assert (status, "billing" in said, "takes messages whose keys" in said) == (1, True, True), said
    await nodes[1].node.metadata.refresh()
    status, said = await command("status")
    assert (status, "keyed" in said) == (0, True), said
    async with AsyncClient(at, timeout=60) as curlew:
        done = await curlew.admin.drain_shard("a", keys=True)
        assert (done["takes"], done["left"]["not_consumed"], done["empty"]) == ("none", 1, False)
    status, said = await command("drain", "a", "--undo", "--yes")
    assert (status, "the shard a takes all messages" in said) == (0, True), said
    async with AsyncClient(at, timeout=60) as curlew:
        assert not (await curlew.admin.undo_drain("a"))["changed"]


async def test_what_a_shard_had_that_was_drained_and_released_is_not_sent_to(
    nodes: list[ServedNode],
) -> None:
    await drained(nodes, keys=True)
    await nodes[0].stop()
    await nodes[1].node.metadata.release_shard("a")
    left = nodes[1:]
    await heard(left)
    for at in left:
        assert {await sent(at) for _ in range(4)} <= {1, 2}
        assert await sent(at, f"sharding_key={OF_A}") in (1, 2)
    route = (await left[0].client.get("/v1/topics/orders/route")).json()
    assert [each["takes"] for each in route["queues"]] == ["none", "all", "all"]
