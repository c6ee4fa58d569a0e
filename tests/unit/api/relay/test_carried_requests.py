"""What becomes of a request that another node answers, or does not."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.api.aims.aim import BODY, Aim
from app.api.aims.places import Metadata
from app.api.http.errors import with_outcome_of_send
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import WHOLE_BODY, Event, RequestContext
from app.api.operations.operation import Operation
from app.api.peers import pool
from app.api.peers.handshake import Answering
from app.api.peers.pool import NotReached, Peers
from app.api.relay import leaders
from app.api.relay.calls import CallRequest, part_of
from app.api.relay.envelope import opened
from app.api.relay.fan_out import ask
from app.api.relay.relay import LOOKS_AT_ONCE, LOOKS_PER_S, Relay
from app.domain.errors import CurlewError, RelayInterrupted, ShardUnavailable
from app.domain.limits import Limits
from app.runtime.secure.cluster_secret import ClusterSecret
from tests.unit.api.relay.exchanges import exchange_of

pytestmark = pytest.mark.anyio

SECRET = ClusterSecret(b"a" * 32)
PATIENCE_S = 20
MOVED = b"HTTP/1.1 421 Misdirected Request\r\ncontent-length: 2\r\n\r\n{}"
STORED = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"
SENDS = cast("Operation", SimpleNamespace(sends=True, aim=None, may_be_stale=False))
PULLS = cast("Operation", SimpleNamespace(sends=False, aim=None, may_be_stale=True))


class Other:
    """Another node, which says what it is told, one answer for each request."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []
        self.when_asked: Callable[[], Any] = _at_once
        self.over: list[asyncio.Event] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.over.append(over := asyncio.Event())
        answering = Answering(SECRET)
        writer.write(answering.answer(await reader.readline()))
        answering.check(await reader.readline())
        while head := await _head(reader):
            self.heads.append(head)
            self.bodies.append(await _body(reader, head))
            await self.when_asked()
            writer.write(self.answers.pop(0))
        await _close(writer)
        over.set()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _at_once() -> None:
    return


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, OSError):
        return b""


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if b"chunked" not in head:
        size = int(head.partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
        return await reader.readexactly(size)
    whole = b""
    while size := int(await reader.readline(), 16):
        whole += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return whole


@asynccontextmanager
async def relaying(other: Other) -> AsyncIterator[Relay]:
    server = await asyncio.start_server(other.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def refresh() -> bool:
        return False

    shard = SimpleNamespace(
        cluster_url=f"http://127.0.0.1:{port}",
        advertise_url="",
        epoch=1,
        name="b",
        shard_id=b"b",
        leader="node-b",
    )
    snapshot = SimpleNamespace(version=1, topics={}, shards={"a": shard, "b": shard})
    metadata = SimpleNamespace(snapshot=snapshot, shard="a", refresh=refresh)
    relay = Relay(
        cast("Metadata", metadata), lambda: 1, Limits(), peers := Peers(SECRET, monotonic)
    )
    try:
        yield relay
    finally:
        peers.close()
        for over in other.over:
            await asyncio.wait_for(over.wait(), PATIENCE_S)
        server.close()
        await server.wait_closed()


class Client:
    """Who asks: `parts` of a body that have not come whole with the head, or none."""

    def __init__(self, method: str, headers: list[tuple[bytes, bytes]], *parts: bytes) -> None:
        self.events: list[Event] = []
        self._parts = list(parts)
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": "/v1/topics/orders/messages",
            "raw_path": b"/v1/topics/orders/messages",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }
        self.exchange = RequestContext(
            self.scope, self.receive, self.send, b"id", MemoryBudget(Limits())
        )

    async def receive(self) -> Event:
        """As the server's: a body once, and then nothing until the client leaves."""
        if WHOLE_BODY in self.scope:
            return {"type": "http.request", "body": self.scope.pop(WHOLE_BODY), "more_body": False}
        if not self._parts:
            await asyncio.get_running_loop().create_future()
        part = self._parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self._parts)}

    async def send(self, event: Event) -> None:
        self.events.append(event)


async def carry(relay: Relay, client: Client) -> None:
    async with asyncio.timeout(PATIENCE_S):
        assert await relay.carry(client.exchange, SENDS, (), "b")


