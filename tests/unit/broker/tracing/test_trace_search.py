"""Searching traces: by all conditions, in bounded steps, without missing what is not written."""

from itertools import pairwise

import pytest

from app.broker.results import Nack
from app.broker.tracing.trace_notes import Producer, TraceKind
from app.broker.tracing.trace_search import FoundEvent, TraceQuery
from app.domain.errors import IllegalPage, InvalidRequest, TopicNotFound
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.settings import TopicSettings, TraceMode
from tests.support.nodes.brokers import GROUP, TOPIC, World, put_topic, running

pytestmark = pytest.mark.anyio

SHOP: Producer = ("shop-3", "shop", "10.0.0.7")


def query(world: World, **more: object) -> TraceQuery:
    now_ms = world.clock.now_ms()
    return TraceQuery(**{"since_ms": now_ms - 3_600_000, "until_ms": now_ms + 1} | more)  # type: ignore[arg-type]


async def found(world: World, **more: object) -> list[FoundEvent]:
    return (await world.broker.trace_search.search(query(world, **more), page_size=100)).events


async def send(world: World, *bodies: bytes, producer: Producer = SHOP) -> list[str]:
    ids = []
    for body in bodies:
        keys = (body.decode(),)
        sent = await world.broker.sender.send(TOPIC, Message(body, keys=keys), queue_id=0)
        place = sent.topic, sent.queue_id, sent.queue_offset, 1, sent.store_time_ms
        world.broker.message_trace.sent((TraceKind.SENT, *place, 0.002, producer))
        ids.append(sent.message_id)
    return ids


async def fail_and_ack(world: World) -> list[str]:
    """Two messages: the first fails, comes again and is acked; the second is given up."""
    await world.retry_at_once()
    ids = await send(world, b"a", b"b")
    first, second = await world.receive(2, client_id="c1")
    settle = world.broker.settler.settle
    await settle(TOPIC, GROUP, nacks=[Nack(first.receipt_handle, 0, "no stock")])
    await settle(TOPIC, GROUP, dead_letters=[Nack(second.receipt_handle, None, "broken")])
    world.clock.advance(ms=5)
    [again] = await world.receive(2, client_id="c2")
    world.clock.advance(ms=7)
    await world.ack(again)
    return ids


async def test_a_message_is_followed_from_its_producer_to_its_end() -> None:
    async with running() as world:
        first, second = await fail_and_ack(world)
        events = await found(world, topic=TOPIC)
        shown = [(e.kind.name, e.message_id, e.count, e.client_id, e.group) for e in events]
        assert shown == [
            ("SENT", first, 2, "shop-3", "shop"),
            ("DELIVERED", first, 2, "c1", GROUP),
            ("NACKED", first, 1, None, GROUP),
            ("DEAD_LETTERED", second, 1, None, GROUP),
            ("DELIVERED", first, 1, "c2", GROUP),
            ("ACKED", first, 1, None, GROUP),
        ]
        sent, nacked, acked = events[0], events[2], events[5]
        assert (sent.address, sent.duration_ms) == ("10.0.0.7", 2.0)
        assert (nacked.detail, nacked.attempt) == ("no stock; again in 0ms", 1)
        assert (acked.topic, acked.queue_id, acked.queue_offset) == (TOPIC, 0, 0)


@pytest.mark.parametrize(
    ("conditions", "kinds"),
    [
        ({"client_id": "c2"}, ["DELIVERED"]),
        ({"client_id": "shop-3"}, ["SENT"]),
        ({"group": "shop"}, ["SENT"]),
        ({"group": GROUP, "kind": TraceKind.ACKED}, ["ACKED"]),
        ({"kind": TraceKind.DEAD_LETTERED}, ["DEAD_LETTERED"]),
        ({"kind": TraceKind.EXPIRED}, []),
        ({"topic": "other"}, []),
        ({"topic": TOPIC, "kind": TraceKind.ACKED}, ["ACKED"]),
    ],
)
async def test_conditions_choose(conditions: dict[str, object], kinds: list[str]) -> None:
    async with running() as world:
        await world.topic(name="other")
        await fail_and_ack(world)
        assert [event.kind.name for event in await found(world, **conditions)] == kinds


async def test_a_time_has_a_first_and_a_last_moment() -> None:
    async with running() as world:
        times = []
        for body in (b"a", b"b", b"c"):
            world.clock.advance(s=60)
            times.append(world.clock.now_ms())
            await send(world, body)
            await world.broker.message_trace.write()
        for since, until in pairwise([*times, times[-1] + 1]):
            [event] = await found(world, since_ms=since, until_ms=until)
            assert event.at_ms == since
        assert await found(world, since_ms=0, until_ms=times[0]) == []


