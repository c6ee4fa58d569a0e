"""Alembic's entry: runs the migrations in the transaction that `app.cluster.migration` has open."""

from alembic import context

from app.cluster.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
