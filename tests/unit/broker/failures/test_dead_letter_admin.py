"""Dead letters: what is redriven or purged is gone from the list, and nothing is done twice."""

from collections.abc import Sequence

import pytest

from app.broker.failures.dead_letter_admin import STEP_MESSAGES, DeadLetters, Selection
from app.broker.jobs import Job, OperationState
from app.broker.retries_and_dead_letters import (
    ORIGIN_MESSAGE_ID,
    ORIGIN_PLACE,
    ORIGIN_TOPIC,
    REASON,
)
from app.domain.errors import (
    DiskFull,
    GroupNotFound,
    IllegalFilter,
    InvalidRequest,
    OperationNotFound,
    TooManyRequests,
    TopicNotFound,
)
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.names import dead_letter_topic, retry_topic
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.support.nodes.waiting import until
from tests.support.stores.clock import START_MS

pytestmark = pytest.mark.anyio
ALL = Selection()


async def bury(
    world: World, *bodies: bytes, topic: str = TOPIC, tag: str | None = None, reason: str = "bad"
) -> None:
    """Let messages be dead letters of the group."""
    await world.group(GroupSettings())
    wanted = letters(world).count(GROUP) + len(bodies)
    for number, body in enumerate(bodies):
        system = {
            ORIGIN_TOPIC: topic,
            ORIGIN_MESSAGE_ID: f"id-{body.decode()}",
            ORIGIN_PLACE: f"1:{number}:{START_MS}",
            REASON: reason,
        }
        letter = Message(body, tag=tag, system=system, reconsume_times=3)
        world.store.append(
            dead_letter_topic(GROUP), 0, [letter], FlushMode.ASYNC, lambda _error: None
        )
    await until(lambda: letters(world).count(GROUP) == wanted)


def letters(world: World) -> DeadLetters:
    return world.broker.dead_letters


async def listed(world: World, selection: Selection = ALL) -> list[bytes]:
    page = await letters(world).browse(GROUP, selection, max_letters=1000)
    assert page.next_offset is None
    return [letter.message.body for letter in page.letters]


def sent(world: World, topic: str) -> list[bytes]:
    queues = sorted(key for key in world.store.queues if key[0] == topic)
    return [
        world.store.decode(memoryview(record)).body
        for key in queues
        for record in world.store.queues[key].records
        if record is not None
    ]


async def ended(operation: Job) -> Job:
    await until(lambda: operation.state is not OperationState.RUNNING)
    return operation


async def test_a_removed_letter_that_retention_took_too_is_counted_once() -> None:
    async with running() as world:
        await bury(world, *[b"%d" % number for number in range(10)])
        assert await letters(world).purge(GROUP, Selection(offsets=frozenset({2, 7}))) == 2
        world.store.retain_from(dead_letter_topic(GROUP), 0, 5)
        assert letters(world).count(GROUP) == len(await listed(world)) == 4


async def test_a_letter_shows_the_original_and_why_it_died() -> None:
    async with running() as world:
        await bury(world, b"a", b"b")
        page = await letters(world).browse(GROUP, ALL)
        first = page.letters[0]
        assert (first.offset, first.message.body, first.attempts, first.reason) == (
            0,
            b"a",
            3,
            "bad",
        )
        message = first.message
        assert message.body == b"a"
        place = (message.message_id, message.topic, message.queue_id, message.queue_offset)
        assert place == ("id-a", TOPIC, 1, 0)
        assert (page.scanned, page.next_offset) == (2, None)
        summary = await letters(world).summary(GROUP)
        assert summary == (2, first.dead_since_ms)


async def test_pages_join_up_and_work_is_bounded() -> None:
    async with running(limits=Limits(dead_letters_scanned_max=3)) as world:
        await bury(world, *[b"%d" % n for n in range(8)])
        page = await letters(world).browse(GROUP, ALL, max_letters=2)
        assert ([each.offset for each in page.letters], page.next_offset) == ([0, 1], 2)
        page = await letters(world).browse(GROUP, Selection(reason="no such"), offset=2)
        assert (page.letters, page.next_offset, page.scanned) == ([], 5, 3)
        with pytest.raises(InvalidRequest, match="1 to 1000"):
            await letters(world).browse(GROUP, ALL, max_letters=1001)


