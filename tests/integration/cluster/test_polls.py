"""A member polls any one node for its queues of all shards: it reads, commits, hands back and
settles there, and waits there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.api.relay.consuming import polls, shared_waits
from tests.support.clients.frames import read_frame
from tests.support.cluster.three_nodes import ServedNode, start_node, three_nodes
from tests.support.nodes.pull_members import said_next
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

POLL = "/v1/groups/billing/members:poll"
OFFSETS = "/v1/groups/billing/offsets/orders"
QUEUES = [{"topic": "orders", "queue_id": queue_id} for queue_id in range(3)]
BATCH = {"accept": "application/vnd.curlew.batch"}


async def send(node: ServedNode, *queue_ids: int, text: str = "x") -> None:
    for queue_id in queue_ids:
        path = f"/v1/topics/orders/messages?queue_id={queue_id}"
        sent = await node.client.post(path, content=text)
        assert sent.status_code == 201, sent.text


class Member:
    """Does what the answers say, and asks another node each time."""

    def __init__(self, nodes: list[ServedNode], client_id: str = "w1") -> None:
        self.nodes = nodes
        self.turn = 0
        self.said: dict[str, Any] = {
            "client_id": client_id,
            "subscriptions": [{"topic": "orders"}],
            "generation": 0,
        }

    async def poll(self, at: int | None = None, **more: Any) -> dict[str, Any]:
        self.turn += 1
        node = self.nodes[self.turn % len(self.nodes) if at is None else at]
        answer = await node.client.post(POLL, json=self.said | more)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        self.said |= said_next(told)
        return told


def queues_of(told: dict[str, Any], name: str) -> list[int]:
    return [each["queue_id"] for each in told[name]]


async def committed(node: ServedNode) -> list[int]:
    found = (await node.client.get(OFFSETS)).json()["offsets"]
    return [each["offset"] for each in found]


def parked(nodes: list[ServedNode]) -> list[int]:
    return [each.node.broker.waiting_count for each in nodes]


async def test_a_member_needs_one_node_for_its_queues_of_all_shards(
    nodes: list[ServedNode],
) -> None:
    await send(nodes[0], 0, 1, 2, 1)
    member = Member(nodes)
    first = await member.poll()
    assert "partial" not in first
    assert [queues_of(first, name) for name in ("assigned", "queues")] == [[0, 1, 2], [0, 1, 2]]
    assert sorted(queues_of(first, "messages")) == [0, 1, 1, 2]
    since = {each["queue_id"]: each["since_generation"] for each in first["assigned"]}
    commits = [
        {**queue, "offset": 1, "since_generation": since[each]} for each, queue in enumerate(QUEUES)
    ]
    second = await member.poll(
        commits=[*commits, {"topic": "orders", "queue_id": 9, "offset": 1}],
        hand_backs=[{**QUEUES[1], "queue_offset": 1, "delay": "0s", "reason": "busy"}],
        wait="10s",
    )
    assert second["committed"] == [
        {**queue, "offset": 2 if queue["queue_id"] == 1 else 1} for queue in QUEUES
    ]
    assert [(each["queue_id"], each["code"]) for each in second["refused"]] == [
        (9, "QUEUE_NOT_OWNED")
    ]
    (retry,) = second["retries"]
    assert (retry["queue_id"], retry["delivery_attempt"]) == (1, 2)
    third = await member.poll(settles={"acks": [retry["receipt_handle"], "forged"]})
    assert [(each["action"], each["status"]) for each in third["settled"]] == [
        ("ack", 200),
        ("ack", 400),
    ]
    assert (third["messages"], third["retries"], third["poll_again_ms"]) == ([], [], 1_000)
    assert await committed(nodes[0]) == [1, 2, 1]
    listed = (await nodes[0].client.get("/v1/groups/billing/clients")).json()["clients"]
    assert {each["client_id"] for each in listed} == {"w1"}


async def test_a_wrong_filter_is_refused_before_anything_is_done(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 0, 1, 2)
    member = Member(nodes)
    await member.poll()
    wrong = {
        **member.said,
        "client_id": "w1",
        "subscriptions": [{"topic": "orders", "filter": "a ||"}],
        "commits": [{**queue, "offset": 1} for queue in QUEUES],
    }
    told = await nodes[1].client.post("/v1/groups/billing/members:poll", json=wrong)
    assert (told.status_code, told.json()["code"]) == (400, "ILLEGAL_FILTER_EXPRESSION")
    assert await committed(nodes[0]) == [0, 0, 0]


async def test_an_answer_has_no_more_than_is_asked_for_and_shards_have_their_turns(
    nodes: list[ServedNode],
) -> None:
    await send(nodes[0], 0, 0, 1, 1, 2, 2)
    member = Member(nodes)
    got = [await member.poll(max_messages=1) for _ in range(6)]
    assert [queues_of(each, "messages") for each in got] == [[0], [1], [2], [0], [1], [2]]
    assert [sorted(queues_of(each, "queues")) for each in got] == [[0, 1, 2]] * 6
    assert got[0]["poll_again_ms"] == 0


async def test_a_wait_ends_with_a_message_of_any_shard(nodes: list[ServedNode]) -> None:
    member = Member(nodes)
    await member.poll()
    await member.poll()
    for queue_id in (2, 0, 1):
        waiting = asyncio.ensure_future(member.poll(0, wait="20s"))
        await until(lambda: parked(nodes) == [1, 1, 1])
        await send(nodes[1], queue_id)
        told = await waiting
        assert queues_of(told, "messages") == [queue_id]
        await until(lambda: parked(nodes) == [0, 0, 0])
    left = asyncio.ensure_future(member.poll(0, wait="20s"))
    await until(lambda: parked(nodes) == [1, 1, 1])
    left.cancel()
    await until(lambda: parked(nodes) == [0, 0, 0])
    idle = await member.poll(0, wait="1s")
    assert (idle["messages"], idle["poll_again_ms"]) == ([], 0)


async def test_two_polls_of_one_member_both_see_what_comes(nodes: list[ServedNode]) -> None:
    # The first may be one whose connection is lost, and nobody knows it yet.
    member = Member(nodes)
    await member.poll(0)
    await member.poll(0)
    both = asyncio.gather(member.poll(0, wait="10s"), member.poll(0, wait="10s"))
    await until(lambda: parked(nodes) == [2, 2, 2])
    await send(nodes[1], 1)
    assert [queues_of(told, "messages") for told in await both] == [[1], [1]]


async def test_a_queue_goes_to_another_member_behind_the_commit_of_its_shard(
    nodes: list[ServedNode],
) -> None:
    await send(nodes[0], 0, 1, 2)
    first, second = Member(nodes), Member(nodes, "w2")
    await first.poll(0)
    first.said["generation"] = 1
    waiting = asyncio.ensure_future(first.poll(0, wait="20s"))
    joined = await second.poll(1)
    assert (joined["assigned"], queues_of(joined, "pending")) == ([], [2])
    told = await waiting  # nothing was put into effect that it was not told
    assert queues_of(told, "messages") == [] or told["generation"] == 1
    while not told["revoked"]:
        told = await first.poll(0)
    commits = [{**QUEUES[2], "offset": 1}]
    done = await first.poll(1, commits=commits)
    assert queues_of(done, "committed") == [2]
    assert queues_of(done, "assigned") == [0, 1]
    taken = await second.poll(2)
    while not taken["assigned"]:
        taken = await second.poll(2)
    assert [(each["queue_id"], each["offset"]) for each in taken["assigned"]] == [(2, 1)]
    assert taken["messages"] == []


async def test_frames_come_from_all_shards_and_say_whose_they_are(
    nodes: list[ServedNode],
) -> None:
    await send(nodes[0], 0, 1, 2, text="y")
    member = Member(nodes)
    answer = await nodes[1].client.post(POLL, json=member.said, headers=BATCH)
    assert answer.status_code == 200, answer.text
    mark = b"--" + answer.headers["content-type"].partition("boundary=")[2].encode()
    head, *frames = answer.content.removesuffix(mark + b"--\r\n").split(mark + b"\r\n")[1:]
    assert b'"messages":[]' in head
    stores = set()
    for frame in frames:
        lines, _, body = frame.partition(b"\r\n\r\n")
        names = dict(line.split(": ", 1) for line in lines.decode().split("\r\n"))
        assert len(body) == int(names["Content-Length"]) + 2
        assert len(read_frame(body[:-2])) > 0
        stores.add(names["MQ-Store-Id"])
    assert len(stores) == 3


@contextlib.asynccontextmanager
async def two_of_three(directory: Path, url: str) -> AsyncIterator[tuple[list[ServedNode], Member]]:
    """A member that has polled all shards, the last of which is away since."""
    async with three_nodes(directory, url) as nodes:
        await send(nodes[0], 0, 1, 2)
        member = Member(nodes)
        await member.poll(0)
        await nodes[2].stop()
        yield nodes, member


async def test_a_shard_that_is_away_is_named_its_commit_is_not_done_and_it_comes_back(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_waits, "AGAIN_SECONDS", 0.05)
    async with two_of_three(tmp_path, url) as (nodes, member):
        positions = member.said["positions"]
        told = await member.poll(0, commits=[{**queue, "offset": 1} for queue in QUEUES])
        assert told["partial"] == ["c"]
        assert queues_of(told, "committed") == [0, 1]
        assert [(each["queue_id"], each["code"]) for each in told["refused"]] == [
            (2, "SHARD_UNAVAILABLE")
        ]
        assert queues_of(told, "assigned") == [0, 1]
        member.said["positions"] = positions
        waiting = asyncio.ensure_future(member.poll(0, wait="30s"))
        await until(lambda: parked(nodes[:2]) == [1, 1])
        nodes[2] = await start_node(tmp_path, url, "c")
        await send(nodes[2], 2)
        back = await waiting
        assert queues_of(back, "messages") == [2]
        done = await member.poll(0, commits=[{**QUEUES[2], "offset": 2}])
        assert (queues_of(done, "committed"), done["refused"]) == ([2], [])


async def test_a_silent_shard_holds_up_a_poll_once(
    nodes: list[ServedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one than that of the test before: its node takes what it is asked, and is silent."""
    await send(nodes[0], 0, 1, 2)
    member = Member(nodes)
    await member.poll(0)
    monkeypatch.setattr(polls, "PART_OF_ANOTHER_SECONDS", 0.2)
    call = nodes[0].server.relay.call
    asked: list[str] = []

    async def silent(exchange: Any, shard: str, request: Any, **more: Any) -> Any:
        asked.append(shard)
        if shard == "c":
            await asyncio.get_running_loop().create_future()
        return await call(exchange, shard, request, **more)

    nodes[0].server.relay.call = silent
    told = await member.poll(0, commits=[{**queue, "offset": 1} for queue in QUEUES])
    assert (told["partial"], asked.count("c")) == (["c"], 1), "not for its commit and its queue"
    assert queues_of(told, "committed") == [0, 1]
    assert [each["code"] for each in told["refused"]] == ["SHARD_UNAVAILABLE"]
    await member.poll(0)
    assert asked.count("c") == 2, "the next poll asks it again"
    nodes[0].server.relay.call = call
    done = await member.poll(0, commits=[{**QUEUES[2], "offset": 1}])
    assert ("partial" in done, queues_of(done, "committed")) == (False, [2])


async def test_nothing_is_let_go_of_while_the_commit_of_it_is_not_in_its_shard(
    tmp_path: Path, url: str
) -> None:
    async with two_of_three(tmp_path, url) as (nodes, member):
        other = Member(nodes, "w2")
        await other.poll(1)
        told = await member.poll(0)
        while not told["revoked"]:
            told = await member.poll(0)
        assert queues_of(told, "revoked") == [2]
        kept = await member.poll(0, commits=[{**QUEUES[2], "offset": 1}])
        assert [each["code"] for each in kept["refused"]] == ["SHARD_UNAVAILABLE"]
        assert queues_of(kept, "revoked") == [2]
        pending = await other.poll(1)
        assert queues_of(pending, "pending") == [2]
        # It gives up the commit: others read from the offset that is committed.
        gone = await member.poll(0)
        assert gone["revoked"] == []
