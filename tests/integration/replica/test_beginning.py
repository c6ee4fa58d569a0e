"""A replica that lacks what the leader has deleted begins where the leader's log begins."""

import shutil
from pathlib import Path

import pytest

from app.cluster.replication.events import TransferAsked
from app.replica import owner
from app.store import RetentionPolicy
from app.store.fs.files import DiskUsage
from tests.integration.replica.shard_of_runners import Shard, append, shard_of, until
from tests.integration.replica.test_deletion import expire, first_segment
from tests.integration.replica.test_failover import bodies
from tests.support.stores.stores import SMALL

pytestmark = pytest.mark.anyio

QUIET = 1
"""A queue whose messages have all expired."""
POLICY = RetentionPolicy(log_bytes_max=2 * SMALL.segment_bytes)


@pytest.fixture(autouse=True)
def _checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick begins one."""
    monkeypatch.setattr(owner, "CHECKPOINT_MS", 0)


async def sent_while_away(shard: Shard, name: str) -> list[bytes]:
    """What the leader has of queue 0, while another node was away and what that has was deleted."""
    leader = await shard.served()
    await append(leader, [b"quiet"] * 3, QUIET)
    await until(shard.are_equal)
    await shard.stop(name)
    await append(leader, [b"%d" % number * 40 for number in range(100, 300)])
    await expire(leader, POLICY)
    assert first_segment(leader) > 0
    assert leader.store is not None
    return bodies(leader.store)


@pytest.mark.parametrize("has_lost_all", [False, True])
async def test_it_has_all_that_is_kept_and_leads(tmp_path: Path, has_lost_all: bool) -> None:
    async with shard_of(tmp_path) as shard:
        left = await sent_while_away(shard, "c")
        if has_lost_all:
            shutil.rmtree(tmp_path / "c")
        leader = await shard.served()
        await shard.start("c")
        await until(shard.are_equal)
        third = shard.nodes["c"]
        assert first_segment(third) == first_segment(leader)
        assert [each.code for each in third.runner.status().alarms] == ["REPLICA_BEGINS_ANEW"]
        leader.runner.transfer(TransferAsked("c"))
        assert await shard.served(leader) is third
        assert third.store is not None
        assert bodies(third.store) == left
        bounds = third.store.bounds("orders", QUIET)
        assert (bounds.min_offset, bounds.max_offset) == (3, 3), "no offset is given twice"
        await append(third, [b"more"])
        await until(shard.are_equal)


async def test_no_segment_goes_before_the_log_says_where_its_queues_begin(tmp_path: Path) -> None:
    """Else who begins with what is left, and leads, would give offsets of the quiet queue again."""
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"quiet"] * 3, QUIET)
        await append(leader, [b"%d" % number * 40 for number in range(100, 300)])
        store = leader.store
        assert store is not None
        for _ in range(2):
            store.apply_retention(POLICY)
            assert store.bounds("orders", QUIET).min_offset == 3
            assert first_segment(leader) == 0
        await shard.stop("b")
        await shard.stop("c")
        store.begin_checkpoint().run()  # says it, and nobody confirms it
        store.begin_checkpoint().run()
        store.apply_retention(POLICY)
        assert first_segment(leader) == 0
        await shard.start("c")
        await until(lambda: not store._floors.unconfirmed)
        store.begin_checkpoint().run()
        store.apply_retention(POLICY)
        assert first_segment(leader) > 0


async def test_segments_go_while_queues_are_trimmed_all_the_time(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"%d" % number * 40 for number in range(100, 300)])
        await append(leader, [b"busy"] * 9, QUIET)
        store = leader.store
        assert store is not None
        for turn in range(1, 6):
            store.trim("orders", QUIET, turn)
            assert store.bounds("orders", QUIET).min_offset == turn
            store.apply_retention(POLICY)
            store.begin_checkpoint().run()
            await until(lambda: not store._floors.unconfirmed)
        assert first_segment(leader) > 0


async def test_a_disk_without_room_waits_for_nothing(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"%d" % number * 40 for number in range(100, 300)])
        assert leader.store is not None
        leader.files.disk_usage = lambda: DiskUsage(1 << 30, 0)  # type: ignore[method-assign]
        leader.store.apply_retention(POLICY)
        assert first_segment(leader) > 0
