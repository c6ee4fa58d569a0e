"""Stores for tests: in memory, on a simulated disk, made by RocketMQ."""
