"""State that survives kill -9: entries in the log, snapshots, and waiting for them."""