async def test_a_key_finds_the_traces_of_its_messages() -> None:
    async with running() as world:
        first, _ = await fail_and_ack(world)
        search = world.broker.trace_search
        page = await search.with_key(query(world, topic=TOPIC), "a", page_size=50)
        assert {event.message_id for event in page.events} == {first}
        assert [e.kind.name for e in page.events] == [
            *("SENT", "DELIVERED", "NACKED", "DELIVERED", "ACKED"),
        ]
        assert (page.events[0].count, page.next_cursor) == (1, None)
        assert (await search.with_key(query(world, topic=TOPIC), "none", page_size=5)).events == []
        with pytest.raises(InvalidRequest):
            await search.with_key(query(world), "a", page_size=50)


async def test_pages_go_on_where_the_last_ended() -> None:
    async with running() as world:
        await fail_and_ack(world)
        await world.broker.message_trace.write()
        await send(world, b"c")
        everything = await found(world)
        pages: list[FoundEvent] = []
        cursor = None
        while True:
            page = await world.broker.trace_search.search(query(world), page_size=2, cursor=cursor)
            assert len(page.events) <= 2
            pages += page.events
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted(pages, key=repr) == sorted(everything, key=repr)


async def test_one_request_looks_at_a_bounded_number_of_notes() -> None:
    async with running(limits=Limits(trace_notes_searched_max=1)) as world:
        for body in (b"a", b"b", b"c"):
            await send(world, body)
            await world.broker.message_trace.write()
        search = world.broker.trace_search
        looks: list[int] = []
        cursor: str | None = None
        while not looks or cursor:
            page = await search.search(query(world, client_id="none"), page_size=5, cursor=cursor)
            looks.append(page.scanned)
            cursor = page.next_cursor
        assert looks == [1, 1, 1]


async def test_what_retention_took_has_no_id() -> None:
    async with running() as world:
        await send(world, b"a")
        world.store.trim(TOPIC, 0, 1)
        [event] = await found(world)
        assert (event.message_id, event.queue_offset) == (None, 0)


BAD: list[tuple[dict[str, object], int, str | None, type[Exception]]] = [
    ({}, 0, None, IllegalPage),
    ({}, 201, None, IllegalPage),
    ({}, 5, "x", IllegalPage),
    ({}, 5, "t1.-1.0", IllegalPage),
    ({}, 5, "t1." + "9" * 60, IllegalPage),
    ({"topic": "none"}, 5, None, TopicNotFound),
    ({"since_ms": 9, "until_ms": 9}, 5, None, InvalidRequest),
]


@pytest.mark.parametrize(("conditions", "page_size", "cursor", "error"), BAD)
async def test_bad_searches_are_refused(
    conditions: dict[str, object], page_size: int, cursor: str | None, error: type[Exception]
) -> None:
    async with running() as world:
        with pytest.raises(error):
            await world.broker.trace_search.search(
                query(world, **conditions), page_size=page_size, cursor=cursor
            )


async def test_a_sampled_topic_keeps_its_share_and_every_failure() -> None:
    async with running() as world:
        settings = TopicSettings(queues=1, trace=TraceMode.SAMPLED, trace_rate=0.1)
        await put_topic(world.broker, TOPIC, settings)
        await world.retry_at_once()
        await send(world, *[b"%d" % number for number in range(20)])
        received = await world.receive(20)
        await world.ack(*[each for each in received if each.message.queue_offset != 7])
        [seventh] = [each for each in received if each.message.queue_offset == 7]
        await world.nack(seventh)
        await world.ack(*await world.receive(1))
        events = await found(world)
        [sent] = [e for e in events if e.kind is TraceKind.SENT]
        assert (sent.queue_offset, sent.count) == (0, 2)
        for kind in (TraceKind.DELIVERED, TraceKind.ACKED):  # and the retry of the seventh
            assert [e.queue_offset for e in events if e.kind is kind] == [0, 10, 7]
        assert [e.queue_offset for e in events if e.kind is TraceKind.NACKED] == [7]


async def test_a_topic_that_is_not_traced_keeps_nothing() -> None:
    async with running() as world:
        await put_topic(world.broker, TOPIC, TopicSettings(queues=1, trace=TraceMode.OFF))
        await fail_and_ack(world)
        assert await found(world) == []


async def test_a_trace_survives_a_restart() -> None:
    async with running() as world:
        await fail_and_ack(world)
        before = await found(world)
        await world.restart()
        assert await found(world) == before
        trail = await world.broker.message_trace.trail(TOPIC, 0, 0)
        assert trail.sent is not None
        assert (trail.sent.producer, trail.sent.seconds, trail.sent.tries) == (SHOP, 0.002, 1)
