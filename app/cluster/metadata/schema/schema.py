"""Which schema a database has, and whether this program can work with it."""

from pathlib import Path

from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

import migrations
from app.cluster.metadata.database.address import DatabaseAddress, Engine
from app.cluster.metadata.database.failures import MIGRATE_HINT, damaged
from app.domain.errors import MetadataUnavailable


class SchemaMismatch(MetadataUnavailable):
    """The database cannot be used as it is; somebody has to act."""

    title = "The metadata database is not ready for this version"
    retryable = False


def alembic_config() -> Config:
    """Alembic's settings, without a file: an installed wheel has none."""
    assert migrations.__file__
    config = Config()
    config.set_main_option(
        "script_location", str(Path(migrations.__file__).parent).replace("%", "%%")
    )
    return config


def check_file(address: DatabaseAddress) -> None:
    """Raise `SchemaMismatch` when there is no SQLite file: opening would make an empty one."""
    file = address.sqlite_file
    if file is not None and not file.exists():
        raise SchemaMismatch(f"{address.shown} does not exist", hint=MIGRATE_HINT)


async def check_schema(connection: AsyncConnection, address: DatabaseAddress) -> None:
    """Raise `SchemaMismatch` unless the database has exactly the schema of this program."""
    if address.engine is Engine.SQLITE:
        await _check_pages(connection, address)
    check_revision(await connection.run_sync(current_revision), address)


def current_revision(connection: Connection) -> str | None:
    """The revision of the database; None when it was never migrated."""
    return MigrationContext.configure(connection).get_current_revision()


def check_revision(revision: str | None, address: DatabaseAddress) -> None:
    """Tell apart: never migrated, older, newer, and right."""
    scripts = ScriptDirectory.from_config(alembic_config())
    if revision == scripts.get_current_head():
        return
    if revision is None:
        raise SchemaMismatch(f"{address.shown} has no tables of Curlew", hint=MIGRATE_HINT)
    if revision in {script.revision for script in scripts.walk_revisions()}:
        raise SchemaMismatch(
            f"{address.shown} has schema {revision}, which is older than this program's "
            f"{scripts.get_current_head()}",
            hint=MIGRATE_HINT,
        )
    raise newer_schema(revision, address)


def newer_schema(revision: str, address: DatabaseAddress) -> SchemaMismatch:
    """The error for a schema that this program has never heard of."""
    return SchemaMismatch(
        f"{address.shown} has schema {revision}, which this program does not know",
        hint="a newer version of Curlew migrated it; upgrade this node",
    )


async def _check_pages(connection: AsyncConnection, address: DatabaseAddress) -> None:
    """Find a damaged file now and not at the first change. Metadata is small: milliseconds."""
    verdict = await connection.scalar(text("PRAGMA quick_check(1)"))
    if verdict != "ok":
        raise damaged(address, str(verdict))
