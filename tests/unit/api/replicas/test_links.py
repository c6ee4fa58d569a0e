"""Two replicas on real sockets: what is said, and every way in which a connection ends."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from typing_extensions import override

from app.api.http.request_context import Receive, Scope, Send
from app.api.peers.pool import NotReached, Peers
from app.api.replicas import link as links
from app.api.replicas.dialing import dial
from app.api.replicas.link import LinkOwner, ReplicaLink
from app.api.replicas.link_table import LinkTable
from app.api.server.cluster_listener import ClusterListener
from app.cluster.replication.messages import AskEnds, Blocks, Ends, PeerMessage
from app.cluster.replication.terms import Term
from app.cluster.wire.codec import STOPS
from app.domain.limits import KIB, MIB, Limits
from app.runtime.secure.cluster_secret import ClusterSecret
from app.runtime.secure.tls_files import TlsFiles
from tests.support.clients.tls import TlsPlace
from tests.support.nodes.waiting import until

SECRET, OTHER = ClusterSecret(b"a" * 32), ClusterSecret(b"b" * 32)
TERM = Term(3, 99)
OPEN: list[asyncio.Transport | None] = []
NEVER = 1e6
"""Seconds."""


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": uvloop.new_event_loop if request.param == "uvloop" else None}


pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts those that are open, so that a test ends without any."""
    made, lost = ReplicaLink.connection_made, ReplicaLink.connection_lost
    OPEN.clear()

    def is_made(link: ReplicaLink, transport: asyncio.Transport) -> None:
        OPEN.append(transport)
        made(link, transport)

    def is_lost(link: ReplicaLink, exc: Exception | None) -> None:
        OPEN.remove(link._transport)
        lost(link, exc)

    monkeypatch.setattr(ReplicaLink, "connection_made", is_made)
    monkeypatch.setattr(ReplicaLink, "connection_lost", is_lost)


class Listening(LinkOwner):
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.said: list[tuple[str, PeerMessage, bytes]] = []
        self.links: list[ReplicaLink] = []
        self.over: list[tuple[str, str]] = []
        self.rooms = 0

    @override
    def heard(self, link: ReplicaLink, message: PeerMessage, blocks: list[memoryview]) -> None:
        self.links.append(link)
        self.said.append((link.node, message, b"".join(blocks)))

    @override
    def has_room(self, link: ReplicaLink) -> None:
        self.rooms += 1

    @override
    def is_over(self, link: ReplicaLink, reason: str) -> None:
        self.over.append((link.node, reason))


class Port:
    """A cluster port of the node `leader`, and what dials it."""

    def __init__(
        self, url: str, listener: ClusterListener, heard: Listening, tls: TlsFiles | None
    ) -> None:
        self.url = url
        self.listener = listener
        self.heard = heard
        self.tls = tls

    async def dial(
        self, node: str = "follower", session: int = 1, secret: ClusterSecret = SECRET
    ) -> tuple[ReplicaLink, Listening]:
        heard = Listening()
        link = ReplicaLink(heard, "leader", session, NEVER)
        peers = Peers(secret, asyncio.get_running_loop().time, self.tls)
        await dial(peers, secret, self.url, (node, session), link)
        return link, heard


async def no_app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("no request is carried here")


@asynccontextmanager
async def port(
    *, keeps_replicas: bool = True, silence_s: float = NEVER, tls: TlsFiles | None = None
) -> AsyncIterator[Port]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    heard = Listening()
    table = LinkTable(heard, silence_s) if keeps_replicas else None
    server = ClusterListener(listener, SECRET, no_app, Limits(), tls, links=table)
    url = f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
    await server.start()
    try:
        yield Port(url, server, heard, tls)
    finally:
        await server.close()
        await until(_all_have_ended)


def _all_have_ended() -> bool:
    for transport in OPEN:
        if transport is not None:
            transport.abort()
    return not OPEN


@pytest.mark.parametrize(("reason", "stops"), [(STOPS, True), ("silent for 3 s", False)])
async def test_who_closes_may_say_that_it_stops(reason: str, *, stops: bool) -> None:
    async with port() as leader:
        link, _ = await leader.dial()
        link.send(AskEnds(1))
        await until(lambda: len(leader.heard.said) == 1)
        link.close(reason)
        await until(lambda: len(leader.heard.over) == 1)
        assert leader.heard.links[0].has_other_stopped is stops


