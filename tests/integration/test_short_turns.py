"""What is heavy at the limits takes no long turn of the event loop, on a real node and disk."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.broker.claims import Placed, ProducerClaim
from app.broker.producer_table import ProducerTable
from app.broker.results import BatchItem
from app.cluster import migrate
from app.config import Config
from app.domain.limits import MIB, Limits
from app.domain.message import Message
from app.domain.settings import TopicSettings
from app.node import Node
from tests.support.loop_turns import TurnWatch

pytestmark = pytest.mark.anyio
QUEUES = Limits().queues_per_topic_max
PRODUCERS = 10_000
"""A tenth of what the limits allow. How long a turn is does not depend on it; the time does."""


@asynccontextmanager
async def open_node(root: Path, limits: Limits | None = None) -> AsyncIterator[Node]:
    config = Config(data_dir=root, segment_mib=64)
    migrate(config.database)
    node = await Node.open(config, limits=limits)
    try:
        yield node
    finally:
        await node.close()


async def fill_queues(node: Node, topic: str) -> None:
    """A message in each of as many queues as a topic may have."""
    await node.broker.put_topic(topic, TopicSettings(queues=QUEUES))
    items = [BatchItem(Message(b"x", sharding_key=None)) for _ in range(QUEUES)]
    await node.broker.send_batch(topic, items, spread=True)


async def test_the_first_checkpoint_of_many_queues(tmp_path: Path, turn_watch: TurnWatch) -> None:
    async with open_node(tmp_path) as node:
        await node._checkpoint()  # warm
        await fill_queues(node, "orders")
        before = node.store.undispatched_bytes
        assert before >= 20 * QUEUES
        with turn_watch.short_turns():
            await node._checkpoint()
        assert node.store.undispatched_bytes < before / 10


def fill_producers(table: ProducerTable, results: int) -> None:
    """As after so many sends of each producer; they share their results to save memory."""
    shared = deque((seq, Placed.in_one_queue(2, 10**9 + seq, 1)) for seq in range(results))
    for number in range(PRODUCERS):
        claim = ProducerClaim(f"producer-{number}:0", 10**12, 0)
        entry = table.entry(claim, "orders", -1, Placed.in_one_queue(0, 0, 1), 10**13)
        table.taken(entry)(True)
        sequence = table._producers[claim.producer_id].sequences["orders", -1]
        sequence.results, sequence.next_seq = shared, results


async def test_a_snapshot_of_many_producers(tmp_path: Path, turn_watch: TurnWatch) -> None:
    """Larger than what may wait to be written."""
    limits = Limits(batch_bytes_max=4 * MIB, pending_append_bytes_max=4 * MIB)
    async with open_node(tmp_path, limits) as node:
        table = node.broker.producers._table
        await node.broker.producers.journal.write_snapshot()  # warm
        fill_producers(table, limits.producer_results_max)
        written = node.store.status().written_end
        with turn_watch.short_turns():
            await node.broker.producers.journal.write_snapshot()
        assert node.store.status().written_end - written > 4 * limits.pending_append_bytes_max
        state = table.state("producer-7:0")
    async with open_node(tmp_path) as node:
        assert node.broker.producers.state("producer-7:0") == state
        assert node.broker.producers.state(f"producer-{PRODUCERS - 1}:0").epoch == 10**12
