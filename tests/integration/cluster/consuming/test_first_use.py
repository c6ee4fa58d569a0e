"""A group that begins at the end begins in all shards at the time of its first use in any."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from app.broker.results import QueuePosition
from tests.support.cluster.three_nodes import ServedNode, start_node
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

GROUP = "/v1/groups/billing"
MEMBER = f"{GROUP}/members/w1"
RECEIVE = "/v1/topics/orders/groups/billing/messages:receive"
QUEUES = (0, 1, 2)


async def send(node: ServedNode, text: str, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        path = f"/v1/topics/orders/messages?queue_id={queue_id}"
        sent = await node.client.post(path, content=f"{text}{queue_id}")
        assert sent.status_code == 201, sent.text


async def make(nodes: list[ServedNode]) -> None:
    made = await nodes[0].client.put(GROUP, json={"start": "latest"})
    assert made.status_code in (200, 201), made.text
    for each in nodes:
        await each.node.metadata.refresh()


def text_of(message: dict[str, Any]) -> str:
    if "text" in message:
        return str(message["text"])
    return base64.b64decode(message["body_base64"]).decode()


async def receive(node: ServedNode, query: str = "") -> list[str]:
    answer = await node.client.post(f"{RECEIVE}{query}", headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    return [text_of(each) for each in answer.json()["messages"]]


async def received(nodes: list[ServedNode]) -> list[str]:
    """All that there is, by any node."""
    found: list[str] = []
    while got := [body for node in nodes for body in await receive(node, "?max_messages=32")]:
        found += got
    return sorted(found)


async def later(node: ServedNode) -> None:
    """Wait until the clock shows another millisecond."""
    before = node.node.clock.now_ms()
    await until(lambda: node.node.clock.now_ms() != before)


async def use_here(node: ServedNode) -> None:
    """The first use, of which no other shard is told."""
    answer = await node.client.post(RECEIVE, headers={"MQ-Forward": "no"})
    assert answer.status_code == 200, answer.text


async def test_what_is_sent_behind_the_first_receive_is_skipped_in_no_shard(
    nodes: list[ServedNode],
) -> None:
    await make(nodes)
    await send(nodes[0], "before", *QUEUES)
    await later(nodes[0])
    await use_here(nodes[1])
    await send(nodes[0], "behind", *QUEUES)
    assert await received(nodes) == ["behind0", "behind1", "behind2"]
    await send(nodes[2], "more", *QUEUES)
    assert await received(nodes) == ["more0", "more1", "more2"]


async def test_of_several_first_receives_at_once_none_skips_anything(
    nodes: list[ServedNode],
) -> None:
    await make(nodes)
    await send(nodes[0], "before", *QUEUES)
    await later(nodes[0])
    await asyncio.gather(*(use_here(node) for node in nodes for _ in range(3)))
    await send(nodes[0], "behind", *QUEUES)
    assert await received(nodes) == ["behind0", "behind1", "behind2"]


async def test_a_first_use_while_its_offsets_are_forgotten_counts_for_all_shards(
    nodes: list[ServedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(nodes)
    for node in nodes:
        await use_here(node)
    group = nodes[1].node.broker.groups
    admin = nodes[1].node.broker.offset_admin
    delete = admin.delete

    async def used_meanwhile(
        name: str, topic: str, first_use_ms: int | None, *, is_dry_run: bool = False
    ) -> list[QueuePosition]:
        if not is_dry_run:
            await until(lambda: not nodes[0].node.broker.groups.offsets.committed(name, topic))
            await send(nodes[0], "before", *QUEUES)
            await later(nodes[0])
            await use_here(nodes[0])
            await send(nodes[0], "behind", *QUEUES)
        return await delete(name, topic, first_use_ms, is_dry_run=is_dry_run)

    monkeypatch.setattr(admin, "delete", used_meanwhile)
    assert group.offsets.committed("billing", "orders")
    forgotten = await nodes[2].client.delete(f"{GROUP}/offsets/orders")
    assert forgotten.status_code == 204, forgotten.text
    assert await received(nodes) == ["behind0", "behind1", "behind2"]


async def test_a_group_that_is_made_again_begins_anew(
    nodes: list[ServedNode],
) -> None:
    await make(nodes)
    await use_here(nodes[1])
    assert (await nodes[0].client.delete(GROUP)).status_code in (200, 204)
    await make(nodes)
    await send(nodes[0], "before", *QUEUES)
    await later(nodes[0])
    await use_here(nodes[2])
    await send(nodes[0], "behind", *QUEUES)
    assert await received(nodes) == ["behind0", "behind1", "behind2"]


async def test_a_member_begins_there_too_in_a_shard_that_was_away(
    nodes: list[ServedNode], tmp_path: Path, url: str
) -> None:
    await make(nodes)
    await send(nodes[0], "before", *QUEUES)
    await later(nodes[0])
    away = nodes.pop()
    await away.stop()
    join = {"subscriptions": [{"topic": "orders"}], "generation": 0}
    told = await nodes[0].client.put(MEMBER, json=join)
    assert (told.status_code, told.json()["partial"]) == (200, ["c"])
    nodes.append(await start_node(tmp_path, url, "c"))
    await send(nodes[2], "behind", 2)
    join["generation"] = told.json()["generation"]
    told = await nodes[2].client.put(MEMBER, json=join)
    offsets = {each["queue_id"]: each["offset"] for each in told.json()["assigned"]}
    assert offsets == {0: 1, 1: 1, 2: 1}
