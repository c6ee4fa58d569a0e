"""Sends that are stored once: sequences, seals, idempotency keys, on a store in memory."""

import asyncio
from collections.abc import Sequence

import pytest

from app.broker.dedup.deduplicator import Once
from app.broker.dedup.tokens import KeyToken, Placed, ProducerToken
from app.broker.journal.journal import Journal
from app.broker.results import BatchItem, FrameResult, SendResult
from app.domain.delays import Due
from app.domain.errors import (
    AlreadyStored,
    CurlewError,
    DiskFull,
    IdempotencyKeyReused,
    InvalidRequest,
    OffsetExpired,
    ProducerFenced,
    ProducerNotFound,
    ProducerSealed,
    RequestInProgress,
    SequenceOutOfOrder,
    TooManyRequests,
)
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.names import PRODUCER_TOPIC
from app.domain.settings import TopicSettings
from tests.support.clients.frames import request_frame
from tests.support.nodes.brokers import TOPIC, World, put_topic, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio
DAY_MS = 86_400_000


def claim(seq: int, epoch: int = 0, producer: str = "spark:q1:0") -> ProducerToken:
    return ProducerToken(producer, epoch, seq)


async def send(world: World, body: bytes, what: ProducerToken | KeyToken) -> Once:
    return await world.broker.deduplicator.send(TOPIC, Message(body), what, queue_id=0)


async def send_frame(
    world: World, count: int, what: ProducerToken | KeyToken
) -> tuple[int, int, bool]:
    """First offset, count, and whether it was a repetition."""
    frame = request_frame([Message(b"x")] * count, TOPIC)
    result, again = await world.broker.deduplicator.send_frame(TOPIC, frame, what, queue_id=0)
    return result.first_queue_offset, result.count, again


async def restart_with(world: World, kept: int) -> None:
    """A crash that leaves the first `kept` messages of queue 0."""
    queue = world.store.queues[TOPIC, 0]
    del queue.records[kept:]
    queue.confirmed = kept
    await world.restart()


def stored(world: World, queue_id: int = 0) -> int:
    return world.store.bounds(TOPIC, queue_id).max_offset


async def test_a_sequence_is_stored_once() -> None:
    async with running() as world:
        first = await send(world, b"a", claim(0))
        second = await send(world, b"b", claim(1))
        assert (first.is_repeated, second.results[0].queue_offset) == (False, 1)
        for number, before in ((0, first), (1, second)):
            again = await send(world, b"a", claim(number))
            assert again == Once(before.results, is_repeated=True)
        assert stored(world) == 2


async def test_a_gap_names_the_next_number() -> None:
    async with running() as world:
        await send(world, b"a", claim(0))
        with pytest.raises(SequenceOutOfOrder) as gap:
            await send(world, b"c", claim(2))
        assert gap.value.fields == {"expected_seq": 1}
        assert gap.value.outcome == "not_stored"
        with pytest.raises(SequenceOutOfOrder):
            await send(world, b"c", claim(1, producer="another"))


async def test_each_queue_and_each_topic_has_a_sequence_of_its_own() -> None:
    async with running(queues=2) as world:
        await world.topic(1, "other")
        for queue_id in (0, 1, None):
            for number in (0, 1):
                await world.broker.deduplicator.send(
                    TOPIC, Message(b"x"), claim(number), queue_id=queue_id
                )
        await world.broker.deduplicator.send("other", Message(b"x"), claim(0))
        assert stored(world) + stored(world, 1) == 6


async def test_a_newer_epoch_begins_anew_and_fences_the_older_one() -> None:
    async with running() as world:
        await send(world, b"a", claim(0))
        await send(world, b"b", claim(0, epoch=1))
        with pytest.raises(ProducerFenced) as fenced:
            await send(world, b"c", claim(1))
        assert fenced.value.fields == {"epoch": 1}
        with pytest.raises(SequenceOutOfOrder):
            await send(world, b"c", claim(1, epoch=2))


async def test_a_seal_closes_all_of_a_family() -> None:
    async with running() as world:
        producers = world.broker.producers
        for part in "01":
            await send(world, b"a", claim(0, 5, f"spark:q1:{part}"))
        assert await producers.seal("spark:q1", 5) == 5
        assert await producers.seal("spark:q1", 4) == 5
        for epoch, part in ((5, "0"), (5, "17"), (4, "1")):
            with pytest.raises(ProducerSealed) as sealed:
                await send(world, b"a", claim(0, epoch, f"spark:q1:{part}"))
            assert sealed.value.fields == {"sealed_epoch": 5}
        await send(world, b"b", claim(0, 6, "spark:q1:0"))
        await send(world, b"b", claim(0, 0, "spark:q2:0"))
        assert producers.state("spark:q1:0")[:2] == (6, 5)
        assert producers.state("spark:q1:1") == (None, 5, [])
        assert stored(world) == 4


