"""Alembic's entry: runs the migrations in a transaction that is open.

Imports nothing of the server: what it needs is handed over in the configuration's attributes.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes["tables"],
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
