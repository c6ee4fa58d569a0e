"""An operator has another node lead a shard of three nodes, at any of them."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from app.api.replicas.peer_links import PeerLinks
from app.node_parts.served_term import ServedTerm
from app.replica.runner import ReplicaRunner
from tests.support.cluster.three_nodes import ServedNode
from tests.support.cluster.three_replicas import (
    SHARD,
    Replicas,
    shard_of,
    status_of,
    three_replicas,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]
AGAIN_S = 5.0

WAY = f"/v1/shards/{SHARD}/hand-over"


def others(replicas: Replicas, leader: ServedNode) -> list[ServedNode]:
    return [each for each in replicas.nodes.values() if each is not leader]


async def handed_over(replicas: Replicas, to: ServedNode) -> None:
    await until(lambda: [each.name for each in replicas.leaders()] == [to.name])
    await replicas.in_sync(3)
    for each in replicas.nodes.values():
        await each.node.metadata.refresh()


async def hand_overs(served: ServedNode, epoch: int) -> list[dict[str, Any]]:
    """Of this epoch and later ones: a leader that served before the third node had joined has given
    the shard away itself."""
    found = (await served.client.get("/v1/cluster/events")).json()["events"]
    return [
        each for each in found if each["kind"] == "shard_handed_over" and each["epoch"] >= epoch
    ]


async def test_the_node_that_is_asked_for_leads(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put("/v1/topics/orders", json={"queues": 1})
        await leader.client.post("/v1/topics/orders/messages", content=b"one")
        asked, to = others(replicas, leader)
        epoch = status_of(leader).epoch
        body = {"node": to.node.node_id}
        tried = await asked.client.post(f"{WAY}?dry_run=true", json=body)
        assert (tried.status_code, tried.json()["changed"]) == (200, True)
        assert (await replicas.led()) is leader
        answer = await asked.client.post(WAY, json=body)  # a follower carries it to the leader
        assert answer.status_code == 202, answer.text
        said = answer.json()
        assert (said["leader"], said["to"]) == (leader.node.node_id, to.node.node_id)
        await handed_over(replicas, to)
        again = await asked.client.post(WAY, json=body)
        assert (again.status_code, again.json()["changed"]) == (200, False)
        for each in replicas.nodes.values():
            path = "/v1/topics/orders/queues/0/messages?offset=0"
            messages = (await each.client.get(path)).json()["messages"]
            assert [message["text"] for message in messages] == ["one"]
        events = await hand_overs(asked, epoch)
        assert [each["node_id"] for each in events] == [to.node.node_id], (
            await asked.client.get("/v1/cluster/events")
        ).json()
        (event,) = events
        assert event["detail"].endswith("; asked for by somebody without a key")
        entries = (await asked.client.get("/v1/audit?action=UPDATE")).json()["entries"]
        noted = [each for each in entries if each["resource"] == f"shard:{SHARD}"]
        assert len(noted) == 4, entries  # before and behind each of the two, and no dry run


def runner_of(served: ServedNode) -> ReplicaRunner:
    replica = shard_of(served)._replica
    assert replica is not None
    return replica._runner


def links_of(served: ServedNode) -> PeerLinks:
    links = runner_of(served)._parts.connections
    assert isinstance(links, PeerLinks)
    return links


def takes_sends(leader: ServedNode) -> bool:
    leading = runner_of(leader)._owner.leading
    return leading is not None and leading.gate.too_few is None


def part(replicas: Replicas, one: ServedNode) -> Callable[[], None]:
    """End the connections of a node with the others; none is made until what is returned is
    called."""
    urls = {links: links._urls for links in map(links_of, replicas.nodes.values())}
    for links in urls:
        links._urls = dict
    for other in others(replicas, one):
        links_of(one).close(other.node.node_id)

    def heal() -> None:
        for links, known in urls.items():
            links._urls = known

    return heal


async def test_a_leader_begins_while_the_others_are_between_two_connections(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker appends an epoch of its own: that was refused, and another hand-over followed."""
    heal: Callable[[], None] | None = None
    opened = ServedTerm.open
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put("/v1/topics/orders", json={"queues": 1})
        await leader.client.post("/v1/topics/orders/messages", content=b"one")
        await replicas.in_sync(3)  # one that is not yet in sync is given nothing
        epoch, to = status_of(leader).epoch, others(replicas, leader)[0]

        async def open_parted(*parts: Any) -> ServedTerm:
            nonlocal heal
            assert heal is None, "it begins once"
            heal = part(replicas, to)
            await until(lambda: status_of(to).lacking_count == 1)
            return await opened(*parts)

        monkeypatch.setattr(ServedTerm, "open", open_parted)
        asked_s = -AGAIN_S

        def begins() -> bool:
            """Asked again where it was not taken: one that has just joined may be out of the set
            once more, and is given nothing then."""
            nonlocal asked_s
            if heal is None and leader.node.term is not None and monotonic() - asked_s > AGAIN_S:
                asked_s = monotonic()
                shard_of(leader).hand_over_to(to.node.node_id, "ada")
            return heal is not None

        await until(begins)
        await until(lambda: to.node.term is not None)
        assert [each.name for each in replicas.leaders()] == [to.name]
        read = await to.client.get("/v1/topics/orders/queues/0/messages?offset=0")
        assert [message["text"] for message in read.json()["messages"]] == ["one"]
        refused = await to.client.post("/v1/topics/orders/messages", content=b"two")
        assert (refused.status_code, refused.json()["code"]) == (503, "NOT_ENOUGH_REPLICAS")
        assert heal is not None
        heal()
        await handed_over(replicas, to)
        await until(lambda: takes_sends(to))
        sent = await to.client.post("/v1/topics/orders/messages", content=b"two")
        assert sent.status_code == 201, sent.text
        assert status_of(to).epoch == epoch + 1
        assert len(await hand_overs(to, epoch)) == 1


