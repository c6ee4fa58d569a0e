"""Who consumes in a group and who produces to a topic, as this node has seen it.

A row says who asked, from where, for what, and how much; it goes `CLIENT_SHOWN_MS` after the last
request. Rows are bounded by group or topic and in all: of more, who was not seen for longest gives
way. In memory only. Event loop only.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from app.broker.ports import Metadata
from app.domain.clock import Clock
from app.domain.limits import CLIENT_SHOWN_MS, CLIENT_TOPICS_SHOWN_MAX, CLIENTS_LISTED_MAX, Limits

Kind = Literal["receive", "stream", "heartbeat", "poll", "send"]
Key = tuple[str, str]
"""What tells rows apart: a name that the client gave (or none) and its address, or its kind."""


class Caller(NamedTuple):
    """Who asked."""

    address: str | None
    user_agent: str
    principal: str | None = None
    """By its credentials; None: without any."""


_RATE_MS: Final = 60_000
"""A rate is that of the last minute at most."""


class ClientRow:
    """One client. Times in epoch milliseconds."""

    __slots__ = (
        "_mark_count",
        "_mark_ms",
        "address",
        "client_id",
        "count",
        "failed",
        "first_seen_ms",
        "kind",
        "last_seen_ms",
        "principal",
        "producer_group",
        "producer_id",
        "topics",
        "turn",
        "user_agent",
    )

    def __init__(self, kind: Kind, caller: Caller, now_ms: int) -> None:
        self.kind: Kind = kind
        self.address, self.user_agent, self.principal = caller
        self.client_id: str | None = None
        self.producer_group: str | None = None
        self.producer_id: str | None = None
        self.topics: dict[str, str | None] = {}
        """Topic → filter."""
        self.first_seen_ms = self.last_seen_ms = self._mark_ms = now_ms
        self.turn = 0
        """Goes up with each look at who was not heard of."""
        self.count = 0
        """Messages that it was given, or has sent."""
        self.failed = 0
        self._mark_count = 0

    def seen(self, now_ms: int, count: int) -> None:
        """It was heard of, and moved so many messages."""
        if now_ms - self._mark_ms > _RATE_MS:
            self._mark_ms, self._mark_count = self.last_seen_ms, self.count
        self.last_seen_ms = now_ms
        self.count += count

    def rate_per_s(self, now_ms: int) -> float:
        """Messages a second since it began, or in the last minute and a bit."""
        return round((self.count - self._mark_count) / max((now_ms - self._mark_ms) / 1e3, 1.0), 3)


_GONE: Final = -1
"""Turn of a row that made room: nobody may go on counting in it."""


class ClientTable:
    """The rows of one kind of scope: of groups, or of topics."""

    def __init__(self, clock: Clock, rows_max: int) -> None:
        self._clock = clock
        self._rows_max = rows_max
        self._scopes: dict[str, dict[Key, ClientRow]] = {}
        self.turn = 0
        """Goes up with each look at who was not heard of."""
        self.count = 0

    def touch(self, scope: str, key: Key, count: int, topic: str) -> bool:
        """Whether there is such a row, heard of since the last turn and for this topic.

        Then its messages count and nothing else is looked at: what it says of itself, and when it
        was seen, is read once a turn.
        """
        rows = self._scopes.get(scope)
        row = rows.get(key) if rows is not None else None
        if row is None or row.turn != self.turn or topic not in row.topics:
            return False
        row.count += count
        return True

    def see(self, scope: str, key: Key, kind: Kind, caller: Caller, count: int) -> ClientRow | None:
        """The row of who was heard of just now; None when there is no room for another one."""
        rows = self._scopes.get(scope)
        if rows is None:
            rows = self._scopes[scope] = {}
        now_ms = self._clock.now_ms()
        row = rows.pop(key, None)
        if row is None:
            row = self._new(scope, rows, kind, caller, now_ms)
            if row is None:
                return None
        rows[key] = row  # the last is who was seen last
        row.address, row.user_agent, row.principal = caller
        row.seen(now_ms, count)
        row.turn = self.turn
        return row

    def _new(
        self,
        scope: str,
        rows: dict[Key, ClientRow],
        kind: Kind,
        caller: Caller,
        now_ms: int,
    ) -> ClientRow | None:
        if rows and (len(rows) >= CLIENTS_LISTED_MAX or self.count >= self._rows_max):
            rows.pop(next(iter(rows))).turn = _GONE
            self.count -= 1
        elif self.count >= self._rows_max:
            del self._scopes[scope]
            return None
        self.count += 1
        return ClientRow(kind, caller, now_ms)

    def find(self, scope: str, key: Key) -> ClientRow | None:
        return self._scopes.get(scope, {}).get(key)

    def rows(self, scope: str) -> dict[Key, ClientRow]:
        """Those that were heard of lately."""
        self._expire(scope)
        return dict(self._scopes.get(scope, {}))

    def all(self) -> dict[str, dict[Key, ClientRow]]:
        """Scope → rows."""
        self.expire()
        return {scope: dict(rows) for scope, rows in self._scopes.items()}

    def forget(self, scope: str) -> None:
        self.count -= len(self._scopes.pop(scope, {}))

    def expire(self) -> None:
        """Drop who was not heard of for long. A turn."""
        self.turn += 1
        for scope in list(self._scopes):
            self._expire(scope)

    def _expire(self, scope: str) -> None:
        rows = self._scopes.get(scope, {})
        since_ms = self._clock.now_ms() - CLIENT_SHOWN_MS
        while rows:
            key = next(iter(rows))
            if rows[key].last_seen_ms > since_ms:
                return
            del rows[key]
            self.count -= 1
        self._scopes.pop(scope, None)


def consumer_key(client_id: str | None, address: str | None, kind: Kind) -> Key:
    """What tells consumers apart: the names that they give, or else their addresses."""
    return client_id or f"@{address}", kind


class Clients:
    """One per broker."""

    def __init__(self, metadata: Metadata, clock: Clock, limits: Limits) -> None:
        self._metadata = metadata
        self.consumers = ClientTable(clock, limits.clients_max)
        """By group."""
        self.producers = ClientTable(clock, limits.clients_max)
        """By topic."""

    def consumes(
        self,
        group: str,
        topics: Mapping[str, str | None],
        kind: Kind,
        client_id: str | None,
        caller: Caller,
        count: int = 0,
    ) -> None:
        """A client was given `count` messages, or stays."""
        if group not in self._metadata.snapshot.groups:
            return
        key = consumer_key(client_id, caller[0], kind)
        row = self.consumers.see(group, key, kind, caller, count)
        if row is not None:
            row.client_id = client_id
            if kind in {"heartbeat", "poll"}:
                row.topics = dict(topics)
            elif not topics.items() <= row.topics.items():
                row.topics |= topics
                if len(row.topics) > CLIENT_TOPICS_SHOWN_MAX:
                    del row.topics[next(iter(row.topics))]

    def produces(self, topic: str, key: Key, caller: Caller, count: int) -> None:
        """A client has sent `count` messages; `key` has the name that it gave."""
        if topic not in self._metadata.snapshot.topics:
            return
        row = self.producers.see(topic, key, "send", caller, count)
        if row is not None and topic not in row.topics:
            row.topics = {topic: None}

    async def turn(self) -> None:
        """Drop who was not heard of for long. A service's turn."""
        self.consumers.expire()
        self.producers.expire()

    def forget_topic(self, name: str) -> None:
        """It is deleted."""
        self.producers.forget(name)

    def forget_group(self, name: str) -> None:
        """It is deleted."""
        self.consumers.forget(name)
