"""A node lets go of the log's older pages as it was told."""

from pathlib import Path

import pytest

from app.config import Config
from app.domain.limits import MIB
from app.domain.message import Message
from app.domain.settings import TopicSettings
from app.node import Node
from app.store.log.commit_log import CommitLog
from app.store.log.page_cache_limit import STEP_BYTES
from tests.support.metadata.migrated_file import migrate_by_copy
from tests.support.nodes.brokers import put_topic

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("mib", "gone"), [(64, [(0, STEP_BYTES)]), (0, [])])
async def test_a_node_keeps_what_was_set(
    mib: int, gone: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(CommitLog, "let_go", lambda _log, start, end: found.append((start, end)))
    config = Config(data_dir=tmp_path, log_cache_mib=mib)
    migrate_by_copy(config.database)
    node = await Node.open(config)
    try:
        await put_topic(node.broker, "orders", TopicSettings(queues=1))
        for _ in range(85):
            await node.broker.sender.send("orders", Message(bytes(MIB)))
    finally:
        await node.close()
    assert found == gone
