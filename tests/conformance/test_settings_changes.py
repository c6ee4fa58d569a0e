"""Changes that name some settings: merged under the lock, on any database, by any node."""

import asyncio

import pytest
from sqlalchemy import select

from app.cluster import Metadata
from app.cluster.metadata.schema.tables import metadata as tables
from app.cluster.metadata.schema.tables import topic_queues
from app.domain.changes.conditions import Conditions, Terms
from app.domain.changes.merging import DEFAULT, Named
from app.domain.errors import (
    CurlewError,
    GroupNotFound,
    IllegalSetting,
    PreconditionFailed,
    ScheduleNotFound,
    StateConflict,
    TopicNotFound,
)
from app.domain.identity import Kind
from app.domain.limits import Limits
from app.domain.positions import FlushMode, ReplicationMode
from app.domain.schedules import ScheduleSettings
from app.domain.settings import GroupSettings, Permission, TopicSettings, TraceMode
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

DRY = Terms(is_dry_run=True)
PATCH = Terms(must_exist=True)
SCHEDULE: Named = {"cron": "* * * * *", "topic": "orders", "body": b"x"}


def due(_: ScheduleSettings) -> int | None:
    return 5


async def all_rows(metadata: Metadata) -> dict[str, list[tuple[object, ...]]]:
    """Everything in the database."""
    async with metadata._database.reading() as connection:
        return {
            table.name: sorted(
                (tuple(row) for row in await connection.execute(select(table))), key=repr
            )
            for table in tables.sorted_tables
        }


async def test_what_is_not_named_stays(metadata: Metadata, clock: FakeClock) -> None:
    made = await metadata.change_topic("orders", {"queues": 8, "flush": FlushMode.ASYNC})
    assert (made.is_made, made.after.settings) == (
        True,
        TopicSettings(queues=8, flush=FlushMode.ASYNC),
    )
    clock.advance(ms=5)
    changed = await metadata.change_topic("orders", {"retention_ms": 3_600_000})
    assert changed.before == made.after
    assert changed.after.settings == TopicSettings(8, flush=FlushMode.ASYNC, retention_ms=3_600_000)
    assert changed.after.version > made.after.version
    back = await metadata.change_topic("orders", {"retention_ms": DEFAULT})
    assert back.after.settings == made.after.settings


async def test_what_changes_nothing_writes_nothing(metadata: Metadata, clock: FakeClock) -> None:
    await metadata.change_topic("orders", {"queues": 8})
    await metadata.change_group("billing", {"max_attempts": 3})
    await metadata.schedules.change("tick", SCHEDULE, due)
    before, snapshot = await all_rows(metadata), metadata.snapshot
    clock.advance(s=1)
    for named in ({}, {"queues": 8}):
        assert not (await metadata.change_topic("orders", named)).is_made
    for named in ({}, {"max_attempts": 3}):
        assert not (await metadata.change_group("billing", named)).is_made
    for schedule in ({}, SCHEDULE):
        assert not (await metadata.schedules.change("tick", schedule, due)).is_made
    assert await all_rows(metadata) == before
    assert metadata.snapshot is snapshot


async def test_a_dry_run_writes_nothing_and_refuses_the_same(metadata: Metadata) -> None:
    topic = (await metadata.change_topic("orders", {"queues": 8})).after
    await metadata.change_group("billing", {})
    await metadata.schedules.change("tick", SCHEDULE, due)
    before, snapshot = await all_rows(metadata), metadata.snapshot

    assert (await metadata.change_topic("orders", {"queues": 9}, DRY)).after.queues == 9
    assert (await metadata.change_topic("new", {}, DRY)).is_made
    assert (await metadata.change_group("billing", {"paused": True}, DRY)).after.paused
    assert (await metadata.change_group("new", {}, DRY)).is_made
    assert (
        await metadata.schedules.change("tick", {"paused": True}, due, DRY)
    ).after.settings.paused
    assert (await metadata.schedules.change("new", SCHEDULE, due, DRY)).is_made
    assert await metadata.delete_topic("orders", DRY) == topic
    assert (await metadata.delete_group("billing", DRY)).name == "billing"
    assert (await metadata.schedules.remove("tick", DRY)).name == "tick"
    stale = Terms(Conditions.at(topic.version + 9), is_dry_run=True)
    refused: list[tuple[type[CurlewError], object]] = [
        (StateConflict, metadata.change_topic("orders", {"queues": 7}, DRY)),
        (IllegalSetting, metadata.change_topic("orders", {"queues": 0}, DRY)),
        (IllegalSetting, metadata.schedules.change("other", {}, due, DRY)),
        (PreconditionFailed, metadata.change_topic("orders", {}, stale)),
        (PreconditionFailed, metadata.delete_topic("orders", stale)),
        (TopicNotFound, metadata.delete_topic("other", DRY)),
    ]
    for kind, call in refused:
        with pytest.raises(kind):
            await call  # type: ignore[misc]  # a coroutine
    assert await all_rows(metadata) == before
    assert metadata.snapshot is snapshot


