"""Reads that followers answer: the same as the leader's, and never what is not confirmed."""

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.integration.cluster.replicas.test_one_way import silence
from tests.support.cluster.three_nodes import ServedNode, start_node
from tests.support.cluster.three_replicas import (
    TOPIC,
    Replicas,
    others,
    send,
    shard_of,
    status_of,
    three_replicas,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

PULL = f"{TOPIC}/queues/0/messages"
ANY = {"MQ-Read": "any"}


def relayed(served: ServedNode) -> int:
    """How many requests the node has had answered by others."""
    return served.server.relay.relayed_count


async def pull(
    served: ServedNode, query: str = "offset=0", headers: dict[str, str] | None = None
) -> httpx.Response:
    return await served.client.get(f"{PULL}?{query}", headers=headers)


def texts(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["text"] for each in answer.json()["messages"]]


async def made(replicas: Replicas, count: int) -> tuple[ServedNode, ServedNode, ServedNode]:
    """The leader and two followers that have a topic with so many messages."""
    leader = await replicas.led()
    answer = await leader.client.put(TOPIC, json={"queues": 1})
    assert answer.status_code == 201, answer.text
    for number in range(count):
        await send(leader, f"{number}")
    one, two = others(replicas, leader)
    for each in (one, two):
        await has(each, count)
    return leader, one, two


async def has(follower: ServedNode, count: int) -> None:
    """Wait until it can be read there, and may be."""
    await follower.node.metadata.refresh()

    def is_there() -> bool:
        store = shard_of(follower).readable(is_stale=False)
        return store is not None and store.bounds("orders", 0).max_offset >= count

    await until(is_there)


async def test_a_follower_gives_the_same_bytes(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, follower, _ = await made(replicas, 40)
        before = relayed(follower)
        for kind in ("application/x-ndjson", "application/vnd.curlew.batch"):
            for query in ("offset=0&max_messages=32", "offset=7&until_offset=9", "timestamp_ms=1"):
                headers = {"Accept": kind}
                of_leader = await pull(leader, query, headers)
                here = await pull(follower, query, headers | ANY)
                assert here.status_code == of_leader.status_code == 200
                assert here.content == of_leader.content
                assert here.headers.get("etag") == of_leader.headers.get("etag")
                assert "mq-stale" not in here.headers
        of_leader, here = await pull(leader), await pull(follower, "offset=0&read=any")
        assert here.json() == of_leader.json() | {"up_to_date": False}
        assert relayed(follower) == before
        assert (await pull(follower)).content == of_leader.content
        assert relayed(follower) == before + 1


async def test_the_end_is_the_leaders(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        _, follower, _ = await made(replicas, 3)
        before = relayed(follower)
        assert texts(await pull(follower, "tail=1", ANY)) == ["2"]
        assert (await pull(follower, "offset=3", ANY)).json()["up_to_date"]
        assert (await pull(follower, "offset=4", ANY)).status_code == 416
        assert texts(await pull(follower, "offset=4&clamp=true", ANY)) == []
        assert (await pull(follower, "offset=x", ANY)).status_code == 400
        assert (await pull(follower, "offset=0", {"MQ-Read": "some"})).status_code == 400
        assert relayed(follower) == before + 6
        waiting = asyncio.ensure_future(pull(follower, "offset=3&wait=30", ANY))
        await until(lambda: relayed(follower) == before + 7)
        await send(follower, "3")
        assert texts(await waiting) == ["3"]
        patient = pull(follower, "offset=0&min_messages=5&wait=30", ANY)
        waiting = asyncio.ensure_future(patient)
        await until(lambda: relayed(follower) == before + 9)
        await send(follower, "4")
        assert texts(await waiting) == ["0", "1", "2", "3", "4"]


async def test_what_is_not_confirmed_is_seen_nowhere(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, *followers = await made(replicas, 1)
        heals = [silence(each, leader) for each in followers]
        sending = asyncio.ensure_future(
            leader.client.post(f"{TOPIC}/messages?queue_id=0", content=b"unconfirmed")
        )
        await until(lambda: all(_has_more(each) for each in followers))
        for each in (leader, *followers):
            assert texts(await pull(each, "offset=0", ANY)) == ["0"]
            assert texts(await pull(each, "offset=1", ANY)) == []
        for heal in heals:
            heal()
        await sending


def _has_more(served: ServedNode) -> bool:
    """Whether the log is written further than is confirmed."""
    status = status_of(served)
    return status.written > status.high_watermark


async def test_who_is_out_of_the_set_asks_the_leader(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, follower, _ = await made(replicas, 1)
        heal = silence(follower, leader)
        await send(leader, "1")  # when the follower is out of the set
        await until(lambda: not status_of(follower).is_member)
        before = relayed(follower)
        assert texts(await pull(follower, "offset=0", ANY)) == ["0", "1"]
        assert relayed(follower) == before + 1
        heal()
        await replicas.in_sync(3)
        await has(follower, 2)
        assert texts(await pull(follower, "offset=0", ANY)) == ["0", "1"]
        assert relayed(follower) == before + 1


async def test_without_a_leader_replicas_give_what_is_confirmed(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, gone, left = await made(replicas, 3)
        elsewhere = await start_node(tmp_path, url, "elsewhere", shard="elsewhere")
        try:
            alone = {"MQ-Forward": "no"}
            assert (await pull(left, "offset=1", alone)).status_code == 421
            await replicas.kill(gone.name)
            await replicas.kill(leader.name)
            await until(lambda: not status_of(left).is_current)
            await until(lambda: status_of(left).leader is None)
            for headers in (alone, ANY | alone):
                answer = await pull(left, "offset=1", headers)
                assert texts(answer) == ["1", "2"]
                assert answer.headers["mq-stale"] == "true"
                assert (await pull(left, "offset=3", headers)).status_code == 421
            for each in (left, elsewhere):
                await each.node.metadata.refresh()
                for headers in ({}, ANY):
                    answer = await pull(each, "offset=1", headers)
                    assert texts(answer) == ["1", "2"], each.name
                    assert answer.headers["mq-stale"] == "true"
                assert (await pull(each, "offset=3")).status_code == 503
                refused = await each.client.post(f"{TOPIC}/messages?queue_id=0", content=b"3")
                assert refused.status_code == 503
            await replicas.start(gone.name)
            await replicas.led()
            await until_answered(left)
            assert "mq-stale" not in (await pull(left, "offset=1")).headers
        finally:
            await elsewhere.stop()


async def until_answered(served: ServedNode) -> None:
    """Wait until the node knows who leads."""
    async with asyncio.timeout(60):
        while "mq-stale" in (await pull(served)).headers:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_reader_of_a_follower_goes_on_over_an_election(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, follower, third = await made(replicas, 10)
        found: list[str] = []
        await replicas.kill(leader.name)
        async with asyncio.timeout(60):
            while len(found) < 11:
                answer = await pull(follower, f"offset={len(found)}&max_messages=3&wait=5", ANY)
                if answer.status_code == 200:
                    found += texts(answer)
                elif len(found) == 10 and replicas.leaders():
                    await send(await replicas.led(), "10")
                else:
                    assert answer.status_code in {502, 503}, answer.text
                    await asyncio.sleep(0.05)
                if len(found) == 10 and replicas.leaders():
                    await third.client.post(f"{TOPIC}/messages?queue_id=0", content=b"10")
        assert found[:11] == [f"{number}" for number in range(11)]


async def test_a_name_that_is_made_again_shows_nothing_of_before(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, follower, _ = await made(replicas, 3)
        assert (await leader.client.delete(TOPIC)).status_code in {200, 204}
        await follower.node.metadata.refresh()
        assert (await pull(follower, "offset=0", ANY)).status_code == 404
        await leader.client.put(TOPIC, json={"queues": 1})
        await follower.node.metadata.refresh()
        gone = await pull(follower, "offset=0", ANY)
        assert gone.status_code == 410 or texts(gone) == []
        await send(leader, "again")
        await has(follower, 4)
        before = relayed(follower)
        assert texts(await pull(follower, "offset=3", ANY)) == ["again"]
        assert relayed(follower) == before
        assert (await pull(follower, "offset=0", ANY)).status_code == 410


async def test_who_may_not_read_may_not_at_a_follower_either(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader, follower, gone = await made(replicas, 1)
        admin = (await leader.node.metadata.principals.make_first()).text
        boss = {"authorization": f"Bearer {admin}"}
        for each in replicas.nodes.values():
            await each.node.metadata.principals.refresh()
        keys = {}
        for name, role in (("reader", "consumer"), ("writer", "producer")):
            path = f"/v1/principals/{name}"
            put = await leader.client.put(path, json={"roles": [role]}, headers=boss)
            assert put.is_success, put.text
            key = await leader.client.post(f"{path}/keys", json={}, headers=boss)
            keys[name] = {"authorization": f"Bearer {key.json()['key']}"}
        await follower.node.metadata.principals.refresh()
        before = relayed(follower)
        assert texts(await pull(follower, "offset=0", ANY | keys["reader"])) == ["0"]
        assert (await pull(follower, "offset=0", ANY | keys["writer"])).status_code == 403
        assert (await pull(follower, "offset=0", ANY)).status_code == 401
        assert relayed(follower) == before
        await replicas.kill(gone.name)
        await replicas.kill(leader.name)
        await until(lambda: not status_of(follower).is_current)
        stale = await pull(follower, "offset=0", keys["reader"])
        assert (texts(stale), stale.headers["mq-stale"]) == (["0"], "true")
        assert (await pull(follower, "offset=0", keys["writer"])).status_code == 403
