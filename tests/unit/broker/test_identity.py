"""A topic or group that is made again knows nothing of the one before it, whatever is under way,
cut off or sent again.

Positive control: with the same generation given to the successor it all shows again.
"""

import asyncio

import pytest

from app.broker.dedup.tokens import KeyToken, ProducerToken
from app.broker.delays.delay_delivery import MISSING_MS
from app.broker.failures.dead_letter_admin import Selection
from app.broker.results import QueuePosition
from app.domain.changes.conditions import Terms
from app.domain.changes.merging import Named
from app.domain.delays import Due
from app.domain.errors import (
    CurlewError,
    DiskFull,
    MetadataUnavailable,
    StoreFailed,
    TooManyRequests,
    TopicNotFound,
)
from app.domain.identity import Kind
from app.domain.limits import GENERATION_MAX
from app.domain.message import Message
from app.domain.names import dead_letter_topic, retry_topic
from app.domain.settings import GroupSettings, TopicSettings
from app.store import Done
from tests.support.nodes.brokers import (
    GROUP,
    TOPIC,
    World,
    bodies,
    offsets,
    put_group,
    put_topic,
    running,
)
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio
KEY = KeyToken("k", "f")


def generation(world: World) -> int:
    return world.metadata.snapshot.topics[TOPIC].generation


async def make_again(world: World) -> None:
    await world.broker.settings_changes.delete_topic(TOPIC)
    await put_topic(world.broker, TOPIC, TopicSettings(queues=1))


async def readable(world: World) -> list[bytes]:
    low, high = world.store.bounds(TOPIC, 0)
    assert low <= high
    read = world.store.read(TOPIC, 0, low, max_messages=100, max_bytes=1 << 20)
    return [world.store.decode(record).body for record in read.records]


async def test_generations_are_random_and_fit_into_json() -> None:
    async with running() as world:
        seen = set()
        for _ in range(20):
            await make_again(world)
            seen.add(generation(world))
            await put_group(world.broker, GROUP, GroupSettings())
            seen.add(world.metadata.snapshot.groups[GROUP].generation)
            await world.broker.settings_changes.delete_group(GROUP)
        assert len(seen) == 40
        assert all(0 < each <= GENERATION_MAX for each in seen)


async def test_a_key_and_a_sequence_mean_nothing_to_the_successor() -> None:
    async with running() as world:
        claim = ProducerToken("p", 1, 0)
        producers = world.broker.producers
        for body in (b"old", b"new"):
            keyed = await world.broker.deduplicator.send(TOPIC, Message(body), KEY)
            counted = await world.broker.deduplicator.send(TOPIC, Message(body), claim)
            assert not keyed.is_repeated
            assert not counted.is_repeated
            assert (await world.broker.deduplicator.send(TOPIC, Message(body), KEY)).is_repeated
            assert await readable(world) == [body, body]
            if body == b"old":
                await make_again(world)
                assert producers.state("p").sequences == []
        await world.kill()
        assert (await world.broker.deduplicator.send(TOPIC, Message(b"new"), KEY)).is_repeated


async def test_positive_control_keys_count_as_long_as_the_generation_is_the_same() -> None:
    async with running() as world:
        await world.broker.deduplicator.send(TOPIC, Message(b"old"), KEY)
        number = generation(world)
        await world.metadata.delete_topic(TOPIC)
        world.metadata.pending.clear()
        await world.metadata.put_topic(TOPIC, TopicSettings(), generation=number)
        assert (await world.broker.deduplicator.send(TOPIC, Message(b"old"), KEY)).is_repeated


async def test_an_epochs_messages_in_a_deleted_topic_do_not_count() -> None:
    async with running() as world:
        producers = world.broker.producers
        await world.broker.deduplicator.send(TOPIC, Message(b"a"), ProducerToken("f:0", 1, 0))
        await make_again(world)
        with pytest.raises(CurlewError, match="of 1 messages"):
            await producers.seal("f", 1, 1)
        await world.kill()
        with pytest.raises(CurlewError, match="of 1 messages"):
            await world.broker.producers.seal("f", 1, 1)


