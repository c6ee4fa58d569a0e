"""What of a follower's store may be read: of generations that live, from where they begin, and
nothing from when the replica begins to lead on."""

import threading
from pathlib import Path
from typing import Any

import pytest

from app.cluster.replication.events import TransferAsked
from app.domain.errors import CurlewError, TopicNotFound
from app.domain.message import Message
from app.domain.names import FLOORS_TOPIC
from app.domain.positions import FlushMode
from app.replica import owner
from app.store import RetentionPolicy
from app.store.followed_store import FollowedStore
from app.store.read.queue_reads import Gap, ReadResult
from app.store.topics.floor_journal import FloorJournal, Records
from tests.integration.replica.shard_of_runners import Node, Shard, shard_of, until
from tests.integration.replica.test_deletion import expire
from tests.support.stores.stores import SMALL

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick begins one."""
    monkeypatch.setattr(owner, "CHECKPOINT_MS", 0)


async def append(node: Node, bodies: list[bytes], generation: int) -> None:
    told: list[CurlewError | None] = []
    assert node.store is not None
    for body in bodies:
        message = Message(body)
        node.store.append("orders", 0, [message], FlushMode.SYNC, told.append, generation)
    await until(lambda: len(told) == len(bodies))
    assert told == [None] * len(bodies)


async def followed(shard: Shard, leader: Node) -> FollowedStore:
    """What may be read at a follower, when it has all that the leader has."""
    await until(shard.are_equal)
    node = next(each for each in shard.nodes.values() if each is not leader)
    await until(lambda: node.runner.readable(is_stale=False) is not None)
    await node.has_taken_all_in()
    found = node.runner.readable(is_stale=False)
    assert found is not None
    return found


def bodies_at(store: FollowedStore, generation: int) -> list[bytes] | None:
    """All that may be read of a generation; None: nothing may."""
    turn = store.begin("orders", generation)
    if turn is None:
        return None
    low, high = store.bounds("orders", 0)
    found: list[bytes] = []
    while low < high:
        read = store.read("orders", 0, low, max_messages=100, max_bytes=1 << 20, wait_for_disk=True)
        assert not read.gaps
        found += [store.decode(record).body for record in read.records]
        low = read.next_offset
    assert store.end(turn)
    return found


async def test_each_generation_is_read_by_itself(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"one", b"two"], generation=7)
        store = await followed(shard, leader)
        assert bodies_at(store, 7) == [b"one", b"two"]
        assert bodies_at(store, 8) is None
        assert leader.store is not None
        assert leader.store.delete_topic("orders", 7)
        await append(leader, [b"three"], generation=8)
        store = await followed(shard, leader)
        await until(lambda: bodies_at(store, 8) is not None)
        assert bodies_at(store, 8) == [b"three"]
        assert store.bounds("orders", 0) == leader.store.bounds("orders", 0) == (2, 3)
        assert bodies_at(store, 7) is None
        for name in "bc":
            await shard.stop(name)
            await shard.start(name)
        leader = await shard.served()
        store = await followed(shard, leader)
        await until(lambda: bodies_at(store, 8) is not None)
        assert bodies_at(store, 8) == [b"three"]
        assert bodies_at(store, 7) is None


async def test_a_follower_tells_of_its_own_log(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"one", b"two"], generation=1)
        await followed(shard, leader)
        assert leader.store is not None
        status = leader.store.status()
        for node in shard.nodes.values():
            figures = node.runner.log_figures()
            assert figures is not None
            assert figures.size_bytes == status.written_end - status.start > 0
            assert figures.segments >= 1
            assert sum(figures.sync_times.buckets) > 0
            assert figures.disk_usage().total > 0


async def test_what_has_expired_is_gone_here_too(tmp_path: Path) -> None:
    sent = [b"%d" % number * 40 for number in range(100, 300)]
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, sent, generation=1)
        store = await followed(shard, leader)
        assert bodies_at(store, 1) == sent
        assert leader.store is not None
        leader.store.trim("orders", 0, 3)
        leader.store.begin_checkpoint().run()  # which has the log say so
        await until(lambda: store.bounds("orders", 0).min_offset == 3)
        await expire(leader, RetentionPolicy(log_bytes_max=2 * SMALL.segment_bytes))
        bounds = leader.store.bounds("orders", 0)
        assert bounds.min_offset > 3
        await until(lambda: store.bounds("orders", 0) == bounds)
        assert bodies_at(store, 1) == sent[bounds.min_offset :]


async def test_nothing_is_read_from_when_a_replica_begins_to_lead(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"one"], generation=1)
        await until(shard.are_equal)
        others = [each.runner for each in shard.nodes.values() if each is not leader]
        await until(lambda: all(each.readable(is_stale=True) for each in others))
        before = {name: each.runner.readable(is_stale=True) for name, each in shard.nodes.items()}
        assert before.pop(leader.name) is None
        leader.runner.transfer(TransferAsked())
        second = await shard.served(leader)
        store = before[second.name]
        assert store is not None
        assert store.begin("orders", 1) is None
        assert second.runner.readable(is_stale=True) is None


async def test_who_begins_to_lead_goes_on_with_the_floors_it_has_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from the log again, those of 10,000 groups took 0.23 s in which nobody led."""
    begun: list[tuple[int, int]] = []
    start = FloorJournal.start

    def noted(journal: FloorJournal, records: Records, from_offset: int = 0) -> None:
        begun.append((from_offset, records.bounds(FLOORS_TOPIC, 0)[1]))
        start(journal, records, from_offset)

    monkeypatch.setattr(FloorJournal, "start", noted)
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        for generation in (1, 2):
            await append(leader, [b"old"], generation)
            assert leader.store is not None
            assert leader.store.delete_topic("orders", generation)
        await append(leader, [b"new"], generation=3)
        store = await followed(shard, leader)
        await until(lambda: bodies_at(store, 3) == [b"new"])
        assert leader.store is not None
        said = [*leader.store._floors.states()]
        del begun[:]
        leader.runner.transfer(TransferAsked())
        second = await shard.served(leader)
        ((taken, end),) = begun
        assert taken == end == 5, "each life's begin and end"
        assert second.store is not None
        assert [*second.store._floors.states()] == said
        assert second.store.is_gone("orders", 2)
        with pytest.raises(TopicNotFound):
            await append(second, [b"late"], generation=2)
        await append(second, [b"newer"], generation=3)


