"""Fixtures of all tests. Their code is in `tests.support`."""

from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from app.store.fs.files import DiskUsage, OsFile, OsFiles
from tests.support.clients.authorities import read_authorities_once
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

SPARSE_BYTES: Final = 256 << 20

settings.register_profile("curlew", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("curlew")  # no test may depend on how fast the machine is

start_java_quickly()
read_authorities_once()


@pytest.fixture(scope="session", autouse=True)
def _roomy_disk() -> Iterator[None]:
    """A store in the tests' own process finds a tenth of its disk used, however full the disk is.

    A store deletes old segments and refuses writes by this figure, so that tests of retention would
    fail on a machine whose disk is 85 % full.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OsFiles, "disk_usage", lambda self: DiskUsage(total=100 << 30, free=90 << 30))
        yield


@pytest.fixture(scope="session", autouse=True)
def _sparse_logs() -> Iterator[None]:
    """A segment of the default size takes no disk before it is written, in the tests' own process.

    Directories of nodes live as long as their module's fixtures: at half a GiB of preallocated log
    for each, a run had many GiB at once. Tests of kills start
    processes, whose segments are real.
    """
    allocate = OsFile.allocate

    def sparse(file: OsFile, size: int) -> None:
        if size < SPARSE_BYTES:
            allocate(file, size)
        else:
            file.truncate(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OsFile, "allocate", sparse)
        yield


@pytest.fixture
def anyio_backend() -> str:
    """Async tests (`pytest.mark.anyio`) run on asyncio only: Curlew knows no other loop."""
    return "asyncio"