async def test_who_says_something_to_one_that_stops_hears_that_it_does() -> None:
    """A connection that is closed with something unread is reset, and a write to it loses what had
    come before."""
    async with port() as leader:
        link, _ = await leader.dial()
        link.send(AskEnds(1))
        await until(lambda: bool(leader.heard.said))
        (other,) = set(leader.heard.links)
        other.pause()
        link.pause()
        link.send(AskEnds(2))
        other.close(STOPS)
        for number in range(3, 30):
            await asyncio.sleep(0)
            link.send(AskEnds(number))
        link.resume()
        await until(lambda: not link.is_open)
        assert link.has_other_stopped
        assert len(leader.heard.said) == 1, "it hears nothing more itself"


async def test_both_sides_are_heard_in_order() -> None:
    async with port() as leader:
        link, heard = await leader.dial("a node: é")
        ends = [Ends(1, TERM, number, number, 0) for number in range(50)]
        for message in ends:
            link.send(message)
        await until(lambda: len(leader.heard.said) == 50)
        assert leader.heard.said == [("a node: é", each, b"") for each in ends]
        back = leader.heard.links[0]
        data = bytes(range(256)) * 8_192
        blocks = Blocks(1, TERM, 0, len(data), (), 0, 0)
        back.send(blocks, [memoryview(data)[:1000], data[1000:]])
        back.send(AskEnds(4))
        await until(lambda: len(heard.said) == 2)
        assert heard.said == [("leader", blocks, data), ("leader", AskEnds(4), b"")]
        link.close("done")
        link.close("again")
        await until(lambda: bool(leader.heard.over))
        assert heard.over == [("leader", "done")]
        assert leader.heard.over == [("a node: é", "the other side: done")]


SIZES = (1, 64 * KIB - 99, 64 * KIB, 3 * MIB, 7, 2 * MIB, 2 * MIB + 1)


@pytest.mark.parametrize("is_tls", [False, True])
async def test_blocks_of_any_size_come_whole_also_to_who_pauses(
    tmp_path: Path, *, is_tls: bool
) -> None:
    """Each to a place of its own, whatever came before and behind it in the same read."""
    tls = None
    if is_tls:
        place = TlsPlace(tmp_path)
        tls = TlsFiles.of_nodes(place.cert_file, place.key_file, place.authority_file)
    async with port(tls=tls) as leader:
        link, heard = await leader.dial()
        link.send(AskEnds(1))  # in one write with the proof of the secret, or nearly so
        await until(lambda: bool(leader.heard.links))
        back, expected = leader.heard.links[0], []
        for number, size in enumerate(SIZES * 2):
            data = bytes([number + 1]) * size
            blocks = Blocks(1, TERM, number, number + size, (), 0, 0)
            back.send(blocks, [data])
            back.send(AskEnds(number))
            expected += [("leader", blocks, data), ("leader", AskEnds(number), b"")]
            link.pause()
            await asyncio.sleep(0)
            link.resume()
        await until(lambda: len(heard.said) == len(expected))
        assert heard.said == expected


async def test_the_listening_side_may_end_it() -> None:
    async with port() as leader:
        _, heard = await leader.dial()
        table = leader.listener.links
        assert table is not None
        await until(lambda: bool(table.links()))  # its handshake would be given up
        await leader.listener.close()
        await until(lambda: bool(heard.over))
        assert heard.over == [("leader", "the other side: the replica stops")]


async def test_a_node_without_replicas_says_so() -> None:
    async with port(keeps_replicas=False) as lone:
        with pytest.raises(NotReached, match="it refuses this node: this node keeps no replica"):
            await lone.dial()


async def test_another_secret_is_refused() -> None:
    async with port() as leader:
        with pytest.raises(NotReached, match="another cluster secret"):
            await leader.dial(secret=OTHER)


@pytest.mark.parametrize("sessions", [(1, 2), (2, 1)])
async def test_of_two_connections_of_a_node_the_newer_counts(sessions: tuple[int, int]) -> None:
    async with port() as leader:
        made = [await leader.dial(session=session) for session in sessions]
        (_, old), (new_link, new) = sorted(made, key=lambda each: each[0].session)
        await until(lambda: bool(old.over))
        assert old.over == [("leader", "the other side: follower has made a newer connection")]
        new_link.send(AskEnds(2))
        await until(lambda: bool(leader.heard.said))
        assert (new.over, leader.heard.over) == ([], []), "the node was never away"


