"""Where the queues of topics are led, and which node a send or a receive goes to. Pure.

A cluster of several shards takes any request at any node, and relays it. A client spares the relay:
it asks for the route of a topic, keeps it for `valid_ms`, and sends straight to the node that leads
the queue. A node that refuses as `NOT_LEADER` ends the route; that send goes on over any node.

- A message that names no queue and has no key: the client chooses the queue, in turn.
- A queue that is named: its leader.
- A sharding key: the leader of the queue that it chooses. The node chooses the queue itself, so a
  route that is not the newest costs a relay and never another queue.
- A receive looks at each leader of queues that are read, and waits at any node.
- A pull goes to the leader of its queue, a poll to the leader of most of the member's queues.

A lone node is not asked twice. With one address, a client learns the route behind its first send;
when that has one shard it asks no more, unless a node answers as only nodes of a cluster do.

Thread-safe.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from curlew_client.errors import CurlewError, QueueNotFound, ServiceError
from curlew_client.options import Node
from curlew_client.producing.lanes import Scope
from curlew_client.producing.messages import ANY_QUEUE, Message, SendRequest

TOPICS_KEPT: Final = 10_000
AGAIN_S: Final = 1.0
"""A route that could not be had is asked for again after this."""
REFUSED_S: Final = 30.0
"""The same when the node gives none: no right to it, or an older node."""
ASIDE_S: Final = 5.0
"""How long messages that may go anywhere leave a shard alone that did not take one."""
UNREACHED_S: Final = 30.0
"""How long a node that could not be reached is asked over others."""
VALID_S_MAX: Final = 600.0
NO_RELAY: Final = "mq-forward: no\r\n"
"""The header line of a request that goes straight to a leader."""

_OF_CLUSTERS: Final = frozenset(
    {"NOT_LEADER", "SHARD_UNAVAILABLE", "RELAY_INTERRUPTED", "SEQUENCE_OUT_OF_ORDER"}
)
"""Codes after which a client asks whether it is a cluster."""


class RoutedQueue(NamedTuple):
    """A queue that takes messages. `is_led`: whether a leader that answers is known; `url`: its
    address, None when it cannot be used from here; `keeps_keys`: its keys have not moved, as they
    do while a shard drains."""

    queue_id: int
    shard: str
    is_led: bool
    url: str | None
    keeps_keys: bool = True


class Route(NamedTuple):
    """Of a topic. `queues`: those that take any message; `hashed`: those that keys are hashed over,
    the first so many, though their shards may drain."""

    queues: Sequence[RoutedQueue]
    hashed: Sequence[RoutedQueue]
    shard_count: int
    read_at: Mapping[int, str | None]
    """The leaders of the queues that are read, as `RoutedQueue.url`."""
    readers: Sequence[str | None]
    """Of each shard with such queues."""


class _Kept:
    __slots__ = ("due_s", "is_asked", "route", "tag")

    def __init__(self) -> None:
        self.due_s = 0.0
        self.is_asked = False
        self.route: Route | None = None
        self.tag = ""


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, by which nodes choose the queue of a sharding key."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + ((units[index] << 8) | units[index + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


class Straight:
    """Where the attempts of a request of one shard go, and how long each may be silent."""

    __slots__ = ("begins_by_s", "url")

    def __init__(self, url: str | None, begins_by_s: float | None = None) -> None:
        self.url = url
        """Of the leader; None: any node, which relays."""
        self.begins_by_s = begins_by_s
        """Until when an answer has to have begun, by the monotonic clock; None: no such bound."""


class Way(Straight):
    """Where the attempts of one send go. `queue_id`: that the client chose, or was given."""

    __slots__ = ("may_choose", "queue_id", "shard")

    def __init__(self, queue: RoutedQueue, url: str | None, *, may_choose: bool) -> None:
        super().__init__(url)
        self.queue_id = queue.queue_id
        self.shard = queue.shard
        self.may_choose = may_choose


def scope_of(request: SendRequest, way: Way | None) -> Scope:
    """The scope of a send's numbers: a queue that the client chose has its own."""
    return request.scope if way is None or not way.may_choose else (request.topic, way.queue_id)


