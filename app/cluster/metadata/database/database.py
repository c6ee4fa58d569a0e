"""The connection to the metadata database: engine, transactions, and nothing about tables.

`transaction()` is for changes and `reading()` for a consistent look at several tables. On SQLite a
change begins with `BEGIN IMMEDIATE`: a deferred one could fail half way, when it first writes. On
PostgreSQL changes are serialised by the row that `versions.lock` takes. Whatever a driver throws
leaves both as `MetadataUnavailable`. Event loop only.
"""

import select
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine as SyncEngine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from typing_extensions import override

from app.cluster.metadata.database.address import DatabaseAddress, Engine
from app.cluster.metadata.database.config import ClusterConfig
from app.cluster.metadata.database.failures import translated

POSTGRES_TEXT: Final = {"client_encoding": "utf8"}
"""Driver arguments. Without, the driver speaks the encoding of the database, and gives bytes in
place of text where that is SQL_ASCII: what PostgreSQL chooses under the locale C."""
ASKED_AFTER_IDLE_S: Final = 30.0
"""A connection that nobody used for so long is asked whether the server is there: something between
may have forgotten it without a word."""
_USED_S: Final = "used_s"


class Database:
    """An open database. Close it, or its connections outlive the loop."""

    def __init__(self, config: ClusterConfig, *, is_alone: bool = False) -> None:
        address = DatabaseAddress.parse(config.url)
        self.address = address.alone() if is_alone else address
        if self.address.engine is Engine.SQLITE:
            self._writer, self._reader = _sqlite_engines(self.address, config)
            self._asked = self._reader
        else:
            self._writer, self._reader = _postgres_engines(self.address, config)
            self._asked = self._writer.execution_options(isolation_level="AUTOCOMMIT")

    async def close(self) -> None:
        await self._writer.dispose()
        await self._reader.dispose()

    @asynccontextmanager
    async def transaction(self, *, is_dry_run: bool = False) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes: committed at the end of the block, undone on any error.

        A dry run is undone in any case: it meets whatever the real one would.
        """
        with translated(self.address):
            async with self._writer.connect() as connection, connection.begin() as transaction:
                yield connection
                if is_dry_run:
                    await transaction.rollback()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads, all of it from the same moment."""
        with translated(self.address):
            async with self._reader.begin() as connection:
                yield connection

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[AsyncConnection]:
        """For one statement, which is a transaction by itself: PostgreSQL is told of nothing else.
        On SQLite it only reads."""
        with translated(self.address):
            async with self._asked.connect() as connection:
                yield connection


def _sqlite_engines(
    address: DatabaseAddress, config: ClusterConfig
) -> tuple[AsyncEngine, AsyncEngine]:
    """One connection that writes, because SQLite has one writer: waiting for the pool is fair and
    bounded, waiting in SQLite's busy handler is neither. Several that read."""
    engines = [
        create_async_engine(
            address.async_url,
            connect_args=sqlite_arguments(config.lock_wait_ms),
            pool_size=size,
            max_overflow=0,
            pool_timeout=config.connect_s_max,
            hide_parameters=True,
        )
        for size in (1, config.connections_max)
    ]
    writer, reader = engines
    prepare_sqlite(writer.sync_engine, begin="BEGIN IMMEDIATE")
    prepare_sqlite(reader.sync_engine, begin="BEGIN")
    return writer, reader


def _postgres_engines(
    address: DatabaseAddress, config: ClusterConfig
) -> tuple[AsyncEngine, AsyncEngine]:
    """One pool, with two kinds of transactions."""
    engine = create_async_engine(
        address.async_url,
        connect_args=_postgres_arguments(address, config),
        pool_size=config.connections_max,
        max_overflow=0,
        pool_timeout=config.connect_s_max,
        hide_parameters=True,
    )
    _ask_those_that_may_be_closed(engine.sync_engine)
    reader = engine.execution_options(isolation_level="REPEATABLE READ")
    return engine, reader


def _ask_those_that_may_be_closed(engine: SyncEngine) -> None:
    """A restarted server must not cost one failed request for each pooled connection. What it has
    closed can be read from, so only such a connection, and one that was idle for long, is asked
    whether it is there: SQLAlchemy's `pool_pre_ping` would double the statements of an idle node.
    """

    @event.listens_for(engine, "checkin")
    def note_use(_connection: object, entry: ConnectionPoolEntry) -> None:
        entry.info[_USED_S] = monotonic()

    @event.listens_for(engine, "checkout")
    def ask(connection: DBAPIConnection, entry: ConnectionPoolEntry, _proxy: object) -> None:
        used_s = entry.info.get(_USED_S)
        if used_s is None:  # it is new
            return
        try:
            if monotonic() - used_s < ASKED_AFTER_IDLE_S and not _has_news(entry):
                return
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error


def _has_news(entry: ConnectionPoolEntry) -> bool:
    """Whether the server has said something while nobody asked, or closed the connection. Raises
    the driver's `OperationalError` for a connection that libpq has given up."""
    poll = select.poll()
    poll.register(entry.driver_connection.fileno(), select.POLLIN)  # type: ignore[union-attr]
    return bool(poll.poll(0))


def sqlite_arguments(lock_wait_ms: int) -> dict[str, Any]:
    """Driver arguments. `isolation_level=None` leaves BEGIN to `prepare_sqlite`."""
    return {
        "timeout": lock_wait_ms / 1_000,
        "isolation_level": None,
        "factory": SqliteConnection,
    }


class SqliteConnection(sqlite3.Connection):
    """A connection that leaves no lock behind when it is closed.

    SQLite keeps a closed connection, with its transaction, until its last statement is gone
    (sqlite.org/c3ref/close.html). The statement of a change that was cancelled is held by the
    error's traceback, so the lock stayed until the next garbage collection.
    """

    @override
    def close(self) -> None:
        """Undo what is open, then close. May be called again."""
        try:
            with suppress(sqlite3.ProgrammingError):  # it is closed already
                self.rollback()
        finally:
            super().close()


def prepare_sqlite(engine: SyncEngine, *, begin: str, foreign_keys: bool = True) -> None:
    """Set up every new connection, and begin transactions explicitly (SQLAlchemy's recipe)."""

    @event.listens_for(engine, "connect")
    def set_pragmas(dbapi_connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        cursor = dbapi_connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        # An acknowledged change survives power loss; NORMAL would only promise consistency.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin_explicitly(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _postgres_arguments(address: DatabaseAddress, config: ClusterConfig) -> dict[str, Any]:
    given = address.url.query.get("options")
    options = [
        *([given] if isinstance(given, str) else []),
        f"-c lock_timeout={config.lock_wait_ms}",
        f"-c statement_timeout={config.statement_ms_max}",
        f"-c idle_in_transaction_session_timeout={config.idle_ms_max}",
    ]
    return {
        **POSTGRES_TEXT,
        "application_name": "curlew",
        "connect_timeout": config.connect_s_max,
        # A server that lost power sends nothing: notice it within half a minute.
        "tcp_user_timeout": 10_000,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "options": " ".join(options),
    }