async def test_links_of_two_nodes_live_beside_each_other() -> None:
    async with port() as leader:
        for node in ("one", "two"):
            link, _ = await leader.dial(node)
            link.send(AskEnds(1))
        await until(lambda: len(leader.heard.said) == 2)
        assert {node for node, *_ in leader.heard.said} == {"one", "two"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not understood: it speaks version 71"),
        (b"\x01\x01\x00\x00\x7f\x00\x00\x00\x00\x00\x00\x00", "not understood: a message of 21307"),
    ],
)
async def test_what_is_not_understood_ends_it_with_the_reason(data: bytes, why: str) -> None:
    async with port() as leader:
        link, heard = await leader.dial()
        transport = link._transport
        assert transport is not None
        transport.write(data)
        await until(lambda: bool(heard.over and leader.heard.over))
        assert why in leader.heard.over[0][1]
        assert why in heard.over[0][1]


async def test_half_a_message_is_told_of() -> None:
    async with port() as leader:
        link, _ = await leader.dial()
        transport = link._transport
        assert transport is not None
        transport.write(b"\x01\x01")
        transport.close()
        await until(lambda: bool(leader.heard.over))
        assert leader.heard.over == [("follower", "it broke off within a message")]


async def test_silence_ends_it() -> None:
    async with port(silence_s=0) as leader:
        _, heard = await leader.dial()
        await until(lambda: bool(heard.over))
        assert heard.over == [("leader", "the other side: silent for 0 s")]


async def full(link: ReplicaLink) -> int:
    """Send until there is no room, to a side that reads nothing; how much was sent."""
    data = bytes(MIB)
    sent = 0
    while link.room:
        link.send(Blocks(1, TERM, sent, sent + MIB, (), 0, 0), [data])
        sent += MIB
        await asyncio.sleep(0)
    return sent


def stop_reading(link: ReplicaLink) -> Callable[[], None]:
    transport = link._transport
    assert transport is not None
    transport.pause_reading()
    return transport.resume_reading


async def test_blocks_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "REPLICA_UNDER_WAY_BYTES_MAX", 2 * MIB)
    async with port() as leader:
        link, heard = await leader.dial()
        link.send(AskEnds(1))
        await until(lambda: bool(leader.heard.links))
        go_on = stop_reading(link)
        sent = await full(leader.heard.links[0])
        assert leader.heard.rooms == 0
        go_on()
        await until(lambda: sum(len(data) for _, _, data in heard.said) == sent)
        assert leader.heard.rooms == 1
        assert leader.heard.links[0].room == 2 * MIB


async def test_who_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "REPLICA_UNDER_WAY_BYTES_MAX", MIB)
    monkeypatch.setattr(links, "REPLICA_UNSENT_BYTES_MAX", 2 * MIB)
    async with port() as leader:
        link, _ = await leader.dial()
        link.send(AskEnds(1))
        await until(lambda: bool(leader.heard.links))
        stop_reading(link)
        back = leader.heard.links[0]
        await full(back)
        while back.is_open:
            back.send(Blocks(1, TERM, 0, MIB, (), 0, 0), [bytes(MIB)])
        assert "it takes nothing" in leader.heard.over[0][1]


async def test_a_paused_link_reads_nothing_and_is_not_silent() -> None:
    async with port() as leader:
        link, _ = await leader.dial()
        link.send(AskEnds(1))
        await until(lambda: len(leader.heard.said) == 1)
        back = leader.heard.links[0]
        back.pause()
        back.pause()
        back._heard_s -= 2 * NEVER
        back._watch_silence()
        assert back.is_open, "it is this side that does not listen"
        link.send(AskEnds(2))
        back.resume()
        await until(lambda: len(leader.heard.said) == 2)


async def test_small_messages_go_out_at_once() -> None:
    """Else the second of two waits for the kernel's acknowledgement of the first, for 40 ms."""
    async with port() as leader:
        link, _ = await leader.dial()
        link.send(AskEnds(1))
        await until(lambda: len(leader.heard.said) == 1)
        for side in (link, leader.heard.links[0]):
            assert side._transport is not None
            found = side._transport.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
