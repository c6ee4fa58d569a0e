"""Metrics by topic and group: RocketMQ's names and labels, and a bound on them."""

import re

import pytest

from app.api.telemetry.metrics import Sources
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker.figures.clients import Caller
from app.broker.results import Nack, QueuePosition
from app.domain.limits import METRIC_LABELS_MAX, Limits
from app.domain.message import Message
from app.domain.settings import GroupSettings, TopicSettings, TopicType
from tests.support.exposition import render_metrics
from tests.support.nodes.brokers import GROUP, TOPIC, World, put_topic, running

pytestmark = pytest.mark.anyio

SAMPLE = re.compile(r"([a-z_]+)\{([^}]*)\} (\S+)")


async def scraped(world: World) -> list[tuple[str, dict[str, str], float]]:
    broker = world.broker
    lags = await broker.lag.pair_lags(METRIC_LABELS_MAX)
    text = render_metrics(Sources(broker, world.metadata, RequestMetrics(), None, 0, lags))
    found = [SAMPLE.fullmatch(line) for line in text.splitlines()]
    return [
        (each[1], dict(re.findall(r'([a-z_]+)="([^"]*)"', each[2])), float(each[3]))
        for each in found
        if each
    ]


def summed(samples: list[tuple[str, dict[str, str], float]], name: str, **labels: str) -> float:
    """As PromQL has it: sum(name{labels})."""
    chosen = [
        value for each, its, value in samples if each == name and labels.items() <= its.items()
    ]
    assert chosen, f"{name} {labels} selects nothing"
    return sum(chosen)


def put(world: World, topic: str, count: int, size: int) -> None:
    figures = world.broker.statistics.topic(topic)
    assert figures is not None
    figures.put(count, size, 0.001)


async def test_a_dashboard_finds_what_goes_in_out_and_waits() -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await put_topic(world.broker, "timed", TopicSettings(type=TopicType.DELAY))
        put(world, TOPIC, 2, 5_000)
        put(world, "timed", 1, 10)
        await world.send(b"a", b"b", b"c", b"d")
        received = await world.receive(3)
        await world.ack(received[0])
        given_up = [Nack(received[1].receipt_handle)]
        await world.broker.settler.settle(TOPIC, GROUP, dead_letters=given_up)
        figures = world.broker.statistics.group(GROUP, TOPIC)
        assert figures is not None
        figures.given(3, 3)
        world.clock.advance(s=7)
        samples = await scraped(world)
        pair = {"consumer_group": GROUP, "topic": TOPIC}
        assert summed(samples, "rocketmq_messages_in_total", node_type="broker") == 3
        assert summed(samples, "rocketmq_messages_in_total", message_type="delay") == 1
        assert summed(samples, "rocketmq_throughput_in_total", topic=TOPIC) == 5_000
        assert summed(samples, "rocketmq_messages_out_total", **pair) == 3
        assert summed(samples, "rocketmq_throughput_out_total", **pair) == 3
        assert summed(samples, "rocketmq_consumer_lag_messages", **pair) == 2
        assert summed(samples, "rocketmq_consumer_ready_messages", **pair) == 1
        assert summed(samples, "rocketmq_consumer_inflight_messages", **pair) == 1
        assert summed(samples, "rocketmq_consumer_lag_latency", **pair) == 7_000
        assert summed(samples, "rocketmq_consumer_queueing_latency", **pair) == 7_000
        assert summed(samples, "rocketmq_send_to_dlq_messages_total", **pair) == 1
        assert summed(samples, "rocketmq_message_size_bucket", topic=TOPIC, le="4096") == 2
        assert summed(samples, "rocketmq_message_size_bucket", topic=TOPIC, le="1024") == 0
        labels = next(its for name, its, _ in samples if name == "rocketmq_messages_out_total")
        assert labels.keys() == {
            *("cluster", "node_type", "node_id", "topic", "consumer_group"),
            *("is_system", "is_retry"),
        }


async def test_a_group_that_has_all_of_it_in_flight_queues_nothing() -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await world.send(b"a")
        await world.receive(1)
        world.clock.advance(s=3)
        samples = await scraped(world)
        assert summed(samples, "rocketmq_consumer_lag_latency", consumer_group=GROUP) == 3_000
        assert summed(samples, "rocketmq_consumer_queueing_latency", consumer_group=GROUP) == 0


