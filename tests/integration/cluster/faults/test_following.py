"""A node that leads nothing has requests answered by those who lead, as if they had been asked."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from app.broker.health import Condition
from app.domain.access.actions import Kind
from tests.support.cluster.three_nodes import ServedNode, three_nodes
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

TOPIC = "/v1/topics/orders"


class Follows(NamedTuple):
    """What a node says that follows."""

    why_not: tuple[Condition, ...] = ()

    def obstacles(self) -> Sequence[Condition]:
        return self.why_not

    def troubles(self) -> Sequence[Condition]:
        return ()

    def is_made_by_use(self, kind: Kind) -> bool:
        return kind is Kind.GROUP


async def follows(served: ServedNode) -> None:
    """End its term, as when another replica of its shard is about to lead."""
    is_one_of_several(served)
    await served.node.end_term()


def is_one_of_several(served: ServedNode) -> None:
    """Let it know that its term may end before it does."""
    served.node._shard.following = Follows()
    served.node.answer_by(served.server.app)


async def test_any_request_goes_to_a_node_that_leads(tmp_path: Path, url: str) -> None:
    async with three_nodes(tmp_path, url) as nodes:
        third = nodes[2]
        await follows(third)
        client = third.client
        stored = []
        for number in range(4):
            params = {"queue_id": number % 2}
            answer = await client.post(f"{TOPIC}/messages", content=b"x", params=params)
            assert answer.status_code == 201, answer.text
            stored.append(answer.json()["queue_id"])
        assert stored == [0, 1, 0, 1]  # in two shards, over one that may carry it on
        made = await client.put("/v1/topics/more", json={"queues": 1})
        assert made.status_code == 201, made.text
        got = await client.post(f"{TOPIC}/groups/g/messages:receive?max_messages=9&wait=5")
        assert got.status_code == 200
        queues = (await client.get(f"{TOPIC}/stats")).json()["queues"]
        assert [each["max_offset"] for each in queues if each["queue_id"] < 2] == [2, 2]
        assert (await client.get("/v1/topics/never")).json()["code"] == "TOPIC_NOT_FOUND"
        page = await client.get("/ui/", headers={"Accept": "text/html"})
        assert page.status_code == 200


async def test_what_is_of_the_shard_that_nobody_leads_is_not_stored(
    tmp_path: Path, url: str
) -> None:
    async with three_nodes(tmp_path, url) as nodes:
        await follows(nodes[2])
        for each in (nodes[0], nodes[2]):
            answer = await each.client.post(f"{TOPIC}/messages?queue_id=2", content=b"x")
            assert answer.status_code == 503, answer.text
            assert answer.json()["outcome"] == "not_stored"
            assert answer.headers["retry-after"]
        assert nodes[2].server.relay.relayed_count <= 2  # and it goes round in no circle


async def test_it_tells_of_itself(tmp_path: Path, url: str) -> None:
    async with three_nodes(tmp_path, url) as nodes:
        third = nodes[2]
        await follows(third)
        assert (await third.client.get("/readyz")).json()["status"] == "ready"
        assert (await third.client.get("/healthz")).status_code == 200
        metrics = (await third.client.get("/metrics")).text
        assert "curlew_ready 1" in metrics
        assert 'curlew_http_answers_total{operation="get_readiness",status="200"}' in metrics
        cluster = (await third.client.get("/v1/cluster")).json()
        assert cluster["shard"] == "c"
        assert len(cluster["shards"]) == 3


async def test_who_wants_no_relay_is_told_where_to_go(tmp_path: Path, url: str) -> None:
    async with three_nodes(tmp_path, url) as nodes:
        third = nodes[2]
        there = nodes[0].node.metadata.snapshot.shards["a"].leader
        async with nodes[0].node.metadata._database.transaction() as connection:
            await connection.exec_driver_sql(
                f"UPDATE shards SET leader = '{there}' WHERE name = 'c'"
            )
        await follows(third)
        await third.node.metadata._load()
        answer = await third.client.post(
            f"{TOPIC}/messages", content=b"x", headers={"MQ-Forward": "no"}
        )
        assert answer.status_code == 421, answer.text
        assert answer.json()["leader"] == f"http://127.0.0.1:{nodes[0].node.config.port}"
        assert answer.json()["outcome"] == "not_stored"


async def test_who_waits_when_the_term_ends_is_answered(tmp_path: Path, url: str) -> None:
    async with three_nodes(tmp_path, url) as nodes:
        third = nodes[2]
        is_one_of_several(third)
        broker = third.node.broker
        path = f"{TOPIC}/queues/2/messages?offset=0&wait=30"
        waiting = asyncio.ensure_future(third.client.get(path))
        await until(lambda: broker.waiting_count == 1)
        await third.node.end_term()
        answer = await waiting
        assert answer.status_code == 200
        assert answer.json()["messages"] == []
        assert third.node.term is None
