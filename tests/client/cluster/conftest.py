"""A cluster for tests of clients."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster.three_nodes import ServedNode, three_nodes
from tests.support.metadata.databases import PostgresDatabases


@pytest.fixture
async def nodes(
    tmp_path: Path, postgres_databases: PostgresDatabases
) -> AsyncIterator[list[ServedNode]]:
    """Three nodes of three shards."""
    async with three_nodes(tmp_path, postgres_databases.migrated()) as opened:
        yield opened
