"""A cluster of three shards, one node each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster.three_nodes import ServedNode, three_nodes
from tests.support.metadata.databases import PostgresDatabases


@pytest.fixture
def url(postgres_databases: PostgresDatabases) -> str:
    return postgres_databases.migrated()


@pytest.fixture
async def nodes(tmp_path: Path, url: str) -> AsyncIterator[list[ServedNode]]:
    async with three_nodes(tmp_path, url) as opened:
        yield opened
