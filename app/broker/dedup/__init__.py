"""Stored once: idempotency keys, producer sequences, epochs.

`deduplicator` sends under a claim, `dedup_table` says what is new, `dedup_journal` keeps it in the
log, `producers` closes epochs.
"""
