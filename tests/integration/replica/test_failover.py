"""A shard on three replicas: what is confirmed is there, whoever leads, and all logs are equal."""

import asyncio
import errno
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.cluster.replication.events import TransferAsked
from app.cluster.replication.messages import EndsAnswer
from app.cluster.replication.messages import Message as Replicated
from app.cluster.replication.terms import Promise, Term
from app.domain.errors import CurlewError, NotEnoughReplicas, NotLeader
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.names import TERMS_TOPIC
from app.domain.positions import FlushMode
from app.replica.driver import ReplicaDriver
from app.replica.owner import StoreOwner
from app.replica.replica_status import Role
from app.runtime.system_clock import SystemClock
from app.store import MessageStore, OsFiles, StoreUnusable, paths
from app.store.formats.files.replica_files import KeptPromise, Standing
from app.store.fs.files import File
from app.store.lifecycle.opening import ShardMeta
from app.store.lifecycle.store_parts import StoreParts
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import LogShape
from app.store.replica.replica_files import ReplicaFiles
from tests.integration.replica.shard_of_runners import (
    NAMES,
    SHARD,
    append,
    is_following,
    shard_of,
    until,
)
from tests.support.stores.stores import SMALL

pytestmark = pytest.mark.anyio


def bodies(store: MessageStore, queue_id: int = 0) -> list[bytes]:
    """All that can be read of a queue."""
    low, high = store.bounds("orders", queue_id)
    found: list[bytes] = []
    while low < high:
        read = store.read(
            "orders", queue_id, low, max_messages=64, max_bytes=1 << 20, wait_for_disk=True
        )
        assert not read.gaps
        found += [store.decode(record).body for record in read.records]
        low = read.next_offset
    return found


def _is_refused(store: MessageStore, message: Message) -> bool:
    """Whether too few replicas are in sync."""
    try:
        store.append("other", 0, [message], FlushMode.ASYNC, lambda _error: None)
    except NotEnoughReplicas:
        return True
    return False


def log_of(
    root: Path, end: int = 1 << 60
) -> tuple[int, bytes, dict[tuple[str, int], list[tuple[int, int, int]]]]:
    """End, bytes up to `end`, and units of a directory that nobody has open, made anew to the end
    of its log."""
    parts = StoreParts.open(
        OsFiles(root), SMALL, SystemClock(), lambda _call: None, Limits(), SHARD
    )
    reader, start, found = BlockReader(parts.log, LogShape(SMALL.segment_bytes)), 0, b""
    end = min(end, parts.recovery.end)
    while start < end:
        blocks = reader.read(start, end)
        found, start = found + bytes(blocks.data), blocks.end
    units = {
        (queue.topic, queue.queue_id): queue.units(0, queue.max_offset) for queue in parts.queues
    }
    parts.queues.cache.close()
    parts.log.close()
    return parts.recovery.end, found, units


async def test_what_is_confirmed_outlives_its_leader(tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(60)]
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        assert first.name == "a"
        await append(first, sent)
        assert first.store is not None
        assert bodies(first.store) == sent
        assert first.store.bounds(TERMS_TOPIC, 0) == (1, 1)
        await shard.kill("a")
        await shard.let_a_lease_pass()
        second = await shard.served()
        assert second.store is not None
        assert bodies(second.store) == sent
        keyed = second.store.find_by_key("orders", "17", wait_for_disk=True)
        assert [second.store.decode(record).body for record in keyed] == [b"17"]
        await append(second, [b"more"])
        await shard.start("a")
        await until(shard.are_equal)

        def is_shown() -> bool:
            members = {each.node: each for each in second.runner.status().members}
            return members["a"].is_in_sync and members["a"].lag_bytes == 0

        await until(is_shown)
        for name in NAMES:
            await shard.stop(name)
    logs = [log_of(tmp_path / name) for name in NAMES]
    end = min(log[0] for log in logs)
    assert len({log[1][:end] for log in logs}) == 1


