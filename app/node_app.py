"""What answers HTTP for a node: the application of the term in which it leads its shard, or the one
that asks those who lead. The server has one handler, and a turn swaps what is behind it.

Behind a term nobody uses its broker any more: what waits is answered, and what goes on all the same
is cut off. Event loop only.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import Credentials, build_api
from app.api.dataplane.pulls.pulling import PullForms
from app.api.following.followed_pulls import FollowedPulls
from app.api.gateway import Gateway
from app.api.http.foreign_pages import PAGES
from app.api.quotas.quotas import Quotas, QuotaSettings
from app.api.relay.relay import Relay
from app.api.server import Connections
from app.api.telemetry.request_metrics import RequestMetrics
from app.config import Config
from app.node import Node
from app.node_parts.served_term import ServedTerm
from app.runtime.direct import in_task
from app.web import LiveStreams, build_web

_LOG: Final = logging.getLogger(__name__)

END_SECONDS: Final = 1.0
"""How long requests that are at work in a term that is over may take to end by themselves."""


class NodeApp:
    """The ASGI application of a node."""

    def __init__(
        self,
        node: Node,
        connections: Connections | None = None,
        live: LiveStreams | None = None,
        relay: Relay | None = None,
    ) -> None:
        """`connections` are those of the server, for its metrics, `live` are pages that stay open,
        which it ends, and `relay` carries requests to other nodes."""
        self._node = node
        self._connections = connections
        self._relay = relay
        self._web = build_web(self, node.clock, live)
        self._traffic = RequestMetrics()
        self._quotas = quotas_of(node)
        self._pulls = _pulls_of(node, self._traffic)
        self._credentials = Credentials(
            node.metadata.principals,
            node.clock,
            node.tokens,
            dict(node.config.tls_client_principals),
        )
        self._gateway: Gateway
        self._counted: _Counted | None = None
        self._app: ASGIApp
        node.answer_by(self)
        node.running.listen(self._follow_settings)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._app(scope, receive, send)

    def serve(self, term: ServedTerm) -> None:
        """The node leads its shard."""
        self._gateway = self._build(term)
        self._app = self._gateway
        if not self._node.is_lone:
            self._app = self._counted = _Counted(self._gateway)
        if self._relay is not None:
            self._relay.serve_own(self._app)

    def follow(self) -> None:
        """The node leads its shard no more, or not yet: new requests go to those who lead."""
        if self._relay is not None:
            self._relay.follow()
        self._gateway = self._build(None)
        self._app = self._gateway

    async def end_term(self) -> None:
        """Return when no request uses the broker of the term that is over; it has stopped, and
        whoever waited is answered."""
        counted, self._counted = self._counted, None
        if counted is not None:
            await counted.end()

    def _follow_settings(self, config: Config) -> None:
        self._gateway.logs_access = config.access_log

    def _build(self, term: ServedTerm | None) -> Gateway:
        node, connections = self._node, self._connections
        return build_api(
            None if term is None else term.broker,
            node.metadata,
            node.limits,
            local_only=not node.config.insecure_anonymous,
            web=self._web,
            connections=connections,
            access_log=node.running.config.access_log,
            trusted_proxies=node.config.trusted_proxies,
            configuration=node.running,
            credentials=self._credentials,
            audit=node.metadata.audit,
            quotas=self._quotas,
            tracer=None if node.spans is None else node.spans.tracer,
            failures=None if connections is None else connections.failures,
            relay=self._relay,
            traffic=self._traffic,
            following=node.following if term is None else None,
            replicas=node.replicas,
            pulls=self._pulls,
        )


def quotas_of(node: Node) -> Quotas | None:
    """The quotas that are set; None when none is, so that no request pays for them."""
    names = QuotaSettings.__dataclass_fields__
    settings = QuotaSettings(**{name: getattr(node.config, f"quota_{name}") for name in names})
    return None if settings == QuotaSettings() else Quotas(settings, node.clock.monotonic_s)


def _pulls_of(node: Node, traffic: RequestMetrics) -> FollowedPulls | None:
    """That are answered here while another node leads; None: no other ever does."""
    if node.reads_here is None:
        return None
    forms = PullForms(node.limits, traffic)
    return FollowedPulls(node.reads_here, node.metadata, node.clock, node.limits, forms)


class _AtWork:
    """One request."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: asyncio.Task[object] | None = None
        """Where it goes on; None in the turn of the loop in which it has begun."""


class _Counted:
    """An application that ends before its node does: it knows the requests that it has at work."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._at_work: set[_AtWork] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path", "").startswith(PAGES):
            # They use no broker but by requests of their own, and stay open over terms.
            await self._gateway(scope, receive, send)
            return
        request = _AtWork()
        self._at_work.add(request)
        self._none_left.clear()
        try:
            await in_task()
            request.task = asyncio.current_task()
            await self._gateway(scope, receive, send)
        finally:
            self._at_work.discard(request)
            if not self._at_work:
                self._none_left.set()

    async def end(self) -> None:
        """Wait for them, and cut off those that take too long: what is told to them then takes no
        longer either."""
        while not await self._have_ended():
            self._gateway.is_over = True
            _LOG.warning("%d requests are cut off: the term is over", len(self._at_work))
            for task in {each.task for each in self._at_work}:
                if task is not None:
                    task.cancel()

    async def _have_ended(self) -> bool:
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._none_left.wait()
        except TimeoutError:
            return False
        return True
