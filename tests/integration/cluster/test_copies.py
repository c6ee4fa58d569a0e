"""A copy of a node's data directory, started beside it."""

import shutil
from pathlib import Path

import pytest

from app.cluster import ForeignStore
from tests.support.cluster.three_nodes import start_node

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


async def test_a_copy_is_refused_until_the_node_has_stopped(tmp_path: Path, url: str) -> None:
    first = await start_node(tmp_path, url, "a")
    try:
        await first.client.put("/v1/topics/orders", json={"queues": 1})
        shutil.copytree(tmp_path / "a", tmp_path / "copy" / "a")
        with pytest.raises(ForeignStore, match="sign of life"):
            await start_node(tmp_path / "copy", url, "a")
        sent = await first.client.post("/v1/topics/orders/messages", content=b"x")
        assert sent.status_code == 201, sent.text
    finally:
        await first.stop()
    moved = await start_node(tmp_path / "copy", url, "a")
    await moved.stop()