async def test_what_is_known_of_a_producer() -> None:
    async with running() as world:
        await send(world, b"a", claim(0, 3))
        await world.broker.deduplicator.send(TOPIC, Message(b"a"), claim(0, 3))
        known = world.broker.producers.state("spark:q1:0")
        assert known == (3, None, [(TOPIC, None, 1), (TOPIC, 0, 1)])


async def test_frames_count_their_messages() -> None:
    async with running() as world:
        assert await send_frame(world, 3, claim(0)) == (0, 3, False)
        assert await send_frame(world, 2, claim(3)) == (3, 2, False)
        assert await send_frame(world, 3, claim(0)) == (0, 3, True)
        with pytest.raises(AlreadyStored):
            await send_frame(world, 2, claim(0))
        with pytest.raises(SequenceOutOfOrder):
            await send_frame(world, 2, claim(6))
        assert stored(world) == 5


async def test_of_a_frame_that_is_stored_in_part_the_rest_is_stored() -> None:
    async with running() as world:
        await send_frame(world, 3, claim(0))
        assert await send_frame(world, 4, claim(1)) == (3, 2, False)
        assert stored(world) == 5


async def test_a_batch_is_stored_whole_or_refused_whole() -> None:
    async with running(queues=2) as world:
        send_batch = world.broker.deduplicator.send_batch
        items: list[BatchItem | CurlewError] = [
            BatchItem(Message(b"a"), 1),
            BatchItem(Message(b"b"), 0),
            BatchItem(Message(b"c"), 1),
        ]
        key = KeyToken("k", "f")
        with pytest.raises(InvalidRequest):
            await send_batch(TOPIC, [*items, BatchItem(Message(b"d", tag="|"))], key)
        first = await send_batch(TOPIC, items, key)
        places = [(each.queue_id, each.queue_offset) for each in first.results]
        assert places == [(1, 0), (0, 0), (1, 1)]
        assert await send_batch(TOPIC, items, key) == Once(first.results, is_repeated=True)
        assert (stored(world), stored(world, 1)) == (1, 2)


async def test_a_key_stands_for_one_request() -> None:
    async with running() as world:
        first = await send(world, b"a", KeyToken("k", "f"))
        assert await send(world, b"a", KeyToken("k", "f")) == Once(first.results, is_repeated=True)
        with pytest.raises(IdempotencyKeyReused) as reused:
            await send(world, b"b", KeyToken("k", "other"))
        assert reused.value.outcome == "not_stored"
        await world.topic(1, "other")
        await world.broker.deduplicator.send("other", Message(b"b"), KeyToken("k", "other"))
        assert stored(world) == 1


async def test_a_repetition_that_comes_too_early_is_told_to_come_again() -> None:
    async with running() as world:
        for what in (claim(0), KeyToken("k", "f")):
            world.store.held = []
            async with asyncio.TaskGroup() as group:
                first = group.create_task(send(world, b"a", what))
                await until(lambda: bool(world.store.held))
                with pytest.raises(RequestInProgress) as early:
                    await send(world, b"a", what)
                assert early.value.outcome == "unknown"
                world.store.confirm()
            assert (await send(world, b"a", what)).results == first.result().results


async def test_what_could_not_be_stored_is_not_remembered() -> None:
    async with running() as world:
        await send(world, b"a", claim(0))
        for what in (claim(1), KeyToken("k", "f")):
            world.store.failure = DiskFull("no room", outcome="not_stored")
            with pytest.raises(DiskFull):
                await send(world, b"b", what)
            world.store.failure = None
            assert not (await send(world, b"b", what)).is_repeated


@pytest.mark.parametrize("snapshot", [False, True])
async def test_an_older_instance_is_fenced_after_its_topic_was_deleted(snapshot: bool) -> None:
    async with running() as world:
        await send(world, b"a", claim(0, 4))
        await world.broker.settings_changes.delete_topic(TOPIC)
        await world.topic()
        if snapshot:
            await world.broker.dedup_journal.journal.write_snapshot()
            await world.restart()
            await world.broker.dedup_journal.journal.write_snapshot()
        await world.restart()
        with pytest.raises(ProducerFenced, match="has epoch 4"):
            await send(world, b"a", claim(0, 3))
        assert not (await send(world, b"a", claim(0, 4))).is_repeated
        world.clock.advance(ms=Limits().producer_window_ms + 1)
        await send(world, b"b", claim(0, 1, "another"))
        assert not (await send(world, b"a", claim(0, 3))).is_repeated


