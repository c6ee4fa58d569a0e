"""What is heavy at the limits takes no long turn of the event loop, on a real node and disk."""

import asyncio
import dataclasses
import json
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.api.http.request_context import AsgiApp
from app.broker.dedup.dedup_table import DedupTable
from app.broker.dedup.tokens import Placed, ProducerToken
from app.broker.leasing.holders import Holder
from app.broker.results import BatchItem, QueuePosition, ReceiveRequest
from app.config import Config
from app.domain.errors import SequenceOutOfOrder, StateConflict
from app.domain.limits import MIB, NAME_CHARS_MAX, Limits
from app.domain.message import Message
from app.domain.names import FLOORS_TOPIC, nearest
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings, TopicSettings
from app.node import Node
from app.node_app import NodeApp
from app.store.topics.topic_floors import TopicState
from tests.support.clients.asgi import Answer, call
from tests.support.clients.frames import request_frame
from tests.support.loop_turns import TurnWatch
from tests.support.metadata.migrated_file import migrate_by_copy
from tests.support.nodes.brokers import never_gone, put_group, put_topic
from tests.support.nodes.waiting import until
from tests.support.stores.stores import undispatched_bytes

pytestmark = pytest.mark.anyio
QUEUES = Limits().queues_per_topic_max
PRODUCERS = 10_000
"""A tenth of what the limits allow. How long a turn is does not depend on it; the time does."""


def migrated_in(root: Path) -> Config:
    root.mkdir(exist_ok=True)
    config = Config(data_dir=root, segment_mib=64)
    migrate_by_copy(config.database)
    return config


@asynccontextmanager
async def open_node(root: Path, limits: Limits | None = None) -> AsyncIterator[Node]:
    config = migrated_in(root)
    node = await Node.open(config, limits=limits)
    try:
        yield node
    finally:
        await node.close()


async def fill_queues(node: Node, topic: str) -> None:
    """A message in each of as many queues as a topic may have."""
    await put_topic(node.broker, topic, TopicSettings(queues=QUEUES))
    items = [BatchItem(Message(b"x", sharding_key=None)) for _ in range(QUEUES)]
    await node.broker.sender.send_batch(topic, items, spread=True)


async def test_the_first_checkpoint_of_many_queues(tmp_path: Path, turn_watch: TurnWatch) -> None:
    async with open_node(tmp_path) as node:
        await node.leading.checkpoint()  # warm
        await fill_queues(node, "orders")
        before = undispatched_bytes(node.store)
        assert before >= 20 * QUEUES
        with turn_watch.short_turns():
            await node.leading.checkpoint()
        assert undispatched_bytes(node.store) < before / 10


def fill_producers(table: DedupTable, results: int) -> None:
    """As after so many sends of each producer; they share their results to save memory."""
    shared = deque((seq, Placed.in_one_queue(2, 10**9 + seq, 1)) for seq in range(results))
    for number in range(PRODUCERS):
        claim = ProducerToken(f"producer-{number}:0", 10**12, 0)
        entry = table.entry(claim, "orders", -1, Placed.in_one_queue(0, 0, 1), 10**13)
        table.taken(entry)(True)
        sequence = table._producers[claim.producer_id].sequences["orders", -1]
        sequence.results, sequence.next_seq = shared, results


async def test_a_snapshot_of_many_producers(tmp_path: Path, turn_watch: TurnWatch) -> None:
    """Larger than what may wait to be written."""
    limits = Limits(batch_bytes_max=4 * MIB, pending_append_bytes_max=4 * MIB)
    async with open_node(tmp_path, limits) as node:
        table = node.broker.dedup_journal.table
        await node.broker.dedup_journal.journal.write_snapshot()  # warm
        fill_producers(table, limits.producer_results_max)
        written = node.store.status().written_end
        with turn_watch.short_turns():
            await node.broker.dedup_journal.journal.write_snapshot()
        assert node.store.status().written_end - written > 4 * limits.pending_append_bytes_max
        state = table.state("producer-7:0")
    async with open_node(tmp_path) as node:
        assert node.broker.producers.state("producer-7:0") == state
        assert node.broker.producers.state(f"producer-{PRODUCERS - 1}:0").epoch == 10**12


