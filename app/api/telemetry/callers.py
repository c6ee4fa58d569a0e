"""Who sends a request: what the lists of clients tell of it."""

from collections.abc import Mapping
from typing import Final

from app.api.formats.mq_headers import named_in
from app.api.http.request_context import RequestContext, Scope
from app.broker.figures.clients import Caller, Clients, Key, Kind, consumer_key
from app.domain.errors import InvalidRequest
from app.domain.limits import CLIENT_ID_CHARS_MAX

CLIENT: Final = b"mq-client-id"
PRODUCER: Final = b"mq-producer-id"
PRODUCER_GROUP: Final = b"mq-producer-group"
_NAMES: Final = frozenset({CLIENT, PRODUCER, PRODUCER_GROUP})
"""Headers in which a producer says who it is, as text."""
Names = Mapping[bytes, str]
"""What a request says in them, without empty ones."""
NO_NAMES: Final[Names] = {}
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
        if name == CLIENT:
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


def names_of(exchange: RequestContext) -> Names:
    """Who the request says that it comes from."""
    if not exchange.mq_headers:
        return NO_NAMES
    return {
        name: named_in(value) for name, value in exchange.mq_headers if value and name in _NAMES
    }


def note_sent(
    clients: Clients, exchange: RequestContext, topic: str, count: int, names: Names
) -> None:
    """A request has sent `count` messages."""
    key = _key_of(names, exchange.scope)
    if clients.producers.touch(topic, key, count, topic):
        return
    clients.produces(topic, key, caller_of(exchange), count)
    if names:
        row = clients.producers.find(topic, key)
        if row is not None:
            row.client_id = names.get(CLIENT)
            row.producer_id = names.get(PRODUCER)
            row.producer_group = names.get(PRODUCER_GROUP)


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
    key = consumer_key(client_id, address_of(exchange.scope), kind)
    if not clients.consumers.touch(group, key, count, topic):
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
    row = clients.producers.find(topic, _key_of(names_of(exchange), exchange.scope))
    if row is not None:
        row.failed += 1


def _key_of(names: Names, scope: Scope) -> Key:
    """What tells producers apart: the names that they give, or else their addresses."""
    name = (names.get(CLIENT) or names.get(PRODUCER)) if names else None
    if name:
        return name, ""
    return names.get(PRODUCER_GROUP, ""), address_of(scope) or ""
