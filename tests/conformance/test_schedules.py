"""Schedules in SQL, over SQLite and PostgreSQL alike: one node gets a due time, nothing is lost."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from app.cluster import Metadata
from app.cluster.metadata.tables import schedules
from app.domain.errors import PreconditionFailed, ScheduleNotFound, StateConflict
from app.domain.limits import Limits
from app.domain.schedules import Firing, Missed, ScheduleSettings
from tests.support.metadata.metadata import OpenNode
from tests.support.stores.clock import START_MS

pytestmark = pytest.mark.anyio

SETTINGS = ScheduleSettings(
    "0 * * * *",
    "orders",
    b"\x00\xff",
    timezone="Europe/Berlin",
    missed=Missed.SKIP,
    keys=("a", "b"),
    properties={"colour": "rot"},
)
OTHER = ScheduleSettings("* * * * *", "orders", b"new")


async def test_comes_back_as_it_was_put(metadata: Metadata, open_node: OpenNode) -> None:
    made, created = await metadata.schedules.put("tick", SETTINGS, 5)
    assert (created, made.settings, made.next_due_ms, made.version) == (True, SETTINGS, 5, 1)
    assert await metadata.schedules.put("tick", SETTINGS, 9) == (made, False)
    async with open_node() as other:
        assert await other.schedules.get("tick") == made
        assert await other.schedules.load("", 10) == ([made], False)
        assert await other.schedules.load("tick", 10) == ([], False)
    with pytest.raises(PreconditionFailed):
        await metadata.schedules.put(
            "tick", ScheduleSettings("* * * * *", "o", b""), 9, if_version=7
        )
    await metadata.schedules.remove("tick")
    for gone in (metadata.schedules.get("tick"), metadata.schedules.remove("tick")):
        with pytest.raises(ScheduleNotFound):
            await gone


async def test_one_of_many_claims_wins(metadata: Metadata, open_node: OpenNode) -> None:
    await metadata.schedules.put("tick", SETTINGS, START_MS)
    async with open_node() as other:
        (seen,) = await other.schedules.due(START_MS, 10)
        assert await other.schedules.due(START_MS - 1, 10) == []
        claims = [
            node.schedules.move_on(seen, START_MS + 60, name)
            for node, name in ((metadata, "a"), (other, "b"), (metadata, "a"), (other, "b"))
        ]
        won = [firing for firing in await asyncio.gather(*claims) if firing is not None]
        assert won == [Firing("tick", START_MS, SETTINGS)]
        kept = [*await other.schedules.firings("a"), *await other.schedules.firings("b")]
        assert kept == won
        assert (await other.schedules.get("tick")).next_due_ms == START_MS + 60
        await metadata.schedules.remove("tick")
        await other.schedules.done(won[0])
        assert not await metadata.schedules.firings("a")
        assert not await metadata.schedules.firings("b")


async def test_a_changed_schedule_is_not_claimed_by_what_was_seen_before(
    metadata: Metadata,
) -> None:
    await metadata.schedules.put("tick", SETTINGS, START_MS)
    (seen,) = await metadata.schedules.due(START_MS, 10)
    await metadata.schedules.put("tick", ScheduleSettings("* * * * *", "o", b"new"), START_MS)
    assert await metadata.schedules.move_on(seen, START_MS + 60, "a") is None
    await metadata.schedules.put("tick", ScheduleSettings("* * * * *", "o", b"", paused=True), None)
    assert await metadata.schedules.due(1 << 60, 10) == []


async def test_their_number_is_bounded(metadata: Metadata) -> None:
    metadata.schedules._limits = Limits(schedules_max=1)
    await metadata.schedules.put("one", SETTINGS, 5)
    with pytest.raises(StateConflict):
        await metadata.schedules.put("two", SETTINGS, 5)


async def test_of_changes_that_ask_for_the_same_version_one_is_made(
    metadata: Metadata, open_node: OpenNode
) -> None:
    await metadata.schedules.put("tick", SETTINGS, 5)
    async with open_node() as other:
        results = await asyncio.gather(
            *[
                node.schedules.put(
                    "tick", ScheduleSettings("* * * * *", "o", b"%d" % number), 5, if_version=1
                )
                for number, node in enumerate([metadata, other] * 4)
            ],
            return_exceptions=True,
        )
        kinds = sorted(type(result).__name__ for result in results)
        assert kinds == ["PreconditionFailed"] * 7 + ["tuple"]
        assert (await other.schedules.get("tick")).version == 2


async def test_those_that_are_made_at_once_are_counted_all(
    metadata: Metadata, open_node: OpenNode
) -> None:
    async with open_node() as other:
        for node in (metadata, other):
            node.schedules._limits = Limits(schedules_max=2)
        results = await asyncio.gather(
            *[
                node.schedules.put(f"tick{number}", SETTINGS, 5)
                for number, node in enumerate([metadata, other] * 4)
            ],
            return_exceptions=True,
        )
        kinds = sorted(type(result).__name__ for result in results)
        assert kinds == ["StateConflict"] * 6 + ["tuple"] * 2


async def test_a_change_of_anything_but_the_times_goes_on_where_it_was(metadata: Metadata) -> None:
    await metadata.schedules.put("tick", SETTINGS, START_MS)
    changed, _ = await metadata.schedules.put("tick", replace(SETTINGS, body=b"new"), 5)
    assert changed.next_due_ms == START_MS
    paused, _ = await metadata.schedules.put("tick", replace(SETTINGS, paused=True), None)
    assert paused.next_due_ms is None
    resumed, _ = await metadata.schedules.put("tick", SETTINGS, 5)
    assert resumed.next_due_ms == 5
    moved, _ = await metadata.schedules.put("tick", replace(SETTINGS, timezone="UTC"), 7)
    assert moved.next_due_ms == 7


async def test_a_due_time_that_is_claimed_already_is_passed_over(metadata: Metadata) -> None:
    """Its node may never come back; the schedule must go on all the same."""
    made, _ = await metadata.schedules.put("tick", SETTINGS, START_MS)
    assert await metadata.schedules.move_on(made, START_MS + 60, "gone")
    await metadata.schedules.remove("tick")
    again, _ = await metadata.schedules.put("tick", OTHER, START_MS)
    assert await metadata.schedules.move_on(again, START_MS + 60, "a") is None
    assert (await metadata.schedules.get("tick")).next_due_ms == START_MS + 60
    assert await metadata.schedules.firings("a") == []
    assert await metadata.schedules.firings("gone") == [Firing("tick", START_MS, SETTINGS)]


async def test_large_schedules_come_in_short_pages(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = metadata.schedules
    for name in "abcde":
        await book.put(name, ScheduleSettings("* * * * *", "orders", bytes(1_000)), None)
    size = len(msgspec.json.encode((await book.get("a")).settings))
    for room, pages in (
        (5 * size, ["abc", "de"]),
        (2 * size, ["ab", "cd", "e"]),
        (2 * size - 1, [*"abcde"]),
        (1, [*"abcde"]),
    ):
        monkeypatch.setattr(schedules, "PAGE_CHARS_MAX", room)
        seen, more = [""], True
        while more:
            found, more = await book.load(seen[-1][-1:], 3)
            seen.append("".join(each.name for each in found))
        assert seen[1:] == pages


async def test_a_name_that_no_text_of_a_database_holds_is_not_found(metadata: Metadata) -> None:
    book = metadata.schedules
    await book.put("b", SETTINGS, None)
    for step in (book.get, book.remove):
        with pytest.raises(ScheduleNotFound):
            await step("a\0")
    assert [each.name for each in (await book.load("a\0c", 9))[0]] == ["b"]
    assert not await metadata.offset_snapshots.delete("billing", "a\0")
