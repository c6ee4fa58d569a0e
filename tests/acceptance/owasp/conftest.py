"""What is attacked: closed, with TLS, and with the teams alpha, beta and gamma."""

import os
from collections.abc import AsyncIterator

import pytest

from app.runtime.private_files import keep_new_files_private
from tests.support.cluster.closed_cluster import ClosedCluster, closed_cluster, closed_node
from tests.support.metadata.databases import PostgresDatabases


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(
    scope="module",
    params=["node", pytest.param("cluster", marks=pytest.mark.postgres)],
)
async def target(
    request: pytest.FixtureRequest,
    postgres_databases: PostgresDatabases,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[ClosedCluster]:
    """A node or a cluster, with the `SETTINGS` of the module. New files are private from the start,
    as in a process of the program."""
    directory = tmp_path_factory.mktemp("owasp")
    before = os.umask(0)
    keep_new_files_private()
    settings = getattr(request.module, "SETTINGS", {})
    try:
        if request.param == "node":
            async with closed_node(directory, **settings) as made:
                yield made
        else:
            url = postgres_databases.migrated()
            async with closed_cluster(directory, url, **settings) as made:
                yield made
    finally:
        os.umask(before)
