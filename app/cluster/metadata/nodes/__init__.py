"""Nodes, the shards that they lead, and what all nodes share: secrets and settings."""
