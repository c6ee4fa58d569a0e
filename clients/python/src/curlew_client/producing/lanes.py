"""The numbers that make the node store each message once.

A client is a family of producers, its *lanes*: `<client id>:<lane>`. One request is under way in a
lane at a time. A message keeps its lane and number over all attempts. The next message takes the
next number when the outcome of the one before is known:

- stored: the number is used up;
- not stored: the number is used again;
- unknown: nobody can tell, so the lane is given up and never used again. A message that came late
  would otherwise be taken for the next one.

Thread-safe. The bound on lanes is the bound on requests under way.
"""

import threading
from typing import Final

from curlew_client.errors import Outcome

Scope = tuple[str, int]
"""Topic and queue, -1 where the node chooses the queue."""

SCOPES_MAX: Final = 1_000
"""Scopes of one lane; it is given up when it has more."""


class Lane:
    """A producer that one request at a time uses."""

    __slots__ = ("home", "next_numbers", "producer_id")

    def __init__(self, producer_id: str, home: str = "") -> None:
        self.producer_id = producer_id
        self.home = home
        self.next_numbers: dict[Scope, int] = {}

    def number(self, scope: Scope) -> int:
        """Of the next message in this scope."""
        return self.next_numbers.get(scope, 0)


class Lanes:
    """The lanes of one client. `epoch`: when the client started, in epoch milliseconds."""

    def __init__(self, family: str, epoch: int) -> None:
        self.family = family
        self.epoch = epoch
        self._free: dict[str, list[Lane]] = {}
        self._made = 0
        self._lock = threading.Lock()

    @property
    def made_count(self) -> int:
        """Lanes that were ever made."""
        return self._made

    def take(self, home: str = "") -> Lane:
        """A lane for one request: the one that was used last, so that few are used.

        `home`: the shard that the message's key chooses. Each shard counts on its own, so the
        numbers of keyed messages are of one shard.
        """
        with self._lock:
            free = self._free.get(home)
            if free:
                return free.pop()
            self._made += 1
            return Lane(f"{self.family}:{self._made}", home)

    def rename(self, lane: Lane) -> None:
        """The node has forgotten the lane: it goes on under a new name, from number 0 on."""
        with self._lock:
            self._made += 1
            lane.producer_id = f"{self.family}:{self._made}"
        lane.next_numbers.clear()

    def give_back(self, lane: Lane, scope: Scope, count: int, outcome: Outcome) -> None:
        """The request of `count` messages is over."""
        if outcome == "unknown" or len(lane.next_numbers) >= SCOPES_MAX:
            return
        if outcome == "stored":
            lane.next_numbers[scope] = lane.number(scope) + count
        with self._lock:
            self._free.setdefault(lane.home, []).append(lane)
