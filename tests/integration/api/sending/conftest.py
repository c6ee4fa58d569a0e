"""A node in the test's event loop, for what is said over raw sockets."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.domain.limits import Limits
from tests.support.clients.wire import Served, served_node


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    """It makes topics by use."""
    async with served_node(tmp_path, Limits(), auto_create_topics=True) as served:
        yield served
