"""Requests whose head is known pass by what was found for the one before, while that holds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.api.http.request_context import (
    CONNECTION,
    HEAD,
    ConnectionMemory,
    HeadMemory,
    OpenedHead,
)
from app.api.relay.envelope import RELAYED, Envelope
from app.domain.access.actions import Action
from app.domain.access.policies import Effect, Policy, Subject, SubjectKind, read_pattern
from tests.support.clients.asgi import Answer, call, http_scope
from tests.support.nodes.closed import (
    EVERYBODY,
    ClosedNode,
    closed_node,
    key_of,
    principal,
)

pytestmark = pytest.mark.anyio

PATH = "/v1/topics/alpha-in/messages"
SENT = 201
DENIED = Policy(
    "no",
    Subject(SubjectKind.PRINCIPAL, "alpha"),
    Effect.DENY,
    frozenset({Action.PUB}),
    (read_pattern("topic:alpha-in"),),
)


class Head:
    """Sends requests with one head on one connection, as the server hands them on."""

    def __init__(
        self, node: ClosedNode, *headers: tuple[bytes, bytes], key: str | None = "alpha"
    ) -> None:
        shown = [] if key is None else [(b"authorization", b"Bearer " + key_of(key))]
        self._headers = [(b"host", b"localhost:8710"), *shown, *headers]
        self._node = node
        self._connection = ConnectionMemory()
        self.memory = HeadMemory()

    async def ask(self, **more: Any) -> Answer:
        async def app(_: Any, receive: Any, send: Any) -> None:
            scope = http_scope("POST", PATH, self._headers, b"")
            known = {HEAD: self.memory, CONNECTION: self._connection}
            await self._node.app({**scope, **known, **more}, receive, send)

        return await call(app, "POST", PATH, b"x")

    async def known(self) -> None:
        """Ask twice: the first learns who asks and what it may, the second finds both."""
        for _ in range(2):
            assert (await self.ask()).status == SENT
        assert self.memory.permission is not None


async def test_who_asks_again_is_known_and_its_key_was_used() -> None:
    async with closed_node() as node:
        head = Head(node)
        await head.known()
        assert head.memory.keyring is node.access.keyring
        node.access.used_keys.clear()
        assert (await head.ask()).status == SENT
        assert node.access.used_keys == {"alpha"}


def _revoke(node: ClosedNode) -> None:
    node.access.show([each for each in EVERYBODY if each.name != "alpha"])


def _disable(node: ClosedNode) -> None:
    known = node.access.keyring
    alpha = known.principals["alpha"]._replace(is_disabled=True)
    node.access.keyring = replace(known, principals={**known.principals, "alpha": alpha})


def _deny(node: ClosedNode) -> None:
    node.access.show(policies=(DENIED,))


def _be_old(node: ClosedNode) -> None:
    node.access.age.is_over = True


def _keep_out(node: ClosedNode) -> None:
    alpha = node.access.keyring.principals["alpha"]._replace(allowed_from=("10.0.0.0/8",))
    node.access.show([*(each for each in EVERYBODY if each.name != "alpha"), alpha])


@pytest.mark.parametrize(
    ("change", "status"),
    [(_revoke, 401), (_disable, 403), (_deny, 403), (_be_old, 503), (_keep_out, 401)],
)
async def test_what_is_known_counts_no_longer_than_what_it_was_found_by(
    change: Callable[[ClosedNode], None], status: int
) -> None:
    async with closed_node() as node:
        head = Head(node)
        await head.known()
        change(node)
        for _ in range(2):
            assert (await head.ask()).status == status


async def test_a_key_that_is_known_expires() -> None:
    async with closed_node() as node:
        node.access.expires_ms["alpha"] = node.world.clock.now_ms() + 1_000
        node.access.show()
        head = Head(node)
        await head.known()
        node.world.clock.advance(ms=1_000)
        assert (await head.ask()).status == 401


async def test_a_proxy_brings_other_clients_with_the_same_head() -> None:
    async with closed_node() as node:
        alpha = principal("alpha", "producer")._replace(allowed_from=("10.0.0.0/8",))
        node.access.show([alpha])
        head = Head(node)
        for _ in range(3):
            assert (await head.ask(client=("10.1.2.3", 1))).status == SENT
        assert (await head.ask(client=("192.0.2.1", 1))).status == 401


async def test_a_node_that_closes_asks_for_a_key_and_one_that_opens_does_not() -> None:
    async with closed_node(is_closed=False) as node:
        head = Head(node, key=None)
        for is_closed, status in ((False, SENT), (True, 401), (False, SENT)):
            node.access.show(is_closed=is_closed)
            for _ in range(3):
                assert (await head.ask()).status == status


async def test_what_came_to_be_made_by_its_use_is_asked_for_again() -> None:
    """Whether there is such a topic, and whether its use makes it, may change at any time."""
    async with closed_node() as node:
        head = Head(node)
        await head.known()
        await node.world.metadata.delete_topic("alpha-in")
        node.world.broker.made_by_use.topics = True
        assert (await head.ask()).status == 403


async def test_headers_of_ours_are_read_each_time() -> None:
    async with closed_node() as node:
        head = Head(node, (b"mq-request-id", b"mine"), (b"mq-tag", b"red"))
        for _ in range(3):
            answer = await head.ask()
            assert (answer.status, answer.headers[b"mq-request-id"]) == (SENT, b"mine")
        assert head.memory.keyring is None


async def test_what_another_node_asks_is_not_known() -> None:
    async with closed_node() as node:
        head = Head(node)
        asked = Envelope(0, 0, "alpha", None, None)
        for _ in range(3):
            assert (await head.ask(**{RELAYED: asked})).status == SENT
        assert head.memory.keyring is None
        assert (await head.ask(**{RELAYED: asked._replace(principal="nobody")})).status == 403


async def test_a_head_without_a_key_is_refused_each_time() -> None:
    async with closed_node() as node:
        head = Head(node, key=None)
        for _ in range(3):
            assert (await head.ask()).status == 401
        assert head.memory.keyring is None


async def test_a_carried_head_that_is_known_is_asked_of_each_time_who_it_is() -> None:
    """It differs in its last headers, and its caller may be none any more."""
    async with closed_node() as node:
        late = (b"curlew-client", b"10.0.0.1 1"), (b"mq-request-id", b"mine")
        head = Head(node, *late, (b"content-length", b"1"), key=None)
        head.memory = HeadMemory(ends_alike=True)
        head.memory.opened = OpenedHead(None, [], says_nothing_more=True)
        asked = {RELAYED: Envelope(0, 0, "alpha", None, None)}
        for _ in range(3):
            answer = await head.ask(**asked)
            assert (answer.status, answer.headers[b"mq-request-id"]) == (SENT, b"mine")
        assert head.memory.keyring is None
        _revoke(node)
        assert (await head.ask(**asked)).status == 401
