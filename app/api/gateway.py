"""The outermost ASGI layer: what holds for every request of both planes.

- every answer has `MQ-Request-Id` (the client's own when it is sane);
- a header block over the limit is refused;
- an open loopback server serves local Host names only and no foreign Origin, and no open server
  does what a page of another origin made a browser ask;
- a closed node answers only who shows an API key, but for whether it lives and is ready, and for
  the pages, which get nothing without a key; and does only what the caller may: no success goes
  out that nobody decided on;
- a header that two readers would read in two ways is given once;
- the namespace is resolved, and the names in the path of a data-plane request are stored names;
- a refusal because of a shutdown closes the connection, so that the client goes elsewhere;
- every failure becomes a problem document; unexpected ones are logged with their traceback.

Pure ASGI and no wrapper per call: requests of the data plane go straight to their handlers.
"""

import asyncio
import itertools
import logging
import re
import secrets
from collections.abc import Callable, Collection, Container
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Final

from app.api.access.acting import OWN_ID, act_as_caller, actor_of
from app.api.access.credentials import AUTHORIZATION, Credentials
from app.api.access.operation_rights import OperationRights
from app.api.aims.aim import HERE
from app.api.bodies.packing import pack_json
from app.api.dataplane.router import Handler, Router
from app.api.formats.mq_headers import (
    OF_EVERY_REQUEST,
    display_header,
    refuse_mq_headers,
)
from app.api.http.errors import (
    HeadersTooLarge,
    MalformedRequest,
    hint_by_what_is_known,
    render_problem,
    with_outcome_of_send,
)
from app.api.http.foreign_pages import (
    PAGES,
    SITE,
    check_host,
    check_kept_credentials,
    check_navigation,
    check_site,
)
from app.api.http.forwarded import HEADERS as FORWARDED_HEADERS
from app.api.http.forwarded import Forwarded
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import (
    API_PREFIX,
    CONNECTION,
    CONTEXT_KEY,
    REQUEST_ID,
    REQUEST_ID_KEY,
    WHOLE_BODY,
    AsgiApp,
    ClientGone,
    Headers,
    Receive,
    RequestContext,
    Scope,
    Send,
)
from app.api.naming.request_namespace import (
    EVERY,
    check_reached,
    names_one,
    namespace_of_request,
    within,
)
from app.api.operations.operation import Operation
from app.api.quotas.failures import BEGINNING_SECONDS_MAX, Failures
from app.api.quotas.quotas import OverQuota, Quotas
from app.api.relay.calls import RAW_QUERY
from app.api.relay.envelope import RELAYED, Envelope
from app.api.relay.over_shards import OverShards
from app.api.relay.relay import Relay
from app.api.telemetry.access_log import log_access
from app.api.telemetry.request_metrics import RequestMetrics
from app.domain.access.audit import AuditLog, Denial
from app.domain.access.caller import OPEN, STRANGER
from app.domain.access.refusals import NotPermitted, Unauthorized
from app.domain.errors import (
    CurlewError,
    InternalError,
    InvalidRequest,
    NotLeader,
    ShardUnavailable,
)
from app.domain.limits import Limits
from app.domain.names import stored_name
from app.runtime.direct import in_task

_log: Final = logging.getLogger(__name__)

