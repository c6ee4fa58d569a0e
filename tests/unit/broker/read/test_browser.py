"""Browsing: order over queues, both directions, conditions, bounds, cold disks, damage."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.broker.read.browse_filter import BrowseConditions
from app.broker.read.browser import BrowseGap, BrowseRequest, BrowseResult
from app.domain.errors import (
    IllegalFilter,
    IllegalPage,
    IllegalTopic,
    InvalidRequest,
    MessageNotFound,
    ShuttingDown,
    TopicNotFound,
)
from app.domain.handles.browse_cursors import (
    BrowseCursor,
    decode_browse_cursor,
    encode_browse_cursor,
)
from app.domain.limits import FILTER_LOOK_MESSAGES, Limits
from app.domain.message import Message
from app.store import Gap
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

EVERYTHING = BrowseConditions()


def bodies(result: BrowseResult) -> list[bytes]:
    return [message.body for message in result.messages]


def spread(world: World, count: int, queues: int) -> None:
    """Messages b"0", b"1", … in turn over the queues, one each millisecond."""
    for number in range(count):
        properties = {"n": str(number), "odd": str(number % 2 == 1).lower()}
        tag = "abc"[number % 3]
        body = [b"%d" % number]
        world.store.fill(TOPIC, number * 7 % queues, body, tag=tag, properties=properties)
        assert isinstance(world.clock, FakeClock)
        world.clock.advance(s=0.001)


async def browse(
    world: World, conditions: BrowseConditions = EVERYTHING, **options: object
) -> BrowseResult:
    request = replace(BrowseRequest(conditions=conditions), **options)  # type: ignore[arg-type]
    return await world.broker.browser.browse(TOPIC, request)


async def all_pages(
    world: World, conditions: BrowseConditions = EVERYTHING, **options: object
) -> tuple[list[bytes], list[BrowseResult]]:
    pages = [await browse(world, conditions, **options)]
    while pages[-1].next_cursor is not None:
        assert len(pages) < 1_000
        pages.append(await browse(world, conditions, **options, cursor=pages[-1].next_cursor))
    return [body for page in pages for body in bodies(page)], pages


async def test_the_newest_come_first() -> None:
    async with running(queues=3) as world:
        spread(world, 10, 3)
        result = await browse(world)
        assert bodies(result) == [b"%d" % number for number in reversed(range(10))]
        assert (result.scanned, result.next_cursor, result.gaps) == (10, None, [])


async def test_forward_begins_with_the_oldest() -> None:
    async with running(queues=3) as world:
        spread(world, 10, 3)
        assert bodies(await browse(world, direction="forward", max_messages=4)) == [
            b"0",
            b"1",
            b"2",
            b"3",
        ]


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(0, 60),
    queues=st.integers(1, 5),
    page=st.integers(1, 25),
    direction=st.sampled_from(["forward", "backward"]),
    conditions=st.fixed_dictionaries(
        {},
        optional={
            "from_ms": st.integers(-5, 65),
            "until_ms": st.integers(-5, 65),
            "tag": st.sampled_from("abz"),
            "filter": st.sampled_from(["a || b", "sql: n > 20", "sql: TAGS = 'a' AND n < 40"]),
            "property": st.sampled_from([("odd", "true"), ("n", "7"), ("none", "x")]),
            "text": st.sampled_from(["1", "22", "x"]),
        },
    ),
    cold=st.booleans(),
)
async def test_pages_hold_everything_once(
    count: int,
    queues: int,
    page: int,
    direction: str,
    conditions: dict[str, object],
    cold: bool,
) -> None:
    async with running(queues=queues) as world:
        began_ms = world.clock.now_ms()
        spread(world, count, queues)
        if cold:
            world.store.cold.add((TOPIC, 0))
        low, high = conditions.get("from_ms", -9), conditions.get("until_ms", 99)
        assert isinstance(low, int)
        assert isinstance(high, int)
        if low >= high:
            return
        wanted = [
            number
            for number in range(count)
            if low <= number < high
            and conditions.get("tag", "abc"[number % 3]) == "abc"[number % 3]
            and (conditions.get("filter") != "a || b" or number % 3 < 2)
            and (conditions.get("filter") != "sql: n > 20" or number > 20)
            and (not str(conditions.get("filter")).startswith("sql: T") or not number % 3)
            and (not str(conditions.get("filter")).startswith("sql: T") or number < 40)
            and (conditions.get("property") != ("odd", "true") or number % 2)
            and (conditions.get("property") != ("n", "7") or number == 7)
            and conditions.get("property") != ("none", "x")
            and str(conditions.get("text", "")) in str(number)
        ]
        if direction == "backward":
            wanted.reverse()
        for name in ("from_ms", "until_ms"):
            if name in conditions:
                conditions[name] = began_ms + int(str(conditions[name]))
        asked = BrowseConditions(**conditions)  # type: ignore[arg-type]
        found, pages = await all_pages(world, asked, direction=direction, max_messages=page)
        assert found == [b"%d" % number for number in wanted]
        assert all(len(each.messages) == page for each in pages[:-1])
        assert all(each.scanned <= count for each in pages)


@pytest.mark.parametrize("direction", ["forward", "backward"])
async def test_pages_stay_right_while_messages_arrive(direction: str) -> None:
    async with running(queues=2) as world:
        spread(world, 10, 2)
        first = await browse(world, direction=direction, max_messages=5)
        world.store.fill(TOPIC, 1, [b"later"])
        rest = await browse(world, max_messages=50, cursor=first.next_cursor)
        numbers = [b"%d" % number for number in range(10)]
        if direction == "backward":
            assert bodies(first) + bodies(rest) == numbers[::-1]
        else:
            assert bodies(first) + bodies(rest) == [*numbers, b"later"]


async def test_a_key_finds_the_newest_by_the_index() -> None:
    async with running(queues=2) as world:
        for number in range(30):
            keys = ("k",) if number % 3 == 0 else ("other", "k2")
            message = Message(b"%d" % number, keys=keys, properties={"n": str(number)})
            await world.broker.sender.send(TOPIC, message, queue_id=number % 2)
        wanted = BrowseConditions(key="k")
        result = await browse(world, wanted, max_messages=4)
        assert bodies(result) == [b"27", b"24", b"21", b"18"]
        assert result.scanned == 4
        rest = await browse(world, wanted, max_messages=6, cursor=result.next_cursor)
        assert bodies(rest) == [b"15", b"12", b"9", b"6", b"3", b"0"]
        assert rest.next_cursor is None
        forward = await browse(world, wanted, direction="forward", max_messages=3)
        assert bodies(forward) == [b"0", b"3", b"6"]
        both = BrowseConditions(key="k", filter="sql: n BETWEEN 10 AND 20")
        assert bodies(await browse(world, both)) == [b"18", b"15", b"12"]


@pytest.mark.parametrize("keyed_max", [0, 1, 3])
async def test_where_the_index_ends_too_early_the_queues_are_searched(keyed_max: int) -> None:
    async with running(queues=2) as world:
        for number in range(20):
            message = Message(b"%d" % number, keys=("k",) if number % 2 else ())
            await world.broker.sender.send(TOPIC, message, queue_id=number % 2)
        world.store.keyed_max = keyed_max
        found, _ = await all_pages(world, BrowseConditions(key="k"), max_messages=4)
        assert found == [b"%d" % number for number in range(19, 0, -2)]


async def test_one_request_looks_so_far_and_can_be_continued() -> None:
    async with running(queues=2, limits=Limits(filter_looks_max=2)) as world:
        for queue_id in (0, 1):
            world.store.fill(TOPIC, queue_id, [b"x"] * 2 * FILTER_LOOK_MESSAGES)
        first = await browse(world, BrowseConditions(text="y"))
        assert first.messages == []
        assert first.scanned == 2 * FILTER_LOOK_MESSAGES
        assert first.next_cursor is not None
        _, pages = await all_pages(world, BrowseConditions(text="y"))
        assert sum(page.scanned for page in pages) == 4 * FILTER_LOOK_MESSAGES


async def test_bytes_end_a_page() -> None:
    async with running(limits=Limits(pull_bytes_max=5_000)) as world:
        world.store.fill(TOPIC, 0, [bytes([number]) * 1_500 for number in range(8)])
        found, pages = await all_pages(world)
        assert [len(page.messages) for page in pages] == [3, 3, 2]
        assert [body[0] for body in found] == list(range(7, -1, -1))


async def test_a_message_larger_than_a_page_is_a_page() -> None:
    async with running(limits=Limits(pull_bytes_max=1_000)) as world:
        world.store.fill(TOPIC, 0, [bytes(2_000)] * 2)
        _, pages = await all_pages(world)
        assert [len(page.messages) for page in pages] == [1, 1]


async def test_a_cold_browse_hops_once() -> None:
    async with running(queues=4) as world:
        spread(world, 40, 4)
        for queue_id in range(4):
            world.store.cold.add((TOPIC, queue_id))
        result = await browse(world)
        assert len(result.messages) == 40


async def test_many_queues_are_looked_at_off_the_loop() -> None:
    async with running(queues=100) as world:
        spread(world, 300, 100)
        found, _ = await all_pages(world, max_messages=70)
        assert found == [b"%d" % number for number in reversed(range(300))]


async def test_damage_is_stepped_over_and_reported() -> None:
    async with running(queues=2) as world:
        spread(world, 10, 2)
        world.store.damage(TOPIC, 1, 2)
        result = await browse(world)
        assert len(result.messages) == 9
        assert result.gaps == [BrowseGap(1, Gap(2, 3, "CORRUPT"))]


async def test_what_is_past_retention_is_not_found() -> None:
    async with running(queues=2) as world:
        spread(world, 10, 2)
        world.store.retain_from(TOPIC, 0, 3)
        result = await browse(world, direction="forward")
        assert bodies(result)[:3] == [b"1", b"3", b"5"]


async def test_an_empty_topic_is_an_empty_page() -> None:
    async with running() as world:
        assert await browse(world) == BrowseResult([], 0, None, [])


async def test_bad_requests_are_refused() -> None:
    async with running() as world:
        with pytest.raises(TopicNotFound):
            await world.broker.browser.browse("none", BrowseRequest())
        with pytest.raises(IllegalTopic):
            await world.broker.browser.browse("rmq_sys_trans_half", BrowseRequest())
        with pytest.raises(IllegalPage):
            await browse(world, max_messages=0)
        with pytest.raises(IllegalPage):
            await browse(world, cursor="AAAA")
        with pytest.raises(IllegalFilter):
            await browse(world, BrowseConditions(filter="sql: ("))
        with pytest.raises(InvalidRequest, match="nothing is between"):
            await browse(world, BrowseConditions(from_ms=5, until_ms=5))
        cursor = encode_browse_cursor(BrowseCursor(True, 5), world.store.store_id)
        with pytest.raises(IllegalPage, match="other way"):
            await browse(world, cursor=cursor, direction="backward")
        await world.broker.stop()
        with pytest.raises(ShuttingDown):
            await browse(world)


@settings(deadline=None)
@given(st.booleans(), st.integers(0, 2**64 - 1), st.binary(min_size=4, max_size=4))
def test_cursors_come_back(is_forward: bool, position: int, store_id: bytes) -> None:
    cursor = BrowseCursor(is_forward, position)
    assert decode_browse_cursor(encode_browse_cursor(cursor, store_id), store_id) == cursor


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(IllegalPage):
        decode_browse_cursor(text, b"\x00\x00\x00\x00")


async def test_a_message_is_found_by_the_id_that_its_producer_gave() -> None:
    async with running() as world:
        message = Message(b"mine", unique_id="order-17-1")
        await world.broker.sender.send(TOPIC, message, queue_id=0)
        assert (await world.broker.browser.message(TOPIC, "order-17-1")).body == b"mine"
        await world.topic(1, name="other")
        with pytest.raises(MessageNotFound):
            await world.broker.browser.message("other", "order-17-1")
