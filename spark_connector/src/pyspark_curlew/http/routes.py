"""Which node to read a queue from, so that what is read of it need not go through another node: the
one that leads it, or any that has it in sync.

A route is advice: any node takes any request, so where a node is not known, cannot be reached or
says no, the addresses of option `endpoint` are asked. Kept for a process, since clients are made
for one call or two; two threads may ask for the same route, which costs a request. Called by
`client`.
"""

import ipaddress
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

VALID_S: Final = 30.0
"""How long a route is kept, and how long a node is left alone that did not answer."""
REFUSED_S: Final = 300.0
"""How long a service is not asked again that gave no route: it has none, or not for this key."""

Ask = Callable[[str], Mapping[str, object] | None]
"""The route of a topic, as the service says it; None: there is none to be had."""


class _Route(NamedTuple):
    nodes: Mapping[int, Sequence[str]]
    """By queue, the addresses to ask, in this order."""
    until_s: float


_routes: dict[tuple[tuple[str, ...], str, bool], _Route] = {}
"""By the addresses of the service, the topic, and whether any replica is read."""
_away_until_s: dict[str, float] = {}
"""By address of a node."""
_turn = secrets.randbelow(1 << 16)
"""Of this process: workers begin at other replicas of a queue."""


def _now() -> float:
    return time.monotonic()


class Routes:
    """Of one service, by its addresses."""

    def __init__(self, endpoints: tuple[str, ...], ask: Ask, *, reads_any: bool = False) -> None:
        """`reads_any`: from any replica of a queue that is in sync, else from its leader."""
        self._endpoints = endpoints
        self._ask = ask
        self._reads_any = reads_any

    def node(self, topic: str, queue: int) -> str | None:
        """The address to ask first; None: none is better than the service's own."""
        key = (self._endpoints, topic, self._reads_any)
        route = _routes.get(key)
        if route is None or route.until_s <= _now():
            document = self._ask(topic)
            kept_s = REFUSED_S if document is None else VALID_S
            found = document or {}
            nodes = replicas_of(found, self._endpoints) if self._reads_any else {}
            nodes = nodes or leaders_of(found, self._endpoints)
            route = _routes[key] = _Route(nodes, _now() + kept_s)
        now_s, urls = _now(), route.nodes.get(queue, ())
        return next((url for url in urls if _away_until_s.get(url, 0.0) <= now_s), None)

    def is_away(self, node: str) -> None:
        """The node did not answer: leave it alone for a while."""
        _away_until_s[node] = _now() + VALID_S


def replicas_of(route: Mapping[str, object], endpoints: Sequence[str]) -> dict[int, list[str]]:
    """By queue, addresses of nodes that have it in sync and may be asked in place of `endpoints`,
    in the order of this worker; none where no queue is on several, and of what is no route."""
    rows = route.get("queues")
    try:
        if not isinstance(rows, list) or all(len(row["replicas"]) < 2 for row in rows):
            return {}
        turned = {row["queue_id"]: _turned(row["queue_id"], row["replicas"]) for row in rows}
        return {
            queue: [url for url in urls if _may_replace(url, endpoints)]
            for queue, urls in turned.items()
        }
    except (ValueError, AttributeError, TypeError, KeyError):
        return {}


def _turned(queue: int, replicas: Sequence[object]) -> list[str]:
    urls = sorted(str(url).rstrip("/") for url in replicas)
    first = (_turn + queue) % max(len(urls), 1)
    return urls[first:] + urls[:first]


def leaders_of(route: Mapping[str, object], endpoints: Sequence[str]) -> dict[int, list[str]]:
    """By queue, an address that may be asked in place of `endpoints`; none where all queues are in
    one shard, for then there is most often one node, and none of what is no route."""
    rows = route.get("queues")
    try:
        if not isinstance(rows, list) or len({row.get("shard") for row in rows}) < 2:
            return {}
        led = {row["queue_id"]: str(row["leader"]).rstrip("/") for row in rows if row.get("leader")}
        return {queue: [url] for queue, url in led.items() if _may_replace(url, endpoints)}
    except (ValueError, AttributeError, TypeError, KeyError):
        return {}


def _may_replace(leader: str, endpoints: Sequence[str]) -> bool:
    """What is encrypted on the way to one node is not sent in the clear to another; and what a node
    calls itself on its own machine is another one's name elsewhere."""
    there, given = urlsplit(leader), [urlsplit(each) for each in endpoints]
    schemes = {"https"} if any(each.scheme == "https" for each in given) else {"http", "https"}
    if there.scheme not in schemes:
        return False
    is_near = any(_is_of_this_machine(each.hostname) for each in given)
    return is_near or not _is_of_this_machine(there.hostname)


def _is_of_this_machine(host: str | None) -> bool:
    host = (host or "").removesuffix(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in {"", "localhost"}
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return address.is_loopback or address.is_unspecified
