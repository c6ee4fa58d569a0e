"""A filter that an operator sets holds in all shards, also in one that was away."""

from pathlib import Path

import pytest

from tests.support.cluster.three_nodes import ServedNode, start_node
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

PATH = "/v1/groups/billing/subscriptions/orders"
RECEIVE = "/v1/topics/orders/groups/billing/messages:receive"
HERE = {"MQ-Forward": "no"}


async def receive(node: ServedNode, wanted: str) -> int:
    """From the node's own shard."""
    answer = await node.client.post(f"{RECEIVE}?filter={wanted}", headers=HERE)
    return answer.status_code


async def until_same(*nodes: ServedNode) -> None:
    """All know the newest version of the metadata; their beats bring it."""

    def version(each: ServedNode) -> int:
        return each.node.metadata.snapshot.version

    newest = max(version(each) for each in nodes)
    await until(lambda: all(version(each) >= newest for each in nodes))


async def test_a_filter_is_set_in_all_shards_and_one_that_was_away_learns_it(
    nodes: list[ServedNode], tmp_path: Path, url: str
) -> None:
    first, second, third = nodes
    assert await receive(third, "blue") == 200  # noted in its log
    assert (await third.client.get(PATH)).json()["source"] == "used"
    await until_same(*nodes)
    await third.stop()
    made = await first.client.put(PATH, json={"filter": "red"})
    assert made.status_code == 201, made.text
    await until_same(first, second)
    seen = await second.client.get(PATH)
    assert {**seen.json(), "dry_run": False} == made.json()
    assert seen.headers["ETag"] == made.headers["ETag"]
    assert (seen.json()["filter"], seen.json()["source"]) == ("red", "set")
    assert [await receive(each, "blue") for each in (first, second)] == [409, 409]

    third = nodes[2] = await start_node(tmp_path, url, "c")
    back = await third.client.get(PATH)
    assert (back.json(), back.headers["ETag"]) == (seen.json(), made.headers["ETag"])
    assert [await receive(third, each) for each in ("blue", "red")] == [409, 200]

    mine = {"If-Match": made.headers["ETag"]}
    changed = await second.client.put(PATH, json={"filter": "green"}, headers=mine)
    assert changed.status_code == 200, changed.text
    # Judged on what is there, not on what the asked node knows.
    assert (await third.client.put(PATH, json={"filter": "x"}, headers=mine)).status_code == 412


async def test_one_that_was_away_learns_that_a_filter_was_taken_away(
    nodes: list[ServedNode], tmp_path: Path, url: str
) -> None:
    first, second, third = nodes
    assert await receive(third, "blue") == 200
    await until_same(*nodes)
    assert (await first.client.put(PATH, json={"filter": "red"})).status_code == 201
    await third.stop()
    assert (await first.client.delete(PATH)).status_code == 204
    third = nodes[2] = await start_node(tmp_path, url, "c")
    await until_same(first, second, third)
    gone = [(await each.client.get(PATH)).status_code for each in nodes]
    assert gone == [404, 404, 404]
    assert await receive(third, "green") == 200
