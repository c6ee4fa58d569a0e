"""Whether a request may pass, decided before anything looks at its path: the gateway's first step.

- a header block over the limit is refused, and a header that two readers would read in two ways;
- an open loopback server serves local Host names only and no foreign Origin, and no open server
  does what a page of another origin made a browser ask;
- a closed node answers only who shows an API key, but for whether it lives and is ready, and for
  the pages, which get nothing without a key;
- another node has asked who it is, and says it.

Then, once its operation is known, what the caller may do in the namespace that the request names
(`resolve_namespace`, `require`). Decides and notes on the `RequestContext`; answers nothing. Event
loop only.
"""

import re
from collections.abc import Callable, Collection, Container
from typing import Final

from app.api.access.acting import OWN_ID
from app.api.access.credentials import AUTHORIZATION, Credentials
from app.api.access.operation_rights import OperationRights
from app.api.formats.mq_headers import display_header
from app.api.http.errors import HeadersTooLarge, MalformedRequest
from app.api.http.foreign_pages import (
    PAGES,
    SITE,
    check_host,
    check_kept_credentials,
    check_site,
)
from app.api.http.request_context import (
    CONNECTION,
    HEAD,
    REQUEST_ID,
    ConnectionMemory,
    Headers,
    HeadMemory,
    RequestContext,
    Scope,
)
from app.api.naming.request_namespace import (
    EVERY,
    check_reached,
    names_one,
    namespace_of_request,
    within,
)
from app.api.operations.operation import Operation
from app.api.relay.calls import RAW_QUERY
from app.api.relay.envelope import RELAYED, Envelope
from app.domain.access.caller import OPEN, STRANGER, KeyHolder
from app.domain.access.refusals import NotPermitted
from app.domain.errors import InvalidRequest