async def test_without_a_name_it_is_one_in_sync(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        answer = await leader.client.post(WAY)
        assert answer.status_code == 202, answer.text
        (to,) = (
            each for each in others(replicas, leader) if each.node.node_id == answer.json()["to"]
        )
        await handed_over(replicas, to)


async def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        gone, asked = others(replicas, leader)
        epoch = leader.node.broker.epochs.current
        unknown = await asked.client.post("/v1/shards/nowhere/hand-over")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "SHARD_NOT_FOUND")
        strange = await asked.client.post(WAY, json={"node": "nobody"})
        assert (strange.status_code, strange.json()["reason"]) == (409, "not_a_member")
        await replicas.kill(gone.name)
        await replicas.in_sync(2)
        await until(lambda: not status_of(leader).lacking_count)
        away = await asked.client.post(WAY, json={"node": gone.node.node_id})
        assert (away.status_code, away.json()["reason"]) == (409, "not_connected")
        await leader.node.metadata.refresh()
        (shard,) = (await leader.client.get("/v1/cluster")).json()["shards"]
        ends = {each["node_id"]: each["log_end"] for each in shard["replicas"]}
        assert ends[leader.node.node_id] == ends[asked.node.node_id] == shard["high_watermark"] > 0
        (shown,) = (each for each in shard["replicas"] if each["node_id"] == gone.node.node_id)
        assert (shown["in_sync"], shown["connected"]) == (False, False)
        assert shown["out_of_sync_ms"] >= 0
        assert shown["why"] == "it is not connected"
        figures = (await leader.client.get("/metrics")).text
        labels = f'{{shard="{SHARD}",replica="{gone.node.node_id}"}}'
        assert f"curlew_replica_in_sync{labels} 0\n" in figures
        assert f'curlew_replicas_lacking{{shard="{SHARD}"}} 0\n' in figures
        here = f'{{shard="{SHARD}",replica="{asked.node.node_id}"}}'
        figures = (await asked.client.get("/metrics")).text
        assert f"curlew_replica_leading{here} 0\n" in figures
        assert f"curlew_replica_leader_known{here} 1\n" in figures
        assert "curlew_replica_in_sync" not in figures  # the leader tells of it
        assert leader.node.broker.epochs.current == epoch
        assert await replicas.led() is leader


async def test_one_that_is_gone_in_the_moment_costs_a_term(tmp_path: Path, url: str) -> None:
    """The leader gives up, and leads again."""
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put("/v1/topics/orders", json={"queues": 1})
        epoch = leader.node.broker.epochs.current
        to = others(replicas, leader)[0]
        replica = shard_of(to)._replica
        assert replica is not None
        await replicas.kill(to.name)
        shard_of(leader).hand_over_to(to.node.node_id, "ada")  # as its status said
        await until(lambda: bool(replicas.leaders()))
        await replicas.in_sync(2)
        second = await replicas.led()
        answer = await second.client.post("/v1/topics/orders/messages", content=b"one")
        assert answer.status_code == 201, answer.text
        assert second.node.broker.epochs.current >= epoch