async def test_a_patch_makes_nothing(metadata: Metadata) -> None:
    before = await all_rows(metadata)
    with pytest.raises(TopicNotFound):
        await metadata.change_topic("orders", {"queues": 8}, PATCH)
    with pytest.raises(GroupNotFound):
        await metadata.change_group("billing", {}, PATCH)
    with pytest.raises(ScheduleNotFound):
        await metadata.schedules.change("tick", SCHEDULE, due, PATCH)
    assert await all_rows(metadata) == before


async def test_changes_at_once_undo_nothing_of_each_other(
    metadata: Metadata, other: Metadata
) -> None:
    await metadata.change_topic("orders", {"queues": 2})
    await metadata.change_group("billing", {})
    await metadata.schedules.change("tick", SCHEDULE, due)
    await asyncio.gather(
        metadata.change_topic("orders", {"queues": 9}),
        other.change_topic("orders", {"retention_ms": 3_600_000}),
        metadata.change_topic("orders", {"trace": TraceMode.OFF}),
        other.change_group("billing", {"max_attempts": 3}),
        metadata.change_group("billing", {"invisible_ms": 5_000}),
        metadata.schedules.change("tick", {"tag": "a"}, due),
        other.schedules.change("tick", {"timezone": "Europe/Berlin"}, due),
    )
    for node in (metadata, other):
        await node.refresh()
        topic, group = node.snapshot.topics["orders"], node.snapshot.groups["billing"]
        assert topic.settings == TopicSettings(9, retention_ms=3_600_000, trace=TraceMode.OFF)
        assert group.settings == GroupSettings(max_attempts=3, invisible_ms=5_000)
        schedule = await node.schedules.get("tick")
        assert (schedule.settings.tag, schedule.settings.timezone) == ("a", "Europe/Berlin")


async def test_of_two_that_only_make_one_does(metadata: Metadata, other: Metadata) -> None:
    terms = Terms(Conditions(if_none_match="*"))
    results = await asyncio.gather(
        metadata.change_topic("orders", {"queues": 3}, terms),
        other.change_topic("orders", {"queues": 5}, terms),
        return_exceptions=True,
    )
    assert sum(isinstance(result, PreconditionFailed) for result in results) == 1


async def test_a_change_and_a_deletion_at_once(metadata: Metadata, other: Metadata) -> None:
    """Either the change is deleted with the topic, or it makes the topic anew: never half."""
    for number in range(8):
        name = f"t{number}"
        await metadata.change_topic(name, {"queues": 8, "trace": TraceMode.OFF})
        await other.refresh()
        await asyncio.gather(
            metadata.delete_topic(name), other.change_topic(name, {"retention_ms": 3_600_000})
        )
        await metadata.refresh()
        left = metadata.snapshot.topics.get(name)
        if left is not None:
            assert left.settings == TopicSettings(retention_ms=3_600_000)
        await other.refresh()
        assert other.snapshot == metadata.snapshot


async def test_a_tighter_bound_is_no_reason_to_refuse_another_change(metadata: Metadata) -> None:
    await metadata.change_topic("orders", {"queues": 9})
    await metadata.change_group("billing", {"max_attempts": 9})
    metadata._limits.take_over(Limits(queues_per_topic_max=5, attempts_max=5))
    await metadata.change_topic("orders", {"queues": 9, "trace": TraceMode.OFF})
    await metadata.change_group("billing", {"invisible_ms": 5_000})
    with pytest.raises(IllegalSetting, match="from 1 to 5"):
        await metadata.change_topic("orders", {"queues": 10})
    with pytest.raises(IllegalSetting, match="from 1 to 5"):
        await metadata.change_group("billing", {"max_attempts": 8})


