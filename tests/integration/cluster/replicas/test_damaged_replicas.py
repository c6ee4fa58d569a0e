"""A replica whose log is damaged has it put right from another one, and nobody misses a message."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.integration.cluster.replicas.test_reads_from_followers import ANY, made, pull, texts
from tests.support.cluster.three_nodes import ServedNode
from tests.support.cluster.three_replicas import (
    Replicas,
    bodies,
    others,
    send,
    shard_of,
    status_of,
    three_replicas,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

COUNT = 20
PATIENCE_S = 60
ALL = [f"{number}" for number in range(COUNT)]
RECEIVE = "/v1/topics/orders/groups/billing/messages:receive?max_messages=32"


def log_of(directory: Path) -> Path:
    (segment,) = directory.glob("store/commitlog/*0000")
    return segment


def place_of(directory: Path, body: str) -> int:
    """Where the body of a message stands, a character and what goes before it."""
    return log_of(directory).read_bytes().index(body.encode() + b"\x06orders") - 40


def damage(directory: Path, body: str = "7") -> None:
    """Flip a bit of a message, in the file."""
    at = place_of(directory, body)
    with log_of(directory).open("r+b") as file:
        (found,) = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([found ^ 4]), at)


def sum_of(directory: Path, end: int) -> str:
    """Of the log below a place."""
    return hashlib.sha256(log_of(directory).read_bytes()[:end]).hexdigest()


async def codes(served: ServedNode) -> set[str]:
    """What is the matter with a node."""
    return {each["code"] for each in (await served.client.get("/readyz")).json()["degraded"]}


async def figure(served: ServedNode, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = (await served.client.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))


async def all_of(read: Callable[[], Awaitable[httpx.Response]]) -> None:
    """Read from the beginning until all is there, without a gap. A read waits 3 s for a record that
    is asked for, and ends before it then: on a busy machine others may need longer to answer."""
    found: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while found != ALL:
            answer = await read()
            found = texts(answer)
            assert found == ALL[: len(found)]
            assert not answer.json().get("gaps")


def are_equal(tmp_path: Path, replicas: Replicas) -> bool:
    end = min(status_of(each).high_watermark for each in replicas.nodes.values())
    return len({sum_of(tmp_path / name, end) for name in replicas.nodes}) == 1


async def is_put_right(tmp_path: Path, replicas: Replicas, served: ServedNode) -> None:
    await until(lambda: shard_of(served).own().repaired_bytes > 0)
    await until(lambda: status_of(served).damaged_places == 0)
    await until(lambda: are_equal(tmp_path, replicas))
    assert await figure(served, "curlew_replica_repaired_bytes_total") == 1
    assert await figure(served, "curlew_replica_damaged_places") == 0


@pytest.mark.parametrize("is_killed", [False, True])
async def test_damage_that_an_opening_finds(tmp_path: Path, url: str, is_killed: bool) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, follower, _ = await made(replicas, COUNT)
        name = follower.name
        await (replicas.kill(name) if is_killed else replicas.stop(name))
        damage(tmp_path / name)
        again = await replicas.start(name)
        await is_put_right(tmp_path, replicas, again)
        assert "STORE_DAMAGED" not in await codes(again), "no read has given the message up"
        await replicas.in_sync(3)
        await until(lambda: shard_of(again).readable(is_stale=False) is not None)
        await again.node.metadata.refresh()
        assert texts(await pull(again, "offset=0&max_messages=32", ANY)) == ALL
        await replicas.stop(leader.name)
        for other in others(replicas, again):
            await replicas.stop(other.name)
            leader = await replicas.start(other.name)
        assert await bodies(await replicas.led()) == ALL


async def test_damage_that_a_read_at_a_follower_finds(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        _, follower, _ = await made(replicas, COUNT)
        damage(tmp_path / follower.name)
        await all_of(lambda: pull(follower, "offset=0&max_messages=32", ANY))
        await is_put_right(tmp_path, replicas, follower)


async def test_damage_that_a_read_at_the_leader_finds(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, _, _ = await made(replicas, COUNT)
        damage(tmp_path / leader.name)
        found: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < COUNT:  # 503 while the record is asked for
                answer = await leader.client.post(f"{RECEIVE}&wait=5")
                if answer.status_code == 200:
                    found += texts(answer)
        assert found == ALL
        await is_put_right(tmp_path, replicas, leader)


async def test_a_follower_with_damage_leads_and_gives_all(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, one, two = await made(replicas, COUNT)
        for each in (one, two):
            damage(tmp_path / each.name, "3" if each is one else "5")
        await replicas.stop(leader.name)
        second = await replicas.led()
        await all_of(lambda: pull(second, "offset=0&max_messages=32"))
        (third,) = others(replicas, second)
        await until(lambda: shard_of(third).readable(is_stale=False) is not None)
        await all_of(lambda: pull(third, "offset=0&max_messages=32", ANY))
        for each in (second, third):
            await is_put_right(tmp_path, replicas, each)


async def test_a_new_replica_gets_what_is_damaged_at_the_leader_from_another(
    tmp_path: Path, url: str
) -> None:
    replicas = Replicas(tmp_path, url, {})
    try:
        for name in "ab":
            await replicas.start(name)
        await replicas.in_sync(2)
        leader = await replicas.led()
        await leader.client.put("/v1/topics/orders", json={"queues": 1})
        for body in ALL:
            await send(leader, body)
        damage(tmp_path / leader.name)
        new = await replicas.start("c")
        await replicas.know_all(3)
        await replicas.in_sync(3)
        await is_put_right(tmp_path, replicas, leader)
        assert await bodies(new) == ALL
    finally:
        for name in list(replicas.nodes):
            await replicas.stop(name)


async def test_what_no_replica_has_is_a_gap_and_damage_as_on_a_lone_node(
    tmp_path: Path, url: str
) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, *_ = await made(replicas, COUNT)
        for name in replicas.nodes:
            damage(tmp_path / name)
        async with asyncio.timeout(30):
            answer = await pull(leader, "offset=0&max_messages=32")
            while len(texts(answer)) == 7:  # both have to say so, and one may be connecting anew
                answer = await pull(leader, "offset=0&max_messages=32")
        assert texts(answer) == [each for each in ALL if each != "7"]
        assert "STORE_DAMAGED" in await codes(leader)
        assert status_of(leader).mended_bytes == 0


async def test_what_a_replica_may_have_that_is_away_is_not_passed_over(
    tmp_path: Path, url: str
) -> None:
    """Whoever needs it is told to try again, also a group; it is given when the replica is back."""
    async with three_replicas(tmp_path, url) as replicas:
        leader, one, two = await made(replicas, COUNT)
        away = shard_of(two).node_id
        await replicas.stop(two.name)
        for each in (leader, one):
            damage(tmp_path / each.name)
        assert texts(await pull(leader, "offset=0&max_messages=32")) == ALL[:7]
        detail = ""
        async with asyncio.timeout(PATIENCE_S):
            while f"may be whole at {away}," not in detail:  # the other one may take a while
                refused = await pull(leader, "offset=7&max_messages=32")
                assert refused.status_code == 503
                problem = refused.json()
                assert (problem["code"], problem["retryable"]) == ("SHARD_UNAVAILABLE", True)
                detail = problem["detail"]
        assert texts(await leader.client.post(RECEIVE)) == ALL[:7]
        assert (await leader.client.post(RECEIVE)).status_code == 503
        await replicas.start(two.name)
        await replicas.in_sync(3)
        rest: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(rest) < COUNT - 7:
                answer = await leader.client.post(f"{RECEIVE}&wait=1")
                if answer.status_code == 200:
                    rest += [each for each in texts(answer) if each not in ALL[:7]]
        assert rest == ALL[7:]
        await all_of(lambda: pull(leader, "offset=0&max_messages=32"))


async def test_damage_of_an_opening_that_nobody_has_is_an_alarm(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        _, follower, _ = await made(replicas, COUNT)
        await replicas.stop(follower.name)
        for name in (follower.name, *replicas.nodes):
            damage(tmp_path / name)
        again = await replicas.start(follower.name)
        await until(lambda: any(a.code == "LOG_DAMAGED" for a in status_of(again).alarms))
        (alarm,) = [a for a in status_of(again).alarms if a.code == "LOG_DAMAGED"]
        assert "no other replica has helped" in alarm.detail
        assert "REPLICA_ALARM" in await codes(again)
        assert await figure(again, "curlew_replica_damaged_places") == 1
