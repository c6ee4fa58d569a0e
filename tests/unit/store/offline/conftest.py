"""A small closed store with two queues and keys, to be damaged."""

from pathlib import Path

import pytest

from app.domain.message import Message
from app.store import OsFiles, StoreConfig
from tests.support.stores.stores import open_store

MESSAGES = 60
SMALL = StoreConfig(
    segment_bytes=4096,
    queue_file_units=16,
    record_bytes_max=2048,
    index_slots=100,
    index_entries=1000,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Messages 0, 2, 4 … in orders/0, the others in orders/1; several segments."""
    root = tmp_path / "store"
    root.mkdir()
    opened = open_store(OsFiles(root), SMALL)
    for number in range(MESSAGES):
        body = f"body {number:03}".encode().ljust(60, b".")
        message = Message(body, tag=f"t{number % 3}", keys=(f"key{number}",))
        opened.append_all([message], queue_id=number % 2)
        opened.settle(number + 1)
    opened.store.close()
    return root