async def test_what_is_on_its_way_is_not_in_the_successor() -> None:
    async with running() as world:
        world.store.held = []
        sends = [
            asyncio.ensure_future(world.broker.sender.send(TOPIC, Message(b"old")))
            for _ in range(3)
        ]
        await until(lambda: len(world.store.held or ()) == 3)
        await make_again(world)
        assert world.store.bounds(TOPIC, 0) == (3, 3)
        new = asyncio.ensure_future(world.broker.sender.send(TOPIC, Message(b"new")))
        await until(lambda: world.store.next_offset(TOPIC, 0) == 4)
        world.store.confirm()
        await asyncio.gather(*sends, new)
        assert await readable(world) == [b"new"]


async def test_the_making_of_a_successor_waits_for_the_deletion() -> None:
    async with running() as world:
        await world.send(b"old")
        told: list[Done] = []
        delete = world.store.delete_topic

        def slow(topic: str, generation: int, done: Done) -> bool:
            told.append(done)
            return delete(topic, generation)

        world.store.delete_topic = slow  # type: ignore[assignment, method-assign]
        deleting = asyncio.ensure_future(world.broker.settings_changes.delete_topic(TOPIC))
        await until(lambda: bool(told))
        putting = asyncio.ensure_future(put_topic(world.broker, TOPIC, TopicSettings()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not putting.done()
        assert TOPIC not in world.metadata.snapshot.topics
        told[0](None)
        await asyncio.gather(deleting, putting)
        assert await readable(world) == []


async def test_who_goes_away_does_not_stop_a_deletion_in_the_middle() -> None:
    async with running() as world:
        await world.send(b"old")
        deleting = asyncio.ensure_future(world.broker.settings_changes.delete_topic(TOPIC))
        await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
        await until(
            lambda: not world.metadata.pending and TOPIC not in world.metadata.snapshot.topics
        )
        await put_topic(world.broker, TOPIC, TopicSettings())
        assert await readable(world) == []


@pytest.mark.parametrize("is_made_again", ["before", "after", "not"])
async def test_a_deletion_that_a_kill_cut_off_is_carried_out(is_made_again: str) -> None:
    """In SQL and nowhere else. Made again before the kill through another door than the broker."""
    async with running() as world:
        await world.send(b"old")
        await world.broker.deduplicator.send(TOPIC, Message(b"old"), KEY)
        await world.nack(*await world.receive(1))
        await world.commit(2, take_over=True)
        await world.metadata.delete_topic(TOPIC)
        if is_made_again == "before":
            await world.metadata.put_topic(TOPIC, TopicSettings(queues=1))
        await world.kill()
        assert world.metadata.pending == []
        assert await readable(world) == []
        low, high = world.store.bounds(retry_topic(GROUP, TOPIC), 0)
        assert low == high == 1
        if is_made_again != "before":
            await put_topic(world.broker, TOPIC, TopicSettings(queues=1))
        result = await world.broker.deduplicator.send(TOPIC, Message(b"new"), KEY)
        assert not result.is_repeated
        await world.kill()
        assert await readable(world) == [b"new"]
        received = await world.receive()
        assert [each.message.body for each in received] == [b"new"]


@pytest.mark.parametrize("failure", [StoreFailed("broken"), TooManyRequests("busy")])
async def test_a_deletion_that_the_store_refuses_is_carried_out_before_the_name_is_made_again(
    failure: CurlewError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as world:
        await world.send(b"old")

        def refuse(*_arguments: object) -> bool:
            raise failure

        with monkeypatch.context() as patched:
            patched.setattr(world.store, "delete_topic", refuse)
            with pytest.raises(type(failure)):
                await world.broker.settings_changes.delete_topic(TOPIC)
        assert len(world.metadata.pending) == 1
        await put_topic(world.broker, TOPIC, TopicSettings())
        assert world.metadata.pending == []
        assert await readable(world) == []


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_successor_begins_although_nobody_heard_that_the_deletion_was_done(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the connection breaks after the commit: the name is in the snapshot still."""
    async with running() as world:
        await world.group(GroupSettings(max_attempts=1))
        await world.send(b"old")
        await world.nack(*await world.receive(1))
        await world.kill()
        stale, metadata = world.metadata.snapshot, world.metadata
        is_topic = kind is Kind.TOPIC
        await (metadata.delete_topic(TOPIC) if is_topic else metadata.delete_group(GROUP))
        true, metadata.snapshot = metadata.snapshot, stale
        change = metadata.change_topic if is_topic else metadata.change_group

        async def changed(name: str, named: Named, terms: Terms) -> object:
            metadata.snapshot = true
            return await change(name, named, terms)

        with monkeypatch.context() as patched:
            patched.setattr(metadata, f"change_{kind.value}", changed)
            if is_topic:
                await put_topic(world.broker, TOPIC, TopicSettings(queues=1))
            else:
                await put_group(world.broker, GROUP, GroupSettings(max_attempts=1))
        assert metadata.pending == []
        await world.send(b"new")
        assert (await readable(world))[-1] == b"new"
        if is_topic:
            assert await readable(world) == [b"new"]
        else:
            assert world.broker.dead_letters.count(GROUP) == 0
            number = metadata.snapshot.groups[GROUP].generation
            assert world.store.generation(dead_letter_topic(GROUP)) == number


@pytest.mark.parametrize("is_refused_at_once", [False, True])
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_deletion_that_a_full_disk_has_not_written_keeps_its_tombstone(
    kind: Kind, is_refused_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does it keep the node from starting."""
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"old")
        await world.nack(*await world.receive(1))
        full = DiskFull("no room", outcome="not_stored")
        delete = world.store.delete_topic

        def refuse(topic: str, generation: int = 0, done: Done | None = None) -> bool:
            delete(topic, generation, done)
            raise full

        with monkeypatch.context() as patched:
            if is_refused_at_once:
                world.store.refusal = full
                patched.setattr(world.store, "delete_topic", refuse)
            else:
                world.store.failure = full
            if kind is Kind.TOPIC:
                await world.broker.settings_changes.delete_topic(TOPIC)
            else:
                await world.broker.settings_changes.delete_group(GROUP)
            assert len(world.metadata.pending) == 1
            world.store.failure = None
            await world.kill()
            assert len(world.metadata.pending) == is_refused_at_once
            world.store.refusal = None
        await world.kill()
        assert world.metadata.pending == []
        await put_topic(world.broker, TOPIC, TopicSettings(queues=1))
        await put_group(world.broker, GROUP, GroupSettings(start="latest"))
        assert await world.receive() == []


async def test_deletions_that_found_no_room_are_carried_out_when_there_is_some() -> None:
    async with running() as world:
        names = [f"t{number}" for number in range(5)]
        tried: list[str] = []
        delete = world.store.delete_topic

        def note(topic: str, generation: int = 0, done: Done | None = None) -> bool:
            tried.append(topic)
            world.store.ended.discard((topic, generation))
            world.store.generations[topic] = (generation, False)  # as what is not written
            return delete(topic, generation, done)

        world.store.failure = DiskFull("no room", outcome="not_stored")
        for name in names:
            await world.topic(1, name)
            await world.broker.settings_changes.delete_topic(name)
        lifecycle = world.broker.lifecycle
        world.store.delete_topic = note  # type: ignore[method-assign]
        for _ in range(3):
            assert lifecycle.is_behind
            await lifecycle.carry_out_deletions()
            assert len(world.metadata.pending) == 5
        assert tried == [names[0]] * 3
        world.store.failure = None
        await lifecycle.carry_out_deletions()
        assert world.metadata.pending == []
        assert not lifecycle.is_behind


async def test_a_tombstone_that_stays_leaves_the_successor_alone() -> None:
    async with running() as world:
        await world.send(b"old")
        carried_out = world.metadata.carried_out

        async def unreachable(_deletion: object) -> None:
            raise MetadataUnavailable("the database does not answer")

        world.metadata.carried_out = unreachable  # type: ignore[assignment, method-assign]
        await make_again(world)
        await world.send(b"new")
        await world.commit(2)
        assert len(world.metadata.pending) == 1
        world.metadata.carried_out = carried_out  # type: ignore[method-assign]
        await world.kill()
        assert world.metadata.pending == []
        assert await readable(world) == [b"new"]
        assert world.committed() == {0: 2}


async def test_an_empty_database_beside_a_full_store_deletes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        await world.ack(*await world.receive(1))
        await world.broker.deduplicator.send(TOPIC, Message(b"c"), KEY)
        number = generation(world)
        world.metadata.snapshot = type(world.metadata.snapshot)()
        world.metadata.offsets.clear()
        await world.kill()
        assert TOPIC in caplog.text
        assert "kept and nobody sees them" in caplog.text
        with pytest.raises(TopicNotFound):
            await world.send(b"x")
        await put_topic(world.broker, TOPIC, TopicSettings())
        assert generation(world) == number
        assert await readable(world) == [b"a", b"b", b"c"]
        assert (await world.broker.deduplicator.send(TOPIC, Message(b"c"), KEY)).is_repeated
        assert offsets(await world.receive()) == [1, 2]


async def test_an_older_database_takes_up_what_the_store_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as world:
        await world.send(b"old")
        older = world.metadata.snapshot
        await make_again(world)
        await world.send(b"new")
        number = generation(world)
        world.metadata.snapshot = older
        await world.kill()
        assert generation(world) == number
        assert "older than the store" in caplog.text
        assert await readable(world) == [b"new"]
        await world.broker.settings_changes.delete_topic(TOPIC)
        world.metadata.snapshot = older
        await world.kill()
        assert generation(world) not in (number, older.topics[TOPIC].generation)
        assert await readable(world) == []
        await world.send(b"again")
        assert await readable(world) == [b"again"]


async def test_a_delayed_message_is_for_its_topic_alone_and_waits_while_that_is_missing() -> None:
    async with running() as world:
        await world.broker.sender.send(TOPIC, Message(b"old"), due=Due(1_000, is_delay=True))
        kept = world.metadata.snapshot
        world.metadata.snapshot = type(kept)()
        await world.lapse(s=2)
        assert world.broker.delays.timers.count == 1
        world.metadata.snapshot = kept
        await world.lapse(ms=MISSING_MS)
        assert await readable(world) == [b"old"]
        await world.broker.sender.send(TOPIC, Message(b"older"), due=Due(1_000, is_delay=True))
        await make_again(world)
        await world.lapse(s=2)
        assert world.broker.delays.timers.count == 0
        assert await readable(world) == []


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_retry_that_waits_is_not_for_a_successor(kind: Kind) -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await world.send(b"old")
        await world.nack(*await world.receive(1), delay_ms=1_000)
        await world.broker.delays.catch_up()
        assert world.broker.delays.timers.count == 1
        if kind is Kind.TOPIC:
            await make_again(world)
        else:
            await world.broker.settings_changes.delete_group(GROUP)
            await put_group(world.broker, GROUP, GroupSettings())
            await world.commit(1)
        await world.lapse(s=60)
        assert world.broker.delays.timers.count == 0
        assert await world.receive() == []


async def test_a_dead_letter_goes_back_to_its_own_topic_alone() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_attempts=1))
        await world.send(b"old")
        await world.nack(*await world.receive(1))
        await until(lambda: world.broker.dead_letters.count(GROUP) == 1)
        assert (await world.broker.dead_letters.plan(GROUP, Selection())).by_target == {TOPIC: 1}
        await make_again(world)
        plan = await world.broker.dead_letters.plan(GROUP, Selection())
        assert plan.by_target == {}
        assert "made again" in next(iter(plan.skipped))[1]
        plan = await world.broker.dead_letters.plan(GROUP, Selection(), to_topic=TOPIC)
        assert plan.by_target == {TOPIC: 1}


async def test_the_letters_of_a_deleted_group_are_not_its_successors() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_attempts=1))
        await world.send(b"old")
        await world.nack(*await world.receive(1))
        await until(lambda: world.broker.dead_letters.count(GROUP) == 1)
        await world.metadata.delete_group(GROUP)
        await world.kill()
        await put_group(world.broker, GROUP, GroupSettings())
        assert world.broker.dead_letters.count(GROUP) == 0
        assert world.store.generation(dead_letter_topic(GROUP)) > 0


