"""Alembic's entry: runs the migrations in the transaction that `app.cluster.migrate` has open."""

from alembic import context

from app.cluster.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    # True for SQLite too, because our connections begin their transactions themselves.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