@pytest.mark.parametrize("snapshot", [False, True])
async def test_everything_is_known_after_a_restart(snapshot: bool) -> None:
    async with running() as world:
        kept: Sequence[tuple[ProducerToken | KeyToken, list[SendResult]]] = [
            (what, (await send(world, b"a", what)).results)
            for what in (claim(0, 4), claim(1, 4), KeyToken("k", "f"))
        ]
        await world.broker.producers.seal("spark:q9", 2)
        if snapshot:
            await world.broker.dedup_journal.journal.write_snapshot()
        await world.restart()
        for what, results in kept:
            assert await send(world, b"a", what) == Once(results, is_repeated=True)
        with pytest.raises(ProducerSealed):
            await send(world, b"a", claim(0, 2, "spark:q9:0"))
        with pytest.raises(ProducerFenced):
            await send(world, b"a", claim(2, 3))
        assert not (await send(world, b"a", claim(2, 4))).is_repeated
        assert stored(world) == 4


@pytest.mark.parametrize("snapshot", [False, True])
async def test_the_epoch_of_a_producer_outlives_its_topic(snapshot: bool) -> None:
    async with running() as world:
        await send(world, b"a", claim(0, 4))
        await world.broker.settings_changes.delete_topic(TOPIC)
        for _ in range(3):
            assert world.broker.producers.state("spark:q1:0") == (4, None, [])
            if snapshot:
                await world.broker.dedup_journal.journal.write_snapshot()
            await world.restart()
        await put_topic(world.broker, TOPIC, TopicSettings(queues=1))
        with pytest.raises(ProducerFenced):
            await send(world, b"a", claim(0, 3))
        assert not (await send(world, b"a", claim(0, 4))).is_repeated


async def test_what_a_seal_ends_is_counted_until_it_is_forgotten() -> None:
    limits = Limits(producers_max=2_001, producer_sequences_max=2_001)
    async with running(limits=limits) as world:
        producers = world.broker.producers
        table = producers._table
        for number in range(2_001):
            what, placed = claim(0, 1, f"p:{number}"), Placed.in_one_queue(0, number, 1)
            table.taken(table.entry(what, "old#1", 0, placed, world.clock.now_ms()))(True)
        with pytest.raises(TooManyRequests, match="2001 producers are"):
            await send(world, b"a", claim(0, 1, "q:0"))
        assert await producers.seal("p", 1, 2_001) == 1
        assert producers.state("p:1000") == (None, 1, [])
        await send(world, b"a", claim(0, 2, "p:1999"))
        await send(world, b"a", claim(0, 1, "q:0"))
        await until(lambda: not table._closed)
        assert set(table._producers) == {"p:1999", "q:0"}
        assert table._sequence_count == 2
        assert producers.state("p:1999")[:2] == (2, 1)


@pytest.mark.parametrize("due", [None, Due(10, is_delay=True)])
@pytest.mark.parametrize("what", [claim(0), KeyToken("k", "f")])
async def test_a_nearly_full_disk_refuses_sends_under_a_claim_as_all_others(
    what: ProducerToken | KeyToken, due: Due | None
) -> None:
    async with running() as world:
        world.store.is_nearly_full = True
        with pytest.raises(DiskFull) as full:
            await world.broker.deduplicator.send(TOPIC, Message(b"a"), what, due=due)
        assert full.value.outcome == "not_stored"
        world.store.is_nearly_full = False
        assert not (await world.broker.deduplicator.send(TOPIC, Message(b"a"), what)).is_repeated


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("what", [claim(0), KeyToken("k", "f")])
async def test_a_frame_that_a_crash_cut_short_is_completed(
    kept: int, what: ProducerToken | KeyToken
) -> None:
    async with running() as world:
        await world.send(b"before")
        await send_frame(world, 3, what)
        await restart_with(world, 1 + kept)
        assert await send_frame(world, 3, what) == (1 + kept, 3 - kept, False)
        assert stored(world) == 4
        if isinstance(what, KeyToken):
            assert await send_frame(world, 3, what) == (1, 3, True)


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("what", [claim(0), KeyToken("k", "f")])
async def test_what_a_crash_left_of_a_frame_is_known_when_completing_it_fails(
    kept: int, what: ProducerToken | KeyToken
) -> None:
    async with running() as world:
        await send_frame(world, 3, what)
        await restart_with(world, kept)
        world.store.failure = DiskFull("no room", outcome="not_stored")
        with pytest.raises(DiskFull):
            await send_frame(world, 3, what)
        world.store.failure = None
        assert await send_frame(world, 3, what) == (kept, 3 - kept, False)


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("what", [claim(0), KeyToken("k", "f")])
@pytest.mark.parametrize("other", [None, claim(0, producer="other"), KeyToken("other", "f")])
async def test_a_frame_that_was_cut_short_is_completed_after_another_restart(
    kept: int, what: ProducerToken | KeyToken, other: ProducerToken | KeyToken | None
) -> None:
    """What others have stored behind it meanwhile is not taken for the rest of it."""
    async with running() as world:
        await send_frame(world, 3, what)
        await restart_with(world, kept)
        for _ in range(3):
            if other is None:
                await world.send(b"other")
            else:
                await send(world, b"other", other)
        others = stored(world) - kept
        await world.restart()
        assert await send_frame(world, 3, what) == (kept + others, 3 - kept, False)


