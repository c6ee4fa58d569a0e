"""A node that asks for keys, in memory: a broker behind the whole HTTP application, and principals.

There are no sockets and no SQL; who may do what is in `Access.keyring`, which a test replaces.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from app.api.access.credentials import Credentials
from app.api.app_factory import build_api
from app.api.gateway import Gateway
from app.api.http.request_context import Event, Receive, Scope, Send
from app.api.ports import Metadata
from app.cluster import Page
from app.domain.access.audit import Denial
from app.domain.access.evaluator import Evaluator, Principal
from app.domain.access.keyring import Keyring, KnownKey, PolicyAge
from app.domain.access.keys import KEY_ID_BYTES, KEY_SECRET_BYTES, digest_of, make_key
from app.domain.access.policies import Policy, read_pattern
from app.domain.access.refusals import PrincipalNotFound
from app.domain.errors import StateConflict
from app.domain.limits import Limits
from app.domain.positions import TimestampMs
from app.web import build_web
from tests.support.clients.asgi import Answer, call
from tests.support.nodes.brokers import World, running


def key_of(name: str) -> bytes:
    """The API key of a principal; always the same."""
    secret = name.encode().ljust(KEY_SECRET_BYTES, b".")
    key_id = name.encode().ljust(KEY_ID_BYTES, b".")[:KEY_ID_BYTES]
    return make_key(key_id, secret).text.encode()


def principal(name: str, *roles: str, to: Iterable[str] = (), namespace: str = "") -> Principal:
    """`to`: the patterns that it is kept to."""
    return Principal(name, roles, namespace, tuple(map(read_pattern, to)))


ROLES = ("admin", "operator", "producer", "consumer", "viewer")
EVERYBODY = (
    *(principal(role, role) for role in ROLES),
    principal("nobody"),
    *(
        principal(
            team,
            "producer",
            "consumer",
            to=(f"topic:{team}-*", f"group:{team}-*", f"producer:{team}-*"),
        )
        for team in ("alpha", "beta", "gamma")
    ),
)
"""One of each role, for all names; one without any; and three teams that send and consume."""


@dataclass
class Access:
    """Who may do what, as a node's metadata gives it."""

    keyring: Keyring = field(default_factory=Keyring)
    waiting: set[Callable[[], object]] = field(default_factory=set)
    age: PolicyAge = field(default_factory=lambda: PolicyAge(lambda: 0.0))
    used_keys: set[str] = field(default_factory=set)
    denials: list[Denial] = field(default_factory=list)
    expires_ms: dict[str, int] = field(default_factory=dict)

    def show(
        self,
        principals: Iterable[Principal] = EVERYBODY,
        policies: Iterable[Policy] = (),
        *,
        is_closed: bool = True,
    ) -> None:
        """From now on this is so."""
        known = {each.name: each for each in principals}
        keys = {digest_of(key_of(name)): KnownKey(name, name, self._expiry(name)) for name in known}
        self.keyring = Keyring(
            is_closed, keys, self.keyring.version + 1, known, Evaluator(policies)
        )
        for look_again in tuple(self.waiting):
            look_again()

    def _expiry(self, name: str) -> TimestampMs | None:
        found = self.expires_ms.get(name)
        return None if found is None else TimestampMs(found)

    # What administrators ask for: there is nothing in memory, and nothing can be made.

    async def listed(self, **_: object) -> Page[Any]:
        return Page((), None)

    async def get(self, name: str) -> None:
        raise PrincipalNotFound(f"there is none that is called {name!r}")

    async def remove(self, name: str, _: object = None) -> None:
        await self.get(name)

    def now_ms(self) -> int:
        return 0

    async def rotate(self, name: str, _: object = None, **__: object) -> None:
        await self.get(name)

    async def revoke(self, name: str, _: object = None, **__: object) -> None:
        await self.get(name)

    async def put(self, name: object, *_: object) -> None:
        raise StateConflict(f"{name} cannot be made in memory")

    def denied(self, denial: Denial) -> None:
        """As an audit log."""
        self.denials.append(denial)


@dataclass
class ClosedNode:
    """The application and what is behind it."""

    world: World
    access: Access
    app: Gateway

    async def ask(
        self,
        who: str | None,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: str = "",
        **more: Any,
    ) -> Answer:
        """What the node answers to a principal; None: without a key."""
        pairs = [(name.lower().encode(), text.encode()) for name, text in (headers or {}).items()]
        if who is not None:
            pairs.append((b"authorization", b"Bearer " + key_of(who)))
        pairs.append((b"mq-request-id", b"the-same"))
        if isinstance(body, bytes):
            parts = [body]
        else:
            parts = [] if body is None else [msgspec.json.encode(body)]
        if parts and "content-type" not in {name.lower() for name in headers or {}}:
            is_patch = method == "PATCH" and "/receipts/" not in path
            kind = b"application/merge-patch+json" if is_patch else b"application/json"
            pairs.append((b"content-type", kind))
        if parts:
            pairs.append((b"content-length", b"%d" % len(parts[0])))
        return await call(
            self.app,
            method,
            path,
            headers=pairs,
            query=query.encode(),
            receive=_staying(parts),
            **more,
        )


def _staying(parts: list[bytes]) -> Callable[[], Awaitable[Event]]:
    """A client that sends the parts and stays."""
    left = list(parts) or [b""]

    async def receive() -> Event:
        if not left:
            await asyncio.get_running_loop().create_future()
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


class _NoAudit:
    """An audit that keeps nothing."""

    unnamed_count = 0

    @asynccontextmanager
    async def around(self, *_: object) -> AsyncIterator[dict[str, object]]:
        yield {}

    async def page(self, *_: object, is_backward: bool) -> Any:
        raise StateConflict("nothing is kept in memory")


class _NoSettings:
    """A node without settings."""

    version = 0

    def settings(self) -> list[Any]:
        return []

    async def change(self, _named: object, _terms: object) -> Any:
        raise StateConflict("nothing can be changed in memory")


@asynccontextmanager
async def closed_node(
    *, is_closed: bool = True, with_pages: bool = False, limits: Limits | None = None
) -> AsyncIterator[ClosedNode]:
    """With the topics and groups of three teams: `alpha-in` and `alpha-g`, and so on."""
    async with running(limits=limits) as world:
        access = Access()
        access.show(is_closed=is_closed)
        world.metadata.principals = world.metadata.policies = access
        world.metadata.audit = _NoAudit()
        for team in ("alpha", "beta", "gamma"):
            await world.topic(2, name=f"{team}-in")
            await world.metadata.ensure_group(f"{team}-g")

        async def ask_itself(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)

        app = build_api(
            world.broker,
            cast("Metadata", world.metadata),
            world.limits,
            local_only=True,
            web=build_web(ask_itself, world.clock) if with_pages else None,
            credentials=Credentials(access, world.clock),
            audit=access,
            configuration=_NoSettings(),
        )
        yield ClosedNode(world, access, app)
