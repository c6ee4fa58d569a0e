"""Generations of topics, kept in the log: where each begins in its queues."""