@pytest.mark.parametrize("refusing", ["refusal", "failure"])
@pytest.mark.parametrize("what", [claim(0), KeyToken("k", "f")])
async def test_a_frame_that_was_cut_short_is_completed_after_a_start_on_a_full_disk(
    what: ProducerToken | KeyToken, refusing: str
) -> None:
    async with running() as world:
        await send_frame(world, 3, what)
        setattr(world.store, refusing, DiskFull("no room", outcome="not_stored"))
        await restart_with(world, 1)
        with pytest.raises(DiskFull):
            await world.send(b"refused")
        setattr(world.store, refusing, None)
        await world.send(b"other", b"other", b"other")
        await world.restart()
        assert await send_frame(world, 3, what) == (4, 2, False)


@pytest.mark.parametrize("refusing", ["refusal", "failure"])
async def test_names_of_the_last_version_are_adopted_when_there_is_room(
    refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as world:
        with monkeypatch.context() as patched:
            patched.setattr(
                "app.broker.dedup.deduplicator.topic_key", lambda name, _generation: name
            )
            await send(world, b"old", KeyToken("k", "f"))
        setattr(world.store, refusing, DiskFull("no room", outcome="not_stored"))
        await world.restart()
        setattr(world.store, refusing, None)
        await world.broker.dedup_journal.journal.turn()
        assert world.store.bounds(PRODUCER_TOPIC, 0).min_offset > 0
        assert not world.broker.dedup_journal.journal.is_demanded
        assert (await send(world, b"old", KeyToken("k", "f"))).is_repeated


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("what", [claim(0), KeyToken("k", "f")])
@pytest.mark.parametrize("dies", [False, True])
async def test_a_frame_of_the_last_version_that_a_crash_cut_short_is_completed(
    kept: int, what: ProducerToken | KeyToken, *, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names topics by their names alone; and this one may die again while it takes that over."""
    async with running() as world:
        with monkeypatch.context() as patched:
            patched.setattr(
                "app.broker.dedup.deduplicator.topic_key", lambda name, _generation: name
            )
            await send_frame(world, 3, what)
        if dies:
            with monkeypatch.context() as patched:
                patched.setattr(Journal, "write_snapshot", die)
                with pytest.raises(asyncio.CancelledError):
                    await restart_with(world, kept)
        await restart_with(world, kept)
        assert await send_frame(world, 3, what) == (kept, 3 - kept, False)
        await world.restart()
        assert stored(world) == 3
        if isinstance(what, KeyToken):
            assert await send_frame(world, 3, what) == (0, 3, True)


async def die(_journal: Journal) -> None:
    raise asyncio.CancelledError


async def test_a_seal_that_was_not_written_is_written_again() -> None:
    async with running() as world:
        producers = world.broker.producers
        world.store.failure = DiskFull("no room", outcome="not_stored")
        with pytest.raises(DiskFull):
            await producers.seal("spark:q1", 5)
        world.store.failure = None
        assert await producers.seal("spark:q1", 5) == 5
        await world.restart()
        with pytest.raises(ProducerSealed):
            await send(world, b"a", claim(0, 5))


async def test_a_seal_is_answered_when_it_is_safe() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        world.store.held = []
        first = tasks.create_task(world.broker.producers.seal("spark:q1", 5))
        await until(lambda: bool(world.store.held))
        again = tasks.create_task(world.broker.producers.seal("spark:q1", 4))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_early = again.done()
        world.store.confirm()
        assert (await first, await again) == (5, 5)
        assert not is_early


async def test_windows_end() -> None:
    async with running() as world:
        await send(world, b"a", KeyToken("k", "f"))
        await send(world, b"a", claim(0))
        await world.broker.producers.seal("old", 1)
        world.clock.advance(s=601)
        assert not (await send(world, b"b", KeyToken("k", "other"))).is_repeated
        assert (await send(world, b"a", claim(0))).is_repeated
        world.clock.advance(ms=8 * DAY_MS)
        await send(world, b"a", claim(0, producer="new"))
        for forgotten in ("spark:q1:0", "old"):
            with pytest.raises(ProducerNotFound):
                world.broker.producers.state(forgotten)


async def test_bounds_refuse_rather_than_forget() -> None:
    limits = Limits(producers_max=1, idempotency_keys_max=1, producer_results_max=1)
    async with running(limits=limits) as world:
        await send(world, b"a", claim(0))
        await send(world, b"a", claim(1))
        with pytest.raises(AlreadyStored) as again:
            await send(world, b"a", claim(0))
        assert again.value.outcome == "stored"
        with pytest.raises(TooManyRequests, match="1 producers"):
            await send(world, b"a", claim(0, producer="second"))
        await send(world, b"a", KeyToken("a", "f"))
        with pytest.raises(TooManyRequests, match="1 idempotency keys"):
            await send(world, b"a", KeyToken("b", "f"))


async def test_a_result_that_has_expired_is_said_to_be() -> None:
    async with running() as world:
        await send(world, b"a", claim(0))
        world.store.retain_from(TOPIC, 0, 1)
        with pytest.raises(OffsetExpired, match="queue 0 at offset 0") as expired:
            await send(world, b"a", claim(0))
        assert expired.value.outcome == "stored"


async def test_a_claim_is_checked() -> None:
    async with running() as world:
        with pytest.raises(InvalidRequest):
            await send(world, b"a", claim(0, producer="a b"))
        with pytest.raises(InvalidRequest):
            await send(world, b"a", KeyToken("k" * 256, "f"))


async def test_a_delayed_message_is_stored_once_too() -> None:
    async with running() as world:
        due = Due(60_000, is_delay=True)

        async def send_later(what: ProducerToken) -> Once:
            message = Message(b"later")
            return await world.broker.deduplicator.send(TOPIC, message, what, queue_id=0, due=due)

        first = await send_later(claim(0))
        assert first.results[0].recall_handle is not None
        for _ in range(2):
            with pytest.raises(AlreadyStored) as again:
                await send_later(claim(0))
            assert again.value.outcome == "stored"
            await world.restart()
        items = [BatchItem(Message(b"x"), due=due), BatchItem(Message(b"y"))]
        with pytest.raises(InvalidRequest, match="delayed whole or not at all"):
            await world.broker.deduplicator.send_batch(TOPIC, items, claim(0, producer="other"))
        assert stored(world) == 0
        world.clock.advance(s=61)
        await world.broker.delays.turn()
        await until(lambda: stored(world) == 1)


async def test_a_frame_with_delivery_times_is_stored_once_too() -> None:
    async with running() as world:

        async def send_timed(seq: int, times: list[int]) -> FrameResult:
            frame = request_frame([Message(b"%d" % time) for time in times], TOPIC, times)
            what = claim(seq)
            once = await world.broker.deduplicator.send_frame(TOPIC, frame, what, queue_id=0)
            return once.result

        first = await send_timed(0, [-60_000, 0])
        assert (first.first_queue_offset, first.count, first.delayed_count) == (0, 2, 1)
        for _ in range(2):
            with pytest.raises(AlreadyStored) as again:
                await send_timed(0, [-60_000, 0])
            assert again.value.outcome == "stored"
            await world.restart()
        rest = await send_timed(1, [0, -60_000, 0])
        assert (rest.first_queue_offset, rest.count, rest.delayed_count) == (1, 2, 1)
        with pytest.raises(SequenceOutOfOrder):
            await send_timed(5, [-1])
        assert await send_frame(world, 2, claim(4)) == (2, 2, False)
        assert stored(world) == 4
        world.clock.advance(s=61)
        await world.broker.delays.turn()
        await until(lambda: stored(world) == 6)
        assert world.broker.producers.state("spark:q1:0").sequences[0].next_seq == 6
