"""A group reads a topic with one filter: who names it, who is refused, and what a crash leaves."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from app.broker.groups.group_filters import TERMS
from app.broker.members.member_values import Heartbeat
from app.broker.polling.poll_values import HandBack, PollCommit, PollRequest
from app.broker.progress.progress_entries import GroupSubscription
from app.domain.changes.conditions import Conditions, Terms
from app.domain.consumers.consumption import KeptSubscription, SubscriptionSource
from app.domain.consumers.membership import (
    Membership,
    Profile,
    QueueName,
    TopicSubscription,
)
from app.domain.errors import (
    DiskFull,
    InvalidRequest,
    MetadataUnavailable,
    PreconditionFailed,
    SubscriptionConflict,
    SubscriptionNotFound,
    TopicNotFound,
)
from app.domain.identity import Kind
from app.domain.limits import Limits
from app.domain.names import retry_topic
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings, SubscriptionRule
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, never_gone, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

SILENCE_S = Limits().member_lease_ms / 1_000
PATIENCE_S = 30


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        await world.group(GroupSettings())
        await world.send(b"red", tag="red")
        await world.send(b"blue", tag="blue")
        yield world


def held(world: World) -> GroupSubscription | None:
    group = world.broker.settler.find_group(GROUP)
    return world.broker.group_filters.all(group).get(TOPIC)


def known(world: World) -> tuple[str, SubscriptionSource, str | None] | None:
    """Filter, source, who named it."""
    found = held(world)
    return None if found is None else (found.filter, found.source, found.set_by)


def version(world: World) -> int:
    found = held(world)
    return 0 if found is None else found.version


async def put(world: World, wanted: str, terms: Terms = TERMS) -> bool:
    """Whether it is new."""
    group = world.broker.settler.find_group(GROUP)
    done = await world.broker.group_filters.set(group, TOPIC, wanted, set_by=None, terms=terms)
    return done.is_new


async def beat(world: World, wanted: str, *, replaces: bool = False) -> Profile:
    profile = Profile((TopicSubscription(TOPIC, wanted),))
    heartbeat = Heartbeat(profile, replace_subscription=replaces)
    await world.broker.members.heartbeat(GROUP, "w1", heartbeat, never_gone)
    last = world.broker.members.last(GROUP)
    assert last is not None
    return last.members["w1"].profile


async def test_the_first_names_it_who_names_none_takes_it_and_another_is_refused(
    world: World,
) -> None:
    assert bodies(await world.receive(filter="red", client_id="w1")) == [b"red"]
    assert known(world) == ("red", SubscriptionSource.USED, "w1")
    await world.send(b"green", tag="green")
    assert await world.receive() == []
    assert await world.receive(filter=" red ") == []
    with pytest.raises(SubscriptionConflict) as caught:
        await world.receive(filter="blue")
    assert caught.value.fields["current"] == "red"
    assert caught.value.fields["given"] == "blue"


async def test_who_names_none_first_reads_everything_and_a_filter_is_refused(world: World) -> None:
    assert len(await world.receive()) == 2
    assert known(world) == ("*", SubscriptionSource.USED, None)
    with pytest.raises(SubscriptionConflict):
        await world.receive(filter="red")


async def test_a_used_one_is_replaced_when_nobody_has_consumed_for_long(world: World) -> None:
    await world.receive(filter="red")
    world.clock.advance(s=SILENCE_S - 1)
    with pytest.raises(SubscriptionConflict):
        await world.receive(filter="blue")
    world.clock.advance(s=1)
    await world.receive(filter="blue")
    assert known(world) == ("blue", SubscriptionSource.USED, None)


async def test_one_that_is_set_is_not(world: World) -> None:
    assert await put(world, "red")
    assert not await put(world, "red")
    world.clock.advance(s=SILENCE_S * 9)
    with pytest.raises(SubscriptionConflict):
        await world.receive(filter="blue")
    assert bodies(await world.receive()) == [b"red"]
    assert known(world) == ("red", SubscriptionSource.SET, None)


async def test_a_consumer_that_waits_holds_it(world: World) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(world.receive(filter="green", wait_s=60))
        await until(lambda: world.waiting == 1)
        world.clock.advance(s=SILENCE_S * 2)
        with pytest.raises(SubscriptionConflict):
            await world.receive(filter="blue")
        await world.send(b"green", tag="green")
        assert bodies(await waiting) == [b"green"]


async def test_a_receive_that_waits_takes_nothing_with_a_filter_that_was_replaced(
    world: World,
) -> None:
    await world.receive(filter="*")
    for set_first in (True, False):
        await world.receive(filter="green", replace_subscription=True)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(world.receive(filter="green", wait_s=60))
            await until(lambda: world.waiting == 1)
            if set_first:
                await put(world, "red")
            else:
                await world.receive(filter="red", replace_subscription=True)
            await world.send(b"red", tag="red")
            assert await waiting == []
        assert bodies(await world.receive(filter="red")) == [b"red"]


async def test_a_poll_that_waits_passes_nothing_with_a_filter_that_was_replaced(
    world: World,
) -> None:
    queue = QueueName(TOPIC, 0)
    request = PollRequest(Profile((TopicSubscription(TOPIC, "green"),)), positions={queue: 2})
    poll = world.broker.poller.poll
    first = await poll(GROUP, "w1", request, gone=never_gone)
    assignment = first.share.assignment
    request = structs.replace(
        request,
        generation=assignment.generation,
        assignment_id=assignment.assignment_id,
        wait_s=60,
    )
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(poll(GROUP, "w1", request, gone=never_gone))
        await until(lambda: world.waiting == 1)
        await put(world, "red")
        await world.send(b"red", tag="red")
        assert [part.offset for part in (await waiting).parts] == [2]


async def test_it_can_be_replaced_by_saying_so(world: World) -> None:
    await put(world, "red")
    received = await world.receive(filter="blue", replace_subscription=True)
    assert bodies(received) == [b"blue"]
    assert known(world) == ("blue", SubscriptionSource.USED, None)


async def test_a_free_group_reads_with_each_request_s_own(world: World) -> None:
    await world.group(GroupSettings(subscription=SubscriptionRule.FREE))
    await world.receive(1, filter="red")
    assert bodies(await world.receive(1, filter="blue")) == [b"blue"]
    assert known(world) is None
    await put(world, "green")
    await world.send(b"other", tag="other")
    assert await world.receive() == []


async def test_members_read_with_it_too(world: World) -> None:
    assert (await beat(world, "red")).subscriptions == (TopicSubscription(TOPIC, "red"),)
    assert known(world) == ("red", SubscriptionSource.USED, "w1")
    assert (await beat(world, "")).subscriptions == (TopicSubscription(TOPIC, "red"),)
    world.clock.advance(s=SILENCE_S * 2)
    with pytest.raises(SubscriptionConflict):  # it is a member still
        await beat(world, "blue")
    profile = await beat(world, "blue", replaces=True)
    assert profile.subscriptions == (TopicSubscription(TOPIC, "blue"),)


async def test_it_survives_a_kill_and_ends_with_the_topic(world: World) -> None:
    await put(world, "red")
    await world.kill()
    assert known(world) == ("red", SubscriptionSource.SET, None)
    await world.broker.consumer_journal.turn()
    await world.restart()
    assert known(world) == ("red", SubscriptionSource.SET, None)
    await world.broker.settings_changes.delete_topic(TOPIC)
    await world.topic()
    assert known(world) is None


async def test_a_snapshot_has_a_used_one(world: World) -> None:
    await world.receive(filter="red")
    state = world.broker.consumer_journal._state
    chunks = list(state.dump())
    state.clear()
    for chunk in chunks:
        state.load(chunk)
    assert known(world) == ("red", SubscriptionSource.USED, None)


async def test_what_the_database_refuses_is_as_it_was(world: World) -> None:
    await put(world, "red")
    world.metadata.is_down = True
    with pytest.raises(MetadataUnavailable):
        await put(world, "blue")
    with pytest.raises(MetadataUnavailable):
        await world.broker.group_filters.delete(world.broker.settler.find_group(GROUP), TOPIC)
    world.metadata.is_down = False
    assert known(world) == ("red", SubscriptionSource.SET, None)


async def test_what_an_operator_says_outweighs_what_a_clock_ahead_has_noted(
    world: World,
) -> None:
    """As in a shard that has not heard of it yet, and whose clock is a second ahead."""
    group, topic = world.broker.settler.find_group(GROUP), world.metadata.snapshot.topics[TOPIC]
    ahead = world.clock.now_ms() + 1_000
    noted = GroupSubscription("blue", SubscriptionSource.USED, None, ahead, ahead)
    await put(world, "red")
    world.broker.consumer_journal.set_subscription(group, topic, noted, FlushMode.ASYNC)
    assert known(world) == ("red", SubscriptionSource.SET, None)
    with pytest.raises(SubscriptionConflict):
        await world.receive(filter="blue")
    await world.broker.group_filters.delete(group, TOPIC)
    assert known(world) is None
    await world.receive(filter="green")
    assert known(world) == ("green", SubscriptionSource.USED, None)
    await world.kill()
    assert known(world) == ("green", SubscriptionSource.USED, None)


async def test_the_filter_that_an_earlier_version_has_set_is_set_for_all_shards(
    world: World,
) -> None:
    """It is in the journal of one shard, so to set it again changes something."""
    group, topic = world.broker.settler.find_group(GROUP), world.metadata.snapshot.topics[TOPIC]
    now_ms = world.clock.now_ms()
    earlier = GroupSubscription("red", SubscriptionSource.SET, None, now_ms, now_ms)
    world.broker.consumer_journal.set_subscription(group, topic, earlier, FlushMode.ASYNC)
    assert not await put(world, "red")
    assert world.metadata.snapshot.subscriptions[GROUP, TOPIC].filter == "red"
    before = version(world)
    assert not await put(world, "red")
    assert version(world) == before


async def test_a_receive_that_waits_hears_of_a_filter_that_another_node_has_set(
    world: World,
) -> None:
    await world.receive(filter="green")
    await world.broker.expire_leases()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(world.receive(filter="green", wait_s=60))
        await until(lambda: world.waiting == 1)
        snapshot = world.metadata.snapshot
        kept = KeptSubscription("red", None, 0, world.clock.now_ms() + 1)
        world.metadata.snapshot = snapshot.with_subscription(
            GROUP, TOPIC, kept, snapshot.version + 1
        )
        await world.broker.expire_leases()
        async with asyncio.timeout(PATIENCE_S):  # shorter than the receive waits
            await until(waiting.done)
        assert waiting.result() == []


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("red || blue", "blue||red", True),
        ("red||red", "red", True),
        (" * ", "*", True),
        ("sql: a = 1 AND b > 2", "SQL:a=1  and b>2", True),
        ("red", "blue", False),
        ("red", "*", False),
        ("sql: a = 1", "sql: a = 2", False),
        ("sql: a = 1", "sql: a = '1'", False),
        ("sql: a = 1", "a", False),
    ],
)
async def test_the_same_filter_in_other_words_is_no_other_one(
    world: World, one: str, other: str, is_same: bool
) -> None:
    await put(world, one)
    if is_same:
        await world.receive(filter=other)
    else:
        with pytest.raises(SubscriptionConflict):
            await world.receive(filter=other)
    found = known(world)
    assert found is not None
    assert found[1] is SubscriptionSource.SET


@pytest.mark.parametrize("how", ["failure", "refusal"])
async def test_who_reads_with_one_that_the_log_refused_does_not_hold_the_one_of_before(
    world: World, how: str
) -> None:
    world.store.fill(TOPIC, 0, [b"more"] * 3)
    await world.receive(1, filter="red")
    world.clock.advance(s=SILENCE_S)
    setattr(world.store, how, DiskFull("no room"))
    await world.receive(filter="blue")
    setattr(world.store, how, None)
    assert known(world) == ("red", SubscriptionSource.USED, None)
    await world.receive(filter="green")
    assert known(world) == ("green", SubscriptionSource.USED, None)


async def test_a_receive_at_the_disk_takes_nothing_with_a_filter_that_was_replaced(
    world: World,
) -> None:
    world.store.cold.add((TOPIC, 0))
    async with asyncio.TaskGroup() as tasks:
        with world.store.slow_disk():
            reading = tasks.create_task(world.receive(filter="green"))
            await until(lambda: world.store.disk_reads == 1)
            await put(world, "red")
        assert await reading == []
    world.store.cold.clear()
    assert bodies(await world.receive()) == [b"red"]


async def test_a_poll_at_the_disk_passes_nothing_with_a_filter_that_was_replaced(
    world: World,
) -> None:
    world.store.cold.add((TOPIC, 0))
    request = PollRequest(Profile((TopicSubscription(TOPIC, "green"),)))
    async with asyncio.TaskGroup() as tasks:
        poll = world.broker.poller.poll(GROUP, "w1", request, gone=never_gone)
        with world.store.slow_disk():
            reading = tasks.create_task(poll)
            await until(lambda: world.store.disk_reads == 1)
            await put(world, "red")
        [part] = (await reading).parts
    assert (part.offset, part.status) == (0, "NOT_READ")


async def test_a_poll_with_another_filter_is_refused_and_what_it_has_done_is_kept(
    world: World,
) -> None:
    queue = QueueName(TOPIC, 0)
    request = PollRequest(Profile((TopicSubscription(TOPIC, "*"),)), 0)
    poll = world.broker.poller.poll
    first = await poll(GROUP, "w1", request, gone=never_gone)
    await put(world, "red")
    request = structs.replace(
        request,
        generation=first.share.assignment.generation,
        commits=[PollCommit(queue, 2)],
        hand_backs=[HandBack(queue, 1, delay_ms=0)],
    )
    with pytest.raises(SubscriptionConflict):
        await poll(GROUP, "w1", request, gone=never_gone)
    assert world.committed() == {0: 2}
    assert world.store.bounds(retry_topic(GROUP, TOPIC), 0).max_offset == 1


async def test_a_filter_that_is_set_while_a_member_joins_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = world.metadata.members
    real = members.read

    async def read(group: str) -> Membership:
        if known(world) is None:
            await put(world, "red")
        return await real(group)

    monkeypatch.setattr(members, "read", read)
    request = PollRequest(Profile((TopicSubscription(TOPIC, "green"),)))
    result = await world.broker.poller.poll(GROUP, "w1", request, gone=never_gone)
    assert known(world) == ("red", SubscriptionSource.SET, None)
    assert [part.offset for part in result.parts] == [0]


async def test_a_poll_that_replaces_the_filter_of_an_operator_goes_on_with_its_own(
    world: World,
) -> None:
    request = PollRequest(Profile((TopicSubscription(TOPIC, "blue"),)), 0)
    poll = world.broker.poller.poll
    first = await poll(GROUP, "w1", request, gone=never_gone)
    request = structs.replace(request, generation=first.share.assignment.generation)
    await poll(GROUP, "w1", request, gone=never_gone)  # it is confirmed
    await put(world, "red")
    request = structs.replace(request, replace_subscription=True)
    second = await poll(GROUP, "w1", request, gone=never_gone)
    assert known(world) == ("blue", SubscriptionSource.USED, "w1")
    assert [part.offset for part in second.parts] == [2]


async def test_who_polls_on_names_the_filter_that_an_operator_has_deleted(world: World) -> None:
    request = PollRequest(Profile((TopicSubscription(TOPIC, "blue"),)), 0)
    poll = world.broker.poller.poll
    first = await poll(GROUP, "w1", request, gone=never_gone)
    request = structs.replace(request, generation=first.share.assignment.generation)
    await poll(GROUP, "w1", request, gone=never_gone)  # it is confirmed
    group = world.broker.settler.find_group(GROUP)
    await world.broker.group_filters.delete(group, TOPIC)
    await poll(GROUP, "w1", request, gone=never_gone)
    assert known(world) == ("blue", SubscriptionSource.USED, "w1")


async def test_a_full_disk_keeps_nobody_from_consuming(world: World) -> None:
    await world.receive(1, filter="red")
    world.clock.advance(s=SILENCE_S)
    world.store.failure = DiskFull("no room")
    await world.receive(filter="blue")
    assert known(world) == ("red", SubscriptionSource.USED, None)
    world.store.failure = None


async def test_it_can_be_looked_at_and_deleted(world: World) -> None:
    filters, group = world.broker.group_filters, world.broker.settler.find_group(GROUP)
    with pytest.raises(SubscriptionNotFound):
        filters.find(group, TOPIC)
    with pytest.raises(TopicNotFound):
        filters.find(group, "nothing")
    await put(world, "red", Terms(is_dry_run=True))
    assert filters.all(group) == {}
    await put(world, "red")
    assert list(filters.all(group)) == [TOPIC]
    await filters.delete(group, TOPIC, Terms(is_dry_run=True))
    assert (await filters.delete(group, TOPIC)).filter == "red"
    assert filters.all(group) == {}
    await world.kill()
    assert filters.all(group) == {}


async def test_a_count_does_not_go_with_the_group_s_filter(world: World) -> None:
    await put(world, "red")
    with pytest.raises(InvalidRequest):
        await world.receive(2, min_messages=2)


async def test_a_refused_request_names_nothing(world: World) -> None:
    with pytest.raises(InvalidRequest):
        await world.receive(0, filter="red")
    assert known(world) is None


async def test_a_version_rises_and_does_not_come_back(world: World) -> None:
    filters, group = world.broker.group_filters, world.broker.settler.find_group(GROUP)
    await put(world, "red", Terms(Conditions.at(0)))
    seen = [version(world)]
    await put(world, "blue")
    seen.append(version(world))
    await filters.delete(group, TOPIC)
    await put(world, "green")
    seen.append(version(world))
    await filters.delete(group, TOPIC)
    await world.kill()
    world.clock.advance(ms=10)
    filters, group = world.broker.group_filters, world.broker.settler.find_group(GROUP)
    await put(world, "green")
    seen.append(version(world))
    assert seen == sorted(set(seen))


async def test_conditions_are_judged_on_what_is_there(world: World) -> None:
    filters, group = world.broker.group_filters, world.broker.settler.find_group(GROUP)
    await put(world, "red")
    old = version(world)
    await put(world, "blue", Terms(Conditions.at(old)))
    for is_dry_run in (True, False):
        for terms in (
            Terms(Conditions.at(old), is_dry_run=is_dry_run),
            Terms(Conditions.at(0), is_dry_run=is_dry_run),
        ):
            with pytest.raises(PreconditionFailed):
                await put(world, "green", terms)
        with pytest.raises(PreconditionFailed):
            await filters.delete(group, TOPIC, Terms(Conditions.at(old), is_dry_run=is_dry_run))
    assert known(world) == ("blue", SubscriptionSource.SET, None)
    await filters.delete(group, TOPIC, Terms(Conditions.at(version(world))))
    assert known(world) is None


async def test_a_refused_filter_leaves_none_of_an_earlier_topic_of_the_name(world: World) -> None:
    await world.receive(filter="green")
    was = world.metadata.snapshot.topics[TOPIC].generation
    await world.metadata.set_generation(Kind.TOPIC, TOPIC, 77, was)  # as if made again by another
    snapshot = world.metadata.snapshot
    journal = world.broker.consumer_journal
    now = GroupSubscription("blue", SubscriptionSource.USED, None, 0, 1)
    world.store.held = []
    written = journal.set_subscription(
        snapshot.groups[GROUP], snapshot.topics[TOPIC], now, FlushMode.ASYNC
    )
    *_, (*_, done) = world.store.held
    done(DiskFull("no room"))
    assert written.has_failed
    assert journal.subscription(GROUP, TOPIC) is None
