"""Two nodes on one metadata database, SQLite and PostgreSQL in turn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.cluster import ClusterConfig, Metadata
from app.domain.limits import Limits
from tests.support.metadata.databases import Databases
from tests.support.metadata.metadata import OpenNode
from tests.support.stores.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_node(databases: Databases, clock: FakeClock) -> OpenNode:
    """Opens the same database again, as another node or after a restart."""
    url = databases.migrated()

    @asynccontextmanager
    async def opened(limits: Limits | None = None) -> AsyncIterator[Metadata]:
        metadata = await Metadata.open(ClusterConfig(url), clock, limits)
        try:
            yield metadata
        finally:
            await metadata.close()

    return opened


@pytest.fixture
async def metadata(open_node: OpenNode) -> AsyncIterator[Metadata]:
    async with open_node() as opened:
        yield opened


@pytest.fixture
async def other(open_node: OpenNode, metadata: Metadata) -> AsyncIterator[Metadata]:
    """A second node on the database of `metadata`."""
    async with open_node() as opened:
        yield opened
