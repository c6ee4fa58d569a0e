"""Connections to another node: one principal leaves others some, and none is used on which nothing
is heard."""

import errno
from collections.abc import Callable

import pytest
from typing_extensions import override

from app.api.peers import pool
from app.api.peers.connection import Interrupted, PeerConnection
from app.api.peers.pool import C, NotReached, Peers
from app.domain.errors import TooManyRequests
from app.domain.limits import RELAY_IDLE_SECONDS_MAX
from app.runtime.secure.cluster_secret import ClusterSecret
from tests.support.stores.clock import FakeClock
from tests.unit.api.peers.silent import Silent

pytestmark = pytest.mark.anyio

SECRET = ClusterSecret(b"a" * 32)
URL = "http://10.0.0.2:8810"


class Reached(Peers):
    """Whose connections are there at once; or not at all."""

    is_away = False

    @override
    async def connect(self, url: str, make: object) -> PeerConnection:  # type: ignore[override]
        del url, make
        if self.is_away:
            raise NotReached("it does not answer")
        return PeerConnection(SECRET)


async def test_one_principal_leaves_others_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "RELAY_CONNECTIONS_MAX", 4)
    monkeypatch.setattr(pool, "RELAY_CONNECTIONS_PER_PRINCIPAL_MAX", 3)
    reached = Reached(SECRET, lambda: 0.0)
    loud = [await reached.acquire(URL, "red") for _ in range(3)]
    with pytest.raises(TooManyRequests, match="principal 'red' has 3 requests under way"):
        await reached.acquire(URL, "red")
    await reached.acquire("http://10.0.0.3:8810", "red")
    await reached.acquire(URL, "blue")
    with pytest.raises(NotReached, match="4 requests"):
        await reached.acquire(URL)
    reached.release(URL, loud.pop())
    await reached.acquire(URL, "red")


async def test_who_is_not_reached_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "RELAY_CONNECTIONS_PER_PRINCIPAL_MAX", 1)
    monkeypatch.setattr(pool, "DOWN_SECONDS", 0.0)
    reached = Reached(SECRET, lambda: 0.0)
    reached.is_away = True
    for _ in range(3):
        with pytest.raises(NotReached):
            await reached.acquire(URL, "red")
    reached.is_away = False
    held = await reached.acquire(URL, "red")
    for _ in range(3):
        reached.release(URL, held)
        held = await reached.acquire(URL, "red")


class Acquired:
    """A pool with a clock, and the other node's side of its connections."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.made: list[PeerConnection] = []
        self.peers = Peers(SECRET, self.clock.monotonic_s)
        self.peers.connect = self._connect  # type: ignore[method-assign]

    async def _connect(self, url: str, make: Callable[[], C]) -> C:
        del url
        made = make()
        assert isinstance(made, PeerConnection)
        made.connection_made(Silent())
        made._asking = None
        self.made.append(made)
        return made

    async def acquire(self, count: int) -> list[PeerConnection]:
        return [await self.peers.acquire(URL) for _ in range(count)]

    def answer(self, *connections: PeerConnection) -> None:
        """Each is given back."""
        for each in connections:
            each.write(b"a request")
            each.data_received(b"HTTP/1.1 204 No Content\r\n\r\n")
            self.peers.release(URL, each)


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH])
@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "with a request"])
async def test_no_other_request_goes_to_a_machine_of_which_nothing_is_heard(
    number: int, *, is_idle: bool
) -> None:
    """Each connection that was kept took one request."""
    there = Acquired()
    idle, lost = (await there.acquire(4))[:3], there.made[3]
    there.answer(*idle, *([lost] if is_idle else []))
    lost.connection_lost(OSError(number, "Connection timed out"))
    if not is_idle:
        with pytest.raises(Interrupted):
            await lost.head()
        there.peers.release(URL, lost)
    assert not any(each.is_open for each in there.made)
    assert not there.peers.is_up(URL)
    with pytest.raises(NotReached, match="Connection timed out"):
        await there.acquire(1)
    there.clock.advance(s=pool.DOWN_SECONDS)
    assert there.peers.is_up(URL)
    [anew] = await there.acquire(1)
    assert anew not in (*idle, lost)
    assert there.peers._peers[URL].open_count == 1


@pytest.mark.parametrize("why", [None, ConnectionResetError(errno.ECONNRESET, "reset"), OSError()])
async def test_a_connection_that_the_other_node_ends_says_nothing_of_the_others(
    why: Exception | None,
) -> None:
    there = Acquired()
    kept, lost = await there.acquire(2)
    there.answer(kept)
    lost.connection_lost(why)
    assert there.peers.is_up(URL)
    assert await there.acquire(1) == [kept]


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    """The other node is about to close it."""
    there = Acquired()
    first, second, third = await there.acquire(3)
    there.answer(first)
    there.clock.advance(s=RELAY_IDLE_SECONDS_MAX)
    there.answer(second, third)
    there.clock.advance(s=1)
    assert await there.acquire(2) == [third, second]
    [fourth] = await there.acquire(1)
    assert fourth not in (first, second, third)
    assert not first.is_open
    assert there.peers._peers[URL].open_count == 3


async def test_one_that_was_idle_for_a_moment_is() -> None:
    there = Acquired()
    [kept] = await there.acquire(1)
    for _ in range(3):
        there.answer(kept)
        there.clock.advance(s=RELAY_IDLE_SECONDS_MAX)
        assert await there.acquire(1) == [kept]
