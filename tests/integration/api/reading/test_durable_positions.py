"""Positions that a power loss does not take back, over a real socket from a real store."""

from pathlib import Path

import httpx
import pytest

from app.broker.results import BatchItem
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings
from tests.support.clients.wire import served_node
from tests.support.nodes.brokers import put_topic

pytestmark = pytest.mark.anyio


async def test_what_is_told_is_on_the_medium(tmp_path: Path) -> None:
    async with served_node(tmp_path, Limits()) as server:
        broker, store = server.node.broker, server.node.store
        await put_topic(broker, "orders", TopicSettings(queues=1, flush=FlushMode.ASYNC))
        url = f"http://127.0.0.1:{server.port}/v1/topics:positions?topics=orders"
        async with httpx.AsyncClient(timeout=60) as client:
            for sent in range(1, 4):
                await broker.sender.send_batch("orders", [BatchItem(Message(b"x"))])
                written = store.status().written_end
                told = await client.get(f"{url}&durability=flushed")
                assert told.json()["topics"][0]["queues"][0]["max_offset"] == sent
                assert store.status().flushed_end >= written
            refused = await client.get(f"{url}&durability=replicated")
            assert (refused.status_code, refused.json()["parameter"]) == (400, "durability")
