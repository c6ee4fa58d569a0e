"""How a replica starts and ends: nothing is left of it, and it waits for nobody who is gone."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.cluster.replication.events import TransferAsked
from app.cluster.replication.shard_row import Elect
from app.replica.leadership import Leadership
from app.replica.owner import StoreOwner
from app.replica.replica_status import Role
from app.store import StoreUnusable
from app.store.lifecycle.opening import ShardMeta
from app.store.replica.replica_store import ReplicaStore
from app.store.write.worker import THREAD_NAME, WriterThread
from tests.integration.replica.shard_of_runners import (
    SHARD,
    Node,
    Shard,
    append,
    is_following,
    shard_of,
    until,
)

pytestmark = pytest.mark.anyio


def writers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == THREAD_NAME}


async def test_who_is_killed_while_it_leads_leaves_no_thread(tmp_path: Path) -> None:
    before = writers()
    async with shard_of(tmp_path) as shard:
        await append(await shard.served(), [b"one"])
        assert len(writers() - before) == 1
        await shard.kill("a")
        assert writers() == before


async def test_a_lone_leader_whose_store_fails_is_opened_anew(tmp_path: Path) -> None:
    async with shard_of(tmp_path, min_in_sync=1) as shard:
        first = await shard.served()
        await until(shard.are_equal)
        for name in ("b", "c"):
            await shard.kill(name)
        row = shard.row
        alone = frozenset({first.member})
        shard.row = replace(row, in_sync=alone, in_sync_version=row.in_sync_version + 1)
        await until(lambda: _leads_alone(first))
        await append(first, [b"one"])
        assert first.store is not None
        first.store.fail("the disk is gone")
        await until(lambda: first.store is not None and len(first.terms) == 2)
        await append(first, [b"two"])


def _leads_alone(node: Node) -> bool:
    driver = node.runner._driver
    replica = None if driver is None else driver.replica
    return replica is not None and replica.leader is not None and len(replica.leader.in_sync) == 1


async def test_a_broker_whose_end_is_cut_off_does_not_keep_the_store_open(tmp_path: Path) -> None:
    before = writers()
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, [b"one"])
        await until(shard.are_equal)
        first.is_cut_off = True
        first.runner.transfer(TransferAsked())
        second = await shard.served(first)
        await until(is_following(first))
        await append(second, [b"two"])
        await until(shard.are_equal)
        assert len(writers() - before) == 1, "that of who leads"


async def test_the_event_loop_does_not_wait_for_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, waited_in = WriterThread.stop, list[threading.Thread]()

    def note(self: WriterThread) -> None:
        if self._thread.is_alive():
            waited_in.append(threading.current_thread())
        stop(self)

    monkeypatch.setattr(WriterThread, "stop", note)
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, [b"one"])
        await until(shard.are_equal)
        first.runner.transfer(TransferAsked())
        await shard.served(first)
        await until(is_following(first))
    assert waited_in
    assert threading.current_thread() not in waited_in


async def test_a_stop_within_a_start_makes_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, started = threading.Event(), list[str]()
    opening = ReplicaStore.open

    def wait(*parts: object) -> ReplicaStore:
        opened.wait()
        return opening(*parts)  # type: ignore[arg-type]

    monkeypatch.setattr(ReplicaStore, "open", wait)
    shard = Shard(tmp_path)
    node = Node("a", shard)
    monkeypatch.setattr(node.links, "start", lambda _replica: started.append("a"))
    starting = asyncio.ensure_future(node.runner.start())
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(node.runner.stop())
    await asyncio.sleep(0)
    opened.set()
    await asyncio.gather(starting, stopping)
    assert not started
    assert not node.runner._thread.is_alive()
    again = Node("a", shard)
    await again.start()
    await again.stop()
    node.close_listener()


async def test_one_that_was_never_started_lets_go_of_its_directory(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    node = Node("a", shard)
    await node.runner.stop()
    node.close_listener()
    again = Node("a", shard)
    await again.start()
    assert again.runner.status().role is Role.FOLLOWER
    await again.stop()


async def test_a_start_that_fails_twice_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it raises, though letting go of the directory raises, too."""
    shard = Shard(tmp_path)
    node = Node("a", shard)
    await node.start()
    await node.stop()
    close = StoreOwner.close

    def fail(self: StoreOwner, *, is_clean: bool) -> None:
        close(self, is_clean=is_clean)
        raise OSError("it does not close")

    monkeypatch.setattr(StoreOwner, "close", fail)
    shard.meta = ShardMeta("00c0ffef", SHARD.segment_bytes)
    node = Node("a", shard)
    async with asyncio.timeout(20):
        with pytest.raises(StoreUnusable):
            await node.runner.start()
    node.close_listener()


@pytest.mark.parametrize("step", ["alarm", "step_down"])
async def test_a_fault_within_the_end_of_a_replica_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("not that, too")

    def fault() -> None:
        raise ZeroDivisionError

    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        with monkeypatch.context() as patch:
            patch.setattr(first.runner._owner, step, fail)
            first.runner._queue.put(fault)
            await until(lambda: first.runner.status().role is Role.FAILED)
        assert "ZeroDivisionError" in str(first.runner.status().failed)
        assert first.runner._thread.is_alive()


@pytest.mark.parametrize("is_ending", [False, True], ids=["handing over", "ending the broker"])
async def test_a_stop_that_is_cut_off_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ending: bool
) -> None:
    """The directory's lock is let go behind it, and the next opening writes the same files."""
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await until(shard.are_equal)
        for name in ("b", "c"):
            await shard.kill(name)
        del shard.nodes["a"]
        has_begun, may_end = asyncio.Event(), asyncio.Event()
        end_broker = Leadership.end_broker

        async def wait(leading: Leadership, reason: str) -> None:
            has_begun.set()
            await may_end.wait()
            await end_broker(leading, reason)

        monkeypatch.setattr(Leadership, "end_broker", wait)
        stopping = asyncio.ensure_future(first.runner.stop(0.0 if is_ending else 1_000.0))
        if is_ending:
            await has_begun.wait()
        else:
            await first.has_taken_all_in()
        stopping.cancel()
        await has_begun.wait()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert not first.runner._thread.is_alive()
        await first.close_port()


async def test_one_that_stops_while_it_is_elected_leaves_the_shard_to_another(
    tmp_path: Path,
) -> None:
    """Its lease would last on without it."""
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, [b"one"])
        await until(shard.are_equal)
        shard.holds = lambda change: isinstance(change, Elect)
        first.runner.transfer(TransferAsked())
        await until(lambda: bool(shard.held))
        assert shard.row.handed_to is not None
        stopping = asyncio.ensure_future(shard.stop(shard.row.handed_to))
        await asyncio.sleep(0)
        shard.holds = lambda _: False
        shard.held.pop()()
        await stopping
        await append(await shard.served(), [b"two"])
