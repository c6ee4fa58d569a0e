"""Messages that a poll hands back: retries, dead letters, and commits that pass them."""

import asyncio
from dataclasses import replace

import pytest

from app.broker.polling.poll_values import (
    HandBack,
    PollCommit,
    PollResult,
    Settles,
)
from app.broker.results import Nack
from app.domain.errors import (
    DiskFull,
    OffsetExpired,
    StaleGeneration,
    StateConflict,
)
from app.domain.settings import (
    CustomizedRetry,
    DeliveryOrder,
    GroupSettings,
    Permission,
)
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
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


async def handed_back(world: World, *items: HandBack, **more: object) -> tuple[Member, PollResult]:
    member = Member(world)
    await member.poll()
    return member, await member.poll(hand_backs=items, **more)


async def test_a_message_that_is_handed_back_comes_again_as_a_retry_and_the_commit_passes_it() -> (
    None
):
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(3))
        member, answer = await handed_back(
            world, HandBack(queue(0), 1, 0, "busy"), commits=[PollCommit(queue(0), 3)]
        )
        assert (answer.refused, world.committed()[0]) == ([], 3)
        [retry] = answer.retries
        assert (retry.message.body, retry.message.queue_offset, retry.attempt) == (b"1", 1, 2)
        acked = await member.poll(settles=Settles(acks=[retry.receipt_handle]))
        assert [each.error for each in acked.settled] == [None]
        assert (await member.poll()).retries == []


async def test_any_member_that_reads_the_topic_gets_a_retry_and_each_goes_to_one() -> None:
    async with running(queues=2) as world, asyncio.TaskGroup() as tasks:
        world.store.fill(TOPIC, 0, numbered(1))
        one, two = Member(world, "w1"), Member(world, "w2")
        await one.poll()
        await two.poll()
        await one.poll()
        await two.poll()
        waiting = tasks.create_task(two.poll(wait_s=60))
        await until(lambda: world.waiting == 1)
        mine = await one.poll(hand_backs=[HandBack(queue(0), 0, 0)])
        theirs = await waiting
        assert len(mine.retries) + len(theirs.retries) == 1


async def test_retries_are_counted_to_the_dead_letters() -> None:
    async with running(queues=1) as world:
        await world.group(GroupSettings(max_attempts=3, retry_policy=CustomizedRetry((0,))))
        world.store.fill(TOPIC, 0, numbered(1))
        member, answer = await handed_back(world, HandBack(queue(0), 0))
        for attempt in (2, 3):
            [retry] = answer.retries
            assert retry.attempt == attempt
            nack = Nack(retry.receipt_handle, 0)
            answer = await member.poll(settles=Settles(nacks=[nack]))
        assert answer.retries == []
        assert (await world.broker.dead_letters.summary(GROUP)).messages == 1


async def test_a_delay_is_waited_for_and_a_dead_letter_is_one_at_once() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(2))
        member, answer = await handed_back(
            world,
            HandBack(queue(0), 0, 5_000),
            HandBack(queue(0), 1, None, "no such order", is_dead_letter=True),
        )
        assert (answer.retries, answer.refused, world.committed()[0]) == ([], [], 2)
        assert (await world.broker.dead_letters.summary(GROUP)).messages == 1
        await world.lapse(s=5)
        assert [each.message.body for each in (await member.poll()).retries] == [b"0"]


async def test_a_crash_between_hand_back_and_commit_leaves_one_copy_and_no_gap() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(4))
        await handed_back(world, HandBack(queue(0), 1, 0))
        await world.kill()
        answer = await Member(world).poll()
        assert bodies(world, answer) == {0: [b"0", b"2", b"3"]}
        assert [each.message.body for each in answer.retries] == [b"1"]


async def test_a_hand_back_that_is_repeated_or_not_the_member_s_is_refused() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(3))
        member, _ = await handed_back(world, HandBack(queue(0), 1, 3_600_000))
        again = await member.poll(hand_backs=[HandBack(queue(0), 1), HandBack(queue(0), 9)])
        assert type(again.refused[0].error) is StateConflict
        assert again.refused[1].error.code == "OFFSET_OUT_OF_RANGE"
        stranger = await Member(world, "w2").poll(hand_backs=[HandBack(queue(0), 2)])
        assert errors(stranger) == {(0, 2): StaleGeneration}


