"""What makes a node unready, what is only reported beside it, and that both end."""

from collections.abc import Callable

import pytest

from app.broker.delays.timer_index import BEHIND_MAX
from app.broker.health import TROUBLES, ComparedClock, Condition, ConditionCode, condition
from app.domain.shortages import Shortage
from app.runtime.service import Service
from app.runtime.shortage_log import Lack
from tests.support.nodes.brokers import World, running

pytestmark = pytest.mark.anyio


def codes(conditions: list[Condition]) -> list[str]:
    for each in conditions:
        assert each.detail
        assert each.hint
    return [each.code.value for each in conditions]


async def test_a_healthy_node_has_nothing_to_tell() -> None:
    async with running() as world:
        assert world.broker.health.obstacles() == []
        assert world.broker.health.troubles() == []


async def test_before_the_start_and_after_the_stop() -> None:
    world = World()
    assert codes(world.broker.health.obstacles()) == ["STARTING"]
    await world.broker.start()
    assert world.broker.health.obstacles() == []
    await world.broker.stop()
    assert codes(world.broker.health.obstacles()) == ["SHUTTING_DOWN"]


async def test_a_failed_store_is_not_ready_and_says_why() -> None:
    async with running() as world:
        world.store.state.failed = "fdatasync: input/output error"
        [obstacle] = world.broker.health.obstacles()
        assert obstacle.code is ConditionCode.STORE_FAILED
        assert obstacle.detail == "the store takes no writes: fdatasync: input/output error"
        assert "restart" in obstacle.hint


async def test_all_reasons_are_told() -> None:
    world = World()
    world.store.state.failed = "gone"
    assert codes(world.broker.health.obstacles()) == ["STARTING", "STORE_FAILED"]


def _disk_full(world: World) -> None:
    world.store.state.refusal = "the disk is 91% full"


def _no_checkpoint(world: World) -> None:
    world.store.state.lacks = (Lack(Shortage.ROOM, "no checkpoint is written"),)


def _no_descriptors(world: World) -> None:
    world.store.state.lacks = (Lack(Shortage.DESCRIPTORS, "no checkpoint is written"),)


def _not_refreshed(world: World) -> None:
    world.broker.health.node.metadata_problem = "the metadata is not refreshed: no answer"


def _not_committed(world: World) -> None:
    world.broker.offset_cache.problem = "committed offsets cannot be written: no answer"


def _timers_behind(world: World) -> None:
    world.broker.delays.timers.log.position -= BEHIND_MAX + 1


def _timers_damaged(world: World) -> None:
    world.broker.delays.timers.damage = "a run has a wrong checksum"


def _not_delivered(world: World) -> None:
    world.broker.delays.problem = "delayed messages cannot be delivered: the disk is full"


def _damaged(world: World) -> None:
    world.store.state.damages = {"tail": 1, "queue": 12}


def _clock_set_back(world: World) -> None:
    world.store.state.clock_lead_ms = 3_600_500


def _clock_jumped(world: World) -> None:
    world.store.state.clock_jump_ms = 7_200_500


def _clock_apart(world: World) -> None:
    world.broker.health.node.clock.saw(0, 0, 2_500)


def _older_copy(world: World) -> None:
    world.broker.health.node.policy_problem = "the database is an older copy"


def _replica_tells(world: World, code: ConditionCode, detail: str) -> None:
    world.broker.health.node.of_replica = lambda: [condition(code, detail)]


def _replica_failed(world: World) -> None:
    _replica_tells(world, ConditionCode.REPLICA_FAILED, "it has failed: a sync failed")


def _replica_alarm(world: World) -> None:
    _replica_tells(world, ConditionCode.REPLICA_ALARM, "BLOCKS_UNREADABLE: at 17")


def _replicas_behind(world: World) -> None:
    _replica_tells(world, ConditionCode.REPLICAS_BEHIND, "2 of 3 replicas are in sync")


@pytest.mark.parametrize(
    ("apart", "expected"),
    [
        ([1_001, -1_001], [True, True]),
        ([1_000, -1_000], [False, False]),
        ([1_100, 900, 500, 499, 900, 1_000], [True, True, True, False, False, False]),
        ([-2_000, -600, -400, -900], [True, True, False, False]),
    ],
)
def test_a_clock_that_hovers_at_the_bound_stays_what_it_was(
    apart: list[int], expected: list[bool]
) -> None:
    clock, found = ComparedClock(), []
    for each in apart:
        clock.saw(each, each, 0)
        found.append(clock.is_apart)
    assert found == expected


