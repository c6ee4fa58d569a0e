"""What a node asks of its listening socket, and what its stop waits for."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app import main
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
    """A server whose stop waits for something that does not come."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.has_begun = asyncio.Event()
        self.server = server = cast("Any", object.__new__(NodeServer))
        server.should_exit = server.force_exit = False
        server._step = None
        server.servers, server.config = [], SimpleNamespace(timeout_graceful_shutdown=None)
        server.server_state = SimpleNamespace(connections=set(), tasks=set())
        server.lifespan = SimpleNamespace(shutdown=self._nothing)
        server._live = SimpleNamespace(close=lambda: None)
        server._cluster = None
        server.relay = SimpleNamespace(drain=self._nothing, close=lambda: None)
        server._node = SimpleNamespace(hand_over=self._nothing, drain=self._nothing)
        server._on_signal()

    async def _nothing(self) -> None:
        return

    def hang(self, step: str) -> None:
        """A step never ends by itself."""

        async def wait() -> None:
            self.told.append(f"{step} begun")
            self.has_begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.told.append(f"{step} ended")

        setattr(self.server._node, step, wait)


@pytest.mark.anyio
@pytest.mark.parametrize("step", ["hand_over", "drain"])
async def test_a_second_signal_ends_what_a_stop_waits_for(step: str) -> None:
    stopping = Stopping()
    stopping.hang(step)
    stop = asyncio.ensure_future(stopping.server.shutdown())
    await stopping.has_begun.wait()
    stopping.server._on_signal()
    await asyncio.wait_for(stop, timeout=10)
    assert stopping.told == [f"{step} begun", f"{step} ended"]


@pytest.mark.anyio
async def test_behind_two_signals_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "HURRIED_SECONDS", 0.0)
    stopping = Stopping()
    for step in ("hand_over", "drain"):
        stopping.hang(step)
    stopping.server._on_signal()
    await asyncio.wait_for(stopping.server.shutdown(), timeout=10)
    assert not [each for each in stopping.told if "hand_over" in each]


@pytest.mark.anyio
@pytest.mark.parametrize("step", ["hand_over", "drain"])
async def test_a_step_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(main, "STOP_SECONDS", main.SYNC_SECONDS + 0.05)
    stopping = Stopping()
    stopping.hang(step)
    await asyncio.wait_for(stopping.server.shutdown(), timeout=10)
    assert stopping.told == [f"{step} begun", f"{step} ended"]


@pytest.mark.anyio
@pytest.mark.parametrize("step", ["hand_over", "drain"])
async def test_a_step_that_fails_stops_no_stop(step: str) -> None:
    stopping = Stopping()

    async def fail() -> None:
        raise OSError("no descriptor")

    setattr(stopping.server._node, step, fail)
    await stopping.server.shutdown()
