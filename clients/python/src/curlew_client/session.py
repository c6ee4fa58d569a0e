"""What all calls of one client share: nodes, numbers, state, and who holds which client id.

States: created, running (from the first call on), closing, closed. A client belongs to the process
that made it: in a forked child every call is refused.
"""

import os
import re
import threading
import time
import weakref
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

from curlew_client.errors import ClientClosed
from curlew_client.hooks import Hooks
from curlew_client.options import (
    OF_THE_CLUSTER,
    VERSION,
    Node,
    Options,
    believed,
    key_of,
    lines_of,
    new_client_id,
    nodes_of,
)
from curlew_client.producing.batches import Batches
from curlew_client.producing.fault_table import FaultTable
from curlew_client.producing.lanes import Lane, Lanes
from curlew_client.producing.messages import SendRequest
from curlew_client.producing.routes import NO_RELAY, Routes, Way, scope_of
from curlew_client.wire.durations import seconds_of

State = Literal["created", "running", "closing", "closed"]

_CLIENT_ID: Final = re.compile(r"[A-Za-z0-9._@~-]{1,120}")
_LIVE: Final[weakref.WeakValueDictionary[str, "Session"]] = weakref.WeakValueDictionary()
_LIVE_LOCK: Final = threading.Lock()


QUEUES_VALID_S: Final = 30.0
"""As long as RocketMQ's clients believe a route (pollNameServerInterval)."""
TOPICS_KEPT: Final = 10_000