async def test_a_version_does_not_come_back_with_the_name_of_a_schedule(metadata: Metadata) -> None:
    old = (await metadata.schedules.change("tick", SCHEDULE, due)).after
    await metadata.schedules.remove("tick")
    await metadata.schedules.change("tick", SCHEDULE, due)
    with pytest.raises(PreconditionFailed):
        await metadata.schedules.remove("tick", Terms(Conditions.at(old.version)))


async def queues_of(metadata: Metadata, name: str) -> list[tuple[int, int, str]]:
    async with metadata._database.reading() as connection:
        rows = await connection.execute(
            select(topic_queues)
            .where(topic_queues.c.topic == name)
            .order_by(topic_queues.c.queue_id)
        )
        return [(row.generation, row.queue_id, row.perm) for row in rows]


async def test_each_queue_has_a_row_that_says_what_may_be_done_with_it(metadata: Metadata) -> None:
    made = (await metadata.change_topic("orders", {"queues": 3})).after
    rows = [(made.generation, queue, "rw") for queue in range(3)]
    assert await queues_of(metadata, "orders") == rows
    await metadata.change_topic("orders", {"queues": 4, "write_queues": 2})
    assert [perm for _, _, perm in await queues_of(metadata, "orders")] == ["rw", "rw", "r", "r"]
    await metadata.change_topic("orders", {"permission": Permission.WRITE}, DRY)
    assert [perm for _, _, perm in await queues_of(metadata, "orders")] == ["rw", "rw", "r", "r"]
    await metadata.change_topic("orders", {"permission": Permission.WRITE})
    perms = [perm for _, _, perm in await queues_of(metadata, "orders")]
    assert perms == ["w", "w", "none", "none"]
    was = metadata.snapshot.topics["orders"].generation
    assert await metadata.set_generation(Kind.TOPIC, "orders", 77, was)
    assert [generation for generation, _, _ in await queues_of(metadata, "orders")] == [77] * 4
    await metadata.ensure_topic("payments")
    assert len(await queues_of(metadata, "payments")) == 4
    await metadata.delete_topic("orders")
    assert await queues_of(metadata, "orders") == []


async def test_settings_of_what_a_topic_takes_come_back(metadata: Metadata) -> None:
    named: Named = {
        "permission": Permission.READ,
        "write_queues": 2,
        "max_body_bytes": 1_000,
        "max_rate": 5,
        "max_stored_bytes": 2**40,
        "replication": ReplicationMode.ASYNC,
    }
    made = (await metadata.change_topic("orders", named)).after
    await metadata._load()
    found = metadata.snapshot.topics["orders"]
    assert found == made
    assert (found.write_queues, found.is_readable, found.is_guarded) == (2, True, True)
    back = await metadata.change_topic("orders", dict.fromkeys(named, DEFAULT))
    assert back.after.settings == TopicSettings()
    assert (back.after.write_queues, back.after.is_guarded) == (4, False)


@pytest.mark.parametrize(
    "named",
    [
        {"write_queues": 0},
        {"write_queues": 5},
        {"queues": 8, "write_queues": 9},
        {"max_rate": 0},
        {"max_body_bytes": 2**40},
        {"max_stored_bytes": -1},
        {"permission": "x"},
        {"replication": "x"},
    ],
)
async def test_what_no_topic_can_take_is_refused(metadata: Metadata, named: Named) -> None:
    await metadata.change_topic("orders", {"queues": 4})
    with pytest.raises(IllegalSetting) as caught:
        await metadata.change_topic("orders", named)
    assert caught.value.pointer in {f"/{name}" for name in named}
    assert metadata.snapshot.topics["orders"].settings == TopicSettings()


async def test_more_queues_take_messages_when_nothing_is_said_of_it(metadata: Metadata) -> None:
    await metadata.change_topic("orders", {"queues": 2})
    assert (await metadata.change_topic("orders", {"queues": 6})).after.write_queues == 6
    await metadata.change_topic("orders", {"write_queues": 3})
    assert (await metadata.change_topic("orders", {"queues": 8})).after.write_queues == 3