async def test_the_loudest_are_named_and_the_others_are_one_sample() -> None:
    async with running(limits=Limits(statistics_rows_max=METRIC_LABELS_MAX + 2)) as world:
        for number in range(METRIC_LABELS_MAX + 5):
            name = f"t{number:04}"
            await world.topic(name=name)
            put(world, name, 1 + number, 10)
        samples = await scraped(world)
        rows = [its["topic"] for name, its, _ in samples if name == "rocketmq_messages_in_total"]
        assert len(rows) == METRIC_LABELS_MAX + 1
        assert {"t0000", "t0001"}.isdisjoint(rows)
        count = METRIC_LABELS_MAX + 5
        assert summed(samples, "rocketmq_messages_in_total") == count * (count + 1) / 2
        without_room = sum(range(count - 2, count + 1))
        assert summed(samples, "rocketmq_messages_in_total", topic="_other") == 3 + without_room


async def test_the_groups_furthest_behind_are_named() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        for number in range(4):
            await world.group(GroupSettings(), name=f"g{number}")
            at = [QueuePosition(0, 0 if number == 3 else 1)]
            await world.broker.offset_commits.commit(f"g{number}", TOPIC, at)
        named, rest = await world.broker.lag.pair_lags(2)
        assert [(each.group, each.lag) for each in named] == [("g3", 2), ("g0", 1)]
        assert rest.lag == 2


def python(version: str) -> Caller:
    return Caller("10.0.0.1", f"curlew-client-python/{version}")


async def test_consumers_are_told_apart_as_rocketmq_does() -> None:
    async with running() as world:
        clients = world.broker.clients
        for group in ("billing", "audit"):
            await world.group(GroupSettings(), name=group)
        for kind in ("receive", "stream", "heartbeat", "poll"):
            clients.consumes("billing", {}, kind, "worker-1", python("1.2"))
        clients.consumes("billing", {}, "receive", "worker-2", python("1.2"))
        clients.consumes("audit", {}, "receive", "worker-1", Caller("10.0.0.1", "curl/8.0"))
        await world.topic()
        for topic in (TOPIC, "other"):
            await world.topic(name=topic)
            clients.produces(topic, ("worker-1", "send"), python("1.2"), 1)
        samples = await scraped(world)
        name = "rocketmq_consumer_connections"
        rows = [its for each, its, _ in samples if each == name]
        assert {frozenset(its) for its in rows} == {
            frozenset(
                {
                    *("cluster", "node_type", "node_id", "consumer_group", "consume_mode"),
                    *("language", "version", "protocol_type", "is_system"),
                }
            )
        }
        assert summed(samples, name, consumer_group="billing", consume_mode="pop") == 2
        assert summed(samples, name, consumer_group="billing", consume_mode="push") == 1
        assert summed(samples, name, consumer_group="billing", consume_mode="pull") == 1
        assert summed(samples, name, consumer_group="audit", language="other") == 1
        assert summed(samples, name, consumer_group="_other") == 0
        by_http = {"language": "python", "version": "1.2", "protocol_type": "http"}
        assert summed(samples, "rocketmq_producer_connections", **by_http) == 1


async def test_the_groups_with_the_most_consumers_are_named() -> None:
    async with running() as world:
        for number in range(METRIC_LABELS_MAX + 2):
            group = f"g{number:04}"
            await world.group(GroupSettings(), name=group)
            for consumer in range(1 if number < 2 else 2):
                world.broker.clients.consumes(
                    group, {}, "receive", f"worker-{consumer}", python("1.2")
                )
        samples = await scraped(world)
        name = "rocketmq_consumer_connections"
        rows = [its["consumer_group"] for each, its, _ in samples if each == name]
        assert len(rows) == len(set(rows)) == METRIC_LABELS_MAX + 1
        assert {"g0000", "g0001"}.isdisjoint(rows)
        assert summed(samples, name, consumer_group="_other") == 2


async def test_transactions_that_wait_are_told_apart_by_topic() -> None:
    async with running() as world:
        for topic, count in (("orders", 2), ("bills", 1)):
            await world.topic(name=topic)
            for _ in range(count):
                await world.broker.transactions.prepare(
                    topic, Message(body=b"x"), producer_group="pg"
                )
        samples = await scraped(world)
        name = "rocketmq_half_messages"
        found = {its["topic"]: value for each, its, value in samples if each == name}
        assert found == {"orders": 2, "bills": 1, "_other": 0}