async def test_a_commit_that_looked_its_topic_up_before_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        await world.send(b"old")
        find = world.broker.groups.find_or_create_group

        async def slow(name: str) -> object:
            group = await find(name)
            await make_again(world)
            return group

        monkeypatch.setattr(world.broker.groups, "find_or_create_group", slow)
        with pytest.raises(TopicNotFound):
            await world.broker.offset_commits.commit(GROUP, TOPIC, [QueuePosition(0, 1)])
        with pytest.raises(TopicNotFound):
            await world.receive()
        assert world.committed() == {}


async def test_a_snapshot_of_offsets_is_not_restored_to_a_successor() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        await world.commit(1)
        positions = world.broker.offset_admin
        await positions.take_snapshot(GROUP, "before")
        await make_again(world)
        await world.send(b"c")
        result = await positions.restore(GROUP, "before", is_dry_run=False)
        assert (result.changes, result.missing_topics) == ([], [TOPIC])


async def test_offsets_beyond_the_end_are_held_to_it_before_anything_is_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as world:
        await world.send(*[b"%d" % n for n in range(10)])
        await world.ack(*await world.receive(10))
        await world.broker.offset_cache.write()
        queue = world.store.queues[TOPIC, 0]
        del queue.records[6:], queue.tag_hashes[6:]
        queue.confirmed = 6
        await world.kill()
        assert "set back" in caplog.text
        assert world.metadata.committed(GROUP, TOPIC) == {0: 6}
        await world.send(*[b"new %d" % n for n in range(5)])
        assert offsets(await world.receive()) == [6, 7, 8, 9, 10]
        await world.kill()
        assert offsets(await world.receive()) == [6, 7, 8, 9, 10]


