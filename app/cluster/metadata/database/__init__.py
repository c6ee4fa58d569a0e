"""The connection to SQLite or PostgreSQL and its failures."""