BATCHES = {
    "large bodies": {"text": "x" * 2_900, "tag": "a"},
    "many keys": {"text": "x", "keys": [f"key-{number}" for number in range(32)]},
    "many properties": {"text": "x", "properties": {f"name-{n}": "value" for n in range(100)}},
    "faults": {"text": "x", "tagg": "x"},
    "nothing": 0,
}


@pytest.mark.parametrize("kind", BATCHES)
async def test_the_largest_batches(tmp_path: Path, turn_watch: TurnWatch, kind: str) -> None:
    count = 10_000 if kind != "nothing" else 10_000_000
    entry = json.dumps(BATCHES[kind])
    body = f'{{"messages":[{",".join([entry] * count)}]}}'.encode()
    async with open_node(tmp_path) as node:
        # what is synced is confirmed together
        flush = FlushMode.SYNC if kind == "many keys" else FlushMode.ASYNC
        await put_topic(node.broker, "orders", TopicSettings(queues=4, flush=flush))
        app = NodeApp(node)
        await post(app, json.dumps({"messages": [BATCHES["many keys"]]}).encode())  # warm
        with turn_watch.short_turns():
            answer = await post(app, body)
            await until(lambda: not node.store.index.is_behind)
        stored = sum(node.store.bounds("orders", queue_id).max_offset for queue_id in range(4)) - 1
        if kind in {"faults", "nothing"}:
            assert answer.status in {400, 413}
            assert stored == 0
        else:
            assert answer.status == 200
            results = answer.json()["results"]
            assert [each["index"] for each in results] == list(range(count))
            assert stored == count
            offsets = [each["queue_offset"] for each in results]
            assert offsets == sorted(offsets), "the order of the batch is that of the queue"


@pytest.mark.parametrize("kind", ["large bodies", "many keys"])
async def test_the_largest_frame(tmp_path: Path, turn_watch: TurnWatch, kind: str) -> None:
    messages = [Message(bytes(3_000), keys=("k",), properties={"a": "b"})] * 10_000
    if kind == "many keys":
        keys = [tuple(f"key-{number}-{key}" for key in range(32)) for number in range(10_000)]
        messages = [Message(b"x", keys=each) for each in keys]
    body = request_frame(messages, "orders")
    async with open_node(tmp_path) as node:
        await put_topic(node.broker, "orders", TopicSettings(queues=1, flush=FlushMode.ASYNC))
        await node.broker.sender.send_frame("orders", request_frame(messages[:2], "orders"))  # warm
        with turn_watch.short_turns():
            await node.broker.sender.send_frame("orders", body)
            await until(lambda: not node.store.index.is_behind)
        assert node.store.bounds("orders", 0) == (0, 10_002)
        found = node.store.find_by_key("orders", messages[-1].keys[-1], wait_for_disk=True)
        assert node.store.decode(found[-1]).queue_offset == 10_001


async def test_many_delayed_messages(tmp_path: Path, turn_watch: TurnWatch) -> None:
    async with open_node(tmp_path) as node:
        await put_topic(node.broker, "orders", TopicSettings(queues=4, flush=FlushMode.ASYNC))
        app = NodeApp(node)
        await post(app, batch_of({"text": "x", "delay": "1h"}, 2))  # warm
        with turn_watch.short_turns():
            answer = await post(app, batch_of({"text": "x", "delay": "1h"}, 10_000))
        results = answer.json()["results"]
        assert [each["index"] for each in results] == list(range(10_000))
        assert len({each["recall_handle"] for each in results}) == 10_000
        await node.broker.delays.catch_up()
        assert node.broker.delays.waiting_count("orders") == 10_002


async def test_a_large_batch_that_is_stored_once(tmp_path: Path, turn_watch: TurnWatch) -> None:
    body = batch_of({"text": "x" * 100}, 10_000)
    key = {b"idempotency-key": b"once"}
    async with open_node(tmp_path) as node:
        await put_topic(node.broker, "orders", TopicSettings(queues=4, flush=FlushMode.ASYNC))
        app = NodeApp(node)
        for _ in range(2):
            await post(app, batch_of({"text": "x"}, 1), {b"idempotency-key": b"warm"})
        with turn_watch.short_turns():
            first = await post(app, body, key)
        with turn_watch.short_turns():
            again = await post(app, body, key)
        assert again.json() == first.json()
        stored = [node.store.bounds("orders", queue_id).max_offset for queue_id in range(4)]
        assert sum(stored) == 10_001


