"""What becomes of messages that were not consumed: retries, dead letters, blocked keys."""