class Session:
    """One client's. Thread-safe."""

    def __init__(
        self,
        url: Any = None,
        *,
        key: str | None = None,
        client_id: str | None = None,
        options: Options,
    ) -> None:
        nodes = nodes_of(url)
        self._key = key_of(key)
        self.options = options
        self.hooks = Hooks(options.hooks)
        self.timeout_s = seconds_of("timeout", options.timeout)
        self.connect_timeout_s = seconds_of("connect_timeout", options.connect_timeout)
        self.linger_s = seconds_of("linger", options.linger)
        self.client_id = self._claimed(client_id)
        self.nodes = {node.url: node for node in nodes}
        self.faults = FaultTable(list(self.nodes), is_on=options.avoid_slow_nodes)
        self.routes = Routes(
            self.learned,
            self.faults.away_until_ms,
            is_on=options.routes,
            is_one_given=len(nodes) == 1,
        )
        self._given = nodes
        epoch = time.time_ns() // 1_000_000
        self.lanes = Lanes(self.client_id, epoch)
        self.state: State = "created"
        self._lines = {node.url: self._lines_of(node) for node in nodes}
        self.is_of_this_process = True
        """False in a forked child."""
        self.batches: Batches | None = None
        """Those of a blocking client while it takes messages: `send_async` asks no more."""
        self._queues: dict[str, tuple[float, Sequence[int]]] = {}
        self.groups: set[tuple[str | None, str]] = set()
        """Topics and groups that a consumer of this client reads; None: it has the group whole."""

    def _claimed(self, client_id: str | None) -> str:
        if client_id is None:
            client_id = new_client_id(time.monotonic_ns)
        if not isinstance(client_id, str):
            raise TypeError(f"client_id is a str, not {type(client_id).__name__}")
        if not _CLIENT_ID.fullmatch(client_id):
            raise ValueError(
                f"client_id is {client_id!r}; it has 1 to 120 letters, digits, or . _ @ ~ -"
            )
        with _LIVE_LOCK:
            if client_id in _LIVE:
                raise ValueError(
                    f"another client of this process has the client_id {client_id!r}; close it "
                    "first, share it, or leave client_id out"
                )
            _LIVE[client_id] = self
        return client_id

    def __repr__(self) -> str:
        given = ",".join(node.url for node in self._given)
        return f"url={given!r}, client_id={self.client_id!r}, state={self.state!r}"

    def headers_of(self, target: str) -> dict[str, str]:
        """What a request has, for those of other libraries."""
        found = {"user-agent": f"curlew-client-python/{VERSION}"}
        if self._key:
            found["authorization"] = f"Bearer {self._key}"
        if self.options.namespace is not None and not target.startswith(OF_THE_CLUSTER):
            found["mq-namespace"] = self.options.namespace
        return found

    def check_usable(self) -> None:
        """Raise `ClientClosed` unless calls are taken."""
        if self.state == "running" and self.is_of_this_process:
            return
        if not self.is_of_this_process:
            raise ClientClosed(
                "this client belongs to the process that made it; make another one after a fork"
            )
        if self.state != "created":
            raise ClientClosed(f"the client is {self.state}; make another one")
        self.state = "running"

    def claim(self, group: str, topics: Collection[str] | None) -> None:
        """Take a group for a consumer, in these topics or whole. `ValueError`: it is taken."""
        for topic, taken in self.groups:
            if taken == group and (topics is None or topic is None or topic in topics):
                place = "" if topic is None or topics is None else f" in {topic!r}"
                raise ValueError(
                    f"this client has a consumer of group {group!r}{place} already; use another "
                    "group, or another client"
                )
        self.groups.update((topic, group) for topic in ([None] if topics is None else topics))

    def give_up(self, group: str, topics: Collection[str] | None) -> None:
        """The consumer is gone."""
        taken = {(topic, group) for topic in ([None] if topics is None else topics)}
        self.groups.difference_update(taken)

    def known_queues(self, topic: str) -> Sequence[int] | None:
        """The queues of a topic that take messages; None: they have to be asked for."""
        kept = self._queues.get(topic)
        return None if kept is None or kept[0] < time.monotonic() else kept[1]

    def keep_queues(self, topic: str, queues: Sequence[int]) -> None:
        """Keep them for `QUEUES_VALID_S`."""
        if len(self._queues) >= TOPICS_KEPT:
            self._queues.clear()
        self._queues[topic] = time.monotonic() + QUEUES_VALID_S, queues

    def closed(self) -> None:
        """The client is closed; its id is free."""
        self.state = "closed"
        with _LIVE_LOCK:
            if _LIVE.get(self.client_id) is self:
                del _LIVE[self.client_id]

    def _lines_of(self, node: Node) -> str:
        return lines_of(node, self._key, self.options.namespace)

    def learned(self, url: object) -> Node | None:
        """A node that another one told of."""
        node = believed(url, self._given)
        if node is not None and node.url not in self.nodes:
            self._lines[node.url] = self._lines_of(node)
            self.nodes[node.url] = node
            self.faults.learn(node.url)
        return None if node is None else self.nodes[node.url]

    def pick(self, failed: str | None = None) -> Node:
        """The node for the next attempt."""
        return self.nodes[self.faults.pick(time.monotonic() * 1_000, failed)]

    def render(self, node: Node, method: str, target: str, lines: str, body: bytes) -> bytes:
        """The bytes of a request."""
        own = self._lines[node.url]
        if self.options.namespace is not None and target.startswith(OF_THE_CLUSTER):
            own = lines_of(node, self._key, None)
        head = f"{method} {node.prefix}{target} HTTP/1.1\r\n{own}{lines}"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode("latin-1") + body

    def render_send(
        self, node: Node, request: SendRequest, lane: Lane | None, way: Way | None = None
    ) -> bytes:
        """The bytes of a send; with numbers if it has a lane."""
        lines = request.lines
        scope = request.scope
        if way is not None:
            scope = scope_of(request, way)
            if way.may_choose:
                lines += f"mq-queue-id: {way.queue_id}\r\n"
            if way.url is not None and request.is_numbered:
                lines += NO_RELAY
        if ":request" not in request.target:  # which asks, and takes no name
            lines += f"mq-client-id: {self.client_id}\r\n"
        if lane is not None:
            lines += (
                f"mq-producer-id: {lane.producer_id}\r\nmq-producer-epoch: {self.lanes.epoch}\r\n"
                f"mq-producer-seq: {lane.number(scope)}\r\n"
            )
        return self.render(node, "POST", request.target, lines, request.body)


def _forked() -> None:
    for session in list(_LIVE.values()):
        session.is_of_this_process, session.batches = False, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