class Routes:
    """The routes of one client."""

    def __init__(
        self,
        learn: Callable[[object], Node | None],
        away_until_ms: Callable[[str], float],
        *,
        is_on: bool,
        is_one_given: bool,
    ) -> None:
        """`learn` takes the address of a node; `away_until_ms` is the fault table's."""
        self._learn = learn
        self._away_until_ms = away_until_ms
        self._may_be_on = is_on
        self._is_one_given = is_one_given
        self.is_on = is_on
        """Whether routes are asked for and used. False on a lone node."""
        self._is_cluster = False
        """Whether it is known to have several shards, whatever the route of one topic says."""
        self._has_sent = False
        self._kept: dict[str, _Kept] = {}
        self._aside_s: dict[str, float] = {}
        self._unreached_s: dict[str, float] = {}
        self._silent_s: dict[str, float] = {}
        self._turn = 0
        self._lock = threading.Lock()

    # --- asking

    def asks(self, topic: str, now_s: float) -> str | None:
        """Header lines with which the route has to be asked for now; None: it is not to be, or
        another send asks. `keep` or `fail` follows."""
        with self._lock:
            if not self._has_sent:
                self._has_sent = True
                return None
            kept = self._kept.get(topic)
            if kept is None:
                if len(self._kept) >= TOPICS_KEPT:
                    self._kept.clear()
                kept = self._kept[topic] = _Kept()
            if kept.is_asked or kept.due_s > now_s:
                return None
            kept.is_asked = True
            return f"if-none-match: {kept.tag}\r\n" if kept.tag else ""

    def keep(self, topic: str, status: int, tag: str | None, body: bytes, now_s: float) -> None:
        """The answer: a route, or 304."""
        if status == 304:
            self.fail(topic, now_s + REFUSED_S)
            return
        try:
            document = json.loads(body)
            valid_s = min(document["valid_ms"] / 1_000, VALID_S_MAX)
            route = self._read(document["queues"], document.get("write_queues"))
        except (ValueError, TypeError, KeyError):
            self.fail(topic, now_s + REFUSED_S)
            return
        with self._lock:
            kept = self._kept.setdefault(topic, _Kept())
            kept.is_asked = False
            kept.route, kept.tag = route, tag or ""
            kept.due_s = now_s + valid_s
            if route.shard_count > 1:
                self._is_cluster = True
            elif self._is_one_given and not self._is_cluster:
                self.is_on = False

    def fail(self, topic: str, due_s: float) -> None:
        """There was nothing new; what was known stays."""
        with self._lock:
            kept = self._kept.setdefault(topic, _Kept())
            kept.is_asked = False
            kept.due_s = due_s

    def _read(self, rows: Sequence[Mapping[str, Any]], write_queues: int | None) -> Route:
        """`write_queues` None: from a node of an older version, where no shard drains."""
        shard_count = len({row["shard"] for row in rows})
        learn = self._learn if shard_count > 1 or self._is_cluster else _no_node
        queues: list[RoutedQueue] = []
        hashed: list[RoutedQueue] = []
        read_at: dict[int, str | None] = {}
        readers: dict[str, str | None] = {}
        for row in rows:
            leader = None if row["leader"] is None else learn(row["leader"])
            url = None if leader is None else leader.url
            is_led = row["leader"] is not None
            keeps_keys = row.get("takes", "all") != "none"
            queue = RoutedQueue(row["queue_id"], row["shard"], is_led, url, keeps_keys)
            if "w" in row["perm"]:
                queues.append(queue)
            if "w" in row["perm"] if write_queues is None else row["queue_id"] < write_queues:
                hashed.append(queue)
            if "r" in row["perm"]:
                read_at[row["queue_id"]] = readers[row["shard"]] = url
        return Route(queues, hashed, shard_count, read_at, list(readers.values()))

    # --- choosing

    def way(self, request: SendRequest, now_s: float) -> Way | None:
        """The way of a send; None: no route is known, any node takes it."""
        kept = self._kept.get(request.topic)
        route = None if kept is None else kept.route
        if not self.is_on or route is None or not route.queues:
            return None
        queue: RoutedQueue | None = None
        if request.may_choose:
            queue = self._choose(route, now_s)
        elif request.scope[1] != ANY_QUEUE:
            named = request.scope[1]
            queue = route.hashed[named] if named < len(route.hashed) else None
        elif request.sharding_key is not None:
            queue = _of_key(route, request.sharding_key)
        if queue is None:
            return None
        return Way(queue, self._straight(queue, now_s), may_choose=request.may_choose)

    def parts(self, topic: str, messages: Sequence[Message]) -> list[list[int]]:
        """The indexes of keyed messages, by the shard that each goes to; others together."""
        kept = self._kept.get(topic)
        route = None if kept is None else kept.route
        if not self.is_on or route is None or route.shard_count <= 1 or not route.queues:
            return [list(range(len(messages)))]
        found: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            key = message.sharding_key
            shard = "" if key is None else _of_key(route, key).shard
            found.setdefault(shard, []).append(index)
        return list(found.values())

    def _choose(self, route: Route, now_s: float, besides: str | None = None) -> RoutedQueue:
        """The next in turn that is led and not set aside; else the one that is soonest back."""
        self._turn = turn = self._turn + 1
        queues = route.queues
        count = len(queues)
        for step in range(count):
            queue = queues[(turn + step) % count]
            if queue.is_led and queue.shard != besides and self._back_s(queue) <= now_s:
                return queue
        others = [queue for queue in queues if queue.is_led and queue.shard != besides]
        return min(others or queues, key=self._back_s)

    def _back_s(self, queue: RoutedQueue) -> float:
        """From when on messages that may go anywhere are given to it again."""
        aside_s = self._aside_s.get(queue.shard, 0.0)
        return aside_s if queue.url is None else max(aside_s, self._away_until_ms(queue.url) / 1e3)

    def _straight(self, queue: RoutedQueue, now_s: float) -> str | None:
        url = queue.url
        return None if url is None or not self.may_ask(url, now_s) else url

    # --- reading

    def readers(self, topic: str, now_s: float) -> list[str]:
        """The leaders of a topic's shards that are read, where each is known and can be used from
        here; else none, and any node is asked."""
        kept = self._kept.get(topic)
        if not self.is_on or not self._is_cluster or kept is None or kept.route is None:
            return []
        if None in kept.route.readers:
            return []
        urls = list(dict.fromkeys(url for url in kept.route.readers if url is not None))
        return urls if all(self.may_ask(url, now_s) for url in urls) else []

    def leader_of_most(self, queues: Iterable[tuple[str, int]], now_s: float) -> str | None:
        """Who leads most of these queues of topics, and can be used from here; where several lead
        as many, the first one's leader, so that members do not all ask the same. None: any node."""
        if not self.is_on or not self._is_cluster:
            return None
        counts: dict[str, int] = {}
        for topic, queue_id in queues:
            kept = self._kept.get(topic)
            url = None if kept is None or kept.route is None else kept.route.read_at.get(queue_id)
            if url is not None and self._may_poll(url, now_s):
                counts[url] = counts.get(url, 0) + 1
        return max(counts, key=counts.__getitem__, default=None)

    def may_ask(self, url: str, now_s: float) -> bool:
        """Whether a leader is not left alone, since it could not be reached."""
        return self._unreached_s.get(url, 0) <= now_s

    def _may_poll(self, url: str, now_s: float) -> bool:
        return self.may_ask(url, now_s) and self._silent_s.get(url, 0) <= now_s

    def unreached(self, url: str, now_s: float) -> None:
        """Others are asked for a while."""
        self._unreached_s[url] = now_s + UNREACHED_S

    def silent(self, url: str, now_s: float) -> None:
        """A request that waits by intention had no answer: others are polled for a while."""
        self._silent_s[url] = now_s + UNREACHED_S

    def not_read(
        self, topic: str, url: str, error: CurlewError, now_s: float, *, is_of_the_node: bool
    ) -> None:
        """A leader did not answer, or leads no more; the next request asks for the route."""
        if is_of_the_node:
            self.unreached(url, now_s)
        if is_of_the_node or is_not_leader(error):
            self._expire(topic)

    # --- what became of attempts

    def failed(
        self,
        request: SendRequest,
        way: Way | None,
        error: CurlewError,
        now_s: float,
        *,
        is_of_the_node: bool,
    ) -> None:
        """An attempt failed. What is the node's, or may pass, sets the shard aside; a refusal as of
        a cluster turns routes on. Either way the next send asks for the route."""
        is_of_cluster = isinstance(error, ServiceError) and error.code in _OF_CLUSTERS
        if is_not_leader(error):
            self._is_cluster = True
        if self._may_be_on and is_of_cluster:
            self.is_on = True
            self._expire(request.topic)
        is_closed = isinstance(error, ServiceError) and error.code == "NO_PERMISSION"
        if way is not None and way.may_choose and (is_closed or isinstance(error, QueueNotFound)):
            self._expire(request.topic)
        if way is None or not (is_of_the_node or error.retryable):
            return
        if way.url is not None and is_of_the_node:
            self.unreached(way.url, now_s)
        if not is_not_leader(error):
            self._aside_s[way.shard] = now_s + ASIDE_S
        self._expire(request.topic)

    def _expire(self, topic: str) -> None:
        with self._lock:
            self._has_sent = True
            kept = self._kept.get(topic)
            if kept is not None:
                kept.due_s = 0.0

    def move(self, request: SendRequest, way: Way, now_s: float, *, is_open: bool) -> None:
        """The next attempt goes over any node, and to another shard when it may, unless the message
        may be stored already."""
        way.url = None
        kept = self._kept.get(request.topic)
        if is_open or not way.may_choose or kept is None or kept.route is None:
            return
        if kept.route.queues:
            queue = self._choose(kept.route, now_s, besides=way.shard)
            way.queue_id, way.shard = queue.queue_id, queue.shard


def is_not_leader(error: CurlewError) -> bool:
    """Whether another node leads what the request was for; nothing was done."""
    return isinstance(error, ServiceError) and error.code == "NOT_LEADER"


def _no_node(_url: object) -> Node | None:
    """A lone node is where the client has it, whatever it calls itself."""
    return None


def _of_key(route: Route, sharding_key: str) -> RoutedQueue:
    number = java_hash(sharding_key)
    queue = route.hashed[abs(number) % len(route.hashed)]
    if queue.keeps_keys:
        return queue
    queues = [each for each in route.hashed if each.keeps_keys] or route.queues
    bits = number & 0xFFFFFFFF
    return max(queues, key=lambda each: (_mixed(bits ^ _mixed(each.queue_id + 1)), each.queue_id))


def _mixed(number: int) -> int:
    """The last step of MurmurHash3, 32 bits; nodes choose so, too."""
    number ^= number >> 16
    number = number * 0x85EBCA6B & 0xFFFFFFFF
    number ^= number >> 13
    number = number * 0xC2B2AE35 & 0xFFFFFFFF
    return number ^ number >> 16
