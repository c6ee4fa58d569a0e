"""The largest message that may be sent survives every way that it can go, whatever is added to it.

And so does one that was stored before its texts were bounded, or by another program.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec.structs import replace

from app.broker.dedup.tokens import KeyToken, ProducerToken
from app.broker.failures.dead_letter_admin import Selection
from app.broker.jobs import OperationState
from app.broker.results import BatchItem, Nack, Send
from app.broker.retries_and_dead_letters import fitted
from app.broker.transactions.transaction_table import TransactionState
from app.domain.delays import Due
from app.domain.errors import PropertiesTooLarge
from app.domain.limits import (
    CONTENT_TYPE_BYTES_MAX,
    COPY_PROPERTIES_BYTES_MAX,
    KEY_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    MESSAGE_PROPERTIES_BYTES_MAX,
    NAME_CHARS_MAX,
    PROPERTIES_ENCODED_BYTES_MAX,
    REASON_BYTES_MAX,
    SHARDING_KEY_BYTES_MAX,
    Limits,
)
from app.domain.message import Message, StoredMessage, check_message
from app.domain.positions import FlushMode, TimestampMs
from app.domain.schedules import ScheduleSettings
from app.domain.settings import CustomizedRetry, GroupSettings
from app.store.formats.record.record import (
    CHECKSUM_BYTES,
    PROPERTIES_BYTES_MAX,
    decode_fields,
    encode_properties,
)
from tests.support.nodes.brokers import World
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

TOPIC = "t" * NAME_CHARS_MAX
OTHER = "o" * NAME_CHARS_MAX
GROUP = "g" * NAME_CHARS_MAX
REASON = "\N{SNOWMAN}" * REASON_BYTES_MAX
LIMITS = Limits(properties_bytes_max=32_000)


def largest() -> Message:
    """As many bytes of properties as may be sent; without an id, which only frames may bring."""
    message = Message(
        b"largest",
        tag="t" * LIMITS.tag_bytes_max,
        keys=tuple(f"{n:02}" + "k" * (KEY_BYTES_MAX - 2) for n in range(LIMITS.keys_count_max)),
        sharding_key="s" * SHARDING_KEY_BYTES_MAX,
        content_type="text/" + "c" * (CONTENT_TYPE_BYTES_MAX - 5),
        properties={"n": ""},
        born_time_ms=TimestampMs(2**63 - 1),
    )
    low, high = 1, LIMITS.properties_bytes_max
    while high - low > 1:  # the longest value that is taken
        middle = (low + high) // 2
        try:
            check_message(replace(message, properties={"n": "v" * middle}), LIMITS)
        except PropertiesTooLarge:
            high = middle
        else:
            low = middle
    return replace(message, properties={"n": "v" * low})


MESSAGE = largest()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(limits=LIMITS)
    await world.topic(name=TOPIC)
    await world.topic(name=OTHER)
    settings = GroupSettings(max_attempts=3, retry_policy=CustomizedRetry((0, 1_000)))
    await world.group(settings, GROUP)
    await world.broker.start()
    try:
        yield world
    finally:
        await world.broker.stop()


def records(world: World) -> list[int]:
    """Bytes of properties of every record of the store, with the checksum."""
    return [
        len(decode_fields(record).properties)
        for queue in world.store.queues.values()
        for record in queue.records
        if record is not None
    ]


def check(message: StoredMessage) -> None:
    """It is the message that was sent."""
    for name in ("body", "tag", "keys", "sharding_key", "content_type", "properties"):
        assert getattr(message, name) == getattr(MESSAGE, name), name
    assert message.born_time_ms == MESSAGE.born_time_ms


async def lapse(world: World, ms: int = 0) -> None:
    world.clock.advance(ms=ms)
    await world.broker.expire_leases()
    await world.broker.schedules.turn()
    await world.broker.delays.turn()


async def fail_until_dead(world: World, topic: str = TOPIC) -> None:
    """Nack with the longest reason until it is a dead letter."""
    for attempt in range(3):
        (delivery,) = await world.receive(group=GROUP, topic=topic)
        check(delivery.message)
        delay_ms = 1_000 if attempt else 0
        nack = Nack(delivery.receipt_handle, delay_ms, REASON)
        (result,) = await world.broker.settler.settle(topic, GROUP, nacks=[nack])
        assert result.error is None
        await lapse(world, 1_001)


async def redrive(world: World, to_topic: str | None = None) -> None:
    operation = world.broker.dead_letters.redrive(GROUP, Selection(), to_topic=to_topic)
    await until(lambda: operation.state is not OperationState.RUNNING)
    assert operation.state is OperationState.SUCCEEDED, operation.problem


async def sent(world: World) -> None:
    await world.broker.sender.send(TOPIC, MESSAGE)


async def sent_in_a_batch(world: World) -> None:
    (result,) = await world.broker.sender.send_batch(TOPIC, [BatchItem(MESSAGE)])
    assert not isinstance(result, Exception)


async def delayed(world: World) -> None:
    await world.broker.sender.send(TOPIC, MESSAGE, due=Due(10_000, is_delay=True))
    await lapse(world, 10_000)


async def committed(world: World) -> None:
    transactions = world.broker.transactions
    prepared = await transactions.prepare(TOPIC, MESSAGE, producer_group=GROUP)
    (asked,) = await prepared_checks(world)
    check(asked)
    await transactions.decide(prepared.transaction_id, TransactionState.COMMITTED)


async def prepared_checks(world: World) -> list[StoredMessage]:
    world.clock.advance(s=60)
    await world.broker.transactions.checks.turn()
    checks = await world.broker.transactions.checks.receive(
        GROUP, max_checks=9, wait_s=0, gone=lambda: False
    )
    return [each.message for each in checks]


async def scheduled(world: World) -> None:
    settings = ScheduleSettings(
        "* * * * *",
        TOPIC,
        MESSAGE.body,
        tag=MESSAGE.tag,
        keys=MESSAGE.keys,
        sharding_key=MESSAGE.sharding_key,
        properties=MESSAGE.properties,
        content_type=MESSAGE.content_type,
    )
    await world.broker.schedules.put("s" * NAME_CHARS_MAX, settings)
    await lapse(world, 60_000)
    await lapse(world)
    await world.metadata.schedules.remove("s" * NAME_CHARS_MAX)


async def requested(world: World) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(world.broker.request_reply.request(TOPIC, MESSAGE, 30.0))
        await until(lambda: world.store.bounds(TOPIC, 0).max_offset > 0)
        asking.cancel()


async def sent_with_acks(world: World) -> None:
    await world.broker.sender.send(OTHER, Message(b"input"))
    (delivery,) = await world.receive(group=GROUP, topic=OTHER)
    done = await world.broker.ack_and_produce.ack_and_send(
        OTHER, GROUP, [delivery.receipt_handle], [Send(TOPIC, BatchItem(MESSAGE))]
    )
    assert done.refused is None


async def sent_under_a_key(world: World) -> None:
    for _ in range(2):
        await world.broker.deduplicator.send(TOPIC, MESSAGE, KeyToken("k" * 255, "print"))


async def sent_in_sequence(world: World) -> None:
    for _ in range(2):
        await world.broker.deduplicator.send(TOPIC, MESSAGE, ProducerToken("p" * 255, 0, 0))


Way = Callable[[World], Awaitable[None]]
WAYS: list[Way] = [
    *(sent, sent_in_a_batch, delayed, committed, scheduled, requested),
    *(sent_with_acks, sent_under_a_key, sent_in_sequence),
]


def test_the_message_is_as_large_as_may_be() -> None:
    assert MESSAGE_PROPERTIES_BYTES_MAX - len(encode_properties(MESSAGE)) < 100


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
async def test_the_largest_message_survives_retries_its_death_and_redrives(
    way: Way, world: World
) -> None:
    await way(world)
    await (fail_scheduled(world) if way is scheduled else fail_until_dead(world))
    letters = world.broker.dead_letters
    assert letters.count(GROUP) == 1
    await redrive(world)
    await (fail_scheduled(world) if way is scheduled else fail_until_dead(world))
    await redrive(world, OTHER)
    assert letters.count(GROUP) == 0
    end = world.store.bounds(OTHER, 0).max_offset
    read = world.store.read(OTHER, 0, end - 1, max_messages=1, max_bytes=1 << 20)
    assert world.store.decode(read.records[0]).sharding_key == MESSAGE.sharding_key
    assert max(records(world)) <= PROPERTIES_ENCODED_BYTES_MAX


async def fail_scheduled(world: World) -> None:
    """As `fail_until_dead`; a schedule gives its messages no born time."""
    for attempt in range(3):
        (delivery,) = await world.receive(group=GROUP, topic=TOPIC)
        assert delivery.message.keys == MESSAGE.keys
        nack = Nack(delivery.receipt_handle, 1_000 if attempt else 0, REASON)
        await world.broker.settler.settle(TOPIC, GROUP, nacks=[nack])
        await lapse(world, 1_001)


# --- messages that are there already


OVERLONG = {
    "a sharding key": Message(b"old", sharding_key="k" * 65_458),
    "keys": Message(b"old", keys=("k" * 30_000, "l" * 30_000), tag="t"),
    "properties": Message(b"old", properties={str(n): "v" * 6_000 for n in range(10)}, tag="t"),
    "an id": Message(b"old", message_id="i" * 30_000, properties={"n": "v" * 30_000}),
    "all": Message(b"old", content_type="c" * 65_000, tag="t"),
    "between the bounds": Message(b"old", sharding_key="k" * 40_000, properties={"n": "v"}),
}


@pytest.mark.parametrize("name", OVERLONG)
async def test_a_message_that_is_too_large_is_retried_and_dies_without_a_fault(
    name: str, world: World
) -> None:
    message = OVERLONG[name]
    assert len(encode_properties(message)) <= PROPERTIES_BYTES_MAX
    world.store.append(TOPIC, 0, [message], FlushMode.ASYNC, lambda _error: None)
    await world.broker.sender.send(TOPIC, Message(b"behind it"))
    for attempt in range(3):
        deliveries = await world.receive(group=GROUP, topic=TOPIC)
        assert [each.message.body for each in deliveries] == [b"old", b"behind it"]
        if attempt == 0:
            assert deliveries[0].message.properties == message.properties
            assert deliveries[0].message.sharding_key == message.sharding_key
        await lapse(world, 31_000)
        await lapse(world, 2_000)
    assert world.broker.dead_letters.count(GROUP) == 2
    assert world.broker.health.troubles() == []
    assert max(records(world)) <= PROPERTIES_BYTES_MAX + CHECKSUM_BYTES
    await redrive(world)


def test_as_little_as_possible_is_cut() -> None:
    small = Message(b"x", sharding_key="k", properties={"a": "b"})
    assert fitted(small) is small
    fits = Message(b"x", sharding_key="k" * (COPY_PROPERTIES_BYTES_MAX - 100), tag="t")
    assert fitted(fits) == fits
    with_reason = replace(fits, system={"MQ_REASON": "r" * 200, "RETRY_TOPIC": "t"})
    assert fitted(with_reason) == replace(fits, system={"RETRY_TOPIC": "t"})
    several = Message(
        b"x", sharding_key="k" * 20_000, keys=("k" * 15_000,), properties={"large": "v" * 30_000}
    )
    assert fitted(several) == replace(several, properties={})


@pytest.mark.parametrize("letter", ["x", "\N{SNOWMAN}", "🐦"])
def test_whatever_is_fitted_fits(letter: str) -> None:
    for count in (1, 7, 128):
        for total in range(60_000, 65_000, 500):
            value = letter * (total // count // len(letter.encode()))
            message = Message(
                b"x",
                sharding_key=value,
                message_id="i" * MESSAGE_ID_BYTES_MAX,
                properties={str(n): value for n in range(count)},
            )
            assert len(encode_properties(fitted(message))) <= COPY_PROPERTIES_BYTES_MAX
