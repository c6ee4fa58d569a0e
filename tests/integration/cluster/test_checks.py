"""A producer group is asked through any node about its transactions in all shards."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.cluster.three_nodes import ServedNode
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

ASK = "/v1/producer-groups/shop/transactions:receive"
PREPARE = {"MQ-Transaction": "prepare; group=shop; check-after=1s"}


async def prepare(node: ServedNode, *queue_ids: int) -> list[str]:
    made = await node.client.put("/v1/topics/payments", json={"queues": 3, "type": "transaction"})
    assert made.status_code in (200, 201), made.text
    found = []
    for queue_id in queue_ids:
        path = f"/v1/topics/payments/messages?queue_id={queue_id}"
        sent = await node.client.post(path, content=b"x", headers=PREPARE)
        assert sent.status_code == 202, sent.text
        found.append(str(sent.json()["transaction_id"]))
    return found


async def ask(node: ServedNode, query: str = "") -> httpx.Response:
    answer = await node.client.post(f"{ASK}{query}")
    assert answer.status_code == 200, answer.text
    return answer


def ids_in(answer: httpx.Response) -> list[str]:
    return [each["transaction_id"] for each in answer.json()["transactions"]]


def due(nodes: list[ServedNode]) -> int:
    """Shards with something to ask."""
    tables = [each.node.broker.transactions._table for each in nodes]
    return sum(table.has_checks("shop", lambda _: True) for table in tables)


async def test_a_wait_ends_with_what_is_due_in_another_shard(nodes: list[ServedNode]) -> None:
    [prepared] = await prepare(nodes[0], 2)
    answer = await ask(nodes[1], "?wait=20")
    assert ids_in(answer) == [prepared]
    assert "partial" not in answer.json()
    for each in nodes:
        assert ids_in(await ask(each)) == [], "it is asked of one caller"
    committed = await nodes[1].client.post(f"/v1/transactions/{prepared}:commit")
    assert committed.status_code == 200, committed.text


async def test_all_shards_are_asked_in_one_answer_up_to_its_size(nodes: list[ServedNode]) -> None:
    prepared = await prepare(nodes[0], 0, 1, 2)
    await until(lambda: due(nodes) == 3)
    some = ids_in(await ask(nodes[1], "?max_transactions=2"))
    assert len(some) == 2
    rest = ids_in(await ask(nodes[2]))
    assert sorted(some + rest) == sorted(prepared)


async def test_a_wait_is_given_nothing_that_another_may_have(nodes: list[ServedNode]) -> None:
    """Two wait at two nodes: each transaction goes to one of them."""
    waiting = [asyncio.ensure_future(ask(each, "?wait=20")) for each in nodes[:2]]
    prepared = await prepare(nodes[2], 0)
    [done], [left] = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert ids_in(done.result()) == prepared
    second = await prepare(nodes[2], 1)
    assert ids_in(await left) == second


async def test_a_shard_that_does_not_answer_is_named(nodes: list[ServedNode]) -> None:
    [prepared] = await prepare(nodes[0], 1)
    await nodes[2].stop()
    await until(lambda: due(nodes[:2]) == 1)
    answer = (await ask(nodes[0], "?wait=5")).json()
    assert [each["transaction_id"] for each in answer["transactions"]] == [prepared]
    assert answer["partial"] == ["c"]


async def test_a_node_on_which_nobody_may_wait_is_not_waited_for(nodes: list[ServedNode]) -> None:
    nodes[2].node.broker.long_polls._waiters_max = 0
    asked: list[str] = []
    call = nodes[0].server.relay.call

    async def counted(exchange: Any, shard: str, request: Any, **more: Any) -> Any:
        asked.append(shard)
        return await call(exchange, shard, request, **more)

    nodes[0].server.relay.call = counted
    waiting = asyncio.ensure_future(ask(nodes[0], "?wait=20"))
    await until(lambda: nodes[1].node.broker.waiting_count == 1)
    prepared = await prepare(nodes[1], 1)
    assert ids_in(await waiting) == prepared
    assert len(asked) <= 12, "two looks at three shards, and one wait"


async def test_a_caller_is_told_where_nobody_may_wait(nodes: list[ServedNode]) -> None:
    nodes[0].node.broker.long_polls._waiters_max = 0
    answer = await nodes[0].client.post(f"{ASK}?wait=20")
    assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_REQUESTS")


async def test_a_node_that_stops_lets_its_callers_go(nodes: list[ServedNode]) -> None:
    waiting = asyncio.ensure_future(nodes[2].client.post(f"{ASK}?wait=20"))
    await until(lambda: nodes[2].node.broker.waiting_count == 1)
    nodes[2].server.should_exit = True
    answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (503, "SHUTTING_DOWN")


async def test_what_is_wrong_is_said_as_a_lone_node_does(nodes: list[ServedNode]) -> None:
    for query in ("?max_transactions=0", "?max_transactions=many", "?wait=soon", "?wait=99999"):
        answer = await nodes[0].client.post(f"{ASK}{query}")
        alone = await nodes[0].client.post(f"{ASK}{query}", headers={"MQ-Forward": "no"})
        assert answer.status_code == alone.status_code == 400, query
        assert answer.json()["detail"] == alone.json()["detail"], query
