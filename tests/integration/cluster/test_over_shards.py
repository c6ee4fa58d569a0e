"""What is of several shards is answered whole by any node, and says which shard is missing."""

import asyncio
from typing import Any

import pytest

from tests.support.cluster.three_nodes import ServedNode
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEND = "/v1/topics/orders/messages"


async def get(node: ServedNode, path: str) -> dict[str, Any]:
    answer = await node.client.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def fill(nodes: list[ServedNode]) -> None:
    """As many messages in each queue as its number, and one, with a key."""
    for queue_id in range(3):
        for number in range(queue_id + 1):
            sent = await nodes[0].client.post(
                f"{SEND}?queue_id={queue_id}&keys=k{queue_id}", content=b"%d" % number
            )
            assert sent.status_code == 201, sent.text


async def test_figures_and_places_are_those_of_all_shards(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    first = nodes[0]
    for queue_id in range(3):
        rows = [{"queue_id": queue_id, "offset": queue_id}]
        path = "/v1/groups/billing/offsets/orders"
        assert (await first.client.put(path, json={"offsets": rows})).status_code == 200
    expected = [(queue_id, queue_id) for queue_id in range(3)]
    for node in nodes:
        stats = await get(node, "/v1/topics/orders/stats")
        assert [each["max_offset"] for each in stats["queues"]] == [1, 2, 3]
        assert (stats["depth"], stats["counters"]["in"]) == (6, 6)
        assert stats["put_latency_ms"]["buckets"]["+Inf"] == 6
        ends = await get(node, "/v1/topics/orders/offsets?at=latest")
        assert [each["offset"] for each in ends["offsets"]] == [1, 2, 3]
        head = await node.client.head("/v1/topics/orders/queues/2")
        assert head.headers["mq-max-offset"] == "3"
        both = await get(node, "/v1/topics:offsets?topics=orders,nope&at=latest")
        assert both["topics"][0]["offsets"] == ends["offsets"]
        assert both["missing"] == ["nope"]
        for path in ("/v1/groups/billing/offsets/orders", "/v1/groups/billing/offsets"):
            offsets = (await get(node, path))["offsets"]
            assert [(each["queue_id"], each["offset"]) for each in offsets] == expected
        lag = await get(node, "/v1/groups/billing/lag")
        assert [each["ready"] for each in lag["topics"][0]["queues"]] == [1, 1, 1]
        assert (lag["ready"], lag["topics"][0]["ready"]) == (3, 3)
        assert "partial" not in {**stats, **ends, **lag}


async def test_lag_is_told_of_shards_in_which_the_group_has_not_begun(
    nodes: list[ServedNode],
) -> None:
    for queue_id in range(3):
        path = f"/v1/topics/orders/messages?queue_id={queue_id}"
        assert (await nodes[0].client.post(path, content=b"x")).status_code == 201
    path = "/v1/topics/orders/groups/billing/messages:receive"
    given = await nodes[1].client.post(path, headers={"MQ-Forward": "no"})
    assert len(given.json()["messages"]) == 1
    rows = {"offsets": [{"queue_id": 1, "offset": 1}]}
    done = await nodes[0].client.put("/v1/groups/readers/offsets/orders", json=rows)
    assert done.status_code == 200, done.text
    for node in nodes:  # some hear by this that there are these groups
        for query in ("", "?topic=orders"):
            lag = await get(node, f"/v1/groups/billing/lag{query}")
            assert (lag["ready"], lag["in_flight"]) == (2, 1)
            queues = lag["topics"][0]["queues"]
            assert [each["ready"] for each in queues] == [1, 0, 1]
            assert [each["reason"] for each in queues] == [None] * 3
        # As a lone node tells of queues in which nothing was committed.
        queues = (await get(node, "/v1/groups/readers/lag"))["topics"][0]["queues"]
        assert [each["ready"] for each in queues] == [None, 0, None]


async def test_messages_are_browsed_page_by_page_over_all_shards(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes)
    for queue_id in range(3):
        found = await get(nodes[0], f"{SEND}?key=k{queue_id}")
        assert [each["queue_id"] for each in found["messages"]] == [queue_id] * (queue_id + 1)
    seen: list[tuple[int, int]] = []
    path, turn = f"{SEND}?page_size=2", 0
    while True:
        page = await get(nodes[turn % 3], path)
        seen += [(each["queue_id"], each["queue_offset"]) for each in page["messages"]]
        if "next_cursor" not in page:
            break
        path, turn = f"{SEND}?page_size=2&cursor={page['next_cursor']}", turn + 1
    assert sorted(seen) == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    lines = await nodes[1].client.get(SEND, headers={"Accept": "application/x-ndjson"})
    assert len(lines.text.splitlines()) == 6
    wrong = await nodes[1].client.get(f"{SEND}?cursor=nonsense")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "ILLEGAL_PAGE")


async def test_who_sends_is_listed_with_the_node_that_is_asked(nodes: list[ServedNode]) -> None:
    for number, node in enumerate(nodes):
        headers = {"MQ-Client-Id": f"shop-{number}"}
        assert (await node.client.post(SEND, content=b"x", headers=headers)).status_code == 201
    found = await get(nodes[1], "/v1/topics/orders/producers")
    assert [each["client_id"] for each in found["clients"]] == ["shop-0", "shop-1", "shop-2"]
    assert len({each["node_id"] for each in found["clients"]}) == 3
    assert found["partial"] == []
    one = await get(nodes[0], "/v1/clients/shop-2")
    assert len(one["produces"]) == 1
    assert (await nodes[0].client.get("/v1/clients/nobody")).status_code == 404


async def test_positions_wait_for_news_of_any_shard(nodes: list[ServedNode]) -> None:
    path = "/v1/topics:positions?topics=orders"
    state = (await get(nodes[0], path))["state"]
    waiting = asyncio.ensure_future(get(nodes[0], f"{path}&known={state}&wait=20"))
    await until(lambda: all(each.node.broker.waiting_count == 1 for each in nodes))
    await nodes[2].client.post(f"{SEND}?queue_id=2", content=b"x")
    found = await waiting
    assert [each["max_offset"] for each in found["topics"][0]["queues"]] == [0, 0, 1]
    assert found["state"] != state
    await until(lambda: all(each.node.broker.waiting_count == 0 for each in nodes))


async def test_a_shard_that_is_away_is_named(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    await nodes[2].stop()
    stats = await get(nodes[0], "/v1/topics/orders/stats")
    assert stats["partial"] == ["c"]
    assert [each["queue_id"] for each in stats["queues"]] == [0, 1]
    found = await get(nodes[1], SEND)
    assert (found["partial"], len(found["messages"])) == (["c"], 3)
    alone = await nodes[0].client.get(SEND, headers={"MQ-Forward": "no"})
    assert [each["queue_id"] for each in alone.json()["messages"]] == [0]
    unknown = await nodes[0].client.get("/v1/topics/nope/stats")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "TOPIC_NOT_FOUND")
