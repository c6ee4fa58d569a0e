"""Metadata for tests: in memory, SQLite, PostgreSQL, and their failures."""
