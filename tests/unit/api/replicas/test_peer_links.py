"""What is said to several replicas in one turn, when one of the connections ends by it."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from typing_extensions import override

from app.api.peers.pool import NotReached
from app.api.replicas.link import ReplicaLink
from app.api.replicas.peer_links import BACK_OFF_S, SIGN_OF_LIFE, PeerLinks
from app.cluster.replication.messages import Blocks, PeerMessage
from app.cluster.replication.terms import Term
from app.domain.limits import MIB, REPLICA_UNSENT_BYTES_MAX
from app.replica.ports import Replicating
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


class Stuck(asyncio.Transport):
    """Counts what is written, and says how much of it is unsent."""

    def __init__(self, unsent: int) -> None:
        super().__init__()
        self.unsent, self.writes = unsent, 0

    @override
    def writelines(self, list_of_data: object) -> None:
        self.writes += 1

    @override
    def get_write_buffer_size(self) -> int:
        return self.unsent

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    @override
    def get_extra_info(self, name: str, default: object = None) -> None:
        return None

    @override
    def pause_reading(self) -> None:
        return

    @override
    def resume_reading(self) -> None:
        return

    @override
    def abort(self) -> None:
        return

    @override
    def is_closing(self) -> bool:
        return False

    @override
    def can_write_eof(self) -> bool:
        return False

    @override
    def close(self) -> None:
        return


class Told(Replicating):
    def __init__(self) -> None:
        self.gone: list[str] = []
        self.stopped: list[str] = []

    @override
    def received(
        self,
        node: str,
        message: PeerMessage,
        blocks: Sequence[bytes | memoryview],
        done: Callable[[], object],
    ) -> None:
        raise AssertionError(f"nobody says anything: {node}")

    @override
    def has_room(self, node: str) -> None:
        return

    @override
    def disconnected(self, node: str, *, has_stopped: bool) -> None:
        self.gone.append(node)
        if has_stopped:
            self.stopped.append(node)


async def never(_url: str, _session: int, _link: ReplicaLink) -> None:
    raise AssertionError("it dials nobody")


async def test_who_takes_nothing_keeps_no_message_from_the_others() -> None:
    links, told = PeerLinks("z", ("a", "b"), dict, never, 5.0), Told()
    links.start(told)
    transports = {"a": Stuck(0), "b": Stuck(0)}
    for node, transport in transports.items():
        link = links.table.accept(node, 1)
        link.connection_made(transport)
        links.heard(link, SIGN_OF_LIFE, [])
    before = transports["b"].writes
    transports["a"].unsent = REPLICA_UNSENT_BYTES_MAX + 1
    data = bytes(3 * MIB)
    for node in ("a", "b"):
        links.send_blocks(node, Blocks(1, Term(1, 1), 0, len(data), (), 0, 0), data)
    assert not links.has_room("b")
    await until(lambda: transports["b"].writes > before)
    assert told.gone == ["a"]
    assert links.has_room("b"), "what was handed over is not counted any more"
    await links.stop()


async def test_a_connection_that_ends_at_once_is_no_reason_to_hurry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    lives_s = iter([0.0, 0.0, 0.0, 2.0, 0.0])
    loop, passed_s = asyncio.get_running_loop(), 0.0
    time_of_loop, sleep = loop.time, asyncio.sleep
    monkeypatch.setattr(loop, "time", lambda: time_of_loop() + passed_s)

    async def dial(_url: str, _session: int, link: ReplicaLink) -> None:
        nonlocal passed_s
        live_s = next(lives_s, None)
        if live_s is None:
            raise NotReached("it is enough")

        def end() -> None:
            nonlocal passed_s
            passed_s += live_s
            link.close("it ends")

        loop.call_soon(end)

    async def wait(seconds: float) -> None:
        if seconds in BACK_OFF_S:
            waits.append(seconds)
            await sleep(0)
        else:
            await asyncio.Event().wait()  # the sign of life

    monkeypatch.setattr(asyncio, "sleep", wait)
    links = PeerLinks("a", ("b",), lambda: {"b": "http://b"}, dial, 70.0)
    links.start(Told())
    while len(waits) < 7:
        await sleep(0)
    await links.stop()
    assert waits[:7] == [0.02, 0.05, 0.1, 0.02, 0.05, 0.1, 0.2]
