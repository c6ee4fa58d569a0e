"""What an operator reads when PostgreSQL fails, in every way we could make it fail."""

import asyncio
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from app.cluster import CommittedOffset
from app.cluster.metadata.database import database
from app.domain.errors import MetadataUnavailable
from app.domain.positions import QueueOffset
from app.domain.settings import TopicSettings
from tests.support.metadata.databases import PostgresDatabases
from tests.support.metadata.metadata_failures import (
    LOCK_WAIT_MS,
    execute,
    failure_of_both,
    failure_of_opening,
    opened,
)
from tests.support.metadata.postgres import PASSWORD, PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


def shown(error: MetadataUnavailable) -> str:
    """All that may reach a log: the sentence, the hint and the whole chain of causes."""
    texts = f"{error.detail} {error.for_log} {error.hint} "
    return texts + "".join(traceback.format_exception(error))


async def test_a_server_that_is_not_there(own_postgres_server: PostgresServer) -> None:
    url = own_postgres_server.url("curlew")
    own_postgres_server.stop()
    for error in await failure_of_both(url):
        where = f"PostgreSQL at 127.0.0.1:{own_postgres_server.port}, database 'curlew'"
        assert error.detail == "the metadata database (PostgreSQL) cannot be reached"
        assert str(error.for_log).startswith(f"{where} cannot be reached: ")
        assert "Connection refused" in str(error.for_log)
        assert "\n" not in str(error.for_log)
        assert "host, port, user and password" in str(error.hint)
        assert isinstance(error.__cause__, SQLAlchemyError)
        assert PASSWORD not in shown(error)


async def test_a_server_that_stops_and_comes_back(own_postgres_server: PostgresServer) -> None:
    url = PostgresDatabases(own_postgres_server).migrated()
    async with opened(url) as metadata:
        before = (await metadata.ensure_topic("orders"), metadata.snapshot)
        own_postgres_server.stop()
        calls: list[Callable[[], object]] = [
            metadata.refresh,
            metadata.load_offsets,
            lambda: metadata.put_topic("b", TopicSettings()),
            lambda: metadata.secret("a"),
        ]
        for call in calls:
            with pytest.raises(MetadataUnavailable) as caught:
                await call()  # type: ignore[misc]
            assert caught.value.__cause__
            assert PASSWORD not in shown(caught.value)
        assert metadata.snapshot is before[1], "the data plane goes on with what it knows"
        own_postgres_server.start()
        assert not await metadata.refresh()
        assert (await metadata.put_topic("b", TopicSettings()))[1]


async def test_connections_that_the_server_closed_are_replaced(
    postgres_databases: PostgresDatabases,
) -> None:
    url = postgres_databases.migrated()
    async with opened(url) as metadata:
        await asyncio.gather(*(metadata.list_nodes() for _ in range(5)))
        execute(
            url,
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        await metadata.ensure_topic("orders")


async def test_only_a_connection_that_was_idle_for_long_is_asked_whether_it_is_there(
    postgres_databases: PostgresDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres_databases.migrated()) as metadata:
        dialect = metadata._database._writer.sync_engine.dialect
        asked: list[object] = []
        monkeypatch.setattr(dialect, "do_ping", asked.append)
        for _ in range(12):
            await metadata.list_nodes()
        assert asked == []
        monkeypatch.setattr(database, "ASKED_AFTER_IDLE_S", 0)
        await metadata.list_nodes()
        assert len(asked) == 1


async def test_a_wrong_password(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("postgres", password="wrong-but-secret")
    for error in await failure_of_both(url):
        assert "password authentication failed" in str(error.for_log)
        assert "wrong-but-secret" not in shown(error)


async def test_a_database_that_does_not_exist(postgres_server: PostgresServer) -> None:
    for error in await failure_of_both(postgres_server.url("nowhere")):
        assert 'database "nowhere" does not exist' in str(error.for_log)


async def test_a_lock_held_by_another_program(postgres_databases: PostgresDatabases) -> None:
    url = postgres_databases.migrated()
    async with opened(url, lock_wait_ms=LOCK_WAIT_MS) as metadata:
        with psycopg.connect(url) as holder:
            holder.execute("SELECT * FROM metadata_version FOR UPDATE")
            with pytest.raises(MetadataUnavailable, match="holds a lock for too long"):
                await metadata.ensure_topic("orders")
        await metadata.ensure_topic("orders")


async def test_a_statement_that_takes_too_long(postgres_databases: PostgresDatabases) -> None:
    url = postgres_databases.migrated()
    async with opened(url, statement_ms_max=500, lock_wait_ms=60_000) as metadata:
        with psycopg.connect(url) as holder:
            holder.execute("SELECT * FROM metadata_version FOR UPDATE")
            started = time.monotonic()
            with pytest.raises(MetadataUnavailable, match="took too long"):
                await metadata.ensure_topic("orders")
            assert time.monotonic() - started < 30


async def test_a_user_without_rights(postgres_databases: PostgresDatabases) -> None:
    url = postgres_databases.migrated()
    role = f"reader_{make_url(url).database}"
    execute(url, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    error = await failure_of_opening(
        make_url(url).set(username=role, password="x").render_as_string(hide_password=False)
    )
    assert "denies this user the right" in error.detail


async def test_options_of_the_url_are_kept(postgres_databases: PostgresDatabases) -> None:
    url = postgres_databases.migrated() + "?options=-c%20default_transaction_read_only%3Don"
    async with opened(url) as metadata:
        with pytest.raises(MetadataUnavailable, match="is read-only"):
            await metadata.ensure_topic("orders")


async def test_deleting_offsets_does_not_cross_a_commit(
    postgres_databases: PostgresDatabases,
) -> None:
    # Rows lie on disk in the reverse of the order in which a commit takes them. Both are made to
    # meet in the middle by a third who holds that row: each would then have what the other wants.
    url = postgres_databases.migrated()
    rows = [CommittedOffset("g", "a", queue_id, QueueOffset(1)) for queue_id in range(20)]
    async with opened(url) as metadata, opened(url) as other:
        await metadata.ensure_topic("a")
        await metadata.ensure_group("g")
        for row in reversed(rows):
            await metadata.commit_offsets([row])
        with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watcher:
            holder.execute("SELECT * FROM committed_offsets WHERE queue_id = 10 FOR UPDATE")
            newer = [replace(row, offset=QueueOffset(2)) for row in rows]
            commit = asyncio.ensure_future(metadata.commit_offsets(newer))
            await waiting_for_locks(watcher, 1)
            deletion = asyncio.ensure_future(other.delete_offsets("g", "a"))
            await waiting_for_locks(watcher, 2)
            holder.rollback()
        assert await commit == []
        await deletion
        assert await metadata.load_offsets() == []


async def waiting_for_locks(watcher: psycopg.Connection, count: int) -> None:
    """Give way to the loop until `count` connections wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + 30
    while watcher.execute(query).fetchone() != (count,):
        assert time.monotonic() < deadline
        await asyncio.sleep(0)
