"""Why is this message not delivered? One answer for each place where it can stand."""

import asyncio

import pytest

from app.broker.failures.blocked_keys import Release
from app.broker.failures.dead_letter_admin import Selection
from app.broker.insight.delivery_status import DeliveryState, DeliveryStatus
from app.broker.offsets.offset_commits import Committer
from app.broker.results import Nack, QueuePosition, SendResult
from app.domain.errors import GroupNotFound
from app.domain.limits import Limits
from app.domain.settings import (
    CustomizedRetry,
    DeliveryOrder,
    GroupMode,
    GroupSettings,
    WhenExhausted,
)
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.support.nodes.waiting import until
from tests.unit.broker.groups.test_consumption import beat

pytestmark = pytest.mark.anyio


async def look(world: World, sent: SendResult) -> DeliveryStatus:
    message = await world.broker.browser.message(TOPIC, sent.message_id)
    return await world.broker.delivery_status.look(message, GROUP)


async def test_from_before_the_first_receive_to_the_ack() -> None:
    async with running() as world:
        await world.group(GroupSettings(invisible_ms=30_000))
        first, second = await world.send(b"a", b"b")
        found = await look(world, first)
        assert (found.standing, found.hint) == (
            DeliveryState.NOT_BEGUN,
            "it begins with its first receive, at 'earliest'",
        )
        (received,) = await world.receive(1)
        held = await look(world, first)
        assert (held.standing, held.attempt) == (DeliveryState.IN_FLIGHT, 1)
        assert held.until_ms == world.clock.now_ms() + 30_000
        waiting = await look(world, second)
        assert (waiting.standing, waiting.ahead) == (DeliveryState.READY, 0)
        assert "no receive is waiting" in waiting.reason
        await world.ack(received)
        assert (await look(world, first)).standing is DeliveryState.ACKED


async def test_how_many_are_ahead_and_whether_somebody_waits() -> None:
    async with running() as world:
        sent = await world.send(*[b"%d" % n for n in range(5)])
        await world.receive(1)
        assert (await look(world, sent[4])).ahead == 3
        await world.restart()
        assert "since the node started" in (await look(world, sent[4])).reason
        await world.ack(*await world.receive(5))
        parked = asyncio.ensure_future(world.receive(1, wait_s=20))
        await until(lambda: world.waiting == 1)
        parked.cancel()


async def test_a_full_group_says_so() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_in_flight=1))
        _, second = await world.send(b"a", b"b")
        await world.receive(5)
        found = await look(world, second)
        assert (found.standing, found.reason) == (
            DeliveryState.READY,
            "the group holds 1 messages, as many as it may",
        )


async def test_what_keeps_a_message_back_is_said() -> None:
    async with running() as world:
        park = WhenExhausted.PARK
        await world.group(
            GroupSettings(order=DeliveryOrder.FIFO, on_exhausted=park, max_attempts=1)
        )
        first, second = await world.send(b"1", b"2")
        await world.nack(*await world.receive())
        found = await look(world, first)
        assert (found.standing, found.attempt) == (DeliveryState.DELAYED, 1)
        assert found.reason.startswith("it is parked")
        assert "waits for its turn" in (await look(world, second)).reason
        await world.kill()
        assert (await look(world, first)).reason.startswith("it is parked")
        await world.broker.blocked_keys.release(GROUP, TOPIC, 0, 0, Release.SKIP)
        await world.broker.group_pause.pause(GROUP)
        assert "paused" in (await look(world, second)).reason
        await world.broker.group_pause.resume(GROUP)
        assert "can be received" in (await look(world, second)).reason


