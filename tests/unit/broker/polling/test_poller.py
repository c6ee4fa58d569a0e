"""One poll does what heartbeat, pulls, commits and hand-backs do, and nothing is lost between."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from app.broker.polling.poll_values import (
    HandBack,
    PollCommit,
    Settles,
)
from app.broker.results import SettleResult
from app.domain.consumers.membership import Profile, TopicSubscription
from app.domain.errors import (
    ConsumptionConflict,
    MetadataUnavailable,
    QueueNotOwned,
    ShardUnavailable,
    StaleGeneration,
    SubscriptionConflict,
)
from app.domain.settings import (
    GroupMode,
    GroupSettings,
)
from app.store import ReadResult
from tests.support.nodes.brokers import GROUP, TOPIC, running
from tests.support.nodes.waiting import until
from tests.unit.broker.polling.polling_member import (
    LEASE_S,
    Member,
    bodies,
    errors,
    numbered,
    queue,
)

pytestmark = pytest.mark.anyio


async def test_the_first_poll_joins_and_reads_and_later_ones_go_on() -> None:
    async with running(queues=2) as world:
        for queue_id in (0, 1):
            world.store.fill(TOPIC, queue_id, numbered(3))
        member = Member(world)
        first = await member.poll()
        assert bodies(world, first) == {0: numbered(3), 1: numbered(3)}
        assert [each.queue_id for each in first.share.assignment.assigned] == [0, 1]
        assert bodies(world, await member.poll()) == {}
        await world.send(b"new", queue_id=1)
        assert bodies(world, await member.poll()) == {1: [b"new"]}


async def test_a_message_that_may_be_whole_elsewhere_holds_up_its_own_queue_alone() -> None:
    async with running(queues=2) as world:
        for queue_id in (0, 1):
            world.store.fill(TOPIC, queue_id, numbered(2))
        member = Member(world)
        world.store.damaged.add((TOPIC, 0))
        assert bodies(world, await member.poll()) == {1: numbered(2)}
        with pytest.raises(ShardUnavailable):
            await member.poll()
        world.store.cold.add((TOPIC, 0))
        with pytest.raises(ShardUnavailable):
            await member.poll()
        world.store.damaged.clear()
        assert bodies(world, await member.poll()) == {0: numbered(2)}


async def test_without_positions_a_queue_is_read_from_the_committed_offset() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        member = Member(world)
        await member.poll()
        done = await member.poll(commits=[PollCommit(queue(0), 3)])
        assert [(each.queue.queue_id, each.offset) for each in done.committed] == [(0, 3)]
        assert world.committed()[0] == 3
        again = await member.poll(positions={})
        assert bodies(world, again) == {0: numbered(5)[3:]}


async def test_a_poll_in_between_writes_nothing_to_sql_and_a_sign_of_life_now_and_then() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(50))
        member = Member(world, max_messages=2)
        await member.poll()
        await member.poll()
        before = world.metadata.members.changes
        for offset in range(1, 20):
            await member.poll(commits=[PollCommit(queue(0), offset)])
        assert world.metadata.members.changes == before
        world.clock.advance(s=LEASE_S / 3)
        await member.poll()
        await member.poll()
        assert world.metadata.members.changes == before + 1


async def test_a_quarter_of_the_bytes_while_another_has_messages() -> None:
    async with running(queues=3) as world:
        world.store.fill(TOPIC, 0, [b"x" * 1_000] * 40)
        world.store.fill(TOPIC, 1, [b"y" * 1_000] * 40)
        member = Member(world, max_bytes=16_000)
        for _ in range(2):
            sizes = {
                queue_id: sum(map(len, found))
                for queue_id, found in bodies(world, await member.poll()).items()
            }
            assert set(sizes) == {0, 1}
            assert all(0 < size <= 4_000 for size in sizes.values())
        member.request = msgspec.structs.replace(member.request, paused=frozenset({queue(1)}))
        alone = bodies(world, await member.poll())
        assert list(alone) == [0]
        assert sum(map(len, alone[0])) > 8_000


async def test_what_is_read_together_is_within_the_bounds_and_what_is_cold_comes_later() -> None:
    async with running(queues=4) as world:
        for queue_id in range(4):
            world.store.fill(TOPIC, queue_id, numbered(40))
        member = Member(world, max_messages=100)
        world.store.cold.add((TOPIC, 1))
        first = bodies(world, await member.poll())
        assert {each: len(found) for each, found in first.items()} == {0: 40, 2: 40, 3: 20}
        world.store.cold.clear()
        second = bodies(world, await member.poll())
        assert {each: len(found) for each, found in second.items()} == {1: 40, 3: 20}
        assert second[3] == numbered(40)[20:]


async def test_no_more_is_read_together_than_the_answer_takes() -> None:
    async with running(queues=8) as world:
        for queue_id in range(8):
            world.store.fill(TOPIC, queue_id, [bytes(100)] * 16)
        read_known = world.store.read_known
        sizes: list[int] = []

        def noted(
            asked: Sequence[tuple[str, int, int, int]], *bounds: int
        ) -> Sequence[ReadResult | None]:
            found = read_known(asked, *bounds)
            sizes.append(sum(len(each) for read in found if read for each in read.records))
            return found

        world.store.read_known = noted  # type: ignore[assignment]
        member = Member(world, max_bytes=16_000)
        assert sum(map(len, bodies(world, await member.poll()).values())) > 16
        assert sizes
        assert 0 < sizes[0] <= 16_000


async def test_the_queues_take_turns_behind_the_last_of_the_answer_before() -> None:
    """The order is in the positions: the node keeps nothing, and a control that sorts them reads
    the same queues again and again."""
    async with running(queues=4) as world:
        for queue_id in range(4):
            world.store.fill(TOPIC, queue_id, numbered(8))
        member = Member(world, max_messages=4)
        seen = [list(bodies(world, await member.poll())) for _ in range(4)]
        assert seen == [[0], [1], [2], [3]]
        for _ in range(2):
            world.store.fill(TOPIC, 0, numbered(8))
            world.store.fill(TOPIC, 1, numbered(8))
            member.request = msgspec.structs.replace(
                member.request, positions=dict(sorted(member.positions.items()))
            )
            assert list(bodies(world, await member.poll())) == [0]


async def test_a_poll_that_waits_is_answered_by_an_arrival_in_any_queue() -> None:
    async with running(queues=4) as world, asyncio.TaskGroup() as tasks:
        member = Member(world)
        await member.poll()
        waiting = tasks.create_task(member.poll(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.send(b"late", queue_id=3)
        assert bodies(world, await waiting) == {3: [b"late"]}
        assert world.waiting == 0


async def test_a_second_member_ends_the_wait_of_the_first() -> None:
    async with running(queues=4) as world, asyncio.TaskGroup() as tasks:
        one, two = Member(world, "w1"), Member(world, "w2")
        first = await one.poll()
        waiting = tasks.create_task(one.poll(wait_s=60))
        await until(lambda: world.waiting == 1)
        joined = await two.poll()
        assert [each.held_by for each in joined.share.assignment.pending] == ["w1", "w1"]
        told = await waiting
        assert [name.queue_id for name in told.share.assignment.revoked] == [2, 3]
        assert told.share.assignment.generation == first.share.assignment.generation + 1
        await one.poll(commits=[PollCommit(queue(3), 0)])
        owned = await two.poll()
        assert [each.queue_id for each in owned.share.assignment.assigned] == [2, 3]


async def test_the_last_commit_before_a_queue_goes_is_where_the_next_owner_begins() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 1, numbered(5))
        one, two = Member(world, "w1"), Member(world, "w2")
        await one.poll()
        await two.poll()
        await one.poll()
        last = await one.poll(commits=[PollCommit(queue(1), 4)])
        assert last.refused == []
        taken = await two.poll()
        assert taken.share.offsets == {queue(1): 4}
        assert bodies(world, taken) == {1: [b"4"]}
        late = await one.poll(commits=[PollCommit(queue(1), 5)])
        assert errors(late) == {(1, 5): QueueNotOwned}
        assert world.committed()[1] == 4


async def test_sql_has_the_last_commit_before_a_member_has_left() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        member = Member(world)
        await member.poll()
        await member.poll(commits=[PollCommit(queue(0), 4)])
        assert {row.offset for row in await world.metadata.load_offsets(GROUP)} == {0}
        await world.broker.members.leave(GROUP, "w1")
        assert {row.offset for row in await world.metadata.load_offsets(GROUP)} == {4}


async def test_a_commit_survives_a_kill() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        member = Member(world)
        await member.poll()
        await member.poll(commits=[PollCommit(queue(0), 3)])
        await world.kill()
        assert bodies(world, await Member(world).poll()) == {0: [b"3", b"4"]}


async def test_a_stale_process_joins_again_and_a_stale_position_is_refused_by_itself() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        old, new = Member(world), Member(world)
        first = await old.poll()
        since = old.since(first, 0)
        await new.poll()
        with pytest.raises(StaleGeneration):
            await old.poll(commits=[PollCommit(queue(0), 2, since)])
        answer = await new.poll(
            commits=[PollCommit(queue(0), 3, since - 1), PollCommit(queue(1), 0, since + 1)]
        )
        assert errors(answer)[0, 3] is StaleGeneration
        assert world.committed()[0] == 0


async def test_a_reset_is_told_and_positions_of_before_do_not_count() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        member = Member(world)
        first = await member.poll()
        await member.poll(commits=[PollCommit(queue(0), 5)])
        await world.commit(1, force=True)
        again = await member.poll(commits=[PollCommit(queue(0), 5, member.since(first, 0))])
        assert errors(again) == {(0, 5): StaleGeneration}
        assert bodies(world, again) == {0: numbered(5)[1:]}
        assert member.since(again, 0) > member.since(first, 0)


async def test_positions_that_are_not_readable_are_told_and_mended() -> None:
    async with running(queues=3) as world:
        for queue_id in range(3):
            world.store.fill(TOPIC, queue_id, numbered(5))
        member = Member(world)
        await member.poll()
        world.store.queues[TOPIC, 0].min_offset = 2
        answer = await member.poll(positions={queue(0): 1, queue(1): 9, queue(2): 5})
        told = {part.queue.queue_id: (part.status, part.offset) for part in answer.parts}
        assert told == {
            0: ("OFFSET_EXPIRED", 2),
            1: ("OFFSET_OUT_OF_RANGE", 5),
            2: ("NO_NEW_MSG", 5),
        }
        assert bodies(world, await member.poll()) == {0: numbered(5)[2:]}


async def test_a_filter_moves_on_past_what_it_leaves_out() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(3))
        await world.send(b"red", tag="red")
        profile = Profile((TopicSubscription(TOPIC, "red"),))
        member = Member(world)
        member.request = msgspec.structs.replace(member.request, profile=profile)
        assert bodies(world, await member.poll()) == {0: [b"red"]}
        world.store.fill(TOPIC, 0, numbered(3))
        answer = await member.poll()
        assert [(part.status, part.offset) for part in answer.parts] == [("NO_MATCHED_MSG", 7)]


async def test_who_names_no_filter_reads_with_the_one_that_holds_now() -> None:
    async with running(queues=1) as world:
        profile = Profile((TopicSubscription(TOPIC, ""),))
        members = [Member(world, name, profile=profile) for name in ("w1", "w2")]
        for member in members:
            await member.poll()
        group = world.metadata.snapshot.groups[GROUP]
        for wanted, other in (("red", "blue"), ("blue", "red"), ("*", "red")):
            await world.broker.group_filters.set(group, TOPIC, wanted, set_by=None)
            await world.send(b"other", tag=other)
            await world.send(b"wanted", tag=None if wanted == "*" else wanted)
            found: list[bytes] = []
            for member in members * 3:  # the first polls put the new filter into effect
                for each in bodies(world, await member.poll()).values():
                    found += each
            assert found == ([b"other", b"wanted"] if wanted == "*" else [b"wanted"])
        named = Profile((TopicSubscription(TOPIC, "red"),))
        with pytest.raises(SubscriptionConflict):
            await members[0].poll(profile=named)
        assert bodies(world, await members[0].poll()) == {}, "what was refused is not kept"


async def test_what_members_said_goes_with_their_group() -> None:
    async with running(queues=1) as world:
        member = Member(world)
        await member.poll()
        await member.poll()
        assert list(world.broker.poller._agreed) == [GROUP]
        await world.broker.settings_changes.delete_group(GROUP)
        assert not world.broker.poller._agreed


async def test_a_topic_taken_by_force_in_the_middle_is_refused_and_nothing_of_it_is_given() -> None:
    async with running(queues=1) as world:
        member = Member(world)
        await member.poll()
        waiting = asyncio.ensure_future(member.poll(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.receive(force=True)
        with pytest.raises((ConsumptionConflict, StaleGeneration)):
            await waiting


async def test_a_queue_taken_away_in_the_middle_of_a_poll_is_not_in_its_answer() -> None:
    async with running(queues=2) as world:
        for queue_id in (0, 1):
            world.store.fill(TOPIC, queue_id, [b"cold"])
        one, two = Member(world, "w1"), Member(world, "w2")
        await one.poll(max_messages=1)
        one.request = msgspec.structs.replace(one.request, positions={})
        world.store.cold = {(TOPIC, 0), (TOPIC, 1)}
        polling = asyncio.ensure_future(one.poll())
        joined = await two.poll(max_messages=1)
        answer = await polling
        if answer.share.assignment.generation == joined.share.assignment.generation:
            assert 1 not in bodies(world, answer)
            assert [name.queue_id for name in answer.share.assignment.revoked] == [1]


async def test_who_is_silent_is_out_and_polls_are_signs_of_life() -> None:
    async with running(queues=1) as world:
        one, two = Member(world, "w1"), Member(world, "w2")
        await one.poll()
        await two.poll()
        for _ in range(9):
            world.clock.advance(s=4)
            await world.broker.members.turn()
            await two.poll()
        told = await two.poll()
        assert told.share.client_ids == ["w2"]
        with pytest.raises(StaleGeneration):
            await one.poll()


async def test_reading_goes_on_while_the_database_is_away() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(9))
        member = Member(world, max_messages=1)
        await member.poll()
        await member.poll()
        world.metadata.is_down = True
        for expected in range(2, 5):
            world.clock.advance(s=LEASE_S / 2)
            answer = await member.poll(commits=[PollCommit(queue(0), expected)])
            assert (bodies(world, answer), answer.refused) == ({0: [b"%d" % expected]}, [])
        world.metadata.is_down = False


async def test_what_a_member_has_done_is_taken_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another node asks for it, so its refusal is the result of every entry."""
    settled: list[Settles] = []

    async def settle(group: str, settles: Settles) -> list[SettleResult]:
        settled.append(settles)
        return []

    async with running(queues=1) as world:
        poller = world.broker.poller
        monkeypatch.setattr(poller._settles, "settle", settle)
        asked = msgspec.structs.replace(
            Member(world).request,
            joins=False,
            settles=Settles(acks=["handle"]),
            commits=[PollCommit(queue(0), 1)],
        )
        world.metadata.is_down = True
        with pytest.raises(MetadataUnavailable):
            await poller.take(GROUP, "w1", asked)
        assert settled == []
        world.metadata.is_down = False
        await poller.take(GROUP, "w1", asked)
        assert len(settled) == 1


