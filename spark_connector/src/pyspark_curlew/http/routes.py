"""Which node leads a queue, so that what is read of it need not go through another node.

A route is advice: any node takes any request, so where a leader is not known, cannot be reached or
says no, the addresses of option `endpoint` are asked. Kept for a process, since clients are made
for one call or two; two threads may ask for the same route, which costs a request. Called by
`client`.
"""

import ipaddress
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

VALID_S: Final = 30.0
"""How long a route is kept, and how long a leader is left alone that did not answer."""
REFUSED_S: Final = 300.0
"""How long a service is not asked again that gave no route: it has none, or not for this key."""

Ask = Callable[[str], Mapping[str, object] | None]
"""The route of a topic, as the service says it; None: there is none to be had."""


class _Route(NamedTuple):
    leaders: Mapping[int, str]
    until_s: float


_routes: dict[tuple[tuple[str, ...], str], _Route] = {}
"""By the addresses of the service and the topic."""
_away_until_s: dict[str, float] = {}
"""By address of a leader."""


def _now() -> float:
    return time.monotonic()


class Routes:
    """Of one service, by its addresses."""

    def __init__(self, endpoints: tuple[str, ...], ask: Ask) -> None:
        self._endpoints = endpoints
        self._ask = ask

    def leader(self, topic: str, queue: int) -> str | None:
        """The address to ask first; None: none is better than the service's own."""
        key = (self._endpoints, topic)
        route = _routes.get(key)
        if route is None or route.until_s <= _now():
            document = self._ask(topic)
            kept_s = REFUSED_S if document is None else VALID_S
            leaders = leaders_of(document or {}, self._endpoints)
            route = _routes[key] = _Route(leaders, _now() + kept_s)
        leader = route.leaders.get(queue)
        is_there = leader is not None and _away_until_s.get(leader, 0.0) <= _now()
        return leader if is_there else None

    def is_away(self, leader: str) -> None:
        """The leader did not answer: leave it alone for a while."""
        _away_until_s[leader] = _now() + VALID_S


def leaders_of(route: Mapping[str, object], endpoints: Sequence[str]) -> dict[int, str]:
    """By queue, addresses that may be asked in place of `endpoints`; none where all queues are in
    one shard, for then there is most often one node, and none of what is no route."""
    rows = route.get("queues")
    try:
        if not isinstance(rows, list) or len({row.get("shard") for row in rows}) < 2:
            return {}
        led = [row for row in rows if row.get("leader")]
        found = {row["queue_id"]: str(row["leader"]).rstrip("/") for row in led}
        return {queue: leader for queue, leader in found.items() if _may_replace(leader, endpoints)}
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
