"""`INSERT … ON CONFLICT` in both dialects: they share the syntax but not SQLAlchemy's class."""

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


def upsert(connection: AsyncConnection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insert that has `on_conflict_do_update` and `on_conflict_do_nothing`."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)
