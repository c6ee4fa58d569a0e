"""Stores that do not belong into a cluster: a copy of a node's data directory, an imported one."""

import asyncio
import shutil
from pathlib import Path

import pytest

from app.cli import main
from app.cluster import ForeignStore
from tests.support.cluster.three_nodes import start_node
from tests.support.stores.rocketmq_directory import golden_directory

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


async def test_a_copy_is_refused_until_the_node_has_stopped(tmp_path: Path, url: str) -> None:
    first = await start_node(tmp_path, url, "a")
    try:
        await first.client.put("/v1/topics/orders", json={"queues": 1})
        shutil.copytree(tmp_path / "a", tmp_path / "copy" / "a")
        with pytest.raises(ForeignStore, match="lease runs for"):
            await start_node(tmp_path / "copy", url, "a")
        sent = await first.client.post("/v1/topics/orders/messages", content=b"x")
        assert sent.status_code == 201, sent.text
    finally:
        await first.stop()
    moved = await start_node(tmp_path / "copy", url, "a")
    await moved.stop()


async def test_nothing_is_imported_into_the_database_of_a_cluster(
    tmp_path: Path,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The queues of the imported topics would be the cluster's, and its offsets forgotten."""
    monkeypatch.setenv("CURLEW_DATABASE_URL", url)
    source = golden_directory(tmp_path / "rocket", "store6")
    command = ["store", "import", "--data-dir", str(tmp_path / "imported"), str(source)]
    node = await start_node(tmp_path, url, "a")
    try:
        assert await asyncio.to_thread(main, command) == 2
        assert "curlew release-store --shard a" in capsys.readouterr().err
        await node.node.metadata.refresh()
        assert not node.node.metadata.snapshot.topics
    finally:
        await node.stop()
