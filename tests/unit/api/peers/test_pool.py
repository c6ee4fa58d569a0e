"""Connections to another node: one principal leaves others some."""

import pytest
from typing_extensions import override

from app.api.peers import pool
from app.api.peers.connection import PeerConnection
from app.api.peers.pool import NotReached, Peers
from app.domain.errors import TooManyRequests
from app.runtime.secure.cluster_secret import ClusterSecret

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
