"""A node forgets what its topics no longer keep, and says so to whoever asks for it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from app.broker.journal.cold_reads import ColdReads
from app.config import Config
from app.domain.limits import MIB
from app.domain.message import Message
from app.domain.settings import TopicSettings
from app.node import Node
from app.store import RetentionPolicy
from app.store.lifecycle.retention_run import RetentionReport
from tests.support.metadata.migrated_file import migrate_by_copy
from tests.support.nodes.brokers import put_topic
from tests.support.nodes.waiting import until
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

MINUTE_MS = 60_000


async def test_each_topic_keeps_its_messages_as_long_as_it_says(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, segment_mib=5)
    clock = FakeClock()
    migrate_by_copy(config.database)
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


Use = Callable[[Node, Callable[[], None]], Coroutine[object, object, None]]


async def by_retention(node: Node, hold: Callable[[], None]) -> None:
    def apply(policy: RetentionPolicy) -> RetentionReport:
        hold()
        return RetentionReport()

    node.store.apply_retention = apply  # type: ignore[method-assign]
    await node.leading.apply_retention()


async def by_a_read(node: Node, hold: Callable[[], None]) -> None:
    await ColdReads(node.broker._readers).hop(lambda _wait: hold())


@pytest.mark.parametrize("use", [by_retention, by_a_read])
async def test_a_term_ends_behind_what_works_on_its_files(tmp_path: Path, use: Use) -> None:
    """Also where nobody waits for it any more: the next opening writes the same files."""
    config = Config(data_dir=tmp_path)
    migrate_by_copy(config.database)
    node = await Node.open(config)
    has_begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        has_begun.set()
        may_end.wait()

    try:
        using = asyncio.ensure_future(use(node, hold))
        await asyncio.to_thread(has_begun.wait)
        using.cancel()
        readers = node.broker._readers
        ending = asyncio.ensure_future(node.end_term())
        await until(lambda: readers._shutdown)  # type: ignore[attr-defined]  # the broker's last
        for _ in range(20):
            await asyncio.sleep(0)
        assert not ending.done()
        may_end.set()
        await ending
    finally:
        may_end.set()
        await node.close()
