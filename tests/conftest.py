"""Fixtures of all tests. Their code is in `tests.support`."""

import pytest
from hypothesis import HealthCheck, settings

from tests.support.loop_turns import turn_watch
from tests.support.metadata.databases import databases, postgres_databases, sqlite_databases
from tests.support.metadata.postgres import own_postgres_server, postgres_server
from tests.support.nodes.java import start_java_quickly

__all__ = [
    "databases",
    "own_postgres_server",
    "postgres_databases",
    "postgres_server",
    "sqlite_databases",
    "turn_watch",
]

settings.register_profile("curlew", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("curlew")  # no test may depend on how fast the machine is

start_java_quickly()


@pytest.fixture
def anyio_backend() -> str:
    """Async tests (`pytest.mark.anyio`) run on asyncio only: Curlew knows no other loop."""
    return "asyncio"
