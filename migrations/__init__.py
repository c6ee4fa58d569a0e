"""Migrations of the metadata database. `app.cluster.metadata.schema.migration` runs them.

There is no alembic.ini. A new one is written by hand as `versions/NNNN_what.py`, numbered in
order; it must work on SQLite (through alembic's batch mode) and PostgreSQL. A test compares the
result with `app.cluster.metadata.schema.tables`.
"""
