"""Three nodes of one shard in the test's event loop, over one PostgreSQL."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from app.cluster import ClusterSnapshot
from app.node_parts.replicated_shard import ReplicatedShard
from app.replica.replica_status import ReplicaStatus
from tests.support.cluster.three_nodes import ServedNode, start_node

SHARD = "orders"
TOPIC = "/v1/topics/orders"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, and leave the processor to the replicas' threads meanwhile."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Replicas:
    """The nodes by name; those that are stopped or killed are not among them."""

    def __init__(self, directory: Path, url: str, settings: dict[str, Any]) -> None:
        self.nodes: dict[str, ServedNode] = {}
        self._directory = directory
        self._url = url
        self._settings = settings
        self._ports: dict[str, dict[str, Any]] = {}

    async def start(self, name: str) -> ServedNode:
        """Where it was before, if it was."""
        settings = {"replicas": 3, "shard": SHARD, **self._settings, **self._ports.get(name, {})}
        served = await start_node(self._directory, self._url, name, **settings)
        config = served.node.config
        self._ports[name] = {"port": config.port, "cluster_listen": config.cluster_listen}
        self.nodes[name] = served
        return served

    async def stop(self, name: str) -> None:
        """In order."""
        await self.nodes.pop(name).stop()

    async def kill(self, name: str) -> None:
        """As kill -9, but for what a process has: its replica says nothing more."""
        served = self.nodes.pop(name)
        replica = shard_of(served)._replica
        assert replica is not None
        await replica._runner.kill()
        await served.stop()

    def leaders(self) -> list[ServedNode]:
        return [each for each in self.nodes.values() if each.node.term is not None]

    async def led(self) -> ServedNode:
        """The one that leads."""
        await until(lambda: len(self.leaders()) == 1)
        return self.leaders()[0]

    async def know_all(self, count: int) -> None:
        """Wait until each replica has begun anew with so many members: until then it may leave the
        set once more."""
        for each in self.nodes.values():
            shard = shard_of(each)
            await until(lambda shard=shard: len(members_of(shard)) == count)  # type: ignore[misc]

    async def in_sync(self, count: int) -> None:
        """Wait for so many replicas in sync, as the leader has it, and until none is about to begin
        anew: a leader that does leads nothing meanwhile."""
        await until(
            lambda: (
                any(len(status_of(each).in_sync) == count for each in self.leaders())
                and self._know_members()
            )
        )

    def _know_members(self) -> bool:
        """Whether all replicas at work have the members that the newest metadata has."""
        newest = max((each.node.metadata.snapshot for each in self.nodes.values()), key=_version)
        members = {each.node_id for each in newest.shards[SHARD].members}
        at_work = (members_of(shard_of(each)) for each in self.nodes.values())
        return all(known in (frozenset(), members) for known in at_work)


def _version(snapshot: ClusterSnapshot) -> int:
    return snapshot.version


def shard_of(served: ServedNode) -> ReplicatedShard:
    shard = served.node._shard
    assert isinstance(shard, ReplicatedShard)
    return shard


def members_of(shard: ReplicatedShard) -> frozenset[str]:
    """As the replica that is at work knows them."""
    return frozenset() if shard._replica is None else shard._replica.members


def status_of(served: ServedNode) -> ReplicaStatus:
    replica = shard_of(served)._replica
    assert replica is not None
    return replica.status


@contextlib.asynccontextmanager
async def three_replicas(directory: Path, url: str, **settings: Any) -> AsyncIterator[Replicas]:
    """Nodes a, b and c of the shard `orders`, all in sync."""
    replicas = Replicas(directory, url, settings)
    try:
        for name in "abc":
            await replicas.start(name)
        await replicas.know_all(3)
        await replicas.in_sync(3)
        yield replicas
    finally:
        for name in list(replicas.nodes):
            await replicas.stop(name)


async def send(served: ServedNode, body: str) -> None:
    answer = await served.client.post(f"{TOPIC}/messages?queue_id=0", content=body.encode())
    assert answer.status_code == 201, answer.text


async def bodies(served: ServedNode) -> list[str]:
    answer = await served.client.get(f"{TOPIC}/queues/0/messages?offset=0&max_messages=32")
    assert answer.status_code == 200, answer.text
    return [each["text"] for each in answer.json()["messages"]]


def others(replicas: Replicas, leader: ServedNode) -> list[ServedNode]:
    return [each for each in replicas.nodes.values() if each is not leader]
