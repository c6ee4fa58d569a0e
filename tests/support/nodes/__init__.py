"""Nodes and brokers for tests, and waiting for them."""
