"""Nodes, the store that a database belongs to, and what all nodes share: secrets and settings."""