async def test_a_leaders_unconfirmed_tail_is_cut_with_all_that_was_made_of_it(
    tmp_path: Path,
) -> None:
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, [b"kept"])
        await until(shard.are_equal)
        for name in ("b", "c"):
            await shard.kill(name)
        told: list[CurlewError | None] = []
        assert first.store is not None
        store = first.store
        end = first.store.status().written_end
        message = Message(b"refused")
        await until(lambda: _is_refused(store, message))
        leading = first.runner._owner.leading
        assert leading is not None
        leading.refuse_while(None)  # as if they had gone a moment later
        for number in range(30):
            body = b"lost %d" % number
            message = Message(body * 9, keys=("lost",))
            first.store.append("orders", 0, [message], FlushMode.SYNC, told.append)
        await until(lambda: store.status().flushed_end > end + 30 * 100)
        assert store.status().confirmed_end == end
        store.begin_checkpoint().run()
        await shard.kill("a")
        assert not [each for each in told if each is None]
        for name in ("b", "c"):
            await shard.start(name)
        await shard.let_a_lease_pass()
        second = await shard.served()
        assert second.store is not None
        assert bodies(second.store) == [b"kept"]
        await append(second, [b"%d" % number for number in range(9)])
        await shard.start("a")
        await until(shard.are_equal)
        assert (tmp_path / "a" / paths.cut_tail(end)).stat().st_size > 30 * 100
        second.runner.transfer(TransferAsked())
        await until(lambda: shard.leader is not None and shard.leader is not second)
        await until(shard.are_equal)
        third = shard.leader
        assert third is not None
        assert third.store is not None
        assert bodies(third.store) == [b"kept", *[b"%d" % number for number in range(9)]]
        assert not third.store.find_by_key("orders", "lost", wait_for_disk=True)
        for name in NAMES:
            await shard.stop(name)
    logs = [log_of(tmp_path / name) for name in NAMES]
    lowest = min(logs, key=lambda log: log[0])
    for log in logs:
        assert log[1][: len(lowest[1])] == lowest[1]
        for queue, units in log[2].items():
            known = lowest[2].get(queue, [])
            assert units[: len(known)] == known


async def test_handing_over_in_order_loses_nothing(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        sent: list[bytes] = []
        node = await shard.served()
        for turn in range(3):
            new = [b"%d of %d" % (number, turn) for number in range(5)]
            await append(node, new)
            sent += new
            await until(shard.are_equal)
            store = node.store
            assert store is not None
            node.runner.transfer(TransferAsked())
            after = await shard.served(node)
            with pytest.raises(NotLeader):
                store.append("orders", 0, [Message(b"late")], FlushMode.SYNC, lambda _error: None)
            await until(is_following(node))
            assert len(node.ends) == len(node.terms)
            node = after
            assert node.store is not None
            assert bodies(node.store) == sent


async def test_what_comes_before_the_store_is_shut_is_confirmed_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica's thread says that no more is to be taken, and the event loop does it later."""
    is_told = threading.Event()
    take_no_more = StoreOwner.take_no_more

    def tell(self: StoreOwner) -> None:
        take_no_more(self)
        is_told.set()

    monkeypatch.setattr(StoreOwner, "take_no_more", tell)
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, [b"before"])
        await until(shard.are_equal)
        store = first.store
        assert store is not None
        outcomes: list[CurlewError | None] = []
        first.runner.transfer(TransferAsked())
        assert is_told.wait(60)  # the loop stands still meanwhile
        for flush in (FlushMode.ASYNC, FlushMode.SYNC):
            store.append("orders", 0, [Message(b"between")], flush, outcomes.append)
        second = await shard.served(first)
        assert outcomes == [None, None]
        await until(shard.are_equal)
        assert second.store is not None
        assert bodies(second.store) == [b"before", b"between", b"between"]


async def test_a_leader_that_stops_hands_over(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, [b"one"])
        await until(shard.are_equal)
        before = first.member
        await shard.stop("a")
        assert len(first.ends) == 1
        assert first.ends != ["the node stops"]
        second = await shard.served()
        await append(second, [b"two"])
        assert second.store is not None
        assert bodies(second.store) == [b"one", b"two"]
        await shard.start("a")
        await until(shard.are_equal)
        assert shard.nodes["a"].member == before
        assert shard.nodes["a"].runner.status().role is Role.FOLLOWER


async def test_a_leader_whose_store_fails_is_replaced_and_follows(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, [b"one"])
        await until(shard.are_equal)
        assert first.store is not None
        first.store.fail("the disk is gone")
        second = await shard.served(first)
        await append(second, [b"two"])
        await until(shard.are_equal)
        assert second.store is not None
        assert bodies(second.store) == [b"one", b"two"]
        assert first.runner.status().role is Role.FOLLOWER