@pytest.mark.parametrize("refusing", ["refusal", "failure"])
@pytest.mark.parametrize("is_killed", [True, False])
async def test_offsets_beyond_the_end_are_held_to_it_also_on_a_full_disk(
    refusing: str, *, is_killed: bool
) -> None:
    """The node starts, and the next message is nobody's done one, whatever dies when."""
    async with running() as world:
        await world.send(b"read", b"lost")
        await world.ack(*await world.receive())
        await world.broker.offset_cache.write()
        queue = world.store.queues[TOPIC, 0]
        del queue.records[1:], queue.tag_hashes[1:]
        queue.confirmed = 1
        setattr(world.store, refusing, DiskFull("the disk is full"))
        await world.kill()
        assert world.committed() == {0: 1}
        assert await world.receive() == []
        if is_killed:
            await world.kill()
        with pytest.raises(DiskFull):
            await world.send(b"refused")
        setattr(world.store, refusing, None)
        await world.send(b"new")
        await world.kill()
        assert bodies(await world.receive()) == [b"new"]


@pytest.mark.parametrize("failing", ["fence", "log", "copy"])
async def test_a_reset_that_fails_leaves_neither_side_ahead(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as world:
        await world.send(*[b"%d" % n for n in range(5)])
        await world.commit(4)
        await world.broker.offset_cache.write()
        with monkeypatch.context() as patched:
            if failing == "log":
                world.store.refusal = TooManyRequests("busy")
            elif failing == "fence":
                world.metadata.is_down = True
            else:

                async def refuse(rows: list[object], **_more: object) -> list[object]:
                    if rows:
                        raise MetadataUnavailable("the database does not answer")
                    return []

                patched.setattr(world.metadata, "commit_offsets", refuse)
            try:
                await world.commit(1, force=True)
            except CurlewError:
                assert failing != "copy"
            world.store.refusal, world.metadata.is_down = None, False
        expected = 1 if failing == "copy" else 4
        assert world.committed() == {0: expected}
        if failing == "copy":
            assert world.metadata.committed(GROUP, TOPIC) == {0: 4}
        await world.kill()
        assert world.metadata.committed(GROUP, TOPIC) == world.committed() == {0: expected}
        assert offsets(await world.receive(force=True)) == list(range(expected, 5))
