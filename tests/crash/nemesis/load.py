"""Producers and consumers of a cluster, each on the host of a node whose port it asks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from tests.history.ending import dead_letters, drain
from tests.history.events import Drained, Event, NodeDied, Sent
from tests.history.load import MAX_ATTEMPTS, QUEUES, RETRY_DELAYS
from tests.history.worker import GROUP, TOPIC, Client
from tests.history.workers import INVISIBLE_MS, Workers
from tests.support.cluster.hosts import Host
from tests.support.cluster.three_processes import Shard
from tests.support.nodes.waiting import wait_until

ROLES: Final = ("produce", "consume")
"""One worker of each on each host."""
MODULE: Final = "tests.crash.nemesis.worker"


class ClusterLoad:
    """Its workers, and the events of the faults between theirs."""

    def __init__(
        self, directory: Path, shard: Shard, hosts: Mapping[str, Host], replication: str
    ) -> None:
        self._workers = Workers(directory)
        self._shard = shard
        self._hosts = hosts
        self._faults: list[Event] = []
        self._producers = [f"{ROLES[0]}-{name}" for name in hosts]
        self._sent: list[Sent] = []
        self._read: dict[str, int] = {}
        topic = {"queues": QUEUES, "replication": replication}
        leader = shard.leader()
        assert shard.asked(leader, "PUT", f"/v1/topics/{TOPIC}", topic).status_code == 201
        group = {
            "max_attempts": MAX_ATTEMPTS,
            "retry_policy": {"customized": list(RETRY_DELAYS)},
            "invisible_ms": INVISIBLE_MS,
        }
        assert shard.asked(leader, "PUT", f"/v1/groups/{GROUP}", group).status_code == 201
        for name, host in hosts.items():
            for role in ROLES:
                port = shard.nodes[name].port
                self._workers.start(role, f"{role}-{name}", port, MODULE, host.command_prefix)

    def goes_on(self, count: int = 30) -> None:
        """Wait until so many more messages are confirmed."""
        wanted = self.confirmed() + count
        wait_until(lambda: self.confirmed() >= wanted, within_s=90)

    def confirmed(self) -> int:
        """Messages so far."""
        return sum(event.outcome == "ok" for event in self.sent())

    def sent(self) -> list[Sent]:
        """By all producers so far, each one's in its order."""
        for name in self._producers:
            events, self._read[name] = self._workers.since(name, self._read.get(name, 0))
            self._sent += [each for each in events if isinstance(each, Sent)]
        return self._sent

    def note_fault(self, began_s: float, ended_s: float) -> None:
        """In that time leases may have ended for reasons of the cluster's."""
        self._faults.append(NodeDied(began_s, ended_s))

    def come_to_rest(self) -> list[Event]:
        """End the workers, take what is left, and give all that was seen."""
        self._workers.end(*self._producers)
        self._workers.end()
        leader = self._shard.leader()
        port = self._shard.nodes[leader].port
        left, letters = self._hosts[leader].call(lambda: _ending(port))
        rest = [*left, letters, Drained(letters.began_s, monotonic())]
        return [*self._faults, *rest, *self._workers.so_far()]

    def close(self) -> None:
        self._workers.kill()


def _ending(port: int) -> tuple[list[Event], Event]:
    client = Client(port)
    try:
        return drain(client), dead_letters(client)
    finally:
        client.close()


@contextmanager
def cluster_load(
    directory: Path, shard: Shard, hosts: Mapping[str, Host], replication: str
) -> Iterator[ClusterLoad]:
    load = ClusterLoad(directory, shard, hosts, replication)
    try:
        load.goes_on()
        yield load
    finally:
        load.close()
