"""Consumers with queues of their own, and lite pull."""