TURNS_MEASURED_MAX = 3
"""The first use of memory that the machine has given back to its host costs several times as much.
What the code itself needs, it needs each time."""
ONE_STEP = {
    "plain": {"text": "x"},
    "many properties": BATCHES["many properties"],
    "delayed": {"text": "x", "delay": "1h"},
}


@pytest.mark.parametrize(
    ("promise", "kind"),
    [
        *(("a claim", kind) for kind in ("many properties", "delayed", "many keys", "many queues")),
        *(("strict", kind) for kind in ("plain", "many properties")),
    ],
)
async def test_a_large_batch_in_one_step(
    tmp_path: Path, turn_watch: TurnWatch, promise: str, kind: str
) -> None:
    """What is promised to be stored whole is shown whole, and no turn has all of it to do."""
    if kind == "many keys":
        entries = [
            {"text": "x", "keys": [f"{n}-{key}" for key in range(32)]} for n in range(10_000)
        ]
        body = json.dumps({"messages": entries}).encode()
    else:
        body = batch_of(ONE_STEP.get(kind, {"text": "x"}), 10_000)
    headers = {b"prefer": b"handling=strict"} if promise == "strict" else {b"idempotency-key": b"k"}
    for attempt in range(TURNS_MEASURED_MAX):
        await store_in_one_step(tmp_path / str(attempt), turn_watch, kind, body, headers)
        if turn_watch.is_short:
            return
    turn_watch.check()


async def store_in_one_step(
    directory: Path, turn_watch: TurnWatch, kind: str, body: bytes, headers: dict[bytes, bytes]
) -> None:
    queues = QUEUES if kind == "many queues" else 4
    async with open_node(directory) as node:
        await put_topic(node.broker, "orders", TopicSettings(queues=queues, flush=FlushMode.ASYNC))
        app = NodeApp(node)
        await post(app, batch_of({"text": "x"}, 1_000), {b"idempotency-key": b"warm"})

        def stored() -> int:
            offsets = [node.store.bounds("orders", queue).max_offset for queue in range(queues)]
            return sum(offsets) - 1_000

        with turn_watch.measured():
            seen = set()
            async with asyncio.TaskGroup() as group:
                sent = group.create_task(post(app, body, headers, b"spread=true"))
                while not sent.done():
                    seen.add(stored())
                    await asyncio.sleep(0)
            answer = sent.result()
            await until(lambda: not node.store.index.is_behind)
        assert answer.status == 200
        results = answer.json()["results"]
        assert [each["index"] for each in results] == list(range(10_000))
        if kind == "delayed":
            await node.broker.delays.catch_up()
            assert node.broker.delays.waiting_count("orders") == 10_000
        else:
            assert seen <= {0, 10_000}
            assert stored() == 10_000
            places = {(each["queue_id"], each["queue_offset"]) for each in results}
            assert len(places) == 10_000


async def test_sealing_and_forgetting_many_producers(tmp_path: Path, turn_watch: TurnWatch) -> None:
    limits = Limits()
    async with open_node(tmp_path) as node:
        await put_topic(node.broker, "orders", TopicSettings(queues=1))
        producers = node.broker.producers
        await producers.seal("other", 1)  # warm
        for number in range(limits.producers_max):
            claim = ProducerToken(f"producer:{number}", 1, 0)
            placed = Placed.in_one_queue(0, number, 1)
            producers._table.taken(producers._table.entry(claim, "orders#1", -1, placed, 10**13))(
                True
            )
        with turn_watch.short_turns():
            with pytest.raises(SequenceOutOfOrder) as short:
                await producers.seal("producer", 1, limits.producers_max + 1)
            assert short.value.fields == {"stored": limits.producers_max}
            assert producers.state("producer:7").epoch == 1
            await producers.seal("producer", 1, limits.producers_max)
            assert producers.state(f"producer:{limits.producers_max - 1}").epoch is None
            await until(lambda: not producers._table._closed)
        assert not producers._table._producers
        assert not producers._table._sequence_count


async def test_the_topic_of_many_producers_is_deleted(
    tmp_path: Path, turn_watch: TurnWatch
) -> None:
    async with open_node(tmp_path) as node:
        producers = node.broker.producers
        for number in range(Limits().producers_max):
            claim = ProducerToken(f"producer:{number}", 1, 0)
            placed = Placed.in_one_queue(0, number, 1)
            producers._table.taken(producers._table.entry(claim, "orders#7", -1, placed, 10**13))(
                True
            )
        with turn_watch.short_turns():
            node.broker.dedup_journal.forget_topic("orders", 7)
            assert producers.state("producer:99999").sequences == []
            await until(lambda: not producers._table._gone)
        known = producers._table._producers
        assert not any(each.sequences for each in known.values())


