"""Three processes that have one shard in common, and a sender that keeps what it was told."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import httpx

from tests.support.cluster.hosts import Host
from tests.support.cluster.node_clock import NodeClock
from tests.support.nodes.fork_server import NETWORK
from tests.support.nodes.free_ports import free_port
from tests.support.nodes.node import RunningNode, start_node
from tests.support.nodes.waiting import wait_until

TOPIC = "/v1/topics/orders"
NAMES = ("a", "b", "c")
_OF_A_STORE = "curlew_store_damage_total"
"""A figure that a node has while it leads."""
_NONE_BEHIND = 'curlew_degraded{code="REPLICAS_BEHIND"} 0'


class Shard:
    """The nodes by name, on this machine or each on a host of its own."""

    def __init__(
        self,
        root: Path,
        url: str,
        flags: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        hosts: Mapping[str, Host] | None = None,
    ) -> None:
        self.nodes: dict[str, RunningNode] = {}
        self.clocks = {name: NodeClock(root / f"clock-{name}") for name in NAMES}
        self._root = root
        self._hosts = hosts or {}
        self._flags = flags
        self._environment = environment or {}
        self._ports = {name: (free_port(), free_port()) for name in NAMES}
        self._secret = root / "secret"
        self._secret.touch(0o600)
        self._secret.write_text("5" * 64)
        self._database = root / "database.url"
        self._database.touch(0o600)
        self._database.write_text(url)

    def start(self, name: str) -> None:
        self.nodes[name] = self._started(name, "orders", 3)

    @contextmanager
    def lone_shard(self, name: str) -> Iterator[RunningNode]:
        """A node of the same cluster with a shard of its own, which has its name."""
        self._ports[name] = free_port(), free_port()
        self.clocks[name] = NodeClock(self._root / f"clock-{name}")
        node = self._started(name, name, 1)
        try:
            yield node
        finally:
            node.kill()
            _forget(node)

    def _started(self, name: str, shard: str, replicas: int) -> RunningNode:
        port, cluster_port = self._ports[name]
        host = self._hosts.get(name)
        address = host.address if host else "127.0.0.1"
        network = {NETWORK: host.namespace} if host else {}
        return start_node(
            self._root / name,
            *("--port", str(port), "--shard", shard, "--replicas", str(replicas)),
            *("--database-url-file", str(self._database)),
            *("--cluster-listen", f"{address}:{cluster_port}"),
            *("--cluster-secret-file", str(self._secret)),
            *self._flags,
            environment={**self._environment, **network, **self.clocks[name].environment},
        )

    def stop(self, name: str) -> None:
        """In order."""
        node = self.nodes.pop(name)
        try:
            assert node.stop() == 0
        finally:
            _forget(node)

    def kill(self, name: str) -> None:
        node = self.nodes.pop(name)
        node.kill()
        _forget(node)

    def end(self) -> None:
        for name in list(self.nodes):
            self.kill(name)

    def urls(self) -> list[str]:
        return [node.url for node in list(self.nodes.values())]

    def leader(self, but: str = "") -> str:
        """The one that leads, once one does; `but` is not asked."""
        found: list[str] = []

        def look() -> bool:
            asked = [name for name in self.nodes if name != but]
            found[:] = [name for name in asked if _OF_A_STORE in self.figures(name)]
            return len(found) == 1

        wait_until(look)
        return found[0]

    def in_sync(self, within_s: float = 60.0) -> None:
        """Wait until a leader counts all three."""

        def are_in_sync() -> bool:
            figures = [self.figures(name) for name in self.nodes]
            return any(map(leads_all, figures))

        wait_until(are_in_sync, within_s)

    def figures(self, name: str) -> str:
        """`/metrics` of a node; empty where it does not answer."""
        try:
            return self.asked(name, "GET", "/metrics").text
        except httpx.HTTPError:
            return ""

    def asked(self, name: str, method: str, path: str, body: object = None) -> httpx.Response:
        """The answer of a node."""
        url = f"{self.nodes[name].url}{path}"
        request = partial(httpx.request, method, url, json=body)
        host = self._hosts.get(name)
        return host.call(request) if host else request()


def leads_all(figures: str) -> bool:
    """Whether `/metrics` is of a leader that counts all others in."""
    return _OF_A_STORE in figures and _NONE_BEHIND in figures


def _forget(node: RunningNode) -> None:
    assert node.process.stdout is not None
    node.process.stdout.close()


class Sender:
    """Sends numbers, one at a time, to any node; each until it is confirmed or may be stored."""

    def __init__(self, urls: Callable[[], list[str]]) -> None:
        self.confirmed: list[int] = []
        self.unknown: dict[int, str] = {}
        """Number → what was said of it."""
        self.unknown_at: set[str] = set()
        """The nodes that were asked."""
        self._urls = urls
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def goes_on(self, count: int = 20) -> None:
        """Wait until so many more are confirmed."""
        before = len(self.confirmed)
        wait_until(lambda: len(self.confirmed) >= before + count)

    def _run(self) -> None:
        with httpx.Client(timeout=30) as client:
            for number in itertools.count():
                if self._is_over.is_set():
                    return
                self._send(client, number)

    def _send(self, client: httpx.Client, number: int) -> None:
        for attempt in itertools.count():
            urls = self._urls()
            url = urls[(number + attempt) % len(urls)]
            try:
                answer = client.post(f"{url}{TOPIC}/messages?queue_id=0", content=str(number))
            except httpx.ConnectError:
                pass  # it is not there: nothing was stored
            except httpx.HTTPError as error:
                self._does_not_know(number, url, repr(error))
                return
            else:
                if (said := outcome(answer)) == "stored":
                    self.confirmed.append(number)
                    return
                if said == "unknown":
                    self._does_not_know(number, url, answer.text)
                    return
            if self._is_over.wait(0.02):
                return

    def _does_not_know(self, number: int, url: str, said: str) -> None:
        self.unknown[number] = said
        self.unknown_at.add(url)


@contextmanager
def three_processes(
    root: Path,
    url: str,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    hosts: Mapping[str, Host] | None = None,
) -> Iterator[Shard]:
    """All in sync, with a topic `orders` of one queue. Their directories are `a`, `b` and `c` below
    `root`; `flags` and `environment` are of each. With `hosts` each runs on its own."""
    made = Shard(root, url, flags, environment, hosts)
    try:
        for name in NAMES:
            made.start(name)
        made.in_sync()
        assert made.asked(made.leader(), "PUT", TOPIC, {"queues": 1}).status_code == 201
        yield made
    finally:
        made.end()


def outcome(answer: httpx.Response) -> str:
    """What an answer to a send says of the message: `stored`, `not_stored` or `unknown`."""
    if answer.status_code == 201:
        return "stored"
    return "not_stored" if answer.json().get("outcome") == "not_stored" else "unknown"


def stored(url: str, topic: str = TOPIC) -> list[int]:
    """All numbers that are in the queue, in its order."""
    found: list[int] = []
    while True:
        path = f"{topic}/queues/0/messages?offset={len(found)}&max_messages=100"
        answer = httpx.get(f"{url}{path}")
        assert answer.status_code == 200, answer.text
        messages = answer.json()["messages"]
        if not messages:
            return found
        found += [int(each["text"]) for each in messages]


def check(shard: Shard, sender: Sender) -> None:
    """What was confirmed is there once, and nothing that was not sent."""
    for url in shard.urls():
        found = stored(url)
        assert [number for number in found if number not in sender.unknown] == sender.confirmed
        assert found == sorted(set(found))
