"""The outermost ASGI layer: what holds for every request of both planes.

- every answer has `MQ-Request-Id` (the client's own when it is sane);
- what `admission` does not let pass is refused, and no success goes out that nobody decided on;
- the namespace is resolved, and the names in the path of a data-plane request are stored names;
- what the operation asks of the caller, of quotas and of the node is there;
- where there are other shards, the request goes to the node that leads the one that it is aimed at;
- a refusal because of a shutdown closes the connection, so that the client goes elsewhere;
- every failure becomes a problem document; unexpected ones are logged with their traceback.

Pure ASGI and no wrapper per call: requests of the data plane go straight to their handlers.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Final

from app.api.access.acting import act_as_caller, actor_of
from app.api.admission import Admission, bind
from app.api.aims.aim import HERE, Asks
from app.api.bodies.packing import pack_json
from app.api.dataplane.router import Handler, Router
from app.api.formats.mq_headers import (
    OF_EVERY_REQUEST,
    refuse_mq_headers,
)
from app.api.http.errors import (
    hint_by_what_is_known,
    render_problem,
    with_outcome_of_send,
)
from app.api.http.foreign_pages import (
    check_navigation,
)
from app.api.http.forwarded import HEADERS as FORWARDED_HEADERS
from app.api.http.forwarded import Forwarded
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import (
    API_PREFIX,
    CONTEXT_KEY,
    HEAD,
    REQUEST_ID_KEY,
    WHOLE_BODY,
    AsgiApp,
    ClientGone,
    Event,
    HeadMemory,
    KnownAim,
    Receive,
    RequestContext,
    Scope,
    Send,
)
from app.api.naming.request_namespace import (
    EVERY,
    names_one,
    namespace_of_request,
    within,
)
from app.api.operations.operation import Operation
from app.api.operations.quota_gate import QuotaGate
from app.api.quotas.failures import BEGINNING_SECONDS_MAX, Failures
from app.api.quotas.quotas import OverQuota
from app.api.relay.envelope import RELAYED
from app.api.relay.fan_out import News
from app.api.relay.over_shards import OverShards
from app.api.relay.relay import Relay
from app.api.telemetry.access_log import log_access
from app.api.telemetry.request_metrics import RequestMetrics
from app.domain.access.audit import AuditLog, Denial
from app.domain.access.refusals import NotPermitted, Unauthorized, noted_of
from app.domain.errors import (
    CurlewError,
    InternalError,
    NotLeader,
    ShardUnavailable,
)
from app.domain.limits import Limits
from app.domain.names import stored_name
from app.runtime.direct import in_task

_log: Final = logging.getLogger(__name__)

_READING: Final = ("GET", "HEAD")
"""Methods that change nothing that other nodes had to hear of."""
_ELSEWHERE: Final = "other"
"""What is counted for requests that no operation of the document took."""


class Gateway:
    """The ASGI application. One per server; safe for any number of concurrent requests."""

    def __init__(
        self,
        router: Router,
        fallback: AsgiApp,
        admission: Admission,
        *,
        traffic: RequestMetrics | None = None,
        access_log: bool = False,
        pressure: MemoryBudget | None = None,
        forwarded: Forwarded | None = None,
        quotas: QuotaGate | None = None,
        failures: Failures | None = None,
        audit: AuditLog | None = None,
        send_failed: Callable[[RequestContext, str, str], None] | None = None,
        relay: Relay | None = None,
    ) -> None:
        """`send_failed` is told of each refused or failed send: its topic and its code; `audit` of
        each request that the caller may not have."""
        self._admission = admission
        self._rights = admission.rights
        self._send_failed = send_failed
        self._relay = relay
        self._news = News()
        self._over_shards = None if relay is None else OverShards(relay)
        self._audit = audit
        self._router = router
        self._pressure = pressure or MemoryBudget(Limits())
        self._fallback = fallback
        self._traffic = traffic or RequestMetrics()
        self.logs_access = access_log
        """Whether each request is a line of the log; may change at any time."""
        self.is_over = False
        """Whether the node leads no more: a request that is cancelled now is told so."""
        self._forwarded = forwarded
        self._quotas = quotas
        self._failures = failures
        self._id_prefix = secrets.token_hex(4).encode("ascii")
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            assert not self._admission.is_closed, "nobody asks here"
            await in_task()
            await self._fallback(scope, receive, send)
            return
        request_id = b"%b-%x" % (self._id_prefix, next(self._numbers))
        exchange = RequestContext(scope, receive, send, request_id, self._pressure, pack_json)
        sends, operation_id, name = False, _ELSEWHERE, ""
        if self._forwarded and not FORWARDED_HEADERS.isdisjoint(exchange.headers):
            await self._forwarded.note(scope)
        try:
            self._admission.admit(exchange)
            relay = self._relay
            others = relay if relay is not None and relay.has_others else None
            if others is not None and names_one(exchange.mq_headers, exchange.query):
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
            self._of_send(exchange, error, name if sends else None)
            await _answer_problem(exchange, error)
        except (ClientGone, asyncio.CancelledError) as end:
            await self._end_early(exchange, end, name if sends else None)
        except Exception:  # noqa: BLE001  # the last resort: logged with its traceback
            await _answer_unexpected(exchange, sends=sends)
        finally:
            seconds = perf_counter() - exchange.began_s
            self._traffic.answered(operation_id, exchange.status, seconds)
            if exchange.held_bytes or exchange.admission is not None or self.logs_access:
                self._end(exchange, operation_id, seconds)

    def _carried_or(
        self, relay: Relay, exchange: RequestContext, operation: Operation, handler: Handler
    ) -> Handler:
        """The handler; before it, as there are other shards, the node that leads the one that
        the request is aimed at, unless it is known which one that is."""
        known = _known_aim(relay, exchange)
        if known is not None:
            shard = known.shard
            return handler if shard is HERE else partial(_carry, relay, operation, shard)

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
            stamp = relay.places.stamp
            aimed = relay.aimed_at(exchange, operation, stored)
            if not isinstance(aimed, Asks) and _is_of_head_alone(relay, operation, stored):
                memory: HeadMemory | None = exchange.scope.get(HEAD)
                if memory is not None:
                    memory.aim = KnownAim(stamp, exchange.namespace, aimed)
            if aimed is not HERE and await relay.carry(exchange, operation, stored, aimed):
                return
            if is_new:
                await _send_to_new_topic(relay, exchange, operation, stored, handler, names)
            else:
                await handler(exchange, *names)

        return carry

    async def _learn_of_namespace(self, exchange: RequestContext, relay: Relay) -> None:
        """Hear of a namespace that nobody knows here: another node may have made it just now."""
        with suppress(CurlewError):  # what is wrong with it is said later
            found = namespace_of_request(exchange.mq_headers, exchange.query, EVERY)
            if found.namespace and found.namespace not in self._admission.namespaces():
                await in_task()
                await relay.refresh()

    async def _slow_down(self, exchange: RequestContext, error: CurlewError) -> None:
        """Let the connection of who asks too much, or shows what is no credential, be silent."""
        if isinstance(error, OverQuota):
            if error.quota is not None:
                self._traffic.quota_refusals[error.quota.name] += 1
            await exchange.mute(error.mute_s)
        elif isinstance(error, Unauthorized) and self._failures is not None:
            if RELAYED in exchange.scope:
                return  # on a connection of many clients, whose node has judged what they show
            client = exchange.scope.get("client")
            wait_s = self._failures.note(client[0] if client else "")
            if wait_s:
                await in_task()
                await asyncio.sleep(min(wait_s, BEGINNING_SECONDS_MAX))
                await exchange.mute(wait_s - BEGINNING_SECONDS_MAX)

    def _of_send(self, exchange: RequestContext, error: CurlewError, topic: str | None) -> None:
        """Say what is known of the message where it is a send, and count it. `topic` is None for
        all else, and for a send that was not let in, of which nothing was looked at."""
        if topic is None:
            if self._router.sends(exchange.scope):
                error.outcome = "not_stored"
            return
        if self._send_failed is not None:
            self._send_failed(exchange, stored_name(exchange.namespace, topic), error.code)
        with_outcome_of_send(error)

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
            self._of_send(exchange, error, sends_to)
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
            self._admission.resolve_namespace(exchange)
        permission, rights = exchange.permission, self._rights
        if permission is not None and rights is not None:
            rights.permit(exchange, permission)
        elif exchange.caller.name is not None:
            self._admission.require(exchange, operation, names)
        if self._quotas is not None and RELAYED not in exchange.scope:
            self._quotas.admit(exchange, operation, names)
        if operation.reads:
            self._pressure.refuse_reads()
        if exchange.mq_headers or operation.leases_by_get:
            _check_headers(exchange, operation)
        if exchange.makes or exchange.namespace:
            handler = _prepared(exchange, operation, handler)
        if others is not None and not others.follows:  # one that follows has handlers that carry
            handler = self._carried_or(others, exchange, operation, handler)
        if operation.waits and self._quotas is not None:
            handler = self._quotas.parking(operation, handler)
        return handler

    async def _fall_back(self, exchange: RequestContext) -> str:
        """Let the control plane answer; the operation that it found."""
        scope = exchange.scope
        self._admission.note_open(exchange)
        self._admission.resolve_namespace(exchange)
        if exchange.caller.namespace:
            bind(exchange, exchange.caller.namespace)
        if self._quotas is not None and RELAYED not in scope:
            self._quotas.admit(exchange, None)
            await self._quotas.park(exchange, "head")
        if self._pressure.is_clogged and _reads(scope):
            self._pressure.refuse_reads()
        if exchange.mq_headers and scope["path"].startswith(API_PREFIX):
            refuse_mq_headers(exchange.mq_headers, OF_EVERY_REQUEST)
        scope[REQUEST_ID_KEY] = exchange.request_id
        scope[CONTEXT_KEY] = exchange
        act_as_caller(exchange)
        try:
            with within(exchange.namespace):
                await self._fallback(scope, exchange.receive, self._sending(exchange))
        except ClientGone:
            exchange.status = 0  # the framework has answered 500, which reaches no client
            raise
        if exchange.denied is not None:
            self._note_denial(exchange, exchange.denied)
        return getattr(scope.get("route"), "operation_id", None) or _ELSEWHERE

    def _sending(self, exchange: RequestContext) -> Send:
        """How the control plane answers: of what it has changed other nodes are told before."""
        relay, send = self._relay, exchange.send_with_request_id
        if relay is None or not relay.has_others or exchange.scope["method"] in _READING:
            return send
        before = relay.metadata_version

        async def tell_and_send(event: Event) -> None:
            nonlocal before
            if event["type"] == "http.response.start" and relay.metadata_version > before:
                await self._news.tell(relay, exchange, relay.shards_from_here()[1:])
            await send(event)

        return tell_and_send

    def _note_denial(self, exchange: RequestContext, error: CurlewError) -> None:
        if not isinstance(error, (NotPermitted, Unauthorized)):
            return
        code, resource = noted_of(error)
        self._traffic.denials[code] += 1
        if self._audit is not None:
            action = str(error.fields.get("action", exchange.scope["method"]))
            self._audit.denied(Denial(actor_of(exchange), action, resource, code))


def _reads(scope: Scope) -> bool:
    """Whether the answer may be large: what an operator looks at first is not among these."""
    return bool(scope["method"] == "GET" and scope["path"].startswith(API_PREFIX))


def _check_headers(exchange: RequestContext, operation: Operation) -> None:
    """Raise for `MQ-*` headers where it takes none, and for a GET with effects by a link."""
    if exchange.mq_headers and not operation.mq_headers:
        refuse_mq_headers(exchange.mq_headers, OF_EVERY_REQUEST)
    if operation.leases_by_get:
        check_navigation(exchange.headers)


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


def _is_of_head_alone(relay: Relay, operation: Operation, stored: tuple[str, ...]) -> bool:
    """Whether requests with the same head are for the same shard as long as nothing new is known:
    they are of a topic that is known, and so nothing that they name has to be heard of; and they do
    not take turns, as this node takes messages of the topic itself."""
    if operation.across is not None or operation.names[0] != "topic" or "group" in operation.names:
        return False
    topic = relay.places.topic(stored[0])
    return topic is not None and topic.is_open_here


def _known_aim(relay: Relay, exchange: RequestContext) -> KnownAim | None:
    """What a request is for, where that was found for one with the same head, and holds."""
    memory: HeadMemory | None = exchange.scope.get(HEAD)
    aim = None if memory is None else memory.aim
    if aim is None or aim.stamp is not relay.places.stamp or aim.namespace != exchange.namespace:
        return None
    return aim


async def _carry(
    relay: Relay, operation: Operation, shard: str, exchange: RequestContext, *_names: str
) -> None:
    """In place of the handler, for a request that is known to be for another node."""
    await relay.carry(exchange, operation, (), shard)


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
