"""A new SQLite file with the newest schema, without a run of all migrations for each."""

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from app.cluster import Migrated, migrate
from app.cluster.metadata.database.address import DatabaseAddress

Migrate = Callable[[str], Migrated]


def migrate_by_copy(url: str) -> Migrated:
    """As `migrate`, with one template for all files of the process."""
    return _of_this_process()(url)


@cache
def _of_this_process() -> Migrate:
    return copying(migrate)


def copying(migrate: Migrate) -> Migrate:
    """As `migrate`, but a SQLite file that is not there becomes a copy of one that `migrate` made.

    Whatever is there, and each database of PostgreSQL, is left to `migrate`.
    """
    with tempfile.TemporaryDirectory() as directory:
        template = Path(directory) / "template.db"
        done = migrate(f"sqlite:///{template}")
        content = template.read_bytes()

    def copy_or_migrate(url: str) -> Migrated:
        address = DatabaseAddress.parse(url)
        if address.sqlite_file is not None and _is_made(address.sqlite_file, content):
            return Migrated(address.shown, done.before, done.after)
        return migrate(url)

    return copy_or_migrate


def _is_made(path: Path, content: bytes) -> bool:
    """Whether the file was not there, and is now, whole from its first moment."""
    if path.exists():
        return False
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        os.link(beside, path)
    except OSError:  # another process has made it, or there is no room or right
        return False
    finally:
        beside.unlink(missing_ok=True)
    return True
