"""What travels with a request from node to node, in headers that no client can write: they are read
on the cluster port only, and taken out of what clients send. Pure."""

from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from app.api.http.known_head import CARRIED_FOR
from app.api.http.request_context import HEAD, Headers, HeadMemory, OpenedHead, Scope
from app.domain.access.caller import Caller, KeyHolder, Shown
from app.domain.limits import KIB, TOKEN_BYTES_MAX

PREFIX: Final = b"curlew-"
RELAYED: Final = "curlew.relayed"
"""In a scope, the envelope that it came in."""
HEADER_BYTES_MAX: Final = 3 * TOKEN_BYTES_MAX + KIB
"""Of the envelope and of what is written with it, beside the headers of the client: what a token
says of its roles takes three times its bytes here."""
HEADERS_MAX: Final = 16
_VERSIONS: Final = b"curlew-versions"
_PRINCIPAL: Final = b"curlew-principal"
_ROLES: Final = b"curlew-roles"
_ENDS: Final = b"curlew-ends"
_ASKS: Final = b"curlew-asks"
_OF_NODE: Final = b"curlew-of-node"
_WHOLE: Final = b"curlew-whole"


class Envelope(NamedTuple):
    """Who asks, and what the node that was asked knows."""

    metadata_version: int
    policy_version: int
    principal: str | None
    """None: nobody was asked for a name."""
    roles: tuple[str, ...] | None
    """Of a token; None: those of the principal."""
    ends_ms: int | None
    """When what the caller showed ends."""
    asks: str = ""
    """What of the operation is asked for, where it is not all (`api.dataplane.receive_parts`)."""
    is_of_node: bool = False
    """The node asks by itself, in nobody's name: it gives back what was leased for its client."""
    is_whole: bool = False
    """It comes from a node that leads nothing: whoever has it may carry it on, once."""

    def headers(self) -> Headers:
        """As they travel. Who asked first is another one (`client_line`): it stands behind these,
        so that heads for clients that say the same begin with the same bytes."""
        found = [(_VERSIONS, b"%d %d" % (self.metadata_version, self.policy_version))]
        if self.principal is not None:
            found.append((_PRINCIPAL, quote(self.principal).encode()))
        if self.roles is not None:
            found.append((_ROLES, ",".join(map(quote, self.roles)).encode()))
        if self.ends_ms is not None:
            found.append((_ENDS, b"%d" % self.ends_ms))
        if self.asks:
            found.append((_ASKS, self.asks.encode()))
        if self.is_of_node:
            found.append((_OF_NODE, b"1"))
        if self.is_whole:
            found.append((_WHOLE, b"1"))
        return found


def client_line(scope: Scope) -> bytes:
    """A header line that says from where the first node was asked; empty when it does not know."""
    client = scope.get("client")
    if client is None:
        return b""
    return b"%b: %b %d\r\n" % (CARRIED_FOR, client[0].encode("latin-1"), client[1])


def of_caller(caller: Caller, versions: tuple[int, int]) -> Envelope:
    """The envelope of a request that this node was asked for."""
    roles, ends_ms = None, None
    if isinstance(caller, Shown):
        roles, ends_ms = caller.roles, caller.ends_ms
    elif isinstance(caller, KeyHolder):
        ends_ms = caller.expires_ms
    return Envelope(*versions, caller.name, roles, ends_ms)


def opened(scope: Scope) -> Envelope:
    """The envelope of a request on the cluster port, which is taken out of its headers; its client
    is the scope's from now on. Raises `ValueError` for one without."""
    memory: HeadMemory | None = scope.get(HEAD)
    if memory is not None and memory.opened is not None:
        known: Envelope = memory.opened.envelope
        (_, client), *late = scope["headers"][-3:]
        scope["headers"] = [*memory.opened.headers, *late]
        scope["client"] = _client_in(client.decode("latin-1"))
        return known
    inside: dict[bytes, str] = {}
    headers: Headers = []
    for name, value in scope["headers"]:
        if name.startswith(PREFIX):
            inside[name] = value.decode("latin-1")
        else:
            headers.append((name, value))
    scope["headers"] = headers
    metadata, policy = inside.get(_VERSIONS, "").split(" ")
    if CARRIED_FOR in inside:
        scope["client"] = _client_in(inside[CARRIED_FOR])
    principal, roles = inside.get(_PRINCIPAL), inside.get(_ROLES)
    envelope = Envelope(
        int(metadata),
        int(policy),
        None if principal is None else unquote(principal),
        None if roles is None else tuple(map(unquote, filter(None, roles.split(",")))),
        int(inside[_ENDS]) if _ENDS in inside else None,
        inside.get(_ASKS, ""),
        _OF_NODE in inside,
        _WHOLE in inside,
    )
    if memory is not None and memory.ends_alike:
        own = headers[:-2]
        are_once = len({name for name, _ in headers}) == len(headers)
        is_plain = are_once and not any(name.startswith(b"mq-") for name, _ in own)
        memory.opened = OpenedHead(envelope, own, is_plain)
    return envelope


def _client_in(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(" ")
    return address, int(port)


def of_node(envelope: Envelope) -> Envelope:
    """The same request, asked by the node itself: it has the right of nobody, and needs none."""
    return envelope._replace(principal=None, roles=None, ends_ms=None, is_of_node=True)


def is_at_its_end(scope: Scope) -> bool:
    """Whether another node has carried the request here, and nobody may carry it on."""
    envelope: Envelope | None = scope.get(RELAYED)
    return envelope is not None and not envelope.is_whole
