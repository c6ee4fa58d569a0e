"""A node forgets what its topics no longer keep, and says so to whoever asks for it."""

from pathlib import Path

import pytest

from app.cluster import migrate
from app.config import Config
from app.domain.limits import MIB
from app.domain.message import Message
from app.domain.settings import TopicSettings
from app.node import Node
from tests.support.nodes.brokers import put_topic
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

MINUTE_MS = 60_000


async def test_each_topic_keeps_its_messages_as_long_as_it_says(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, segment_mib=5)
    clock = FakeClock()
    migrate(config.database)
    node = await Node.open(config, clock=clock)
    try:
        await put_topic(node.broker, "short", TopicSettings(queues=1, retention_ms=MINUTE_MS))
        await put_topic(node.broker, "long", TopicSettings(queues=1, retention_ms=9 * MINUTE_MS))
        for _ in range(8):
            for topic in ("short", "long"):
                await node.broker.sender.send(topic, Message(bytes(MIB)))
        segments = node.store.status().segments
        clock.advance(s=120)
        await node.broker.delays.turn()  # until it has looked what waits, everything is held
        await node.leading.apply_retention()
        assert node.store.bounds("short", 0) == (8, 8)
        assert node.store.bounds("long", 0) == (0, 8)
        clock.advance(s=480)
        await node.leading.apply_retention()
        assert node.store.bounds("long", 0).min_offset == 8
        assert node.store.status().segments < segments
        sent = await node.broker.sender.send("short", Message(b"still works"))
        assert sent.queue_offset == 8
    finally:
        await node.close()
    again = await Node.open(config, clock=clock)
    try:
        assert again.store.bounds("short", 0) == (8, 9)
        assert again.store.bounds("long", 0) == (8, 8)
    finally:
        await again.close()
