"""Shards of several replicas in a simulated world: one seed, one history."""