async def test_a_request_that_is_sent_again_has_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when somebody has looked meanwhile whether its client is still there."""
    monkeypatch.setattr("app.api.relay.leaders.WATCH_AFTER_S", 0)
    other = Other(MOVED, STORED)
    client = Client("POST", [(b"content-length", b"4")])
    client.scope[WHOLE_BODY] = b"body"

    async def looked() -> None:
        for _ in range(20):  # turns of the loop
            await asyncio.sleep(0)

    other.when_asked = looked
    async with relaying(other) as relay:
        await carry(relay, client)
    assert other.bodies == [b"body", b"body"]
    assert client.exchange.status == 201


async def test_a_part_is_no_whole_request_though_its_node_follows_meanwhile() -> None:
    """What one shard is to do would be done over all."""
    other = Other(STORED)
    client = Client("POST", [(b"content-length", b"4")])
    client.scope[WHOLE_BODY] = b"body"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay.follow()  # while the connection is made
        await Other.serve(other, reader, writer)

    other.serve = serve  # type: ignore[method-assign]
    async with relaying(other) as relay:
        await carry(relay, client)
    assert b"whole" not in other.heads[0]


@pytest.mark.parametrize("host", [None, b"a.example"])
async def test_a_request_without_host_has_one_where_it_is_carried(host: bytes | None) -> None:
    """HTTP/1.0 needs none; the other node is asked by HTTP/1.1, and refuses one without."""
    other = Other(STORED)
    named = [] if host is None else [(b"host", host)]
    client = Client("POST", [*named, (b"content-length", b"4")])
    client.scope[WHOLE_BODY] = b"body"
    async with relaying(other) as relay:
        await carry(relay, client)
    lines = other.heads[0].split(b"\r\n")
    hosts = [line for line in lines if line.startswith(b"host: ")]
    assert hosts == [b"host: " + (host or b"cluster")]


async def test_a_replica_that_stands_still_is_left_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read that the leader does not answer would wait for it for as long as its client does."""
    monkeypatch.setattr("app.api.relay.carrier.SILENT_SECONDS", 0.05)
    frozen, other, goes_on = Other(STORED), Other(STORED), asyncio.Event()
    frozen.when_asked = goes_on.wait
    client = Client("GET", [])
    async with relaying(frozen) as there, relaying(other) as relay:
        members = [("a", url_of(there)), ("b", url_of(relay))]
        view = cast("Any", relay.places.metadata.snapshot.shards["b"])
        view.in_sync = [name for name, _ in members]
        view.members = [SimpleNamespace(node_id=name, cluster_url=url) for name, url in members]
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert await relay.answered_by_replica(client.exchange, "b")
        finally:
            goes_on.set()
    assert (len(frozen.heads), client.exchange.status) == (1, 201)


def url_of(relay: Relay) -> str:
    return relay.places.metadata.snapshot.shards["b"].cluster_url


FORGED = [
    *((b"curlew-principal", b"admin"), (b"curlew-roles", b"admin"), (b"curlew-ends", b"9")),
    *((b"curlew-of-node", b"1"), (b"curlew-whole", b"1"), (b"curlew-asks", b"x")),
    *((b"curlew-client", b"10.0.0.1 1"), (b"curlew-versions", b"9 9"), (b"curlew-new", b"1")),
]
"""What a client may write as well as a node: it is to be nobody's word."""


async def test_no_header_of_a_client_is_taken_for_an_envelope() -> None:
    other = Other(STORED)
    client = Client("POST", [*FORGED, (b"content-length", b"4"), (b"mq-tag", b"t")])
    client.scope[WHOLE_BODY] = b"body"
    async with relaying(other) as relay:
        await carry(relay, client)
    lines = [line.partition(b": ") for line in other.heads[0].split(b"\r\n")[1:] if line]
    came = [(name, value) for name, _, value in lines]
    assert not set(came) & set(FORGED)
    scope: dict[str, Any] = {"headers": came}
    envelope = opened(scope)
    assert (envelope.principal, envelope.is_of_node, envelope.roles) == (None, False, None)
    assert scope["client"] == ("127.0.0.1", 1)
    assert (b"mq-tag", b"t") in scope["headers"]


def test_no_header_of_a_client_goes_with_a_part_of_what_it_asks() -> None:
    client = Client("POST", [*FORGED, (b"mq-tag", b"t")])
    assert part_of(client.exchange, b"", b"body").headers == [(b"mq-tag", b"t")]


async def test_a_shard_that_nobody_leads_yet_is_one_to_wait_for() -> None:
    """421 would send the client elsewhere, and there is nowhere to go."""
    async with relaying(Other()) as relay:
        cast("Any", relay._metadata).snapshot.shards["b"].leader = ""
        with pytest.raises(ShardUnavailable, match="nobody leads"):
            await carry(relay, Client("POST", []))