async def test_through_retries_to_a_dead_letter() -> None:
    async with running() as world:
        policy = CustomizedRetry((10_000,))
        await world.group(GroupSettings(max_attempts=2, retry_policy=policy))
        (sent,) = await world.send(b"a")
        (received,) = await world.receive()
        await world.broker.settler.settle(
            TOPIC, GROUP, nacks=[Nack(received.receipt_handle, None, "why")]
        )
        delayed = await look(world, sent)
        assert (delayed.standing, delayed.attempt) == (DeliveryState.DELAYED, 1)
        assert delayed.reason == "why; again in 10s"
        await world.lapse(s=10)
        ready = await look(world, sent)
        assert (ready.standing, ready.attempt) == (DeliveryState.RETRYING, 2)
        (again,) = await world.receive()
        assert (await look(world, sent)).standing is DeliveryState.IN_FLIGHT
        await world.broker.settler.settle(TOPIC, GROUP, nacks=[Nack(again.receipt_handle)])
        dead = await look(world, sent)
        assert (dead.standing, dead.attempt) == (DeliveryState.DEAD, 2)
        assert "2 deliveries" in dead.reason
        trail = await world.broker.message_trace.trail(TOPIC, 0, 0)
        assert [event.kind.name for event in trail.events] == [
            *("DELIVERED", "NACKED", "DELIVERED", "DEAD_LETTERED"),
        ]


async def test_an_ack_of_a_retry_is_found_by_the_trail() -> None:
    async with running() as world:
        await world.retry_at_once()
        (sent,) = await world.send(b"a")
        await world.nack(*await world.receive(), delay_ms=0)
        await world.ack(*await world.receive())
        assert (await look(world, sent)).standing is DeliveryState.ACKED


async def test_a_letter_behind_many_others_is_dead_too() -> None:
    async with running(limits=Limits(dead_letters_scanned_max=2)) as world:
        sent = await world.send(b"1", b"2", b"3")
        letters = [Nack(each.receipt_handle, None, "no stock") for each in await world.receive()]
        await world.broker.settler.settle(TOPIC, GROUP, dead_letters=letters)
        for each in sent:
            found = await look(world, each)
            assert (found.standing, found.reason) == (DeliveryState.DEAD, "no stock")
        await world.broker.dead_letters.purge(GROUP, Selection())
        assert (await look(world, sent[2])).standing is DeliveryState.DONE


async def test_what_a_commit_skipped_is_done() -> None:
    async with running() as world:
        (sent,) = await world.send(b"a")
        await world.receive(1)
        await world.commit(1, take_over=True)
        assert (await look(world, sent)).standing is DeliveryState.DONE


async def test_a_group_that_reads_by_offset_is_not_told_to_receive() -> None:
    async with running(queues=2) as world:
        first, second, third = await world.send(b"a", b"b", b"c")
        await beat(world)
        begun = await look(world, first)
        assert (begun.standing, begun.hint) == (
            DeliveryState.READY,
            "it is done when the queue's reader commits 1; who that is: "
            f"GET /v1/groups/{GROUP}/members",
        )
        await world.broker.offset_commits.commit(
            GROUP, TOPIC, [QueuePosition(0, 1)], committer=Committer("m", 1)
        )
        assert (await look(world, first)).standing is DeliveryState.DONE
        for sent, ahead in ((second, 0), (third, 1)):
            found = await look(world, sent)
            assert (found.standing, found.ahead) == (DeliveryState.READY, ahead)
            assert "reads by offset, and has committed 1" in found.reason
            assert found.hint is not None
            assert "receive" not in found.hint
            assert f"commits {ahead + 2}; who that is: GET /v1/groups/{GROUP}/members" in found.hint


async def test_a_retry_of_a_group_that_has_changed_to_members_says_so() -> None:
    async with running() as world:
        await world.retry_at_once()
        [sent] = await world.send(b"a")
        await world.nack(*await world.receive())
        await beat(world, force=True)
        found = await look(world, sent)
        assert (found.standing, found.attempt) == (DeliveryState.RETRYING, 2)
        assert "members, which read no retries" in found.reason
        assert found.hint == "it is delivered when the group receives again, with force=true"


async def test_groups_that_keep_no_offsets_or_are_not_there() -> None:
    async with running() as world:
        (sent,) = await world.send(b"a")
        with pytest.raises(GroupNotFound):
            await look(world, sent)
        await world.group(GroupSettings(mode=GroupMode.BROADCAST))
        assert (await look(world, sent)).standing is DeliveryState.CLIENTS_KNOW
