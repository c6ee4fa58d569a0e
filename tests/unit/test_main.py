"""What a node asks of its listening socket, and what its stop waits for."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.config import Config
from app.main import NodeServer, bind


def congestion_control(connection: socket.socket) -> bytes:
    option = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return option.rstrip(b"\0")


@pytest.mark.parametrize(("host", "is_local"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_connections_within_the_machine_are_not_paced(host: str, is_local: bool) -> None:
    with socket.socket() as plain:
        usual = congestion_control(plain)
    with bind(Config(host=host, port=0)) as listener:
        listener.settimeout(5)
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 5):
            connection, _ = listener.accept()
            with connection:
                assert congestion_control(connection) == (b"reno" if is_local else usual)


class Stopping:
    """A server whose shard nobody takes over."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.has_begun = asyncio.Event()
        self.server = server = cast("Any", object.__new__(NodeServer))
        server.should_exit = server.force_exit = False
        server._handing_over = None
        server._node = SimpleNamespace(hand_over=self._hand_over)
        self.server._on_signal()

    async def _hand_over(self) -> None:
        self.told.append("begun")
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.told.append("ended")


@pytest.mark.anyio
async def test_a_second_signal_ends_a_hand_over() -> None:
    stopping = Stopping()
    handing_over = asyncio.ensure_future(stopping.server._hand_over())
    await stopping.has_begun.wait()
    stopping.server._on_signal()
    await asyncio.wait_for(handing_over, timeout=10)
    assert stopping.told == ["begun", "ended"]


@pytest.mark.anyio
async def test_behind_two_signals_none_begins() -> None:
    stopping = Stopping()
    stopping.server._on_signal()
    await stopping.server._hand_over()
    assert not stopping.told


@pytest.mark.anyio
async def test_a_hand_over_that_fails_stops_no_stop() -> None:
    stopping = Stopping()

    async def fail() -> None:
        raise OSError("no descriptor")

    stopping.server._node.hand_over = fail
    await stopping.server._hand_over()
