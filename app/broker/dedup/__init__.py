"""Stored once: idempotency keys, producer sequences, epochs."""