_SANE_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_GIVEN_ONCE: Final = frozenset(
    {
        *(b"authorization", b"content-type", b"idempotency-key"),
        *(b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"),
    }
)
FORWARD: Final = b"mq-forward"
_READING: Final = frozenset({"GET", "HEAD"})
_TO_THE_PAGES: Final = frozenset({"/", PAGES.rstrip("/")})
"""Redirects to the pages, which ask for a key themselves."""
_ELSEWHERE: Final = "other"
"""What is counted for requests that no operation of the document took."""


class Gateway:
    """The ASGI application. One per server; safe for any number of concurrent requests."""

    def __init__(
        self,
        router: Router,
        fallback: AsgiApp,
        *,
        header_block_bytes_max: int,
        local_only: bool,
        traffic: RequestMetrics | None = None,
        access_log: bool = False,
        pressure: MemoryBudget | None = None,
        forwarded: Forwarded | None = None,
        credentials: Credentials | None = None,
        quotas: Quotas | None = None,
        failures: Failures | None = None,
        rights: OperationRights | None = None,
        audit: AuditLog | None = None,
        open_paths: Collection[str] = (),
        send_failed: Callable[[RequestContext, str, str], None] | None = None,
        namespaces: Callable[[], Container[str]] = tuple,
        relay: Relay | None = None,
    ) -> None:
        """`send_failed` is told of each refused or failed send: its topic and its code; `audit` of
        each request that the caller may not have. `namespaces` gives those that there are, beside
        the default one. A gateway with `credentials` has `rights`."""
        self._namespaces = namespaces
        self._send_failed = send_failed
        self._relay = relay
        self._over_shards = None if relay is None else OverShards(relay)
        self._rights = rights
        self._audit = audit
        self._router = router
        self._pressure = pressure or MemoryBudget(Limits())
        self._fallback = fallback
        self._header_bytes_max = header_block_bytes_max
        self._local_only = local_only
        self._local_host = b"localhost"
        """The last `Host` that was found to name this machine."""
        self._traffic = traffic or RequestMetrics()
        self.logs_access = access_log
        """Whether each request is a line of the log; may change at any time."""
        self.is_over = False
        """Whether the node leads no more: a request that is cancelled now is told so."""
        self._forwarded = forwarded
        self._credentials = credentials
        self._quotas = quotas
        self._failures = failures
        self._open_paths = frozenset(open_paths)
        self._id_prefix = secrets.token_hex(4).encode("ascii")
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            asks = self._credentials
            assert asks is None or not asks.source.keyring.is_closed, "nobody asks here"
            await in_task()
            await self._fallback(scope, receive, send)
            return
        request_id = b"%b-%x" % (self._id_prefix, next(self._numbers))
        exchange = RequestContext(scope, receive, send, request_id, self._pressure, pack_json)
        sends, operation_id, name = False, _ELSEWHERE, ""
        if self._forwarded and not FORWARDED_HEADERS.isdisjoint(exchange.headers):
            await self._forwarded.note(scope)
        try:
            self._admit(exchange)
            relay = self._relay
            others = relay if relay is not None and relay.has_others else None
            if others is not None:
                await self._learn_of_namespace(exchange, others)
            found = self._router.find(scope)
            if found is None:
                await in_task()
                operation_id = await self._fall_back(exchange)
                return
            operation, handler, names = found
            sends, operation_id, name = operation.sends, operation.operation_id, names[0]
            if not operation.is_direct:
                await in_task()
            handler = self._checked(exchange, operation, handler, names, others)
            await handler(exchange, *names)
        except CurlewError as error:
            self._note_denial(exchange, error)
            await self._slow_down(exchange, error)
            await _answer_problem(
                exchange, self._of_send(exchange, error, name) if sends else error
            )
        except (ClientGone, asyncio.CancelledError) as end:
            await self._end_early(exchange, end, name if sends else None)
        except Exception:  # noqa: BLE001  # the last resort: logged with its traceback
            await _answer_unexpected(exchange, sends=sends)
        finally:
            seconds = perf_counter() - exchange.began_s
            self._traffic.answered(operation_id, exchange.status, seconds)
            if exchange.held_bytes or exchange.admission is not None or self.logs_access:
                self._end(exchange, operation_id, seconds)

    def _carried_or(self, relay: Relay, operation: Operation, handler: Handler) -> Handler:
        """The handler; before it, as there are other shards, the node that leads the one that
        the request is aimed at."""

        async def carry(exchange: RequestContext, *names: str) -> None:
            stored: tuple[str, ...] = names
            if exchange.namespace:
                await in_task()  # whose context has the namespace
                with within(exchange.namespace):
                    stored = operation.stored_names(names)
            is_new = await _is_new(relay, operation, stored)
            if operation.across is not None and self._over_shards is not None:
                await in_task()
                if await self._over_shards.answered(exchange, operation, stored):
                    return
            aimed = relay.aimed_at(exchange, operation, stored)
            if aimed is not HERE:
                await in_task()
                if await relay.carry(exchange, operation, stored, aimed):
                    return
            if is_new:
                await _send_to_new_topic(relay, exchange, operation, stored, handler, names)
            else:
                await handler(exchange, *names)

        return carry

    async def _learn_of_namespace(self, exchange: RequestContext, relay: Relay) -> None:
        """Hear of a namespace that nobody knows here: another node may have made it just now."""
        if not names_one(exchange.mq_headers, exchange.query):
            return
        with suppress(CurlewError):  # what is wrong with it is said later
            found = namespace_of_request(exchange.mq_headers, exchange.query, EVERY)
            if found.namespace and found.namespace not in self._namespaces():
                await in_task()
                await relay.refresh()

    async def _slow_down(self, exchange: RequestContext, error: CurlewError) -> None:
        """Let the connection of who asks too much, or shows what is no credential, be silent."""
        if isinstance(error, OverQuota):
            await exchange.mute(error.mute_s)
        elif isinstance(error, Unauthorized) and self._failures is not None:
            client = exchange.scope.get("client")
            wait_s = self._failures.note(client[0] if client else "")
            if wait_s:
                await in_task()
                await asyncio.sleep(min(wait_s, BEGINNING_SECONDS_MAX))
                await exchange.mute(wait_s - BEGINNING_SECONDS_MAX)

    def _of_send(self, exchange: RequestContext, error: CurlewError, topic: str) -> CurlewError:
        """Why a send failed, with what is known of the message; counted."""
        if self._send_failed is not None:
            self._send_failed(exchange, stored_name(exchange.namespace, topic), error.code)
        return with_outcome_of_send(error)

    async def _end_early(
        self, exchange: RequestContext, end: BaseException, sends_to: str | None
    ) -> None:
        """Answer what was at work when the node ceased to lead, if the client is there. An answer
        that has begun stays without its end, which ends the connection."""
        if isinstance(end, ClientGone):
            return
        if not self.is_over:
            raise end
        if exchange.started:
            return
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        error: CurlewError = ShardUnavailable(
            "this node leads its shard no more, and the request was cut off: it may have been"
            " carried out",
            hint="look before you send it again, or send under an idempotency key",
            outcome=None if sends_to is None else "unknown",
        )
        if sends_to is not None:
            error = self._of_send(exchange, error, sends_to)
        await _answer_problem(exchange, error)

    def _end(self, exchange: RequestContext, operation_id: str, seconds: float) -> None:
        """Give back what the request held while it was at work, and log it where all are."""
        exchange.let_go()
        if exchange.admission is not None:
            exchange.admission.end()
        if self.logs_access:
            log_access(exchange, operation_id, seconds)

    def _checked(
        self,
        exchange: RequestContext,
        operation: Operation,
        handler: Handler,
        names: tuple[str, ...],
        others: Relay | None,
    ) -> Handler:
        """The handler for this request, by way of `others` where there are other shards. Raises
        when the caller may not, when the operation cannot be carried out for it, or not now."""
        if exchange.mq_headers or exchange.scope["query_string"]:
            self._resolve_namespace(exchange)
        caller = exchange.caller
        if caller.name is not None and self._rights is not None:
            self._require(exchange, operation, names, self._rights)
        if self._quotas is not None and RELAYED not in exchange.scope:
            is_topic = operation.names[0] == "topic"
            topic = stored_name(exchange.namespace, names[0]) if is_topic else None
            self._quotas.admit(exchange, caller.name, topic)
        if operation.reads:
            self._pressure.refuse_reads()
        if exchange.mq_headers and not operation.mq_headers:
            refuse_mq_headers(exchange.mq_headers, OF_EVERY_REQUEST)
        if operation.leases_by_get:
            check_navigation(exchange.headers)
        if exchange.makes or exchange.namespace:
            handler = _prepared(exchange, operation, handler)
        if others is None or others.follows:  # then the handler carries it
            return handler
        return self._carried_or(others, operation, handler)

    def _require(
        self,
        exchange: RequestContext,
        operation: Operation,
        names: tuple[str, ...],
        rights: OperationRights,
    ) -> None:
        """Raise when the caller, who has a name, may not do this in the namespace."""
        if exchange.caller.namespace:
            _bind(exchange, exchange.caller.namespace)
        if exchange.namespace:
            with within(exchange.namespace):
                names = operation.stored_names(names)
        rights.require(exchange, operation, names)
        if exchange.namespace:
            check_reached(exchange, exchange.namespace, self._namespaces)

    async def _fall_back(self, exchange: RequestContext) -> str:
        """Let the control plane answer; the operation that it found."""
        scope = exchange.scope
        self._resolve_namespace(exchange)
        if exchange.caller.namespace:
            _bind(exchange, exchange.caller.namespace)
        if self._quotas is not None and RELAYED not in scope:
            self._quotas.admit(exchange, exchange.caller.name, None)
        if self._pressure.is_clogged and _reads(scope):
            self._pressure.refuse_reads()
        if exchange.mq_headers and scope["path"].startswith(API_PREFIX):
            refuse_mq_headers(exchange.mq_headers, OF_EVERY_REQUEST)
        scope[REQUEST_ID_KEY] = exchange.request_id
        scope[CONTEXT_KEY] = exchange
        act_as_caller(exchange)
        try:
            with within(exchange.namespace):
                await self._fallback(scope, exchange.receive, exchange.send_with_request_id)
        except ClientGone:
            exchange.status = 0  # the framework has answered 500, which reaches no client
            raise
        if exchange.denied is not None:
            self._note_denial(exchange, exchange.denied)
        return getattr(scope.get("route"), "operation_id", None) or _ELSEWHERE

    def _admit(self, exchange: RequestContext) -> None:
        """Raise when the request may not pass; collect its `MQ-*` headers on the way."""
        scope = exchange.scope
        headers: Headers = scope["headers"]
        if CONNECTION not in scope:  # our own server counts while it reads
            self._refuse_large(headers)
        for header in headers:
            if header[0][:3] == b"mq-":
                self._note_mq_header(exchange, *header)
        if len(exchange.headers) != len(headers):
            _refuse_repeated(headers)
        credentials = self._credentials
        if RELAYED in scope:
            self._take_from_other_node(exchange)
            return
        if credentials is not None and credentials.source.keyring.is_closed:
            self._authenticate(exchange, credentials)
        else:
            self._take_from_anybody(exchange, credentials)
        if SITE in exchange.headers:
            check_site(scope, exchange.headers)
        if exchange.forward not in (b"yes", b"no"):  # said to who may ask, and to nobody else
            raise InvalidRequest("MQ-Forward is yes or no", fields={"parameter": "MQ-Forward"})

    def _take_from_anybody(self, exchange: RequestContext, credentials: Credentials | None) -> None:
        """Of an open node; from a page only if it is this machine's."""
        if credentials is not None:
            exchange.caller = credentials.anybody
        if self._local_only:
            headers = exchange.headers
            if headers.get(b"host") != self._local_host or b"origin" in headers:
                check_host(headers)
                self._local_host = headers[b"host"]

    def _refuse_large(self, headers: Headers) -> None:
        size = sum(len(name) + len(value) for name, value in headers)
        if size > self._header_bytes_max:
            raise HeadersTooLarge(
                f"the headers have {size} bytes; at most {self._header_bytes_max} are taken",
                hint="send many properties in a JSON envelope",
                fields={"limit_bytes": self._header_bytes_max},
            )

    def _take_from_other_node(self, exchange: RequestContext) -> None:
        """The other node has asked who it is, and has decided; this one decides as well."""
        credentials = self._credentials
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

    def _resolve_namespace(self, exchange: RequestContext) -> None:
        """Keep the namespace that the request names, and take its name out of the request."""
        if not names_one(exchange.mq_headers, exchange.query):
            return
        # Of those that a caller has no rights in, it is not told whether they are there.
        known = self._namespaces() if exchange.caller.name is None else EVERY
        found = namespace_of_request(exchange.mq_headers, exchange.query, known)
        exchange.namespace, exchange.mq_headers = found.namespace, found.mq_headers
        exchange.scope[RAW_QUERY] = exchange.query
        exchange.scope["query_string"] = found.query

    def _authenticate(self, exchange: RequestContext, credentials: Credentials) -> None:
        """Raise `Unauthorized` without a key that is known, for all but what is open to anybody.

        Asked before anything looks at the path, so that no route, mount or unknown path is
        answered past it.
        """
        scope = exchange.scope
        path: str = scope["path"]
        header = exchange.headers.get(AUTHORIZATION)
        is_open = path.startswith(PAGES) or (
            scope["method"] in _READING and (path in self._open_paths or path in _TO_THE_PAGES)
        )
        if is_open and header is None:
            exchange.caller = STRANGER
            return
        exchange.is_decided = is_open
        if b"origin" in exchange.headers:
            check_kept_credentials(exchange.headers)
        exchange.caller = credentials.check(
            header, exchange.certificate if header is None else None, scope.get(CONNECTION)
        )

    def _note_denial(self, exchange: RequestContext, error: CurlewError) -> None:
        if not isinstance(error, (NotPermitted, Unauthorized)):
            return
        self._traffic.denials[error.code] += 1
        if self._audit is not None:
            action = str(error.fields.get("action", exchange.scope["method"]))
            of_fields = str(error.fields.get("resource", ""))
            resource = (isinstance(error, NotPermitted) and error.resource) or of_fields
            self._audit.denied(Denial(actor_of(exchange), action, resource, error.code))

    @staticmethod
    def _note_mq_header(exchange: RequestContext, name: bytes, value: bytes) -> None:
        if name == FORWARD:
            exchange.forward = value
        elif name != REQUEST_ID:
            exchange.mq_headers.append((name, value))
        elif _SANE_REQUEST_ID.fullmatch(value):
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


def _reads(scope: Scope) -> bool:
    """Whether the answer may be large: what an operator looks at first is not among these."""
    return bool(scope["method"] == "GET" and scope["path"].startswith(API_PREFIX))


def _bind(exchange: RequestContext, namespace: str) -> None:
    """Keep the request to the namespace that its caller is bound to."""
    if exchange.namespace not in ("", namespace):
        raise NotPermitted(
            f"principal {exchange.caller.name!r} is bound to namespace {namespace!r}",
            hint="leave out MQ-Namespace and namespace=",
            fields={"resource": f"namespace:{exchange.namespace}"},
        )
    exchange.namespace = namespace


async def _in_namespace(
    operation: Operation, handler: Handler, exchange: RequestContext, *names: str
) -> None:
    """In place of the handler, for a request that names a namespace."""
    await in_task()  # whose context has the namespace
    with within(exchange.namespace):
        await handler(exchange, *operation.stored_names(names))


def _prepared(exchange: RequestContext, operation: Operation, handler: Handler) -> Handler:
    """The handler in the request's namespace, and as its caller where it makes something."""
    if exchange.makes:
        handler = partial(_making, handler)
    return partial(_in_namespace, operation, handler) if exchange.namespace else handler


async def _making(handler: Handler, exchange: RequestContext, *names: str) -> None:
    """In place of the handler, for a request whose use makes what it names."""
    await in_task()  # whose context has the caller
    act_as_caller(exchange)
    await handler(exchange, *names)


async def _is_new(relay: Relay, operation: Operation, stored: tuple[str, ...]) -> bool:
    """Whether it sends to a topic that nobody has made so far."""
    if operation.names[0] != "topic" or relay.places.topic(stored[0]) is not None:
        return False
    await in_task()
    await relay.learn_of(operation, stored)
    return operation.sends and relay.places.topic(stored[0]) is None


async def _send_to_new_topic(
    relay: Relay,
    exchange: RequestContext,
    operation: Operation,
    stored: tuple[str, ...],
    handler: Handler,
    names: tuple[str, ...],
) -> None:
    """The handler may make the topic, and find then that the message goes to another node."""
    await relay.body_of(exchange)
    body: bytes = exchange.scope[WHOLE_BODY]
    try:
        await handler(exchange, *names)
    except NotLeader:
        exchange.scope[WHOLE_BODY] = body
        aimed = relay.aimed_at(exchange, operation, stored)
        if aimed is HERE or not await relay.carry(exchange, operation, stored, aimed):
            raise


async def _answer_problem(exchange: RequestContext, error: CurlewError) -> None:
    if exchange.started:
        raise error
    with within(exchange.namespace):
        hint_by_what_is_known(error, exchange)
        status, headers, body = render_problem(
            error, instance=exchange.instance, request_id=exchange.request_id
        )
    await exchange.answer(status, headers, body)


async def _answer_unexpected(exchange: RequestContext, *, sends: bool) -> None:
    """Log the exception being handled; answer 500 when nothing was sent yet."""
    request_id = exchange.request_id.decode("ascii")
    _log.exception(
        "unexpected failure, request %s: %s %s",
        request_id,
        exchange.scope["method"],
        exchange.instance,
    )
    if exchange.started:
        return
    failure = InternalError(
        f"unexpected failure; the log has the details under request id {request_id}",
        outcome="unknown" if sends else None,
    )
    await _answer_problem(exchange, failure)