async def test_a_page_is_bounded_in_bytes() -> None:
    async with running(limits=Limits(receive_bytes_max=200)) as world:
        await bury(world, *[b"%d" % n * 90 for n in range(8)])
        page = await letters(world).browse(GROUP, ALL)
        assert ([each.offset for each in page.letters], page.next_offset) == ([0, 1, 2], 3)
        assert page.scanned == 3


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(topic="other"), [b"c"]),
        (Selection(filter="paid || x"), [b"b"]),
        (Selection(reason="stock"), [b"b", b"c"]),
        (Selection(message_ids=frozenset({"id-a", "id-c", "id-z"})), [b"a", b"c"]),
        (Selection(offsets=frozenset({1, 2, 77}), topic=TOPIC), [b"b"]),
        (Selection(from_ms=2**60), []),
        (Selection(until_ms=1), []),
    ],
)
async def test_conditions_choose(selection: Selection, expected: list[bytes]) -> None:
    async with running() as world:
        await bury(world, b"a")
        await bury(world, b"b", tag="paid", reason="no stock")
        await bury(world, b"c", topic="other", reason="no stock")
        assert await listed(world, selection) == expected


async def test_redriving_goes_to_this_group_alone_and_removes() -> None:
    async with running() as world:
        await bury(world, b"a", b"b", b"c")
        chosen = Selection(offsets=frozenset({0, 2}))
        plan = await letters(world).plan(GROUP, chosen)
        assert plan == (2, {TOPIC: 2}, {})
        assert await listed(world) == [b"a", b"b", b"c"]
        operation = await ended(letters(world).redrive(GROUP, chosen))
        assert (operation.state, operation.done, operation.total) == ("succeeded", 2, 2)
        assert sent(world, retry_topic(GROUP, TOPIC)) == [b"a", b"c"]
        assert sent(world, TOPIC) == []
        assert await listed(world) == [b"b"]
        assert letters(world).count(GROUP) == 1
        again = await ended(letters(world).redrive(GROUP, chosen))
        assert again.done == 0
        assert sent(world, retry_topic(GROUP, TOPIC)) == [b"a", b"c"]


async def test_what_was_removed_stays_removed_after_a_restart() -> None:
    async with running() as world:
        await bury(world, *[b"%d" % n for n in range(6)])
        await letters(world).purge(GROUP, Selection(offsets=frozenset({0, 1, 3, 5})))
        await world.restart()
        assert await listed(world) == [b"2", b"4"]
        await letters(world).journal.write_snapshot()
        await world.restart()
        assert await listed(world) == [b"2", b"4"]
        assert await letters(world).purge(GROUP, ALL) == 2
        await world.restart()
        assert await listed(world) == []
        assert await letters(world).summary(GROUP) == (0, None)


async def test_groups_without_letters_are_left_out_of_a_summary_of_many() -> None:
    async with running() as world:
        await bury(world, b"a", b"b")
        await world.group(GroupSettings(), "well")
        groups = [GROUP, "well", "gone"]
        assert await letters(world).groups_with_some(groups) == {GROUP}
        summary = await letters(world).summary(GROUP)
        assert await letters(world).summaries(groups) == {GROUP: summary}
        await letters(world).purge(GROUP, ALL)
        assert await letters(world).groups_with_some(groups) == frozenset()
        assert await letters(world).summaries(groups) == {}


async def test_redriving_to_another_topic() -> None:
    async with running() as world:
        await world.topic(3, name="mended")
        await bury(world, b"a", b"b", topic="deleted")
        plan = await letters(world).plan(GROUP, ALL)
        assert plan == (2, {}, {("deleted", "topic 'deleted' does not exist"): 2})
        operation = await ended(letters(world).redrive(GROUP, ALL))
        assert (operation.done, operation.skipped) == (0, 2)
        await ended(letters(world).redrive(GROUP, ALL, to_topic="mended"))
        assert sorted(sent(world, "mended")) == [b"a", b"b"]
        assert await listed(world) == []


async def test_two_redrives_at_once_deliver_once() -> None:
    async with running() as world:
        bodies = [b"%d" % n for n in range(3 * STEP_MESSAGES)]
        await bury(world, *bodies)
        operations = [letters(world).redrive(GROUP, ALL) for _ in range(2)]
        done = [(await ended(operation)).done for operation in operations]
        assert sum(done) == len(bodies)
        assert sorted(sent(world, retry_topic(GROUP, TOPIC))) == sorted(bodies)