async def test_a_paused_group_is_given_nothing_until_it_is_resumed() -> None:
    async with running(queues=1) as world, asyncio.TaskGroup() as tasks:
        member = Member(world)
        await member.poll()
        await world.broker.group_pause.pause(GROUP)
        world.store.fill(TOPIC, 0, numbered(1))
        told = await member.poll()
        assert (told.is_paused, bodies(world, told), told.poll_again_ms) == (True, {}, 1_000)
        waiting = tasks.create_task(member.poll(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.broker.group_pause.resume(GROUP)
        assert bodies(world, await waiting) == {0: numbered(1)}


async def test_members_of_a_broadcast_group_each_read_everything_from_their_own_positions() -> None:
    async with running(queues=1) as world:
        await world.group(GroupSettings(mode=GroupMode.BROADCAST))
        world.store.fill(TOPIC, 0, numbered(4))
        one, two = Member(world, "w1"), Member(world, "w2")
        assert bodies(world, await one.poll()) == {0: numbered(4)}
        kept = await two.poll(positions={queue(0): 2})
        assert bodies(world, kept) == {0: numbered(4)[2:]}
        refused = await two.poll(
            commits=[PollCommit(queue(0), 4)], hand_backs=[HandBack(queue(0), 1)]
        )
        assert [each.error.code for each in refused.refused] == ["BROADCAST_GROUP"] * 2


async def test_poll_again_says_when() -> None:
    async with running(queues=1) as world:
        member = Member(world)
        joined = await member.poll()
        assert joined.poll_again_ms == 0  # there is something to put into effect
        assert (await member.poll()).poll_again_ms == 1_000
        assert (await member.poll(wait_s=0.001)).poll_again_ms == 0


# --- max_poll_interval


async def test_who_promised_to_poll_and_does_not_is_taken_out() -> None:
    async with running(queues=1) as world:
        member, other = Member(world, "w1", max_interval_ms=60_000), Member(world, "w2")
        await member.poll()
        await other.poll()
        for _ in range(4):
            assert world.broker.members.is_member(GROUP, "w1")
            world.clock.advance(s=15)
            await world.broker.members.renew(GROUP, "w1")  # a heartbeat of its own thread
            await world.broker.members.renew(GROUP, "w2")
            await world.broker.poller.intervals.turn()
        assert not world.broker.members.is_member(GROUP, "w1")
        assert world.broker.members.is_member(GROUP, "w2")  # it has promised nothing
        assert world.broker.poller.intervals.count == 0
        with pytest.raises(StaleGeneration):
            await member.poll()


async def test_a_poll_that_waits_counts_as_polling() -> None:
    async with running(queues=1) as world, asyncio.TaskGroup() as tasks:
        member = Member(world, max_interval_ms=5_000)
        await member.poll()
        waiting = tasks.create_task(member.poll(wait_s=60))
        await until(lambda: world.waiting == 1)
        world.clock.advance(s=9)
        await world.broker.poller.intervals.turn()
        await world.send(b"x")
        assert bodies(world, await waiting) == {0: [b"x"]}


async def test_an_answer_that_gives_nothing_of_what_was_read_says_where_the_queues_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(queues=2) as world:
        for queue_id in (0, 1):
            world.store.fill(TOPIC, queue_id, numbered(3))
        holds = iter([True, False])  # the filter is replaced while the disk is waited for
        monkeypatch.setattr(world.broker.poller, "_holds", lambda *_: next(holds))
        result = await Member(world).poll()
        assert [(part.reads, part.offset, part.max_offset) for part in result.parts] == [
            ([], 0, 3)
        ] * 2


async def test_queues_of_no_shard_are_not_of_another() -> None:
    async with running(queues=3) as world:
        snapshot = world.metadata.snapshot
        topic = replace(snapshot.topics[TOPIC], shards=("here", "", "there"), here="here")
        world.metadata.snapshot = snapshot.with_topic(topic)
        assert (await Member(world).poll()).share.elsewhere == ["there"]
