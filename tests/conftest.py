"""Fixtures of all tests. Their code is in `tests.support`."""

import pytest

from tests.support.databases import databases, postgres_databases, sqlite_databases
from tests.support.postgres import own_postgres_server, postgres_server

__all__ = [
    "databases",
    "own_postgres_server",
    "postgres_databases",
    "postgres_server",
    "sqlite_databases",
]


@pytest.fixture
def anyio_backend() -> str:
    """Async tests (`pytest.mark.anyio`) run on asyncio only: Curlew knows no other loop."""
    return "asyncio"