async def test_a_node_that_stops_lets_go_of_what_waits_and_of_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server would cut a long poll off some seconds later, without a word."""
    other, asked, hangs = Other(STORED, STORED), asyncio.Event(), asyncio.Event()

    async def when_asked() -> None:
        asked.set()
        await hangs.wait()

    other.when_asked = when_asked

    async with relaying(other) as relay:
        client = Client("POST", [(b"content-length", b"4")])
        client.scope[WHOLE_BODY] = b"body"
        carried = asyncio.ensure_future(carry(relay, client))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        draining = asyncio.ensure_future(relay.drain())
        await asyncio.sleep(0)
        hangs.set()
        await carried
        await asyncio.wait_for(draining, PATIENCE_S)
        assert client.exchange.status == 201

        monkeypatch.setattr(leaders, "DRAIN_SECONDS", 0.01)
        asked.clear()
        hangs.clear()
        client = Client("POST", [(b"content-length", b"4")])
        client.scope[WHOLE_BODY] = b"body"
        carried = asyncio.ensure_future(carry(relay, client))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        await relay.drain()
        assert relay.stops.is_set()
        with pytest.raises(RelayInterrupted):
            await carried
        hangs.set()


@pytest.mark.parametrize("is_left", [True, False], ids=["another leads", "it leads"])
async def test_a_request_does_not_wait_for_a_node_that_another_has_replaced(
    monkeypatch: pytest.MonkeyPatch, *, is_left: bool
) -> None:
    """Its process stands still: the system goes on to acknowledge what is written to it."""
    monkeypatch.setattr(leaders, "WATCH_AFTER_S", 0)
    monkeypatch.setattr(leaders, "LEFT_SECONDS", 0)
    other, asked, hangs = Other(STORED), asyncio.Event(), asyncio.Event()

    async def when_asked() -> None:
        asked.set()
        await hangs.wait()

    other.when_asked = when_asked
    async with relaying(other) as relay:
        client = Client("POST", [(b"content-length", b"4")])
        client.scope[WHOLE_BODY] = b"body"
        carried = asyncio.ensure_future(carry(relay, client))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        if is_left:
            cast("Any", relay._metadata).snapshot.shards["b"].leader = "node-c"
            with pytest.raises(RelayInterrupted, match="may have been carried out") as caught:
                await carried
            assert caught.value.outcome == "unknown"
            hangs.set()
        else:
            for _ in range(20):  # turns of the loop
                await asyncio.sleep(0)
            hangs.set()
            await carried
            assert client.exchange.status == 201


async def test_a_node_that_leads_no_more_has_time_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaders, "WATCH_AFTER_S", 0)
    other = Other(STORED)
    client = Client("POST", [(b"content-length", b"4")])
    client.scope[WHOLE_BODY] = b"body"
    async with relaying(other) as relay:

        async def moved() -> None:
            cast("Any", relay._metadata).snapshot.shards["b"].leader = "node-c"
            for _ in range(20):  # turns of the loop
                await asyncio.sleep(0)

        other.when_asked = moved
        await carry(relay, client)
    assert client.exchange.status == 201


async def test_a_body_that_went_by_is_not_sent_again() -> None:
    """Nothing was done, and the client, who has it, may send it again."""
    other = Other(MOVED)
    client = Client("POST", [(b"transfer-encoding", b"chunked")], b"bo", b"dy")
    async with relaying(other) as relay:
        with pytest.raises(ShardUnavailable):
            await carry(relay, client)
    assert other.bodies == [b"body"]


@pytest.mark.parametrize("status", [b"400 Bad Request", b"200 OK"])
async def test_an_answer_to_head_has_no_body_to_wait_for(status: bytes) -> None:
    other = Other(*[b"HTTP/1.1 " + status + b"\r\ncontent-length: 300\r\n\r\n"] * 2)
    async with relaying(other) as relay:
        for _ in range(2):
            client = Client("HEAD", [])
            client.scope[WHOLE_BODY] = b""
            await carry(relay, client)
            assert client.exchange.status == int(status[:3])
            assert (b"content-length", b"300") in client.events[0]["headers"]
    assert len(other.heads) == 2


async def test_a_node_that_does_not_shake_hands_keeps_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "SECONDS", 0.01)
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.gather(reader.read(), return_exceptions=True)
        await _close(writer)
        ended.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(NotReached):
        await Peers(SECRET, monotonic).acquire(url)
    await asyncio.wait_for(ended.wait(), PATIENCE_S)
    server.close()


async def ask_b(relay: Relay, *, sends: bool, seconds: float) -> CurlewError:
    """What becomes of a part of a batch."""
    client = Client("POST", [])
    request = CallRequest("POST", b"/v1/topics/orders/messages:batch", [], b"{}")
    async with asyncio.timeout(PATIENCE_S):
        outcome = await ask(relay, client.exchange, "b", request, sends=sends, seconds=seconds)
    assert isinstance(outcome, CurlewError)
    return outcome


@pytest.mark.parametrize("sends", [True, False], ids=["a send", "a settle"])
async def test_what_was_never_written_to_a_connection_is_not_stored(
    monkeypatch: pytest.MonkeyPatch, *, sends: bool
) -> None:
    """The other node takes connections and says nothing, and for its part has less time than
    that takes."""
    monkeypatch.setattr(pool, "SECONDS", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other.over.append(over := asyncio.Event())
        await asyncio.gather(reader.read(), return_exceptions=True)
        await _close(writer)
        over.set()

    other = Other()
    other.serve = silent  # type: ignore[method-assign]
    async with relaying(other) as relay:
        error = await ask_b(relay, sends=sends, seconds=0.001)
    assert (error.code, error.retryable) == ("SHARD_UNAVAILABLE", True)
    assert with_outcome_of_send(error).outcome == "not_stored"


async def test_what_was_written_and_gets_no_answer_may_be_stored() -> None:
    other = Other(STORED)
    hangs = asyncio.Event()
    other.when_asked = hangs.wait
    async with relaying(other) as relay:
        error = await ask_b(relay, sends=True, seconds=0.05)
        hangs.set()
    assert (error.code, error.outcome) == ("RELAY_INTERRUPTED", "unknown")


async def test_names_that_are_made_up_do_not_keep_the_database_busy() -> None:
    asked, now_s = 0, 0.0

    async def refresh() -> bool:
        nonlocal asked
        asked += 1
        return False

    snapshot = SimpleNamespace(version=1, topics={}, shards={"a": None, "b": None})
    metadata = SimpleNamespace(snapshot=snapshot, shard="a", refresh=refresh)
    relay = Relay(cast("Metadata", metadata), lambda: 1, Limits(), None, lambda: now_s)
    for _ in range(10 * LOOKS_AT_ONCE):
        await relay.refresh()
    assert asked == LOOKS_AT_ONCE
    now_s = 1.0
    for _ in range(10 * LOOKS_AT_ONCE):
        await relay.refresh()
    assert asked == LOOKS_AT_ONCE + LOOKS_PER_S


async def test_a_pull_is_answered_by_who_is_said_to_lead_and_follows_where_nobody_leads() -> None:
    """It may be the only replica that is there."""
    stale = b"HTTP/1.1 200 OK\r\nmq-stale: true\r\ncontent-length: 2\r\n\r\n{}"
    other = Other(MOVED, MOVED, stale)
    client = Client("GET", [])
    async with relaying(other) as relay:
        shard = cast("Any", relay._metadata).snapshot.shards["b"]
        shard.members = [SimpleNamespace(node_id="node-b", cluster_url=shard.cluster_url)]
        shard.in_sync = ("node-b",)
        client.scope[WHOLE_BODY] = b""
        async with asyncio.timeout(PATIENCE_S):
            assert await relay.carry(client.exchange, PULLS, (), "b")
    assert [b"curlew-asks: stale" in head for head in other.heads] == [False, False, True]
    assert client.exchange.status == 200


@pytest.mark.parametrize(("size", "is_here"), [(10, True), (1_000_000, False)])
async def test_a_large_body_is_asked_in_a_thread_where_the_request_goes(
    size: int, is_here: bool
) -> None:
    threads: list[bool] = []

    def by_body(*_: object) -> None:
        threads.append(threading.current_thread() is threading.main_thread())

    snapshot = SimpleNamespace(version=1, topics={}, shards={"a": None, "b": None})
    metadata = SimpleNamespace(snapshot=snapshot, shard="a")
    relay = Relay(cast("Metadata", metadata), lambda: 1, Limits())
    operation = SimpleNamespace(aim=Aim(lambda *_: BODY, by_body))
    exchange, _ = exchange_of("POST", "/v1/topics/orders/messages:batch")
    exchange.scope[WHOLE_BODY] = b"x" * size
    assert not await relay.carry(exchange, cast("Operation", operation), (), BODY)
    assert threads == [is_here]