async def test_a_redrive_can_be_cancelled_between_steps() -> None:
    async with running() as world:
        await bury(world, b"a", b"b", b"c")
        operation = letters(world).redrive(GROUP, ALL, rate_per_s=0.001)
        await until(lambda: operation.done == 1)
        operation.cancel()
        await ended(operation)
        assert operation.state == "cancelled"
        assert await listed(world) == [b"b", b"c"]
        assert world.broker.jobs.newest_first() == [operation]


async def test_stopping_ends_what_runs() -> None:
    async with running() as world:
        await bury(world, b"a", b"b")
        operation = letters(world).redrive(GROUP, ALL, rate_per_s=0.001)
        await until(lambda: operation.done == 1)
        await world.broker.stop()
        assert operation.state == "cancelled"


async def test_a_failing_store_leaves_the_operation_failed() -> None:
    async with running() as world:
        await bury(world, b"a")
        world.store.refusal = TooManyRequests("too many bytes wait to be written")
        operation = await ended(letters(world).redrive(GROUP, ALL))
        assert (operation.state, operation.problem) == (
            "failed",
            "too many bytes wait to be written",
        )
        world.store.refusal = None


async def test_letters_that_the_disk_refuses_to_move_later_are_there_still() -> None:
    """The writer took the step, and found no room for the next segment."""
    async with running() as world:
        await bury(world, b"a", b"b", b"c")
        world.store.failure = DiskFull("no room for another segment", outcome="not_stored")
        operation = await ended(letters(world).redrive(GROUP, Selection(offsets=frozenset({1}))))
        assert (operation.state, operation.done) == ("failed", 0)
        with pytest.raises(DiskFull):
            await letters(world).purge(GROUP, ALL)
        world.store.failure = None
        assert await listed(world) == [b"a", b"b", b"c"]
        assert letters(world).count(GROUP) == 3
        assert (await ended(letters(world).redrive(GROUP, ALL))).done == 3


async def test_refusals() -> None:
    async with running(limits=Limits(operations_running_max=1)) as world:
        await bury(world, b"a", b"b")
        with pytest.raises(GroupNotFound):
            await letters(world).browse("nobody", ALL)
        with pytest.raises(TopicNotFound):
            letters(world).redrive(GROUP, ALL, to_topic="nothing")
        with pytest.raises(IllegalFilter):
            letters(world).redrive(GROUP, Selection(filter="a||"))
        for rate in (0, float("inf"), float("nan")):
            with pytest.raises(InvalidRequest, match="rate_per_s"):
                letters(world).redrive(GROUP, ALL, rate_per_s=rate)
        with pytest.raises(OperationNotFound):
            world.broker.jobs.find("redrive-1")
        operation = letters(world).redrive(GROUP, ALL, rate_per_s=0.001)
        with pytest.raises(TooManyRequests):
            letters(world).redrive(GROUP, ALL)
        operation.cancel()
        await ended(operation)


async def test_one_principal_leaves_operations_to_others() -> None:
    async with running(limits=Limits(operations_per_principal_max=1)) as world:
        await bury(world, b"a", b"b")
        slow = letters(world).redrive(GROUP, ALL, rate_per_s=0.001, owner="red")
        with pytest.raises(TooManyRequests, match="principal 'red' has 1 operations running"):
            letters(world).redrive(GROUP, ALL, owner="red")
        with pytest.raises(TooManyRequests):
            await letters(world).plan_redrive(GROUP, ALL, owner="red")
        others = [letters(world).redrive(GROUP, ALL, owner=each) for each in ("blue", None, None)]
        for operation in (slow, *others):
            operation.cancel()
            await ended(operation)


async def test_a_deleted_group_takes_its_letters_along() -> None:
    async with running() as world:
        await bury(world, b"a")
        await world.broker.settings_changes.delete_group(GROUP)
        await world.group(GroupSettings())
        assert await listed(world) == []


async def test_ended_operations_are_forgotten_in_time() -> None:
    async with running(limits=Limits(operations_kept_max=2)) as world:
        await world.group(GroupSettings())
        made = [await ended(letters(world).redrive(GROUP, ALL)) for _ in range(4)]
        kept: Sequence[Job] = world.broker.jobs.newest_first()
        assert list(kept) == [made[3], made[2]]