async def test_a_commit_never_passes_a_message_whose_hand_back_was_refused() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        member = Member(world)
        await member.poll()
        await member.poll(commits=[PollCommit(queue(0), 1)])
        world.store.refusal = DiskFull("no room", outcome="not_stored")
        full = await member.poll(
            hand_backs=[HandBack(queue(0), 2)], commits=[PollCommit(queue(0), 4)]
        )
        assert errors(full) == {(0, 2): DiskFull, (0, 4): DiskFull}
        world.store.refusal = None
        assert world.committed()[0] == 1
        await world.broker.expire_leases()
        assert (await member.poll()).retries == []  # nothing was left behind to be tried again
        done = await member.poll(
            hand_backs=[HandBack(queue(0), 2, 0)], commits=[PollCommit(queue(0), 4)]
        )
        assert (done.refused, len(done.retries), world.committed()[0]) == ([], 1, 4)


async def test_a_poll_that_is_repeated_after_a_kill_in_its_middle_commits_what_it_asked_for() -> (
    None
):
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        await handed_back(world, HandBack(queue(0), 2, 0))  # a kill before the commit
        await world.kill()
        member = Member(world)
        await member.poll()
        again = await member.poll(
            hand_backs=[HandBack(queue(0), 2, 0)], commits=[PollCommit(queue(0), 5)]
        )
        assert errors(again) == {(0, 2): StateConflict}
        assert world.committed()[0] == 5


async def test_a_hand_back_of_what_is_past_its_retention_does_not_hold_the_commit_back() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        member = Member(world)
        await member.poll()
        world.store.queues[TOPIC, 0].min_offset = 3
        answer = await member.poll(
            hand_backs=[HandBack(queue(0), 2, 0)], commits=[PollCommit(queue(0), 5)]
        )
        assert errors(answer) == {(0, 2): OffsetExpired}
        assert world.committed()[0] == 5


async def test_retries_of_a_client_that_is_gone_go_to_others_untouched() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(1))
        member, _ = await handed_back(world, HandBack(queue(0), 0, 60_000))
        await world.lapse(s=60)
        gone = await world.broker.poller.poll(GROUP, "w1", member.request, gone=lambda: True)
        assert gone.retries == []
        [retry] = (await member.poll()).retries
        assert retry.attempt == 2


async def test_a_release_of_a_retry_wakes_another_member() -> None:
    async with running(queues=2) as world, asyncio.TaskGroup() as tasks:
        world.store.fill(TOPIC, 0, numbered(1))
        one, two = Member(world, "w1"), Member(world, "w2")
        for member in (one, two, one, one, two):
            await member.poll()
        [retry] = (await one.poll(hand_backs=[HandBack(queue(0), 0, 0)])).retries
        waiting = tasks.create_task(two.poll(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.broker.settler.settle_one(retry.receipt_handle, "release")
        assert [each.attempt for each in (await waiting).retries] == [2]


async def test_leases_of_retries_do_not_make_the_group_one_that_leases() -> None:
    async with running(queues=1) as world:
        world.store.fill(TOPIC, 0, numbered(1))
        await handed_back(world, HandBack(queue(0), 0, 0))
        await world.broker.members.leave(GROUP, "w1")
        world.clock.advance(s=LEASE_S * 2)
        await world.broker.consumptions.turn()
        assert (await Member(world, "w2").poll()).share.assignment.assigned


async def test_a_group_in_order_hands_nothing_back_but_dead_letters() -> None:
    async with running(queues=1) as world:
        await world.group(GroupSettings(order=DeliveryOrder.FIFO))
        world.store.fill(TOPIC, 0, numbered(2))
        _, answer = await handed_back(
            world, HandBack(queue(0), 0), HandBack(queue(0), 1, is_dead_letter=True)
        )
        assert errors(answer) == {(0, 0): StateConflict}
        assert (await world.broker.dead_letters.summary(GROUP)).messages == 1


async def test_a_topic_that_is_not_to_be_read_gives_nothing_and_says_so() -> None:
    async with running(queues=1) as world:
        member = Member(world)
        await member.poll()
        world.store.fill(TOPIC, 0, numbered(1))
        topics = world.metadata.snapshot.topics
        settings = replace(topics[TOPIC].settings, permission=Permission.WRITE)
        await world.metadata.put_topic(TOPIC, settings)
        told = await member.poll()
        assert [(part.status, part.reads) for part in told.parts] == [("NO_PERMISSION", [])]
