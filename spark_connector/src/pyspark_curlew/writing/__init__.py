"""Writing: rows to requests, each stored once."""