async def test_floors_that_were_passed_over_are_read_again_by_who_begins_to_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What none had may have been put right since: a deletion that is not known would show the
    messages of the topic before."""
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"old"], generation=1)
        assert leader.store is not None
        assert leader.store.delete_topic("orders", 1)
        await append(leader, [b"new"], generation=2)
        await followed(shard, leader)
        node = next(each for each in shard.nodes.values() if each is not leader)
        store = FollowedStore(node.runner._owner.following.parts)
        read = FollowedStore.read

        def lacking(self: FollowedStore, *asked: Any, **bounds: Any) -> ReadResult:
            found = read(self, *asked, **bounds)
            rest = (found.records[:1], found.queue_offsets[:1], found.tag_hashes[:1])
            return ReadResult(*rest, 3, 3, [Gap(1, 3, "damaged")])

        assert not store.take_floors()
        assert store.hand_over().next_offset == 3
        store = FollowedStore(node.runner._owner.following.parts)
        monkeypatch.setattr(FollowedStore, "read", lacking)
        assert not store.take_floors()
        assert store.hand_over().next_offset == 0


async def test_floors_are_told_of_before_they_are_readable(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"one"], generation=1)
        store = await followed(shard, leader)
        node = next(each for each in shard.nodes.values() if each is not leader)
        seen: list[int] = []

        def look() -> None:
            seen.append(store.bounds(FLOORS_TOPIC, 0).max_offset)
            store.hold()

        node.runner._owner.following.dispatcher.before_floors = look
        before = store.bounds(FLOORS_TOPIC, 0).max_offset
        assert leader.store is not None
        leader.store.delete_topic("orders", 1)
        await append(leader, [b"two"], generation=2)
        await until(lambda: bodies_at(store, 2) == [b"two"])
        assert seen[0] == before


async def test_what_is_read_while_floors_come_is_not_given_out(tmp_path: Path) -> None:
    async with shard_of(tmp_path) as shard:
        leader = await shard.served()
        await append(leader, [b"one"], generation=1)
        store = await followed(shard, leader)
        turn = store.begin("orders", 1)
        assert turn is not None
        store.hold()
        assert store.begin("orders", 1) is None
        assert not store.end(turn)
        store.take_floors()
        turn = store.begin("orders", 1)
        assert turn is not None
        shutting = threading.Thread(target=store.shut)
        shutting.start()
        await until(lambda: store.begin("orders", 1) is None)
        assert shutting.is_alive(), "it waits for who reads"
        assert not store.end(turn)
        shutting.join(30)
        assert not shutting.is_alive()