async def test_a_broker_that_cannot_begin_lets_another_lead(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        second = shard.nodes["b"]
        second.failures = 1
        await until(shard.are_equal)
        shard.row = replace(shard.row, handed_to="b", lease_until_ms=shard.now_ms() + 60_000)
        await until(lambda: second.failures == 0)
        await until(lambda: bool(first.ends))
        third = await shard.served(first)
        await append(third, [b"one"])
        assert any(each.code == "REPLICA_PAUSED" for each in second.runner.status().alarms)


async def test_a_broker_that_never_begins_keeps_nobody_out(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        second = shard.nodes["b"]
        second.failures = 1 << 60
        await until(shard.are_equal)
        shard.row = replace(shard.row, handed_to="b", lease_until_ms=shard.now_ms() + 60_000)
        third = await shard.served(first)  # and no lease has passed
        assert third.name == "c"
        await append(third, [b"one"])
        await until(shard.are_equal)
        assert len(second.terms) == 1
        driver = second.runner._driver
        assert driver is not None
        assert driver.could_not_lead_ms is not None, "a driver of before had tried"


async def test_a_full_disk_at_an_election_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await until(shard.are_equal)
        second = shard.nodes["b"]

        def lack(following: object, *_: object) -> None:
            raise OSError(errno.ENOSPC, "the disk is full")

        monkeypatch.setattr(second.runner._owner, "append_term_start", lack)
        shard.row = replace(shard.row, handed_to="b", lease_until_ms=shard.now_ms() + 60_000)
        third = await shard.served(first)
        assert third.name == "c"
        await append(third, [b"one"])
        await until(shard.are_equal)
        assert not second.terms


async def test_a_directory_of_another_shard_does_not_start(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        await shard.stop("c")
        shard.meta = ShardMeta("00c0ffef", SHARD.segment_bytes)
        with pytest.raises(StoreUnusable, match="the directory is of store 00c0ffee"):
            await shard.start("c")
        shard.meta = SHARD
        await shard.nodes.pop("c").close_port()
        await shard.start("c")


async def test_a_replica_that_cannot_keep_its_promise_fails_and_does_not_stop_as_if_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shard_of(tmp_path) as shard:
        await append(await shard.served(), [b"one"])
        await until(shard.are_equal)
        third = shard.nodes["c"]

        def refuse(_promise: KeptPromise) -> None:
            raise OSError(errno.EIO, "the disk is gone")

        monkeypatch.setattr(third.runner._parts.directory.replica_files, "keep_promise", refuse)
        shard.row = replace(shard.row, handed_to="b", lease_until_ms=shard.now_ms() + 60_000)
        await until(lambda: third.runner.status().role is Role.FAILED)
        assert "the disk is gone" in str(third.runner.status().failed)
        await shard.stop("c")
        kept = ReplicaFiles(third.files).incarnation()
        assert kept is not None
        assert kept.standing is Standing.OPEN


async def test_a_shortage_behind_a_term_costs_no_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, [b"one"])
        await until(shard.are_equal)
        before, lacked = first.member, 0

        def lack(path: str, *, create: bool = False) -> File:
            nonlocal lacked
            if path == paths.CHECKPOINT and lacked < 2:
                lacked += 1
                raise OSError(errno.EMFILE, "no descriptor")
            return OsFiles.open(first.files, path, create=create)

        monkeypatch.setattr(first.files, "open", lack)
        first.runner.transfer(TransferAsked())
        await append(await shard.served(first), [b"two"])
        await until(shard.are_equal)
        assert lacked == 2
        assert first.member == before
        assert any(each.code == "REPLICA_PAUSED" for each in first.runner.status().alarms)


async def test_what_came_before_an_opening_is_not_heard_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    received = ReplicaDriver.received

    def hear(self: ReplicaDriver, node: str, message: Replicated, data: bytes = b"") -> None:
        if isinstance(message, EndsAnswer) and message.end == 1 << 40:
            heard.append(message.question)
        received(self, node, message, data)

    monkeypatch.setattr(ReplicaDriver, "received", hear)
    async with shard_of(tmp_path) as shard:
        await append(await shard.served(), [b"one"])
        await until(shard.are_equal)
        runner, other = shard.nodes["b"].runner, shard.nodes["c"].member
        before, done, may_go_on = runner._driver, asyncio.Event(), threading.Event()
        assert before is not None

        def say(question: int) -> None:
            answer = EndsAnswer(question, other, Promise(), Term(0, 0), 1 << 40)
            runner.received("c", answer, (), lambda: shard.loop.call_soon_threadsafe(done.set))

        def spoil() -> None:
            runner._owner.is_spoiled = True  # as behind a term

        runner._queue.put(may_go_on.wait)
        runner._queue.put(spoil)
        say(1)
        may_go_on.set()
        await done.wait()
        after = runner._driver
        assert after is not None
        assert after is not before
        assert after._parts.first_number > before.last_number > 1 << 40, "by the node's clock"
        await append(shard.nodes["a"], [b"two"])
        await until(shard.are_equal)
        done.clear()
        say(2)
        await done.wait()
        assert heard == [2]
