"""A stream of a group gives messages of all shards through any node, with one credit."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.domain.limits import Limits
from tests.support.cluster.three_nodes import ServedNode, start_node, three_nodes
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

GROUP = "/v1/topics/orders/groups/billing"
STREAM = f"{GROUP}/stream"
LINES = {"accept": "application/x-ndjson"}
Line = dict[str, Any]


async def send(node: ServedNode, queue_id: int, text: str = "x") -> None:
    path = f"/v1/topics/orders/messages?queue_id={queue_id}"
    sent = await node.client.post(path, content=text)
    assert sent.status_code == 201, sent.text


@asynccontextmanager
async def stream(node: ServedNode, query: str) -> AsyncIterator[AsyncIterator[Line]]:
    async with node.client.stream("GET", f"{STREAM}?{query}", headers=LINES) as answer:
        assert answer.status_code == 200, await answer.aread()
        yield lines_of(answer.aiter_lines())


async def lines_of(lines: AsyncIterator[str]) -> AsyncIterator[Line]:
    async for line in lines:
        if line:
            yield json.loads(line)


async def message_in(lines: AsyncIterator[str]) -> Line:
    """The next one, behind heartbeats."""
    while not (line := await anext(lines)):
        pass
    found: Line = json.loads(line)
    return found


async def ack(node: ServedNode, *lines: Line) -> None:
    handles = {"receipt_handles": [each["receipt_handle"] for each in lines]}
    acked = await node.client.post(f"{GROUP}/messages:ack", json=handles)
    assert acked.status_code == 200, acked.text


def leased(nodes: list[ServedNode]) -> list[int]:
    found = [each.node.broker.groups.find("billing", "orders") for each in nodes]
    return [0 if each is None else each.leased_count for each in found]


def streams_here(nodes: list[ServedNode]) -> list[int]:
    return [each.node.broker.streams.open_count for each in nodes]


def counted(nodes: list[ServedNode]) -> list[int]:
    return [len(each.node.broker.streams.elsewhere._shares) for each in nodes]


async def test_any_node_gives_the_messages_of_all_shards(nodes: list[ServedNode]) -> None:
    for node in nodes:
        for queue_id in (0, 0, 1, 1, 2, 2):
            await send(nodes[0], queue_id)
        async with stream(node, "max_messages=6") as lines:
            found = [each async for each in lines]
        assert found[-1]["end"]["reason"] == "message_limit"
        assert sorted(each["queue_id"] for each in found[:-1]) == [0, 0, 1, 1, 2, 2]
        assert leased(nodes) == [2, 2, 2]
        await ack(nodes[0], *found[:-1])
    await until(lambda: counted(nodes) == [0, 0, 0])
    await until(lambda: streams_here(nodes) == [0, 0, 0])


async def test_events_are_as_those_of_a_lone_node(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 1, '{"id": 17}')
    answer = await nodes[2].client.get(f"{STREAM}?max_messages=1&body=base64")
    retry, message, end, rest = answer.text.split("\n\n")
    assert (retry, rest) == ("retry: 1000", "")
    assert "mq-partial" not in answer.headers
    view = json.loads(message.removeprefix("data: "))
    assert (view["queue_id"], view["body_base64"]) == (1, "eyJpZCI6IDE3fQ==")
    assert end.startswith("event: end\ndata: ")


async def test_the_credit_is_one_over_all_shards_and_any_node_makes_room(
    nodes: list[ServedNode],
) -> None:
    for queue_id in (0, 1, 2, 0, 1, 2, 0, 1, 2, 0):
        await send(nodes[0], queue_id)
    async with stream(nodes[0], "credit=2") as lines:
        first, second = await anext(lines), await anext(lines)
        assert sum(leased(nodes)) == 2
        await ack(nodes[1], first)
        third = await anext(lines)
        extended = await nodes[2].client.patch(
            f"/v1/receipts/{second['receipt_handle']}?action=extend&invisible=1m"
        )
        assert extended.status_code == 200, extended.text
        assert sum(leased(nodes)) == 2
        handle = extended.json()["receipt_handle"]
        assert (await nodes[0].client.delete(f"/v1/receipts/{handle}")).status_code == 204
        last = await anext(lines)
        found = [first, second, third, last]
        assert {each["queue_id"] for each in found} == {0, 1, 2}
        assert sum(leased(nodes)) == 2
    await until(lambda: streams_here(nodes) == [0, 0, 0])


async def test_no_more_than_the_credit_is_leased_however_often_is_looked(
    tmp_path: Path, url: str
) -> None:
    async with three_nodes(tmp_path, url, Limits(stream_heartbeat_ms=50)) as nodes:
        for queue_id in (0, 1, 2, 0, 1, 2, 0, 1, 2, 0):
            await send(nodes[0], queue_id)
        async with nodes[0].client.stream("GET", f"{STREAM}?credit=2", headers=LINES) as answer:
            lines = answer.aiter_lines()
            held = [await message_in(lines) for _ in range(2)]
            for _ in range(2):
                await ack(nodes[1], held.pop(0))
                held.append(await message_in(lines))
                for _ in range(3):  # each heartbeat is the end of a look for room
                    assert await anext(lines) == ""
                assert sum(leased(nodes)) == 2


async def test_a_lease_that_ends_makes_room(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 2, "first")
    await send(nodes[0], 2, "second")
    async with stream(nodes[0], "credit=1&invisible=1s") as lines:
        assert [(await anext(lines))["text"] for _ in range(2)] == ["first", "second"]


async def test_what_is_sent_while_it_is_open_comes_from_every_shard(
    nodes: list[ServedNode],
) -> None:
    async with stream(nodes[1], "credit=1&max_messages=3") as lines:
        for queue_id in (2, 1, 0):
            await send(nodes[0], queue_id)
            found = await anext(lines)
            assert found["queue_id"] == queue_id
            await ack(nodes[2], found)
        assert (await anext(lines))["end"]["reason"] == "message_limit"


@pytest.mark.parametrize(
    "query",
    [
        *("credit=0", "credit=x", "filter=a||", "invisible=0s", "max_messages=0"),
        *("duration=0s", "unknown=1", "force=maybe", "force=true&duration=0s"),
    ],
)
async def test_what_is_not_well_is_refused_as_one_shard_does(
    nodes: list[ServedNode], query: str
) -> None:
    answer = await nodes[0].client.get(f"{STREAM}?{query}")
    alone = await nodes[0].client.get(f"{STREAM}?{query}", headers={"MQ-Forward": "no"})
    assert (answer.status_code, answer.json()["code"]) == (alone.status_code, alone.json()["code"])
    assert answer.status_code == 400, answer.text
    assert nodes[0].node.broker.metadata.snapshot.groups.get("billing") is None


async def reason_of_end(lines: AsyncIterator[Any]) -> str:
    """Shards that hear of a deletion before the asked node are missing for a moment."""
    async for each in lines:
        if "end" in each:
            return str(each["end"]["reason"])
        assert set(each) == {"partial"}, each
    raise AssertionError("the stream has no end")


async def test_it_ends_with_its_group_its_time_and_its_node(nodes: list[ServedNode]) -> None:
    async with stream(nodes[0], "duration=100ms") as lines:
        assert (await anext(lines))["end"]["reason"] == "time_limit"
    async with stream(nodes[0], "") as lines:
        deleted = await nodes[1].client.delete("/v1/groups/billing")
        assert deleted.status_code == 204, deleted.text
        assert await reason_of_end(lines) == "group_deleted"
    for node in nodes:
        await node.node.metadata.refresh()
        assert "billing" not in node.node.broker.metadata.snapshot.groups
    async with stream(nodes[2], "") as lines:
        nodes[2].server.should_exit = True
        assert (await anext(lines))["end"]["reason"] == "draining"


async def test_force_ends_members_in_all_shards_and_says_so(nodes: list[ServedNode]) -> None:
    body = {"subscriptions": [{"topic": "orders"}], "generation": 0}
    joined = await nodes[1].client.put("/v1/groups/billing/members/m", json=body)
    assert joined.status_code == 200, joined.text
    refused = await nodes[0].client.get(STREAM)
    assert (refused.status_code, refused.json()["code"]) == (409, "CONSUMPTION_CONFLICT")
    limits = nodes[0].node.broker.streams.limits
    nodes[0].node.broker.streams.limits = replace(limits, streams_max=0)
    full = await nodes[0].client.get(f"{STREAM}?force=true")
    assert full.status_code == 429, full.text
    members = await nodes[1].client.get("/v1/groups/billing/members")
    assert [each["client_id"] for each in members.json()["members"]] == ["m"]
    nodes[0].node.broker.streams.limits = limits
    await send(nodes[0], 1)
    async with stream(nodes[0], "force=true&max_messages=1") as lines:
        found = [each async for each in lines]
    assert "effects" in found[0]
    assert [each.get("queue_id") for each in found[1:]] == [1, None]


async def test_a_shard_that_goes_away_is_told_and_goes_on_when_it_is_back(
    nodes: list[ServedNode], tmp_path: Path, url: str
) -> None:
    config = nodes[2].node.config
    for queue_id in (0, 1, 2):
        await send(nodes[0], queue_id)
    async with stream(nodes[0], "credit=4") as lines:
        held = [await anext(lines) for _ in range(3)]
        await nodes[2].stop()
        await send(nodes[0], 0, "meanwhile")
        found = [await anext(lines)]
        while found[-1].get("text") != "meanwhile":
            found.append(await anext(lines))
        # What is held there counts on, though nobody says so.
        await send(nodes[1], 1, "without room")
        await ack(nodes[1], *(each for each in held if each["queue_id"] == 1))
        while found[-1].get("text") != "without room":
            found.append(await anext(lines))
        await ack(nodes[1], found[-1])
        while {"partial": ["c"]} not in found:
            found.append(await anext(lines))
        nodes[2] = await start_node(
            tmp_path, url, "c", port=config.port, cluster_listen=config.cluster_listen
        )
        while {"partial": []} not in found:
            found.append(await anext(lines))
        await send(nodes[2], 2, "back")
        while found[-1].get("text") != "back":
            found.append(await anext(lines))


async def test_what_a_client_that_left_was_not_sent_is_given_back(
    nodes: list[ServedNode],
) -> None:
    async with stream(nodes[0], "") as lines:
        await send(nodes[2], 2)
        assert (await anext(lines))["queue_id"] == 2
    await until(lambda: streams_here(nodes) == [0, 0, 0])
    await send(nodes[1], 1)
    assert leased(nodes) == [0, 0, 1]


async def test_heartbeats_come_while_there_is_nothing_or_no_room(tmp_path: Path, url: str) -> None:
    limits = Limits(stream_heartbeat_ms=50)
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(three_nodes(tmp_path, url, limits))
        answer = await stack.enter_async_context(
            nodes[0].client.stream("GET", f"{STREAM}?credit=1", headers=LINES)
        )
        lines = answer.aiter_lines()
        assert [await anext(lines) for _ in range(3)] == ["", "", ""]
        await send(nodes[0], 1)
        while not (line := await anext(lines)):
            pass
        assert json.loads(line)["queue_id"] == 1
        assert [await anext(lines) for _ in range(3)] == ["", "", ""]
