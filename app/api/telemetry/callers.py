"""Who sends a request: what the lists of clients tell of it."""

from collections.abc import Mapping
from typing import Final

from app.api.formats.mq_headers import named_in
from app.api.http.request_context import RequestContext, Scope
from app.broker.figures.clients import Caller, Clients, Key, Kind
from app.domain.errors import InvalidRequest
from app.domain.limits import CLIENT_ID_CHARS_MAX

_NAMING: Final = {
    b"mq-client-id": "mq-client-id",
    b"mq-producer-id": "mq-producer-id",
    b"mq-producer-group": "mq-producer-group",
}
"""Headers in which a producer says who it is, as text."""
_NAMES: Final = frozenset(_NAMING)
USER_AGENT_CHARS_MAX = 256
"""A longer one is cut."""


def caller_of(exchange: RequestContext) -> Caller:
    """Address, user agent and principal."""
    agent = exchange.headers.get(b"user-agent", b"")[:USER_AGENT_CHARS_MAX]
    return Caller(address_of(exchange.scope), agent.decode("latin-1"), exchange.caller.name)


def client_id_of(exchange: RequestContext) -> str | None:
    """What the client calls itself in a header. Raises `InvalidRequest` for a longer
    name; percent-encoding does not count."""
    for name, value in exchange.mq_headers or ():
        if name == b"mq-client-id":
            named = named_in(value)
            if len(named) > CLIENT_ID_CHARS_MAX:
                raise InvalidRequest(
                    f"MQ-Client-Id has {len(named)} characters; at most {CLIENT_ID_CHARS_MAX} are "
                    "taken",
                    fields={"header": "MQ-Client-Id"},
                )
            return named or None
    return None


def address_of(scope: Scope) -> str | None:
    """The client's address, by the proxies that are trusted; None on a socket without one."""
    client = scope.get("client")
    return client[0] if client else None


def note_sent(clients: Clients, exchange: RequestContext, topic: str, count: int) -> None:
    """A request has sent `count` messages."""
    if not names_producer(exchange):
        client = exchange.scope.get("client")
        if client and clients.producers.touch(topic, ("", client[0]), count, topic):
            return
    address = address_of(exchange.scope)
    key, named = producer_of(exchange, address)
    if named and clients.producers.touch(topic, key, count, topic):
        return
    caller = caller_of(exchange)
    clients.produces(topic, key, caller, count)
    if named:
        row = clients.producers.find(topic, key)
        if row is not None:
            row.client_id = named.get("mq-client-id")
            row.producer_id = named.get("mq-producer-id")
            row.producer_group = named.get("mq-producer-group")


def note_received(
    clients: Clients,
    exchange: RequestContext,
    place: tuple[str, str, str | None],
    kind: Kind,
    client_id: str | None,
    count: int,
) -> None:
    """A client was given `count` messages. `place`: group, topic and filter."""
    group, topic, expression = place
    if client_id and clients.consumers.touch(group, (client_id, kind), count, topic):
        return
    caller = caller_of(exchange)
    clients.consumes(group, {topic: expression}, kind, client_id, caller, count)


def note_polled(
    clients: Clients,
    exchange: RequestContext,
    group: str,
    topics: Mapping[str, str | None],
    client_id: str,
    count: int,
) -> None:
    """A member was given `count` messages by a poll. `topics`: with their filters."""
    key = (client_id, "poll")
    moved = count
    for topic in topics:
        if not clients.consumers.touch(group, key, moved, topic):
            clients.consumes(group, topics, "poll", client_id, caller_of(exchange), moved)
            return
        moved = 0


def note_send_failed(clients: Clients, exchange: RequestContext, topic: str) -> None:
    """A send was refused or failed; it counts for a producer that has sent before."""
    key, _ = producer_of(exchange, address_of(exchange.scope))
    row = clients.producers.find(topic, key)
    if row is not None:
        row.failed += 1


def names_producer(exchange: RequestContext) -> bool:
    """Whether a header says who sends."""
    return bool(exchange.mq_headers) and not _NAMES.isdisjoint(dict(exchange.mq_headers))


def producer_of(exchange: RequestContext, address: str | None) -> tuple[Key, dict[str, str]]:
    """What tells producers apart: the names that it gives in headers, and its address."""
    named: dict[str, str] = {}
    for name, value in exchange.mq_headers:
        if value and name in _NAMING:
            named[_NAMING[name]] = named_in(value)
    if not named:
        return ("", address or ""), {}
    client_id = named.get("mq-client-id") or named.get("mq-producer-id")
    if client_id:
        return (client_id, ""), named
    return (named["mq-producer-group"], address or ""), named
