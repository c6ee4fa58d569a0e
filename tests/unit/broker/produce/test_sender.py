"""Sending: queue choice, batches, outcomes of failures, cancellation."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from app.broker.config import BrokerConfig
from app.broker.results import BatchItem, SendResult
from app.domain.delays import Due
from app.domain.errors import (
    BatchTooLarge,
    BodyTooLarge,
    CurlewError,
    DiskFull,
    IllegalDeliveryTime,
    IllegalTag,
    IllegalTopic,
    InvalidRequest,
    MalformedFrame,
    QueueNotFound,
    StoreFailed,
    TooManyRequests,
    TopicNotFound,
    TopicTypeConflict,
)
from app.domain.limits import Limits
from app.domain.message import Message, queue_for_sharding_key
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings, TopicType
from app.store import Appended, StepPart
from tests.support.clients.frames import request_frame
from tests.support.nodes.brokers import IDLE, TOPIC, World, put_topic, running
from tests.support.nodes.waiting import until
from tests.support.stores.memory_store import Held

pytestmark = pytest.mark.anyio

SMALL = Limits(body_bytes_max=10, batch_messages_max=5, batch_bytes_max=20)


def no_confirmations() -> list[Held]:
    return []


def placed(results: list[SendResult | CurlewError]) -> list[tuple[int, int]]:
    """(queue, offset) of each; all must have succeeded."""
    successes = [result for result in results if isinstance(result, SendResult)]
    assert len(successes) == len(results)
    return [(result.queue_id, result.queue_offset) for result in successes]


async def test_a_message_is_answered_with_its_place() -> None:
    async with running() as world:
        first = await world.broker.sender.send(TOPIC, Message(b"a"))
        second = await world.broker.sender.send(TOPIC, Message(b"b", message_id="mine"))
    assert (first.topic, first.queue_id, first.queue_offset) == (TOPIC, 0, 0)
    assert first.store_time_ms == world.clock.now_ms()
    assert (second.queue_offset, second.message_id) == (1, "mine")


async def test_queues_take_turns() -> None:
    async with running(queues=3) as world:
        sent = [await world.broker.sender.send(TOPIC, Message(b"a")) for _ in range(7)]
    assert [result.queue_id for result in sent] == [0, 1, 2, 0, 1, 2, 0]


async def test_a_sharding_key_has_one_queue() -> None:
    async with running(queues=4) as world:
        for key in ("order-17", "order-18", "größe"):
            message = Message(b"a", sharding_key=key)
            chosen = {(await world.broker.sender.send(TOPIC, message)).queue_id for _ in range(3)}
            assert chosen == {queue_for_sharding_key(key, 4)}


async def test_a_queue_can_be_named() -> None:
    async with running(queues=4) as world:
        message = Message(b"a", sharding_key="k")
        assert (await world.broker.sender.send(TOPIC, message, queue_id=2)).queue_id == 2
        with pytest.raises(QueueNotFound) as caught:
            await world.broker.sender.send(TOPIC, message, queue_id=4)
        assert caught.value.outcome == "not_stored"


async def test_flush_is_the_topic_s_unless_the_send_says_otherwise() -> None:
    async with running() as world:
        await world.broker.sender.send(TOPIC, Message(b"a"))
        await world.broker.sender.send(TOPIC, Message(b"a"), flush=FlushMode.SYNC)
        await world.broker.sender.send_batch(
            TOPIC, [BatchItem(Message(b"a"))], flush=FlushMode.SYNC
        )
    assert world.store.flushes[1:] == [FlushMode.ASYNC, FlushMode.SYNC, FlushMode.SYNC]


async def test_an_unknown_topic_has_a_hint() -> None:
    async with running() as world:
        with pytest.raises(TopicNotFound) as caught:
            await world.broker.sender.send("order", Message(b"a"))
        suggest = caught.value.suggest
        assert suggest is not None
        assert suggest(lambda kind, name: (kind, name) == ("topic", "orders")) == (
            "did you mean 'orders'?"
        )
        assert suggest(lambda *_: False) is None, "a name that the reader may not know of"
        assert caught.value.outcome == "not_stored"
        with pytest.raises(IllegalTopic):
            await world.broker.sender.send("no such topic", Message(b"a"))


async def test_a_first_send_makes_the_topic_where_that_is_on() -> None:
    config = replace(IDLE, auto_create_topics=True)
    async with running(config=config) as world:
        assert (await world.broker.sender.send("new", Message(b"a"))).topic == "new"
        assert "new" in world.metadata.snapshot.topics
        with pytest.raises(IllegalTopic):
            await world.broker.sender.send("not a name", Message(b"a"))
    assert not BrokerConfig().auto_create_topics


async def test_an_invalid_message_is_not_stored() -> None:
    async with running() as world:
        with pytest.raises(IllegalTag) as caught:
            await world.broker.sender.send(TOPIC, Message(b"a", tag="a|b"))
        assert caught.value.outcome == "not_stored"
        assert world.store.is_empty


@pytest.mark.parametrize("error", [DiskFull("full"), TooManyRequests("busy"), StoreFailed("no")])
async def test_a_refused_append_is_not_stored(error: CurlewError) -> None:
    async with running() as world:
        world.store.refusal = error
        for send in (
            world.broker.sender.send(TOPIC, Message(b"a")),
            world.broker.sender.send_frame(TOPIC, b"", queue_id=7),
        ):
            with pytest.raises(CurlewError) as caught:
                await send
            assert caught.value.outcome == "not_stored"
        [result] = await world.broker.sender.send_batch(TOPIC, [BatchItem(Message(b"a"))])
        assert result is error
        assert error.outcome == "not_stored"


async def test_a_failed_write_is_unknown_unless_the_store_knows_better() -> None:
    async with running() as world:
        world.store.failure = StoreFailed("fsync failed")
        with pytest.raises(StoreFailed) as caught:
            await world.broker.sender.send(TOPIC, Message(b"a"))
        assert caught.value.outcome == "unknown"
        world.store.failure = DiskFull("no room", outcome="not_stored")
        with pytest.raises(DiskFull) as full:
            await world.broker.sender.send(TOPIC, Message(b"a"))
        assert full.value.outcome == "not_stored"


async def test_a_send_waits_until_it_is_confirmed() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        world.store.held = held = no_confirmations()
        send = tasks.create_task(world.broker.sender.send(TOPIC, Message(b"a")))
        await until(lambda: len(held) == 1)
        assert not send.done()
        world.store.confirm()
        assert (await send).queue_offset == 0


async def test_a_cancelled_send_leaves_the_append_to_finish() -> None:
    async with running() as world:
        world.store.held = held = no_confirmations()
        async with asyncio.TaskGroup() as tasks:
            send = tasks.create_task(world.broker.sender.send(TOPIC, Message(b"kept")))
            await until(lambda: len(held) == 1)
            send.cancel()
        assert send.cancelled()
        world.store.confirm()
        [delivery] = await world.receive()
        assert delivery.message.body == b"kept"


async def test_a_batch_without_keys_goes_to_one_queue() -> None:
    async with running(queues=3) as world:
        items = [BatchItem(Message(b"a")) for _ in range(4)]
        first = placed(await world.broker.sender.send_batch(TOPIC, items))
        second = placed(await world.broker.sender.send_batch(TOPIC, items))
    assert first == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert second == [(1, 0), (1, 1), (1, 2), (1, 3)]


async def test_a_batch_can_be_spread_or_sent_to_a_named_queue() -> None:
    async with running(queues=3) as world:
        items = [BatchItem(Message(b"a")) for _ in range(4)]
        spread = placed(await world.broker.sender.send_batch(TOPIC, items, spread=True))
        named = placed(await world.broker.sender.send_batch(TOPIC, items, spread=True, queue_id=2))
    assert [queue for queue, _ in spread] == [0, 1, 2, 0]
    assert {queue for queue, _ in named} == {2}


async def test_entries_with_keys_or_queues_go_their_own_way() -> None:
    async with running(queues=4) as world:
        items = [
            BatchItem(Message(b"a", sharding_key="k")),
            BatchItem(Message(b"b")),
            BatchItem(Message(b"c"), queue_id=3),
            BatchItem(Message(b"d", sharding_key="k")),
            BatchItem(Message(b"e")),
        ]
        results = placed(await world.broker.sender.send_batch(TOPIC, items))
        key_queue = queue_for_sharding_key("k", 4)
        assert results[0][0] == results[3][0] == key_queue
        assert results[2][0] == 3
        assert results[1][0] == results[4][0]
        for (queue, offset), item in zip(results, items, strict=True):
            pulled = await world.pull(offset, queue_id=queue, max_messages=1)
            assert world.broker.puller.decode(pulled.read.records[0]).body == item.message.body


async def test_bad_entries_fail_alone_and_in_place() -> None:
    async with running(queues=2) as world:
        undecodable = InvalidRequest("entry is not an object")
        results = await world.broker.sender.send_batch(
            TOPIC,
            [
                BatchItem(Message(b"a")),
                undecodable,
                BatchItem(Message(b"b", tag="|")),
                BatchItem(Message(b"c"), queue_id=9),
                BatchItem(Message(b"d")),
            ],
        )
        kinds = [type(result) for result in results]
        assert kinds == [SendResult, InvalidRequest, IllegalTag, QueueNotFound, SendResult]
        errors = [result for result in results if isinstance(result, CurlewError)]
        assert {error.outcome for error in errors} == {"not_stored"}
        assert placed([results[0], results[4]]) == [(0, 0), (0, 1)]


async def test_a_strict_batch_is_all_or_nothing() -> None:
    async with running(queues=2) as world:
        good, bad = BatchItem(Message(b"a")), BatchItem(Message(b"b", tag="|"))
        results = await world.broker.sender.send_batch(TOPIC, [good, bad, good], strict=True)
        assert [type(result) for result in results] == [InvalidRequest, IllegalTag, InvalidRequest]
        assert all(
            isinstance(result, CurlewError) and result.outcome == "not_stored" for result in results
        )
        assert world.store.is_empty
        placed(await world.broker.sender.send_batch(TOPIC, [good, good], strict=True))


LARGE = 9_000
"""Messages of one batch: several parts, in several turns."""


def large(queues: int = 1) -> list[BatchItem | CurlewError]:
    """Messages whose body is their number, by turns for each queue."""
    return [BatchItem(Message(b"%05d" % n), queue_id=n % queues) for n in range(LARGE)]


def in_queue(world: World, queue_id: int) -> list[bytes]:
    records = world.store.queues[TOPIC, queue_id].records
    return [world.store.decode(memoryview(record)).body for record in records if record]


async def test_behind_a_refused_part_nothing_of_that_queue_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who repeats what was not stored has the order that a sharding key promises."""
    async with running(queues=2) as world:
        append = world.store.append
        calls: list[int] = []

        def refused_once(topic: str, queue_id: int, *rest: Any) -> Appended:
            calls.append(queue_id)
            if calls == [0, 0]:
                raise TooManyRequests("too much waits")
            return append(topic, queue_id, *rest)

        monkeypatch.setattr(world.store, "append", refused_once)
        items = large(queues=2)
        results = await world.broker.sender.send_batch(TOPIC, items)
        failed = [n for n, result in enumerate(results) if isinstance(result, CurlewError)]
        assert {type(results[n]) for n in failed} == {TooManyRequests}
        first = failed[0]
        assert first > 0
        assert failed == list(range(first, LARGE, 2)), "all behind it in queue 0, and no others"
        assert calls.count(0) == 2
        assert calls.count(1) > 1
        await world.broker.sender.send_batch(TOPIC, [items[n] for n in failed])
        for queue_id in (0, 1):
            assert in_queue(world, queue_id) == [b"%05d" % n for n in range(queue_id, LARGE, 2)]


