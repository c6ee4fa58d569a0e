"""What becomes of requests that are at work when the node ceases to lead its shard."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from typing_extensions import override

import app.node_app
from app.api.admission import Admission
from app.api.dataplane.router import Handler, Router
from app.api.dataplane.routes.read_operations import PULL_MESSAGES
from app.api.dataplane.routes.send_operations import SEND_MESSAGE
from app.api.gateway import Gateway
from app.api.http.request_context import AsgiApp, Event, Receive, RequestContext, Scope, Send
from app.api.relay.relay import Relay
from app.node import Node
from app.node_app import NodeApp, _Counted
from app.node_parts.served_term import ServedTerm
from app.runtime.direct import DirectRun
from tests.support.clients.asgi import LOCAL, call, events_of, http_scope

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/orders/messages"
PULL = "/v1/topics/orders/queues/0/messages"
PATIENCE_S = 60.0


class Hanging:
    """A handler that begins, and then waits until it is let go."""

    def __init__(self, *, begins_answer: bool = False) -> None:
        self.has_begun, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._begins_answer = begins_answer

    async def __call__(self, exchange: RequestContext, *_: str) -> None:
        if self._begins_answer:
            await exchange.begin(200, [])
            await exchange.go_on(b"a part")
        self.has_begun.set()
        await self.may_go_on.wait()
        await exchange.answer(200, [], b"done")


def gateway(handler: Handler, page: Hanging | None = None) -> Gateway:
    async def pages(scope: Scope, receive: Receive, send: Send) -> None:
        assert page is not None
        page.has_begun.set()
        await page.may_go_on.wait()

    router = Router({SEND_MESSAGE: handler, PULL_MESSAGES: handler})
    return Gateway(router, pages, Admission(header_block_bytes_max=256, local_only=True))


def counted(handler: Handler, page: Hanging | None = None) -> _Counted:
    return _Counted(gateway(handler, page))


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.node_app, "END_SECONDS", 0.0)


@pytest.fixture
def _never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.node_app, "END_SECONDS", PATIENCE_S)


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(
    ("method", "path", "outcome"), [("POST", TOPIC, "unknown"), ("GET", PULL, None)]
)
async def test_who_is_cut_off_is_told_so(method: str, path: str, outcome: str | None) -> None:
    handler = Hanging()
    term = counted(handler)
    answering = asyncio.ensure_future(call(term, method, path))
    await handler.has_begun.wait()
    await term.end()
    answer = await answering
    assert answer.status == 503
    assert answer.headers[b"content-type"] == b"application/problem+json"
    assert answer.headers[b"retry-after"] == b"1"
    assert answer.json()["code"] == "SHARD_UNAVAILABLE"
    assert answer.json().get("outcome") == outcome
    assert answer.json()["retryable"]


@pytest.mark.usefixtures("_at_once")
async def test_an_answer_that_has_begun_stays_without_its_end() -> None:
    handler = Hanging(begins_answer=True)
    term = counted(handler)
    sent: list[Event] = []

    async def send(event: Event) -> None:
        sent.append(event)

    scope = http_scope("GET", PULL, [LOCAL], b"")
    answering = asyncio.ensure_future(term(scope, events_of(), send))
    await handler.has_begun.wait()
    await term.end()
    await answering
    assert [each["type"] for each in sent] == ["http.response.start", "http.response.body"]
    assert sent[-1]["more_body"]  # for the server, which closes such a connection


@pytest.mark.usefixtures("_at_once")
async def test_a_client_that_takes_no_answer_holds_nobody_up() -> None:
    handler = Hanging()
    term = counted(handler)

    async def send(event: Event) -> None:
        await asyncio.Event().wait()

    scope = http_scope("POST", TOPIC, [LOCAL], b"")
    answering = asyncio.ensure_future(term(scope, events_of(), send))
    await handler.has_begun.wait()
    async with asyncio.timeout(PATIENCE_S):
        await term.end()
    assert answering.done()


@pytest.mark.usefixtures("_never")
async def test_what_has_begun_in_this_turn_is_waited_for() -> None:
    handler = Hanging()
    term = counted(handler)
    answer: list[Event] = []

    async def send(event: Event) -> None:
        answer.append(event)

    tasks: list[asyncio.Task[None]] = []
    scope = http_scope("GET", PULL, [LOCAL], b"")
    request = DirectRun(
        term(scope, events_of(), send), lambda run, _: tasks.append(asyncio.ensure_future(run))
    )

    async def begin_and_end() -> None:
        request.go_on()
        await term.end()

    ending = asyncio.ensure_future(begin_and_end())
    await handler.has_begun.wait()
    assert not ending.done()
    handler.may_go_on.set()
    await ending
    assert answer[0]["status"] == 200


class OfOneShard(NodeApp):
    """The application of a node of a cluster whose gateway is given."""

    def __init__(self, gateway: Gateway, relay: Relay) -> None:
        self._node = cast("Node", SimpleNamespace(is_lone=False))
        self._relay, self._given = relay, gateway

    @override
    def _build(self, term: ServedTerm | None) -> Gateway:
        return self._given


@pytest.mark.usefixtures("_never")
async def test_what_a_node_asks_of_itself_is_waited_for() -> None:
    handler = Hanging()
    own: list[AsgiApp] = []
    node = OfOneShard(gateway(handler), cast("Relay", SimpleNamespace(serve_own=own.append)))
    node.serve(cast("ServedTerm", None))
    asking = asyncio.ensure_future(call(own[0], "GET", PULL))
    await handler.has_begun.wait()
    ending = asyncio.ensure_future(node.end_term())
    await asyncio.sleep(0)
    assert not ending.done()
    handler.may_go_on.set()
    await ending
    assert (await asking).status == 200


@pytest.mark.usefixtures("_never")
async def test_an_open_page_is_not_waited_for() -> None:
    page = Hanging()
    term = counted(Hanging(), page)
    showing = asyncio.ensure_future(call(term, "GET", "/ui/topics"))
    await page.has_begun.wait()
    async with asyncio.timeout(PATIENCE_S / 2):
        await term.end()
    assert not showing.done()
    page.may_go_on.set()
    await showing