async def test_the_topic_of_groups_that_hold_much_is_deleted(
    tmp_path: Path, turn_watch: TurnWatch
) -> None:
    """Half a million leases, held by clients whose messages are counted."""
    count = Limits().group_in_flight_max
    async with open_node(tmp_path) as node:
        await put_topic(node.broker, "orders", TopicSettings(queues=1))
        groups = [f"workers-{number}" for number in range(500_000 // count)]
        holders = []
        for name in ["warm", *groups]:
            await put_group(node.broker, name, GroupSettings())
            await node.broker.receiver.receive("orders", name, ReceiveRequest(), gone=never_gone)
            subscription = node.broker.groups.find(name, "orders")
            assert subscription is not None
            holders.append(Holder(subscription.in_flight))
            leases = subscription.queues[0].leases.grant(range(count), 1, 10**9)
            for lease in leases:
                lease.holder, lease.size = holders[-1], 1
            holders[-1].take(count, count)
        await node.broker.settings_changes.delete_group("warm")
        with turn_watch.short_turns():
            await asyncio.sleep(0)
            await node.broker.settings_changes.delete_topic("orders")
            assert node.broker.groups.find(groups[-1], "orders") is None
            await until(lambda: not any(holder.count for holder in holders))
            await asyncio.sleep(0)


async def test_the_topic_of_many_groups_and_queues_is_deleted(
    tmp_path: Path, turn_watch: TurnWatch
) -> None:
    """Fifty groups, each of which has a lease in all queues that a topic may have."""
    groups = [f"readers-{number}" for number in range(50)]
    request = ReceiveRequest(max_messages=QUEUES, invisible_ms=3_600_000)
    async with open_node(tmp_path, Limits(receive_messages_max=QUEUES)) as node:
        broker = node.broker
        await put_topic(broker, "warm", TopicSettings())
        await fill_queues(node, "orders")
        for group in groups:
            await put_group(broker, group, GroupSettings())
            left = QUEUES  # what has to be read from the disk may come with the next one
            while left:
                taken = await broker.receiver.receive("orders", group, request, gone=never_gone)
                assert taken.deliveries
                left -= len(taken.deliveries)
        await broker.settings_changes.delete_topic("warm")
        with turn_watch.short_turns():
            await asyncio.sleep(0)
            await broker.settings_changes.delete_topic("orders")
            assert not broker.consumer_journal.topics(groups[-1])
            await asyncio.sleep(0)
        assert not broker.offset_cache.pairs()
        assert broker.consumer_journal.find((groups[0], "orders", 0)) is None


async def test_as_many_deleted_names_as_are_remembered(
    tmp_path: Path, turn_watch: TurnWatch
) -> None:
    limits = Limits()
    count = limits.deleted_names_max + limits.topics_max + limits.groups_max
    async with open_node(tmp_path) as node:
        for number in range(count):
            state = TopicState(f"a-topic-of-some-{number}", number + 1, True, [(0, 9), (1, 9)])
            node.store.names._keep(state)
        journal, told = node.store.floor_journal, asyncio.Event()
        journal._entries = count  # as after their deletion
        journal._written_at = -2 * journal._appender.segment_bytes
        with turn_watch.short_turns():
            await asyncio.sleep(0)  # the turns are measured from the next one on
            assert journal.renew(lambda _error: told.set())
            await told.wait()
            await asyncio.sleep(0)
            assert node.store.hidden_topics(()) == []
            await asyncio.sleep(0)
            with pytest.raises(StateConflict):
                await put_topic(node.broker, "new", TopicSettings(queues=1))
        low, high = node.store.bounds(FLOORS_TOPIC, 0)
        assert high - low == count
    async with open_node(tmp_path) as node:
        assert node.store.names.deleted_names == count


async def test_a_trace_and_a_queue_for_a_large_batch(tmp_path: Path, turn_watch: TurnWatch) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    properties = {f"name-{number}": "x" for number in range(100)}
    async with open_node(tmp_path) as node:
        await put_topic(node.broker, "orders", TopicSettings(queues=4, flush=FlushMode.ASYNC))
        app = NodeApp(node)
        body = batch_of({"text": "x", "properties": properties}, 10_000)
        for _ in range(2):  # the first time to warm
            with turn_watch.measured():
                answer = await post(app, body, {b"traceparent": trace.encode()}, b"queue_id=2")
            assert {each["queue_id"] for each in answer.json()["results"]} == {2}
        turn_watch.check()
        read = node.store.read("orders", 2, 10_000, max_messages=1, max_bytes=MIB)
        assert node.store.decode(read.records[0]).properties == {**properties, "traceparent": trace}


async def test_the_figures_of_many_groups(tmp_path: Path, turn_watch: TurnWatch) -> None:
    async with open_node(tmp_path) as node:
        app = NodeApp(node)
        await call(app, "GET", "/metrics")  # warm
        await put_group(node.broker, "workers", GroupSettings())
        snapshot = node.metadata.snapshot
        group = snapshot.groups["workers"]
        groups = {f"workers-{number}": group for number in range(Limits().groups_max)}
        node.metadata.snapshot = dataclasses.replace(snapshot, groups=groups)
        with turn_watch.short_turns():
            await asyncio.sleep(0)
            answer = await call(app, "GET", "/metrics")
            await asyncio.sleep(0)
        assert re.search(rb"\nrocketmq_consumer_group_number\{[^}]*\} 10000\n", answer.body)
        assert b"\ncurlew_dead_letters 0\n" in answer.body


async def test_the_lag_over_many_topics(tmp_path: Path, turn_watch: TurnWatch) -> None:
    async with open_node(tmp_path) as node:
        app = NodeApp(node)
        for topic in [f"orders-{number}" for number in range(8)]:
            await put_topic(node.broker, topic, TopicSettings(queues=QUEUES))
            rows = [QueuePosition(queue_id, 0) for queue_id in range(QUEUES)]
            await node.broker.offset_commits.commit("workers", topic, rows)
        await call(app, "GET", "/v1/groups/workers/lag", query=b"topic=orders-1")  # warm
        with turn_watch.short_turns():
            answer = await call(app, "GET", "/v1/groups/workers/lag")
        assert answer.json()["ready"] == 0
        assert [len(each["queues"]) for each in answer.json()["topics"]] == [QUEUES] * 8


async def test_a_hint_at_one_of_many_names(turn_watch: TurnWatch) -> None:
    tenant = "the-orders-of-a-tenant-with-a-long-name-" * 3
    names = [f"{tenant}{number:07}" for number in range(Limits().topics_max)]
    with turn_watch.short_turns():
        await asyncio.sleep(0)
        assert nearest(names[77].replace("tenant", "tennat", 1), names) == names[77]
        await asyncio.sleep(0)
        assert nearest("x" * NAME_CHARS_MAX, names) is None
        await asyncio.sleep(0)


def batch_of(entry: object, count: int) -> bytes:
    return f'{{"messages":[{",".join([json.dumps(entry)] * count)}]}}'.encode()


async def post(
    app: AsgiApp, body: bytes, more: dict[bytes, bytes] | None = None, query: bytes = b""
) -> Answer:
    headers = {b"content-type": b"application/json", **(more or {})}
    path = "/v1/topics/orders/messages:batch"
    return await call(app, "POST", path, body, headers=headers, query=query)


@pytest.mark.parametrize("point", ["positions", "latest", "1"])
async def test_where_many_topics_stand(tmp_path: Path, turn_watch: TurnWatch, point: str) -> None:
    """As many queues as a node may have, in one answer."""
    topics = [f"topic-{number}" for number in range(Limits().queues_max // QUEUES)]
    async with open_node(tmp_path) as node:
        for topic in topics:
            await put_topic(node.broker, topic, TopicSettings(queues=QUEUES))
        app = NodeApp(node)

        async def get(names: list[str]) -> Answer:
            query = f"topics={','.join(names)}"
            if point == "positions":
                return await call(app, "GET", "/v1/topics:positions", query=query.encode())
            query += f"&at={point}"
            return await call(app, "GET", "/v1/topics:offsets", query=query.encode())

        await get(topics[:1])  # warm
        with turn_watch.short_turns():
            await asyncio.sleep(0)  # only turns that begin within the block are measured
            answer = await get(topics)
            await asyncio.sleep(0)
        assert answer.status == 200
        assert [each["topic"] for each in answer.json()["topics"]] == topics