async def test_behind_a_part_that_failed_nothing_of_that_queue_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was taken, and its write fails before the next part's turn."""
    async with running() as world:
        append = world.store.append

        def fails_at_first(*call: Any) -> Appended:
            appended = append(*call)
            world.store.failure = None
            return appended

        world.store.failure = DiskFull("no room", outcome="not_stored")
        monkeypatch.setattr(world.store, "append", fails_at_first)
        results = await world.broker.sender.send_batch(TOPIC, large())
        assert {type(result) for result in results} == {DiskFull}
        assert (TOPIC, 0) not in world.store.queues or in_queue(world, 0) == []


@pytest.mark.parametrize("count", [2, LARGE])
async def test_a_strict_batch_is_one_step(count: int) -> None:
    async with running(queues=2) as world:
        steps: list[int] = []
        append_step = world.store.append_step

        def one_step(parts: Sequence[StepPart], *rest: Any, **options: Any) -> list[Appended]:
            steps.append(sum(len(part.messages) for part in parts))
            if len(steps) == 1:
                raise TooManyRequests("too much waits")
            assert options == {"is_send": True, "answer": None}
            return append_step(parts, *rest, **options)

        world.store.append_step = one_step  # type: ignore[method-assign]
        items = large(queues=2)[:count]
        refused = await world.broker.sender.send_batch(TOPIC, items, strict=True)
        assert world.store.is_empty
        assert {type(result) for result in refused} == {TooManyRequests}
        world.store.failure = DiskFull("no room", outcome="not_stored")
        failed = await world.broker.sender.send_batch(TOPIC, items, strict=True)
        assert {type(result) for result in failed} == {DiskFull}
        world.store.failure = None
        results = await world.broker.sender.send_batch(TOPIC, items, strict=True)
        assert steps == [count] * 3
        assert placed(results) == [(n % 2, n // 2) for n in range(count)]


async def test_a_strict_batch_may_have_messages_for_later() -> None:
    async with running() as world:
        later = BatchItem(Message(b"later"), due=Due(60, is_delay=True))
        now = BatchItem(Message(b"now"))
        results = await world.broker.sender.send_batch(TOPIC, [later, now], strict=True)
        offsets = [each.queue_offset for each in results if isinstance(each, SendResult)]
        assert offsets == [-1, 0]
        assert in_queue(world, 0) == [b"now"]


async def test_a_batch_that_fails_to_be_written_says_so_per_entry() -> None:
    async with running(queues=2) as world:
        world.store.failure = StoreFailed("fsync failed")
        items: list[BatchItem | CurlewError]
        items = [BatchItem(Message(b"a")), InvalidRequest("bad"), BatchItem(Message(b"b"))]
        results = await world.broker.sender.send_batch(TOPIC, items, spread=True)
        outcomes = [result.outcome for result in results if isinstance(result, CurlewError)]
        assert outcomes == ["unknown", "not_stored", "unknown"]


async def test_bounds_of_batches() -> None:
    async with running(limits=SMALL) as world:
        one = BatchItem(Message(b"0123456789"))
        for items in ([one] * 3, [BatchItem(Message(b""))] * 6):
            with pytest.raises(BatchTooLarge) as caught:
                await world.broker.sender.send_batch(TOPIC, items)
            assert caught.value.outcome == "not_stored"
        with pytest.raises(InvalidRequest):
            await world.broker.sender.send_batch(TOPIC, [])
        with pytest.raises(QueueNotFound):
            await world.broker.sender.send_batch(TOPIC, [one], queue_id=1)
        [result] = await world.broker.sender.send_batch(TOPIC, [BatchItem(Message(b"01234567890"))])
        assert isinstance(result, BodyTooLarge)
        assert len(placed(await world.broker.sender.send_batch(TOPIC, [one, one]))) == 2


async def test_a_damaged_frame_is_refused_whole() -> None:
    async with running() as world:
        with pytest.raises(MalformedFrame) as caught:
            await world.broker.sender.send_frame(TOPIC, b"CRLW" + bytes(28))
        assert caught.value.outcome == "not_stored"
        assert world.store.is_empty


def is_in_queue(world: World, bodies: list[bytes]) -> bool:
    return in_queue(world, 0) == bodies


@pytest.mark.parametrize(("keys", "threads"), [((), 0), (("k",), 0), (("k", "order-{}"), 1)])
async def test_only_many_properties_are_checked_on_a_thread(
    monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], threads: int
) -> None:
    """Where there are none, or all messages have the same, a thread costs more than the check."""
    loop = asyncio.get_running_loop()
    run, checked = loop.run_in_executor, []

    def note(executor: Any, function: Any, *arguments: Any) -> Any:
        checked.append(function)
        return run(executor, function, *arguments)

    messages = [Message(b"x" * 200, keys=tuple(k.format(n) for k in keys)) for n in range(5_000)]
    async with running() as world:
        monkeypatch.setattr(loop, "run_in_executor", note)
        sent = await world.broker.sender.send_frame(TOPIC, request_frame(messages, TOPIC))
    assert (sent.count, len(checked)) == (5_000, threads)


async def test_a_frame_may_have_records_for_later() -> None:
    async with running() as world:
        now_ms = world.clock.now_ms()
        messages = [Message(b"%d" % n, tag="t", properties={"n": str(n)}) for n in range(4)]
        body = request_frame(messages, TOPIC, [-60_000, 0, now_ms + 30_000, now_ms - 1])
        result = await world.broker.sender.send_frame(TOPIC, body, queue_id=0)
        assert (result.first_queue_offset, result.count, result.delayed_count) == (0, 4, 2)
        assert len(set(result.message_ids)) == 4
        assert in_queue(world, 0) == [b"1", b"3"]
        for seconds, sent in ((31, [b"1", b"3", b"2"]), (30, [b"1", b"3", b"2", b"0"])):
            world.clock.advance(s=seconds)
            await world.broker.delays.turn()
            await until(partial(is_in_queue, world, sent))


async def test_a_frame_that_is_all_for_later_has_no_offset() -> None:
    async with running() as world:
        result = await world.broker.sender.send_frame(
            TOPIC, request_frame([Message(b"a")] * 2, TOPIC, [-1000, -1000])
        )
        assert (result.first_queue_offset, result.delayed_count) == (-1, 2)


async def test_a_delivery_time_too_far_ahead_names_its_record() -> None:
    async with running() as world:
        body = request_frame([Message(b"a")] * 3, TOPIC, [0, -1000, -(2**50)])
        with pytest.raises(IllegalDeliveryTime, match="record 2") as caught:
            await world.broker.sender.send_frame(TOPIC, body)
        assert (caught.value.fields["index"], caught.value.outcome) == (2, "not_stored")
        assert world.store.is_empty


@pytest.mark.parametrize(
    ("kind", "times", "is_taken"),
    [
        (TopicType.DELAY, None, False),
        (TopicType.DELAY, [-1, 0], False),
        (TopicType.DELAY, [-1, -1], True),
        (TopicType.FIFO, [-1, 0], False),
    ],
)
async def test_the_type_of_a_topic_holds_for_every_record(
    kind: TopicType, times: list[int] | None, is_taken: bool
) -> None:
    async with running() as world:
        await put_topic(world.broker, TOPIC, TopicSettings(type=kind))
        body = request_frame([Message(b"a")] * 2, TOPIC, times)
        if is_taken:
            assert (await world.broker.sender.send_frame(TOPIC, body)).delayed_count == 2
        else:
            with pytest.raises(TopicTypeConflict):
                await world.broker.sender.send_frame(TOPIC, body)
