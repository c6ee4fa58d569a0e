"""How often a node syncs what nobody waits for is a setting."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.config import Config
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings
from app.node import Node
from app.node_parts import served_term
from app.runtime.service import Service
from tests.support.metadata.migrated_file import migrate_by_copy
from tests.support.nodes.brokers import put_topic

pytestmark = pytest.mark.anyio

Turn = Callable[[], Awaitable[None]]


@pytest.mark.parametrize(("setting", "seconds"), [({}, 0.5), ({"flush_interval_ms": 60_000}, 60.0)])
async def test_the_log_is_synced_as_often_as_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, int], seconds: float
) -> None:
    made: dict[str, tuple[float, Turn]] = {}

    class Noted(Service):
        def __init__(self, name: str, interval_s: float, turn: Turn) -> None:
            made[name] = interval_s, turn
            super().__init__(name, interval_s, turn)

    monkeypatch.setattr(served_term, "Service", Noted)
    config = Config(data_dir=tmp_path, **setting)  # type: ignore[arg-type]
    migrate_by_copy(config.database)
    opened = await Node.open(config)
    try:
        interval_s, turn = made["flush"]
        assert interval_s == seconds
        await put_topic(opened.broker, "orders", TopicSettings(queues=1, flush=FlushMode.ASYNC))
        await opened.broker.sender.send("orders", Message(b"a"))
        await turn()
        status = opened.store.status()
        assert status.flushed_end == status.written_end
    finally:
        await opened.close()
