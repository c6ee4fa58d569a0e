"""What the tests of failing metadata databases share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text

from app.cluster import ClusterConfig, Metadata, migrate
from app.domain.errors import MetadataUnavailable
from tests.support.metadata.databases import sync_engine
from tests.support.stores.clock import FakeClock

LOCK_WAIT_MS = 100


@asynccontextmanager
async def opened(
    url: str, *, lock_wait_ms: int = 5_000, connect_s_max: int = 5, statement_ms_max: int = 15_000
) -> AsyncIterator[Metadata]:
    config = ClusterConfig(
        url,
        lock_wait_ms=lock_wait_ms,
        connect_s_max=connect_s_max,
        statement_ms_max=statement_ms_max,
    )
    metadata = await Metadata.open(config, FakeClock())
    try:
        yield metadata
    finally:
        await metadata.close()


async def failure_of_opening(url: str) -> MetadataUnavailable:
    with pytest.raises(MetadataUnavailable) as caught:
        async with opened(url):
            pass
    return caught.value


def failure_of_migrating(url: str) -> MetadataUnavailable:
    with pytest.raises(MetadataUnavailable) as caught:
        migrate(url)
    return caught.value


async def failure_of_both(url: str) -> list[MetadataUnavailable]:
    return [await failure_of_opening(url), failure_of_migrating(url)]


def execute(url: str, statement: str) -> None:
    engine = sync_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()
