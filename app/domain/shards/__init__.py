"""Shards: which queue is in which, and what a node knows of the others. Pure."""