def test_what_a_slow_answer_leaves_open_changes_nothing() -> None:
    clock, found = ComparedClock(), []
    for before_ms, after_ms in ((900, 1_700), (1_001, 1_801), (-100, 700), (-400, 398)):
        clock.saw(before_ms, after_ms, 0)
        found.append(clock.is_apart)
    assert found == [False, True, True, False]
    assert not clock.conditions()


TROUBLE_MAKERS: list[tuple[Callable[[World], None], ConditionCode, str]] = [
    (_disk_full, ConditionCode.DISK_FULL, "no messages are taken: the disk is 91% full"),
    (_no_checkpoint, ConditionCode.DISK_FULL, "has no room: no checkpoint is written"),
    (_no_descriptors, ConditionCode.SYSTEM_BUSY, "no more files can be opened: no checkpoint"),
    (_damaged, ConditionCode.STORE_DAMAGED, "by kind: tail 1, queue 12"),
    (_clock_set_back, ConditionCode.CLOCK_BEHIND, "3600 s ahead of the clock"),
    (_clock_jumped, ConditionCode.CLOCK_AHEAD, "has jumped ahead by 7200 s"),
    (_clock_apart, ConditionCode.CLOCK_APART, "the clock is 2.5 s behind the database's"),
    (_not_refreshed, ConditionCode.METADATA_UNAVAILABLE, "the metadata is not refreshed"),
    (_older_copy, ConditionCode.POLICY_REGRESSED, "an older copy"),
    (_not_committed, ConditionCode.METADATA_UNAVAILABLE, "committed offsets"),
    (_replica_failed, ConditionCode.REPLICA_FAILED, "a sync failed"),
    (_replica_alarm, ConditionCode.REPLICA_ALARM, "BLOCKS_UNREADABLE"),
    (_replicas_behind, ConditionCode.REPLICAS_BEHIND, "2 of 3"),
    (_timers_behind, ConditionCode.TIMERS_NOT_READY, f"{BEHIND_MAX + 1} entries"),
    (_timers_damaged, ConditionCode.TIMERS_NOT_READY, "0 entries"),
    (_not_delivered, ConditionCode.DELIVERY_FAILING, "the disk is full"),
]


@pytest.mark.parametrize(
    ("make", "code", "said"), TROUBLE_MAKERS, ids=[make.__name__ for make, _, _ in TROUBLE_MAKERS]
)
async def test_what_works_in_part_is_told_and_the_node_stays_ready(
    make: Callable[[World], None], code: ConditionCode, said: str
) -> None:
    async with running() as world:
        make(world)
        [trouble] = world.broker.health.troubles()
        assert trouble.code is code
        assert said in trouble.detail
        assert trouble.hint
        assert world.broker.health.obstacles() == []


async def test_a_service_whose_last_turn_failed_is_told_until_one_succeeds() -> None:
    fails = True

    async def turn() -> None:
        if fails:
            raise OSError("no such luck")

    async with running() as world:
        service = Service("retention", 3600, turn)
        world.broker.health.watch(service)
        await service.start()
        await service.run_now()
        [trouble] = world.broker.health.troubles()
        assert trouble.code is ConditionCode.SERVICE_FAILING
        assert trouble.detail == "retention: OSError: no such luck"
        fails = False
        await service.run_now()
        assert world.broker.health.troubles() == []
        await service.stop()


async def test_the_brokers_own_services_are_watched() -> None:
    async with running() as world:
        broker = world.broker
        services = (*broker.services, broker.delays.service, broker.schedules.service)
        for service in services:
            service.problem = "OSError: no such luck"
        told = [trouble.detail for trouble in broker.health.troubles()]
        assert told == [f"{service.name}: OSError: no such luck" for service in services]


def test_every_code_is_an_obstacle_or_a_trouble() -> None:
    obstacles = {ConditionCode.STARTING, ConditionCode.SHUTTING_DOWN, ConditionCode.STORE_FAILED}
    obstacles |= {ConditionCode.POLICY_TOO_OLD, ConditionCode.NOT_LEADER, ConditionCode.NO_LEADER}
    obstacles |= {ConditionCode.REPLICA_REMOVED}
    assert obstacles | set(TROUBLES) == set(ConditionCode)
    assert {code for _, code, _ in TROUBLE_MAKERS} | {ConditionCode.SERVICE_FAILING} == set(
        TROUBLES
    )