_SANE_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_GIVEN_ONCE: Final = frozenset(
    {
        *(b"authorization", b"content-type", b"idempotency-key"),
        *(b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"),
    }
)
_FORWARD: Final = b"mq-forward"
_READING: Final = frozenset({"GET", "HEAD"})
_TO_THE_PAGES: Final = frozenset({"/", PAGES.rstrip("/")})
"""Redirects to the pages, which ask for a key themselves."""


class Admission:
    """Who is let in. One per gateway; only the `Host` that it remembers changes."""

    def __init__(
        self,
        *,
        header_block_bytes_max: int,
        local_only: bool,
        credentials: Credentials | None = None,
        rights: OperationRights | None = None,
        open_paths: Collection[str] = (),
        namespaces: Callable[[], Container[str]] = tuple,
    ) -> None:
        """`namespaces` gives those that there are, beside the default one. Where there are
        `credentials` there are `rights`, which decide what a caller may."""
        self.namespaces = namespaces
        self._header_bytes_max = header_block_bytes_max
        self._local_only = local_only
        self._local_host = b"localhost"
        """The last `Host` that was found to name this machine."""
        self._credentials = credentials
        self.rights = rights
        self._open_paths = frozenset(open_paths)

    @property
    def is_closed(self) -> bool:
        """Whether it asks for a key."""
        return self._credentials is not None and self._credentials.source.keyring.is_closed

    def admit(self, exchange: RequestContext) -> None:
        """Raise when the request may not pass; collect its `MQ-*` headers on the way."""
        head: HeadMemory | None = exchange.scope.get(HEAD)
        credentials = self._credentials
        if head is None or credentials is None:
            self._admit(exchange, credentials)
            return
        if head.opened is not None and head.opened.says_nothing_more:
            _note_request_id(exchange, exchange.headers[REQUEST_ID])
            _take_from_other_node(exchange, credentials)
            return
        source = credentials.source
        if head.keyring is not source.keyring:
            keyring = source.keyring
            if self._admit(exchange, credentials):
                holder = exchange.caller if isinstance(exchange.caller, KeyHolder) else None
                head.keyring, head.holder, head.permission = keyring, holder, None
            return
        holder = head.holder
        if holder is None:
            exchange.caller = credentials.anybody
            return
        exchange.is_decided = False
        if holder.is_lasting and not source.age.is_over:
            credentials.used(holder.key_id)
        else:
            credentials.live(holder, exchange.scope.get("client"))
        exchange.caller = holder
        exchange.permission = head.permission

    def _admit(self, exchange: RequestContext, credentials: Credentials | None) -> bool:
        """As `admit`; whether the next request with the same head may pass just so: by the same
        caller, while what is known of keys stays the same."""
        scope, named = exchange.scope, exchange.headers
        headers: Headers = scope["headers"]
        connection: ConnectionMemory | None = scope.get(CONNECTION)
        if connection is None and RELAYED not in scope:  # our own server counts while it reads
            self._refuse_large(headers)
        is_plain = b"mq-" not in b"\n".join(named)
        if not is_plain:
            _note_mq_headers(exchange, headers)
        if len(named) != len(headers):
            _refuse_repeated(headers)
        if RELAYED in scope:
            _take_from_other_node(exchange, credentials)
            return False
        if credentials is not None and credentials.source.keyring.is_closed:
            header = named.get(AUTHORIZATION)
            if header is None:
                self._admit_without_key(exchange, credentials)
                is_plain = False
            else:
                if b"origin" in named:
                    check_kept_credentials(named)
                exchange.is_decided = False
                exchange.caller = credentials.check(header, None, connection, scope.get("client"))
                is_plain = is_plain and isinstance(exchange.caller, KeyHolder)
        else:
            self._admit_anybody(exchange, credentials)
        if SITE in named:
            check_site(scope, named)
        if exchange.forward not in (b"yes", b"no"):  # said to who may ask, and to nobody else
            raise InvalidRequest("MQ-Forward is yes or no", fields={"parameter": "MQ-Forward"})
        return is_plain

    def _admit_anybody(self, exchange: RequestContext, credentials: Credentials | None) -> None:
        """On a node that is open."""
        named = exchange.headers
        if credentials is not None:
            exchange.caller = credentials.anybody
        if self._local_only and (
            named.get(b"host") != self._local_host or b"origin" in named
        ):  # from a page only if it is this machine's
            check_host(named)
            self._local_host = named[b"host"]

    def resolve_namespace(self, exchange: RequestContext) -> None:
        """Keep the namespace that the request names, and take its name out of the request."""
        if not names_one(exchange.mq_headers, exchange.query):
            return
        # Of those that a caller has no rights in, it is not told whether they are there.
        known = self.namespaces() if exchange.caller.name is None else EVERY
        found = namespace_of_request(exchange.mq_headers, exchange.query, known)
        exchange.namespace, exchange.mq_headers = found.namespace, found.mq_headers
        exchange.scope[RAW_QUERY] = exchange.query
        exchange.scope["query_string"] = found.query

    def require(
        self, exchange: RequestContext, operation: Operation, names: tuple[str, ...]
    ) -> None:
        """Raise when the caller, who has a name, may not do this in the namespace."""
        rights, caller = self.rights, exchange.caller
        if rights is None:
            return
        if caller.namespace:
            bind(exchange, caller.namespace)
        namespace = exchange.namespace
        if namespace:
            with within(namespace):
                names = operation.stored_names(names)
            rights.require(exchange, operation, names)
            check_reached(exchange, namespace, self.namespaces)
            return
        permission = rights.require(exchange, operation, names)
        head: HeadMemory | None = exchange.scope.get(HEAD)
        if head is not None and head.holder is caller:
            head.permission = permission

    def _refuse_large(self, headers: Headers) -> None:
        size = sum(len(name) + len(value) for name, value in headers)
        if size > self._header_bytes_max:
            raise HeadersTooLarge(
                f"the headers have {size} bytes; at most {self._header_bytes_max} are taken",
                hint="send many properties in a JSON envelope",
                fields={"limit_bytes": self._header_bytes_max},
            )

    def _admit_without_key(self, exchange: RequestContext, credentials: Credentials) -> None:
        """Raise `Unauthorized` for all but what is open to anybody, unless the client has shown a
        certificate.

        Asked before anything looks at the path, so that no route, mount or unknown path is
        answered past it.
        """
        if self._is_open(exchange.scope):
            exchange.caller = STRANGER
            return
        exchange.is_decided = False
        exchange.caller = credentials.check(
            None, exchange.certificate, client=exchange.scope.get("client")
        )

    def note_open(self, exchange: RequestContext) -> None:
        """Take what is open to anybody as decided, whoever asks for it."""
        if not exchange.is_decided:
            exchange.is_decided = self._is_open(exchange.scope)

    def _is_open(self, scope: Scope) -> bool:
        path: str = scope["path"]
        return path.startswith(PAGES) or (
            scope["method"] in _READING and (path in self._open_paths or path in _TO_THE_PAGES)
        )


def bind(exchange: RequestContext, namespace: str) -> None:
    """Keep the request to the namespace that its caller is bound to."""
    if exchange.namespace not in ("", namespace):
        raise NotPermitted(
            f"principal {exchange.caller.name!r} is bound to namespace {namespace!r}",
            hint="leave out MQ-Namespace and namespace=",
            fields={"resource": f"namespace:{exchange.namespace}"},
        )
    exchange.namespace = namespace


def _take_from_other_node(exchange: RequestContext, credentials: Credentials | None) -> None:
    """The other node has asked who it is, and has decided; this one decides as well."""
    if credentials is None:
        return
    envelope: Envelope = exchange.scope[RELAYED]
    if envelope.is_of_node:
        exchange.caller, exchange.is_decided = OPEN, True
        return
    exchange.is_decided = not credentials.source.keyring.is_closed
    exchange.caller = credentials.of_other_node(
        envelope.principal, envelope.roles, envelope.ends_ms
    )


def _note_mq_headers(exchange: RequestContext, headers: Headers) -> None:
    """Keep those that are of the operation; the others are of every request."""
    kept = exchange.mq_headers
    for header in headers:
        name, value = header
        if not name.startswith(b"mq-"):
            continue
        if name == REQUEST_ID:
            if _SANE_REQUEST_ID.fullmatch(value):
                _note_request_id(exchange, value)
        elif name == _FORWARD:
            exchange.forward = value
        else:
            kept.append(header)


def _note_request_id(exchange: RequestContext, value: bytes) -> None:
    exchange.scope.setdefault(OWN_ID, exchange.request_id)
    exchange.request_id = value


def _refuse_repeated(headers: Headers) -> None:
    """Raise for a header that must be given once: a proxy may read the first, we the last."""
    names = [name for name, _ in headers if name in _GIVEN_ONCE]
    if len(set(names)) != len(names):
        shown = next(display_header(name) for name in names if names.count(name) > 1)
        raise MalformedRequest(
            f"header {shown} is given twice", hint="give it once", fields={"header": shown}
        )
