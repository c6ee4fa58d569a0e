"""Which node a consumer's requests go to: leaders when there is much to do, any node to wait. Pure.

A node that is asked for messages of several shards relays to their leaders. A consumer that got
half of what it asked for, or more, spares that: it looks at each leader in turn, without waiting,
and the first one that gives is the answer. When a whole round gave nothing it waits at any node,
which waits for all shards. Where a topic has one shard, its leader is waited at.

A message that a leader gave is settled, and its lease extended, there.
"""

from collections.abc import Callable, Sequence
from typing import Any

from curlew_client.consuming.messages import Received
from curlew_client.errors import CurlewError
from curlew_client.producing.routes import Routes


class Leaders:
    """Of one consumer. On one event loop."""

    def __init__(self, routes: Routes, topic: str) -> None:
        self._routes = routes
        self._topic = topic
        self._is_busy = False
        self._gave_last = ""

    def to_look_at(self, now_s: float) -> list[str]:
        """The URLs of leaders to be looked at before any node is waited at, in this order."""
        urls = sorted(self._routes.readers(self._topic, now_s)) if self._is_busy else []
        return sorted(urls, key=lambda url: url <= self._gave_last)

    def to_wait_at(self, now_s: float) -> str | None:
        """The one leader; None: any node, as there are several, or it is not known."""
        urls = self._routes.readers(self._topic, now_s)
        return urls[0] if len(urls) == 1 else None

    def gave(self, url: str | None, messages: Sequence[Received[Any]], asked_for: int) -> None:
        """A leader, or any node (None), gave these of so many."""
        if messages and url is not None:
            self._gave_last = url
        for message in messages:
            message.leader = url
        self._is_busy = 2 * len(messages) >= asked_for

    def may_ask(self, url: str, now_s: float) -> bool:
        """Whether it is not left alone, since it could not be reached."""
        return self._routes.may_ask(url, now_s)

    def failed(self, url: str, error: CurlewError, now_s: float, *, is_of_the_node: bool) -> None:
        """A leader could not be asked."""
        self._routes.not_read(self._topic, url, error, now_s, is_of_the_node=is_of_the_node)


def by_leader(
    items: Sequence[Any], message_of: Callable[[Any], Received[Any]]
) -> list[tuple[str | None, list[Any]]]:
    """Items by the leader that gave their messages; None: any node did."""
    found: dict[str | None, list[Any]] = {}
    for item in items:
        found.setdefault(message_of(item).leader, []).append(item)
    return list(found.items())
