"""Consume queues: units and their sums."""
