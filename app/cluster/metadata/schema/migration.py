"""Bring the tables of a database to the schema of this program. Synchronous; for the CLI and for
the node before it opens (from a worker thread).

Everything happens in one transaction, on SQLite too, so a failed migration leaves nothing behind.
Nodes that start together take turns: on PostgreSQL by an advisory lock, on SQLite by its own.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from app.cluster.metadata.database.address import DatabaseAddress, Engine
from app.cluster.metadata.database.database import (
    POSTGRES_TEXT,
    prepare_sqlite,
    sqlite_arguments,
)
from app.cluster.metadata.database.failures import DatabaseFull, translated
from app.cluster.metadata.schema.schema import alembic_config, current_revision, newer_schema
from app.cluster.metadata.schema.tables import metadata

_LOCK_WAIT_MS: Final = 60_000
"""Longest wait for another node's migration."""

_ADVISORY_LOCK: Final = 0x_43_75_72_6C_65_77
"""Key of the advisory lock: "Curlew" in ASCII. Any number does that nobody else uses."""

_ONE_AT_A_TIME: Final = threading.Lock()
"""Alembic keeps its context in module globals, so one process migrates one database at a time."""


class Migrated(NamedTuple):
    """What a migration did. The revisions are those of the schema; None: no tables at all."""

    database: str
    """As it may be shown to anyone."""
    before: str | None
    after: str | None


def migrate(url: str) -> Migrated:
    """Upgrade the database to the newest schema; nothing happens when it is there already.

    Raises `MetadataUnavailable`: database not reachable, damaged, locked for too long, or newer
    than this program.
    """
    return _run(url, lambda config: command.upgrade(config, "head"))


def migrate_new(url: str) -> None:
    """Make the tables of a SQLite file that is not there or has none; waits for another process
    that is making them. Any other database is left as it is. Raises as `migrate` does."""
    address = DatabaseAddress.parse(url)
    if address.engine is not Engine.SQLITE:
        return
    with translated(address), _connect(address) as connection:
        is_new = not connection.scalar(text("SELECT count(*) FROM sqlite_master"))
    if is_new:
        migrate(url)


def downgrade(url: str, revision: str) -> None:
    """Go back to an older schema ("base": none at all). Data that it has no place for is lost."""
    _run(url, lambda config: command.downgrade(config, revision))


def _run(url: str, step: Callable[[Config], None]) -> Migrated:
    address = DatabaseAddress.parse(url)
    try:
        return _run_at(address, step)
    except DatabaseFull:  # what has the newest schema already needs no room
        return _run_at(address.alone(), step)


def _run_at(address: DatabaseAddress, step: Callable[[Config], None]) -> Migrated:
    config = alembic_config()
    with _ONE_AT_A_TIME, translated(address), _connect(address) as connection:
        if address.engine is Engine.POSTGRESQL:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
        before = _refuse_newer(connection, config, address)
        config.attributes["connection"] = connection
        config.attributes["tables"] = metadata  # for the names of constraints
        step(config)
        if address.engine is Engine.SQLITE:
            _check_references(connection)
        return Migrated(address.shown, before, current_revision(connection))


@contextmanager
def _connect(address: DatabaseAddress) -> Iterator[Connection]:
    """A connection in a transaction, which is committed unless the block fails."""
    if address.engine is Engine.SQLITE:
        arguments = sqlite_arguments(_LOCK_WAIT_MS)
        engine = create_engine(address.sync_url, connect_args=arguments, hide_parameters=True)
        # Alembic changes a SQLite table by making a new one; with foreign keys on, dropping the
        # old one would delete the rows that refer to it.
        prepare_sqlite(engine, begin="BEGIN IMMEDIATE", foreign_keys=False)
    else:
        options = f"-c lock_timeout={_LOCK_WAIT_MS}"
        arguments = {**POSTGRES_TEXT, "connect_timeout": 5, "options": options}
        engine = create_engine(address.sync_url, connect_args=arguments, hide_parameters=True)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _refuse_newer(connection: Connection, config: Config, address: DatabaseAddress) -> str | None:
    """The revision of the database; raises for one that this program has never heard of."""
    revision = current_revision(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise newer_schema(revision, address)
    return revision


def _check_references(connection: Connection) -> None:
    """What `foreign_keys = OFF` left unchecked. A violation is a mistake in a migration."""
    violations = connection.execute(text("PRAGMA foreign_key_check")).all()
    assert not violations, f"the migration left dangling references: {violations[:3]}"
