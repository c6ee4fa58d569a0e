"""What a leader deletes of its log its followers delete, and lead on without it."""

from pathlib import Path

import pytest

from app.cluster.replication.events import TransferAsked
from app.replica import owner
from app.store import RetentionPolicy, paths
from tests.integration.replica.shard_of_runners import Node, append, shard_of, until
from tests.integration.replica.test_failover import bodies
from tests.support.stores.stores import SMALL

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick begins one."""
    monkeypatch.setattr(owner, "CHECKPOINT_MS", 0)


def first_segment(node: Node) -> int:
    """Where the log of a node begins, by its directory."""
    names = [name for name in node.files.list(paths.COMMIT_LOG) if name.isdigit()]
    return min(int(name) for name in names)


async def expire(leader: Node, policy: RetentionPolicy) -> None:
    """As a leader's node does within some passes: the log says first where the queues begin."""
    store = leader.store
    assert store is not None
    for _ in range(2):
        store.apply_retention(policy)
        store.begin_checkpoint().run()
        await until(lambda: not store._floors.unconfirmed)
        store.begin_checkpoint().run()


async def test_followers_delete_what_the_leader_has_deleted(tmp_path: Path) -> None:
    sent = [b"%d" % number * 40 for number in range(100, 300)]
    async with shard_of(tmp_path) as shard:
        first = await shard.served()
        await append(first, sent)
        await until(shard.are_equal)
        assert first.store is not None
        assert {first_segment(node) for node in shard.nodes.values()} == {0}
        await expire(first, RetentionPolicy(log_bytes_max=2 * SMALL.segment_bytes))
        start = first_segment(first)
        assert start > 2 * SMALL.segment_bytes
        left = bodies(first.store)
        assert left == sent[-len(left) :]
        await until(lambda: all(first_segment(each) == start for each in shard.nodes.values()))
        first.runner.transfer(TransferAsked())
        second = await shard.served(first)
        assert second.store is not None
        assert bodies(second.store) == left
        await append(second, [b"more"])
        await until(shard.are_equal)
        for name in ("b", "c"):
            await shard.stop(name)
            await shard.start(name)
        await until(shard.are_equal)
        third = await shard.served()
        assert third.store is not None
        assert bodies(third.store) == [*left, b"more"]
        assert {each.runner.status().alarms for each in shard.nodes.values()} == {()}
