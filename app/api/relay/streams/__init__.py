"""Streams that other nodes answer, or all shards together."""
